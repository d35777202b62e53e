r"""Delays of the token game, and what to do about them.

A loss of round s with delay d is revealed at the end of round s + d: plays s + d + 1, s + d + 2, ... may use it; d = 0
is the game without delay. Ways to run a learner (`delay_mode` of `hedgelab.play` and `hedgelab.replay`):

queue    one learner; losses reach it when they are revealed, each with the probabilities that were played for it
bold     copies of the learner; a round is played by the first copy that waits for no loss, a fresh one when all wait
padded   as bold, every loss held back to the longest delay, which makes the delays independent of what was played
qpm-d    bandit feedback: revealed losses queue up by drafter. The learner waits with its pick, which is played until
         that drafter has a loss to show; then it is shown the oldest, and picks anew

BOLD and QPM-D: Joulani, Gyorgy and Szepesvari 2013 ("Online learning under delayed feedback"), `hedgelab.bounds` has
what they guarantee. Exponential weights need no black box: with a rate tuned to the delays (`stale_hedge`) the plain
queue has a bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.algorithms import learner
from hedgelab.contract import Learner
from hedgelab.feedback import loss_of, rows_until_known, whole_draft_length

__all__ = ["MODES", "decode", "missing", "most_outstanding", "outstanding_in_decoding", "per_round", "stale_hedge"]

MODES = ("queue", "bold", "padded", "qpm-d")


def per_round(delay: ArrayLike, rounds: int) -> NDArray[np.int64]:
    """Return (T,) int64, the delay of each of `rounds` T rounds, from one number or one a round.

    Raises ValueError for delays that are negative, no whole numbers, or not one a round.

    >>> per_round(2, 3).tolist()
    [2, 2, 2]
    """
    given = np.asarray(delay)
    if given.dtype.kind not in "iu" or given.ndim > 1:
        what = repr(delay) if given.ndim == 0 else f"{given.dtype} of shape {given.shape}"
        raise ValueError(f"delay must be a whole number, or one a round, got {what}")
    if given.ndim == 1 and given.shape != (rounds,):
        raise ValueError(f"delay must have one entry for each of {rounds} rounds, got {given.shape[0]}")
    if given.size and int(given.min()) < 0:
        where = f" in round {int(given.argmin())}" if given.ndim else ""
        raise ValueError(f"delay must not be negative, got {int(given.min())}{where}")
    if given.size and int(given.max()) >= 2**62:
        raise ValueError(f"delay must be less than 2^62, got {int(given.max())}")
    return np.full(rounds, given, dtype=np.int64)


def missing(delay: ArrayLike, rounds: int) -> NDArray[np.int64]:
    """Return (T,) how many losses of earlier rounds have not been revealed at each play.

    >>> missing(2, 5).tolist()
    [0, 1, 2, 2, 2]
    """
    delays = per_round(delay, rounds)
    known_from = np.arange(rounds) + np.minimum(delays, rounds) + 1  # the first play that may use it
    revealed = np.bincount(known_from[known_from < rounds], minlength=rounds)
    return np.arange(rounds) - np.cumsum(revealed)


def most_outstanding(delay: ArrayLike, rounds: int) -> int:
    """Return G*, the largest number of losses of earlier rounds missing at any play; BOLD needs G* + 1 copies.

    >>> most_outstanding([5, 0, 0, 0], 4)
    1
    """
    return int(missing(delay, rounds).max(initial=0))


def decode(committed: ArrayLike, k: int, *, objective: str = "length") -> NDArray[np.int64]:
    """Return the delays, in tokens, that a decode loop made: one a row of the sequence whose loss becomes known.

    committed : (R,) tokens that each round of one sequence added, as `Replay.committed`. A loss of objective
    "acceptance" is known when the round that commits its row ends: delay 0..k. One of objective "length" when the round
    that commits the row k - 1 further on ends: delay k - 1..2k - 1; the last k - 1 rows never have one.

    >>> decode([3, 1, 3], 2, objective="acceptance").tolist()
    [2, 1, 0, 0, 2, 1, 0]
    >>> decode([3, 1, 3], 2).tolist()
    [2, 1, 1, 3, 2, 1]
    """
    lengths, k = np.asarray(committed), whole_draft_length(k)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or ((lengths < 1) | (lengths > k + 1)).any():
        raise ValueError(f"committed must be a vector of whole numbers in [1, {k + 1}]")
    lag = rows_until_known(loss_of(objective, None)[0], k)
    ends = np.repeat(np.cumsum(lengths), lengths)  # of each row, the first row after its round
    known = ends[lag - 1 :]
    return (known - np.arange(len(known)) - 1).astype(np.int64)


def outstanding_in_decoding(k: int, *, objective: str = "length") -> int:
    """Return G*, the most losses of earlier rows that can be missing at a play of the decode loop's token game.

    k for "acceptance"; 2k - 1 for "length": k - 1 windows reach beyond the round's start, and up to k rows lie between
    the round's start and the play.

    >>> outstanding_in_decoding(5), outstanding_in_decoding(5, objective="acceptance")
    (9, 5)
    """
    k = whole_draft_length(k)
    return k + rows_until_known(loss_of(objective, None)[0], k) - 1


def stale_hedge(rounds: int, n: int, *, delay: ArrayLike = 0, loss_range: float = 1.0) -> Learner:
    """Return Hedge with the fixed rate that fits the delays: eta = sqrt(8 ln N / (T + 2 D)) / B.

    D is the sum over plays of the losses missing, B the width of the losses' interval. Run with `delay_mode="queue"`
    its regret is at most B sqrt((T + 2 D) ln N / 2) (`hedgelab.bounds.hedge_path`). A rate tuned to T alone is too
    large and breaks that bound.

    >>> stale_hedge(1000, 4, delay=3).name
    'hedge'
    """
    if n < 1 or rounds < 1 or not 0 < loss_range <= 1:
        raise ValueError(f"need rounds >= 1, n >= 1, loss_range in (0, 1], got {rounds}, {n}, {loss_range}")
    late = int(missing(delay, rounds).sum())
    return learner("hedge", learning_rate=math.sqrt(8 * math.log(n) / (rounds + 2 * late)) / loss_range)
