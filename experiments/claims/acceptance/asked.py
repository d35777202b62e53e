"""Claim 1: what is asked, and what is run."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claim import Claim, Question, exactly, inside
from experiments.settings import Setting

__all__ = ["CLAIM", "QUICK", "SETTINGS", "TOLERANCE"]

TOLERANCE = 0.02  # of acceptance: half an interval of the acceptance matrix
ROUNDED = 8e-6  # what a compact record rounds by: hedgelab.storage.columns, fixed16 and deflate

# pairs of drafters among which a policy switches; where gamma is known off the tree, coins of gamma can be tried
PAIRS = ("chain chain", "head tree", "one_hot tree", "recursive without_replacement", "independent recursive")
KNOWN_GAMMA = ("chain chain", "one_hot head", "independent recursive")

_KINDS, _DRAFTERS = 11, 47  # of the bundled traces: the comparisons that are announced

CLAIM = Claim(
    sentence=(
        "One draft from q is accepted with probability 1 - TV(p, q), one level of a draft tree with the mass that p "
        "gives to its children."
    ),
    source="Not-a-Bandit, arXiv 2510.20064; Leviathan, Kalman and Matias 2023, Theorem 3.5, for one draft",
    questions={
        "probability": Question(
            "The sampler accepts a draft with probability 1 - TV(p, q), a tree's level with the mass of its children.",
            exactly(0.0, 1e-12),
            "acceptance, largest difference over all prefixes of the worlds",
        ),
        "given_output": Question(
            "Whatever the rule, an output x was an accepted draft with probability alpha(x), so alpha has mean gamma.",
            exactly(0.0, 1e-12),
            "probability, largest difference over all prefixes, depths and tokens of the worlds",
        ),
        "replay": Question(
            "Coins of probability alpha on a recorded path have the joint law of text and accepted lengths of "
            "speculative sampling, also when the choice of drafter depends on what was accepted.",
            exactly(0.0, 1e-12),
            "total variation, largest over the worlds",
        ),
        "gamma_coins": Question(
            "Coins of probability gamma, the acceptance that the claim states, would have that law too.",
            exactly(0.0, 1e-12),
            "total variation, largest over the worlds",
        ),
        "mean": Question(
            "On sampled text the mean of alpha of a first draft is that of gamma, for each drafter.",
            exactly(0.0, TOLERANCE),
            "acceptance",
            comparisons=2 * _DRAFTERS,
        ),
        "martingale": Question(
            "On sampled text no weight that is known before the token tells alpha and gamma apart, for each kind: "
            "not the row's own gamma, not the alpha of the row before; nor do they differ at later drafts of a round.",
            exactly(0.0, TOLERANCE),
            "acceptance, weighted",
            comparisons=6 * _KINDS,
        ),
        "calibration": Question(
            "Alpha rises with gamma at slope 1, for each drafter.",
            inside(0.9, 1.1),
            "alpha per gamma, least squares over rows",
            comparisons=_DRAFTERS,
        ),
        "greedy": Question(
            "With a greedy target alpha is gamma at every row and depth.",
            exactly(0.0, ROUNDED),
            "acceptance, largest difference",
        ),
        "recorded": Question(
            "Every recorded gamma of a sampled draft is 1 - TV(p, q) of the recorded log-probabilities, as far as the "
            "tail allows.",
            exactly(0.0, ROUNDED),
            "acceptance outside the interval, largest",
        ),
    },
)

SETTINGS: Sequence[Setting] = (
    *({"part": "worlds", "vocabulary": v, "worlds": n, "depth": d} for v, n, d in ((2, 40, 4), (3, 20, 3), (5, 10, 2))),
    *({"part": "replay", "kinds": kinds, "coins": "alpha", "worlds": 3, "length": 4} for kinds in PAIRS),
    *({"part": "replay", "kinds": kinds, "coins": "gamma", "worlds": 3, "length": 4} for kinds in KNOWN_GAMMA),
    {"part": "two states", "k": 2},
    *({"part": "trace", "trace": name, "prompts": None, "calibrate": name == "t06"} for name in ("t06", "t10")),
    {"part": "trace", "trace": "greedy", "prompts": None, "calibrate": False},
    {"part": "logits", "trace": "logits"},
)
QUICK: Sequence[Setting] = (
    *({"part": "worlds", "vocabulary": v, "worlds": 2, "depth": 2} for v in (2, 3)),
    *({"part": "replay", "kinds": kinds, "coins": "alpha", "worlds": 1, "length": 3} for kinds in PAIRS),
    *({"part": "replay", "kinds": kinds, "coins": "gamma", "worlds": 1, "length": 3} for kinds in KNOWN_GAMMA),
    {"part": "two states", "k": 2},
    *({"part": "trace", "trace": name, "prompts": 3, "calibrate": name == "t06"} for name in ("t06", "t10")),
    {"part": "trace", "trace": "greedy", "prompts": 3, "calibrate": False},
    {"part": "logits", "trace": "logits"},
)
