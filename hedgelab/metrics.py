"""What each number means: every named metric with its formula and its aggregation.

Names with *accepted* leave out the target's own token that ends a round; names with *committed* (and MAT) include
it. Other words for the same things, mapped here and nowhere else:

    target     verifier, base model               drafter   draft model, assistant, speculator, proposer
    k          gamma, draft length, num_speculative_tokens, num_assistant_tokens, speculation depth
    MAT        mean accepted tokens (bonus token counted), block efficiency, acceptance length, tau
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.decode_replay import Replay

__all__ = ["METRICS", "Metric", "RoundLog", "accepted_prefix"]


@dataclass(frozen=True)
class RoundLog:
    """Rounds of a decode run, each (R,) int64: the one input of every metric.

    proposed : drafts that the target verified (drafts dropped before verification are not among them)
    accepted : accepted drafts that stayed in the text
    committed : tokens added to the text: accepted + 1, or accepted where the text ended inside the drafts
    request : which request the round belongs to
    raw_accepted : accepted drafts before the text was cut by EOS or a limit, where a decoder knows them; accepted
    otherwise
    """

    proposed: NDArray[np.int64]
    accepted: NDArray[np.int64]
    committed: NDArray[np.int64]
    request: NDArray[np.int64]
    raw_accepted: NDArray[np.int64]

    @classmethod
    def of_rounds(
        cls,
        *,
        proposed: ArrayLike,
        accepted: ArrayLike,
        committed: ArrayLike | None = None,
        request: ArrayLike | None = None,
        raw_accepted: ArrayLike | None = None,
    ) -> RoundLog:
        """Return a log; `committed` defaults to accepted + 1, `request` to one for all. Raises ValueError on counts
        that cannot be."""
        taken = np.asarray(accepted, np.int64)
        log = cls(
            proposed=np.asarray(proposed, np.int64),
            accepted=taken,
            committed=taken + 1 if committed is None else np.asarray(committed, np.int64),
            request=np.zeros_like(taken) if request is None else np.asarray(request, np.int64),
            raw_accepted=taken if raw_accepted is None else np.asarray(raw_accepted, np.int64),
        )
        shapes = {name: value.shape for name, value in vars(log).items()}
        if taken.ndim != 1 or len(taken) == 0 or set(shapes.values()) != {taken.shape}:
            raise ValueError(f"a log needs vectors of one length of at least 1, got {shapes}")
        for name, wrong in (
            ("accepted must lie in [0, proposed]", (taken < 0) | (taken > log.proposed)),
            (
                "raw_accepted must lie in [accepted, proposed]",
                (log.raw_accepted < taken) | (log.raw_accepted > log.proposed),
            ),
            (
                "committed must be accepted + 1, or accepted >= 1 in a round that a text's end cut",
                (log.committed != taken + 1) & ((log.committed != taken) | (taken == 0)),
            ),
        ):
            if wrong.any():
                raise ValueError(f"round {int(wrong.argmax())}: {name}")
        return log

    @classmethod
    def of_histogram(cls, rounds_by_accepted: ArrayLike) -> RoundLog:
        """Return a log of uncut rounds from how many rounds accepted 0, 1, ..., k drafts; every round proposed k."""
        counts = np.asarray(rounds_by_accepted, np.int64)
        accepted = np.repeat(np.arange(len(counts)), counts)
        return cls.of_rounds(proposed=np.full(len(accepted), len(counts) - 1), accepted=accepted)

    @classmethod
    def of_replay(cls, run: Replay) -> RoundLog:
        """Return the log of a replay."""
        return cls.of_rounds(
            proposed=run.proposed,
            accepted=run.accepted,
            committed=run.committed,
            request=np.repeat(np.arange(len(run.sequence_rounds)), run.sequence_rounds),
        )

    @property
    def full(self) -> NDArray[np.bool_]:
        """(R,) rounds not cut by the end of a text."""
        return self.committed == self.accepted + 1


def accepted_prefix(matches: ArrayLike) -> int:
    """Return how many drafts are accepted: those before the first that does not match; later matches do not count.

    >>> accepted_prefix([1, 0, 1, 0])
    1
    """
    right = np.asarray(matches, bool)
    return int(len(right) if right.all() else right.argmin())


def _ratio(above: float, below: float) -> float:
    return float(above) / float(below) if below else float("nan")


def _by_position(log: RoundLog, conditional: bool) -> list[float]:
    return [
        _ratio(
            (log.accepted > d).sum(),
            ((log.accepted >= d) & (log.proposed > d)).sum() if conditional else len(log.accepted),
        )
        for d in range(int(log.proposed.max()))
    ]


def _mean_of_requests(log: RoundLog) -> float:
    _, request = np.unique(log.request, return_inverse=True)
    return float((np.bincount(request, log.committed) / np.bincount(request)).mean())


@dataclass(frozen=True)
class Metric:
    """A number (or one per draft position) with its formula and how it is aggregated."""

    formula: str
    aggregation: str
    of: Callable[[RoundLog], float | list[float]]


METRICS: dict[str, Metric] = {
    "rounds": Metric("R", "all rounds, cut ones included", lambda log: len(log.accepted)),
    "proposed_drafts": Metric("sum proposed", "the actual number in each round", lambda log: int(log.proposed.sum())),
    "accepted_drafts": Metric("sum accepted", "drafts that stayed in the text", lambda log: int(log.accepted.sum())),
    "raw_accepted_drafts": Metric(
        "sum raw accepted", "before cuts by EOS or a limit", lambda log: int(log.raw_accepted.sum())
    ),
    "committed_tokens": Metric("sum committed", "all rounds", lambda log: int(log.committed.sum())),
    "draft_acceptance_rate": Metric(
        "sum accepted / sum proposed", "pooled over rounds", lambda log: _ratio(log.accepted.sum(), log.proposed.sum())
    ),
    "accepted_drafts_per_round": Metric(
        "sum accepted / R", "pooled over rounds", lambda log: _ratio(log.accepted.sum(), len(log.accepted))
    ),
    "mat": Metric(
        "sum committed / R", "pooled over rounds", lambda log: _ratio(log.committed.sum(), len(log.committed))
    ),
    "mat_full_rounds": Metric(
        "sum committed / R over rounds not cut by the end of a text; = 1 + accepted / R there",
        "pooled over uncut rounds",
        lambda log: _ratio(log.committed[log.full].sum(), log.full.sum()),
    ),
    "mat_mean_of_requests": Metric(
        "mean over requests of (tokens / rounds)", "each request counts the same", _mean_of_requests
    ),
    "acceptance_by_position_unconditional": Metric(
        "rounds with accepted > d / R, d = 0, 1, ...", "all rounds", lambda log: _by_position(log, conditional=False)
    ),
    "acceptance_by_position_conditional": Metric(
        "rounds with accepted > d / rounds that reached draft d",
        "rounds that reached the position",
        lambda log: _by_position(log, conditional=True),
    ),
    "accepted_drafts_per_round_if_independent": Metric(
        "sum_d prod_{j <= d} (unconditional acceptance of position j)",
        "an approximation: takes positions for independent",
        lambda log: float(np.cumprod(_by_position(log, conditional=False)).sum()),
    ),
}
