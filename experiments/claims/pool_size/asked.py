"""Pool size: what is asked, and what is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.claim import Claim, Question, above, below
from experiments.settings import Setting

__all__ = ["CLAIM", "CLOSE", "QUICK", "SETTINGS", "SPECS", "TRACES"]

TRACES = ("t06", "greedy")
SPECS = ("ucbspec", "exp3spec")
SIZES = (2, 3, 5, 7, 8, 13, 21, 34)  # and all
CLOSE = 0.05  # tokens a round: what counts as no change

CLAIM = Claim(
    sentence=(
        "More drafters help: with full information MAT grows, or at least does not fall, as drafters are added, while "
        "bandits pay for each."
    ),
    source="arXiv 2510.20064; regret sqrt(T ln N) against sqrt(T N)",
    questions={
        "rises": Question(
            "NormalHedge's MAT does not fall by 0.05 tokens from seven random drafters to all of the trace.",
            above(-CLOSE),
            "tokens per round",
            len(TRACES),
        ),
        "bandits": Question(
            "UCBSpec's and EXP3Spec's MAT does fall.", below(0.0), "tokens per round", len(TRACES) * len(SPECS)
        ),
        "steps": Question(
            "NormalHedge's MAT falls by 0.05 tokens at no step from one size of pool to the next.",
            above(-CLOSE),
            "tokens per round",
            len(TRACES) * len(SIZES),
        ),
        "lead": Question(
            "NormalHedge's lead over UCBSpec and EXP3Spec is larger at all drafters than at seven.",
            above(0.0),
            "tokens per round",
            len(TRACES) * len(SPECS),
        ),
        "regret": Question(
            "From seven drafters to all, regret in rounds to the pool's best fixed drafter grows by more for UCBSpec "
            "and EXP3Spec than for NormalHedge.",
            above(0.0),
            "rounds per text beyond NormalHedge's",
            len(TRACES) * len(SPECS),
        ),
        "weak": Question(
            "Weak drafters added to seven do not cost NormalHedge 0.05 tokens: not ten times as many, not 4096.",
            above(-CLOSE),
            "tokens per round",
            4,
        ),
        "weak_bandits": Question(
            "They cost UCBSpec and EXP3Spec more than NormalHedge.", above(0.0), "tokens per round", 4
        ),
        "duplicates": Question(
            "Copies of the best drafter, as many as the pool has drafters, raise UCBSpec's and EXP3Spec's MAT by more "
            "than that of uniform play.",
            above(0.0),
            "tokens per round",
            len(SPECS),
        ),
        "speed": Question(
            "In modelled seconds more is less: with all drafters scored, NormalHedge's speed-up is lower with all "
            "drafters of known cost than with seven.",
            below(0.0),
            "times plain decoding",
            len(TRACES),
        ),
    },
)


def _chunks(kind: str, trace: str, orders: int, size: int, **more: object) -> Iterator[Setting]:
    for first in range(0, orders, size):
        yield {"kind": kind, "trace": trace, "k": 5, "first": first, "orders": min(size, orders - first), **more}


def _enlarged(batches: int, **more: object) -> Iterator[Setting]:
    for batch in range(batches):
        yield {"kind": "enlarged", "trace": TRACES[0], "k": 5, "batch": batch, **more}


def _settings() -> Iterator[Setting]:
    for trace in TRACES:
        yield from _chunks("real", trace, 32, 8, sizes=list(SIZES))
        yield from _chunks("speed", trace, 16, 8, sizes=list(SIZES))
    yield from _chunks("duplicates", TRACES[0], 16, 16)
    yield from _enlarged(8, texts=2, rows=180, sizes=[7, 70, 700, 4096])


def _quick() -> Iterator[Setting]:
    for trace in TRACES:
        yield from _chunks("real", trace, 4, 4, prompts=3, sizes=[3, 7, 13])
        yield from _chunks("speed", trace, 2, 2, prompts=3, sizes=[7])
    yield from _chunks("duplicates", TRACES[0], 4, 4, prompts=3)
    yield from _enlarged(2, texts=1, rows=90, sizes=[7, 70, 140])


SETTINGS: Sequence[Setting] = tuple(_settings())
QUICK: Sequence[Setting] = tuple(_quick())
