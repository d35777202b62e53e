"""What is asked of learners' regret, and what is run."""

from __future__ import annotations

import itertools

from experiments.claim import Claim, Question, above, below, exactly
from experiments.claims.no_regret.measure import LEARNERS, POLICIES, PROTOCOLS
from experiments.settings import Setting

__all__ = ["CLAIM", "OBJECTIVES", "POOLS", "QUICK", "SETTINGS"]

OBJECTIVES = ("length", "acceptance")
POOLS = ("all", "truncated specialists")
WORLDS = (  # name, N
    ("fair-coins", 16),
    ("gap", 16),
    ("drifting", 16),
    ("switching", 16),
    ("alternating", 16),
    ("greedy", 16),
    ("block", 16),
    ("breakaway", 16),
    ("greedy", 2),
    ("block", 2),
    ("breakaway", 2),
)

CLAIM = Claim(
    sentence="Full-information learners have no regret: average regret to the best fixed drafter vanishes at rate "
    "sqrt(ln N / T).",
    source="Not-a-Bandit (arXiv 2510.20064), section 4: the guarantee of HedgeSpec with NormalHedge or Hedge; "
    "Cesa-Bianchi and Lugosi 2006, Theorem 2.2",
    questions={
        "rate": Question(
            "Regret per token falls like T^(-1/2) or faster over the last two decades of T, on streams of real prompts "
            "and where one drafter is better by 0.1, for each of five learners.",
            # the order T^(-1/2) and what is left to it: terms of order sqrt(ln ln T) in the bounds tilt a line through
            # two decades by less than 0.01, so 0.05 excludes none of them and sees any T^(-0.4)
            below(-0.45),
            "exponent of T",
            comparisons=len(LEARNERS) * (len(OBJECTIVES) * len(POOLS) + 1),
        ),
        "small": Question(
            "At the end of the stream regret is below sqrt(T ln N / 2), what Hedge is promised that knows T.",
            below(1.0),
            "sqrt(T ln N / 2)",
            comparisons=len(LEARNERS) * len(OBJECTIVES) * len(POOLS),
        ),
        "bounded": Question(
            "Each learner that has a bound stays below it in every run of every world and stream.",
            below(1.0),
            "of its bound",
        ),
        "coins": Question(
            "On fair coins every learner's regret is the one that probability theory gives every algorithm.",
            exactly(1.0, 0.05),
            "of the exact value",
            comparisons=len(POLICIES),
        ),
        "normalhedge": Question(
            "NormalHedge, whose own bound is vacuous at these T, stays below sqrt(T ln N / 2) in every world.",
            below(1.0),
            "sqrt(T ln N / 2)",
            comparisons=len(WORLDS),
        ),
        "query": Question(
            "Within a single query, started afresh, each learner has at most half of the regret of one that learns "
            "nothing.",
            below(0.5),
            "of uniform's regret",
            comparisons=len(LEARNERS) * len(OBJECTIVES) * len(POOLS),
        ),
        "rounds": Question(
            "In rounds of decoding the same guarantee holds: MAT lacks no more than (k + 1) sqrt(ln N / (2T)) tokens "
            "to the best fixed drafter's, within a query and over a stream.",
            below(1.0),
            "of that many tokens",
            comparisons=len(LEARNERS) * len(PROTOCOLS) * len(POOLS),
        ),
        "order": Question(
            "Small token-game regret means few rounds: in at least three of four pairs of learners the one with the "
            "smaller regret has the fewer rounds.",
            above(0.75),
            "of the pairs",
            comparisons=len(PROTOCOLS) * len(OBJECTIVES) * len(POOLS),
        ),
        "acceptance": Question(
            "What wins by acceptance wins in rounds: the best drafter and each learner by acceptance loss commit no "
            "fewer tokens a round than by length loss, give or take 0.05.",
            above(-0.05),
            "tokens per round",
            comparisons=(1 + len(LEARNERS)) * len(POOLS),
        ),
    },
)


def _settings(
    trace: str,
    streams: tuple[int, int],
    tokens: int,
    replicates: int,
    rounds: int,
    seeds: int,
    long: int,
    coins: tuple[int, int],
) -> list[Setting]:
    found: list[Setting] = []
    for pool, objective in itertools.product(POOLS, OBJECTIVES):
        base = {"trace": trace, "pool": pool, "k": 5, "objective": objective}
        found += [
            {"kind": "stream", **base, "learner": name, "tokens": tokens, "streams": streams[POOLS.index(pool)]}
            for name in POLICIES
        ]
        found.append({"kind": "decode", **base, "replicates": replicates})
    found += [{"kind": "world", "world": name, "drafters": n, "rounds": rounds, "seeds": seeds} for name, n in WORLDS]
    found += [
        {"kind": "long", "world": world, "drafters": 16, "rounds": long, "seeds": seeds, "learner": name}
        for world in ("greedy", "fair-coins", "gap")
        for name in POLICIES
    ]
    found.append({"kind": "coins", "drafters": 16, "rounds": coins[0], "seeds": coins[1]})
    return found


SETTINGS = _settings("t06", (8, 24), 1_000_000, 8, 30_000, 10, 1_000_000, (1000, 2000))
QUICK = _settings("t10", (3, 3), 20_000, 2, 2000, 3, 20_000, (200, 150))
