"""The claims, one module each, in the order in which they are shown."""

NAMES: tuple[str, ...] = ("acceptance", "length", "no_regret", "delay", "domains", "out_of_distribution")
