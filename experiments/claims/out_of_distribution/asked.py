"""What claim 8 asks, and what is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.claim import Claim, Question, above, below, inside
from experiments.claims.out_of_distribution.splices import SWITCHES
from experiments.settings import Setting
from hedgelab.routing import BY

__all__ = ["CLAIM", "POOLS", "QUICK", "SETTINGS", "SPECIALISTS"]

SPECIALISTS, WITH_GENERALISTS = "truncated specialists", "truncated specialists, generalists"
POOLS = (SPECIALISTS, WITH_GENERALISTS, "all")
TRACES = ("t06", "greedy")
CLOSE = 0.05  # tokens a round that make no difference

CLAIM = Claim(
    sentence="Out of distribution a router misroutes nine prompts in ten, and the online learner is faster.",
    source="Not-a-Bandit, arXiv 2510.20064, section on prompt variants",
    questions={
        "out_of_domain": Question(
            "With a domain left out of its training, a router among seven specialists misroutes more than 90% of the "
            "prompts, and NormalHedge's MAT is above the router's.",
            above(0.0),
            "share - 0.9, MAT",
            comparisons=4,
        ),
        "ratio": Question(
            "In some domain left out NormalHedge's MAT is at least 2.34 times the router's.",
            above(2.34),
            "MAT / MAT",
            comparisons=2,
        ),
        "reachable": Question(
            "Misrouting is no matter of drafters that the router never saw win: of those that it did, too, it sends "
            "more than 90% of the prompts of a domain left out to another than the best.",
            above(0.9),
            "share of texts",
            comparisons=2,
        ),
        "in_distribution": Question(
            f"With domains that it knows, the router is within {CLOSE} tokens a round of NormalHedge.",
            inside(-CLOSE, CLOSE),
            "MAT",
            comparisons=2,
        ),
        "generalists": Question(
            "With generalists to choose from NormalHedge is above the router out of distribution, too.",
            above(0.0),
            "MAT",
            comparisons=4,
        ),
        "frozen": Question(
            "Where the domain changes in the middle of a text, NormalHedge is above a router that knew the first "
            "domain.",
            above(0.0),
            "MAT",
            comparisons=4,
        ),
        "fixed_share": Question(
            "Where the domain changes, in spliced texts and in streams, Fixed-Share is above NormalHedge and Hedge.",
            above(0.0),
            "MAT",
            comparisons=20,
        ),
        "tracking_bound": Question(
            f"In spliced texts Fixed-Share's tracking regret stays below its bound, for 0 to {SWITCHES} switches.",
            below(1.0),
            "largest regret / bound",
            comparisons=4,
        ),
        "carried": Question(
            "Carrying NormalHedge's state through a stream whose domain changes costs tokens a round, however long the "
            "blocks.",
            below(0.0),
            "MAT",
            comparisons=6,
        ),
    },
)

_BASE: dict[str, Any] = {"k": 5, "replicates": 8}
SETTINGS: Sequence[Setting] = [
    *(
        {"what": "routes", "trace": trace, "pool": pool, "by": by, **_BASE}
        for trace in TRACES
        for pool in POOLS
        for by in BY
    ),
    *(
        {"what": "splices", "trace": trace, "pool": SPECIALISTS, "pieces": pieces, **_BASE}
        for trace in TRACES
        for pieces in (2, 5)
    ),
    *(
        {"what": "streams", "trace": trace, "pool": SPECIALISTS, "block": block, **_BASE}
        for trace in TRACES
        for block in (1, 5, 20)
    ),
]
_SMALL: dict[str, Any] = {"k": 5, "replicates": 2, "prompts": 6}
QUICK: Sequence[Setting] = [
    *(
        {"what": "routes", "trace": trace, "pool": pool, "by": by, **_SMALL}
        for trace, pool in (("t06", SPECIALISTS), ("t06", WITH_GENERALISTS), ("greedy", SPECIALISTS))
        for by in BY
    ),
    *({"what": "splices", "trace": "t06", "pool": SPECIALISTS, "pieces": pieces, **_SMALL} for pieces in (2, 5)),
    {"what": "streams", "trace": "t06", "pool": SPECIALISTS, "block": 2, **_SMALL},
]
