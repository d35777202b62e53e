"""What claim 6 asks, and what is run."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claim import Claim, Question, above, inside
from experiments.claims.domains.measure import PRICED
from experiments.settings import Setting

__all__ = ["CLAIM", "QUICK", "SETTINGS", "SPECIALISTS"]

SPECIALISTS = "truncated specialists"  # a domain each, all seven
POOLS = (SPECIALISTS, "head specialists", "retrieval specialists", "all")
TRACES = ("t06", "greedy", "t10")
CLOSE = 0.05  # tokens a round that make no difference

CLAIM = Claim(
    sentence="HedgeSpec (NormalHedge on full information) commits more tokens a round than published bandits and a "
    "generalist that saw as many tokens, in every domain, and than each single specialist over all of them.",
    source="Not-a-Bandit, arXiv 2510.20064, Tables 1 to 3",
    questions={
        "faster": Question(
            "In every domain and over all, NormalHedge on seven specialists commits more tokens a round than UCBSpec, "
            "EXP3Spec and a generalist that saw as many tokens, and over all more than each specialist alone.",
            above(0.0),
            "MAT",
            comparisons=31,
        ),
        "bandits_elsewhere": Question(
            "Over all domains, NormalHedge is above each bandit as published, MetaSD-UCB, the released code of "
            "BanditSpec and Thompson sampling included, at every temperature, with specialists of three kinds and with "
            "all drafters.",
            above(0.0),
            "MAT",
            comparisons=60,
        ),
        "matched_generalist": Question(
            "In every domain NormalHedge on seven specialists is above the generalist that saw as many tokens as each.",
            above(0.0),
            "MAT",
            comparisons=8,
        ),
        "strong_generalist": Question(
            "In every domain it is above the generalist that saw as many tokens as all of them together.",
            above(0.0),
            "MAT",
            comparisons=8,
        ),
        "single_specialist": Question(
            "Over a mixed stream NormalHedge on seven specialists is above the one of them that is best on other "
            "prompts, started afresh with each text or carried on.",
            above(0.0),
            "MAT",
            comparisons=6,
        ),
        "home_specialist": Question(
            "Not knowing the domain costs NormalHedge at most 5% of the home specialist's MAT, in every domain.",
            above(-0.05),
            "MAT / MAT - 1",
            comparisons=8,
        ),
        "follow_the_leader": Question(
            f"Follow-the-leader, with the same full information, comes within {CLOSE} tokens a round of NormalHedge.",
            inside(-CLOSE, CLOSE),
            "MAT",
            comparisons=6,
        ),
        "tuned_bandits": Question(
            f"Well-tuned bandits come within {CLOSE} tokens a round of NormalHedge.",
            above(-CLOSE),
            "MAT",
            comparisons=4,
        ),
        "seconds": Question(
            "With every drafter scored in every round, NormalHedge makes more tokens a second than plain decoding and "
            "than the fastest single drafter of its pool.",
            above(1.0),
            "ratio of tokens/s",
            comparisons=6,
        ),
    },
)

SETTINGS: Sequence[Setting] = [
    *({"trace": trace, "pool": pool, "k": 5, "replicates": 8} for trace in TRACES for pool in POOLS),
    {"trace": "t06", "pool": PRICED, "k": 5, "replicates": 8},
]
QUICK: Sequence[Setting] = [
    *({"trace": "t06", "pool": pool, "k": 5, "replicates": 2, "prompts": 4} for pool in (SPECIALISTS, "all")),
    {"trace": "greedy", "pool": SPECIALISTS, "k": 5, "replicates": 2, "prompts": 4},
    {"trace": "t06", "pool": "retrieval specialists", "k": 5, "replicates": 2, "prompts": 4},
]
