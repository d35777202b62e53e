"""The claims in the order in which they are shown, one package each.

`asked.py` has the questions, their rules and the settings, `measure.py` what a setting gives, `judge.py` what follows
from that. Results depend on `measure.py` and what it imports, so that judging anew needs no new run.
"""

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
