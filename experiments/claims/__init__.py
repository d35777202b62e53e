"""The claims, one module each, in the order in which they are shown."""

NAMES: tuple[str, ...] = (
    "acceptance",
    "length",
    "no_regret",
    "scaling",
    "delay",
    "domains",
    "pool_size",
    "out_of_distribution",
)
