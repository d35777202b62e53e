"""Claim 2: what is asked, and what is run."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claim import Claim, Question, below, exactly, inside
from experiments.settings import Setting

__all__ = ["CLAIM", "LARGE", "QUICK", "SETTINGS", "TOLERANCE"]

TOLERANCE = 0.05  # tokens a round: 2% of a usual MAT
LEARNERS = ("hedge", "normalhedge")  # their anytime forms: nothing is tuned
LARGE = 8  # drafters from which on the growth in their number is fitted

_KINDS, _DRAFTERS, _DOMAINS = 11, 47, 7  # of the bundled traces, two of them sampled: comparisons announced
_KINDS_A, _DRAFTERS_A = 7, 30  # of them with gamma off the path

CLAIM = Claim(
    sentence="The expected committed length of a round is estimated without bias from one verified path.",
    source="Not-a-Bandit, arXiv 2510.20064, stated of the plug-in estimator, here A",
    questions={
        "plug_in": Question(
            "The plug-in estimator A has no bias: on enumerated worlds, and on sampled text against B.",
            exactly(0.0, 1e-9),
            "tokens a round",
            comparisons=2 * _KINDS_A,
        ),
        "small": Question(
            "On sampled text A is off by at most 0.05 tokens, for each kind of drafter and k = 2 to 6.",
            exactly(0.0, TOLERANCE),
            "tokens a round",
            comparisons=2 * 5 * _KINDS_A,
        ),
        "exact": Question(
            "B and C have no bias on any world; nor has A for k = 1, or under a greedy target, where all three agree.",
            exactly(0.0, 1e-12),
            "tokens a round, largest difference",
        ),
        "same_mean": Question(
            "On sampled text B and C have the same mean, for each kind of drafter.",
            exactly(0.0, TOLERANCE),
            "tokens a round",
            comparisons=2 * _KINDS,
        ),
        "variance_A": Question(
            "A has a smaller variance than B and than C, for each drafter.",
            below(1.0),
            "ratio of variances over the rows of a domain",
            comparisons=4 * _DRAFTERS_A,
        ),
        "variance_C": Question(
            "C has a smaller variance than B, for each drafter.",
            below(1.0),
            "ratio of variances over the rows of a domain",
            comparisons=2 * _DRAFTERS,
        ),
        "selection": Question(
            "It makes no difference for selection: the drafter that A picks in a domain is as good as the one that B "
            "picks, and Hedge and NormalHedge commit as many tokens a round with A or B as with C.",
            exactly(0.0, TOLERANCE),
            "tokens a round",
            comparisons=2 * (2 * len(LEARNERS) + _DOMAINS),
        ),
        "rankings": Question(
            "A drafter of larger mean length over all tokens has no smaller MAT: no pair of drafters contradicts it.",
            below(0.0),
            "tokens a round by which the most suspect pair does",
            comparisons=2 * (_DOMAINS + 1),
        ),
        "growth": Question(
            "The variance of a bandit's importance-weighted loss under uniform play grows linearly with the number of "
            "drafters N, up to a constant: it is a + b N^c with c = 1.",
            inside(0.9, 1.1),
            f"c, from N = {LARGE} on",
            comparisons=3,
        ),
    },
)

_POOLS = (2, 8, 16, 32, 64, 128, 256, 512, 1024)
SETTINGS: Sequence[Setting] = (
    {"part": "worlds", "vocabulary": 2, "worlds": 40, "k": 6},
    {"part": "worlds", "vocabulary": 3, "worlds": 12, "k": 5},
    {"part": "made worlds", "k": 6},
    *({"part": "trace", "trace": name, "prompts": None} for name in ("t06", "t10", "greedy")),
    *(
        {"part": "learner", "trace": name, "prompts": None, "learner": learner, "replicates": 16}
        for name in ("t06", "t10")
        for learner in LEARNERS
    ),
    *({"part": "subpools", "trace": name, "prompts": None, "draws": 8} for name in ("t06", "t10")),
    *({"part": "pool", "drafters": n, "draws": 8, "rows": 2048} for n in _POOLS),
)
QUICK: Sequence[Setting] = (
    {"part": "worlds", "vocabulary": 2, "worlds": 2, "k": 4},
    {"part": "made worlds", "k": 4},
    *({"part": "trace", "trace": name, "prompts": 4} for name in ("t06", "t10", "greedy")),
    *(
        {"part": "learner", "trace": name, "prompts": 4, "learner": learner, "replicates": 2}
        for name in ("t06", "t10")
        for learner in LEARNERS
    ),
    *({"part": "subpools", "trace": name, "prompts": 4, "draws": 6} for name in ("t06", "t10")),
    *({"part": "pool", "drafters": n, "draws": 6, "rows": 512} for n in (2, 8, 32, 128)),
)
