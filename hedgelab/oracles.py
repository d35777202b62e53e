"""What a policy is compared with.

best fixed            min over drafters of the *expected* rounds, per query or over all, exact by recursion from the end
fixed, these coins    rounds of each drafter under given coins; its minimum sees the coins and is called hindsight
informed switching    expected rounds when each round uses the drafter of largest gamma there: not attainable either
clairvoyant           fewest rounds of any switching policy that sees coins and text beforehand: a limit, not attainable
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hedgelab._jit import kernel
from hedgelab.coins import COIN, fill
from hedgelab.decode_loop import accepted_drafts
from hedgelab.decode_replay import block_layout, check_values, coin_place
from hedgelab.feedback import draft_length
from hedgelab.trace import Trace

__all__ = ["FixedRounds", "clairvoyant_rounds", "expected_fixed_rounds", "fixed_rounds", "informed_rounds"]


@dataclass(frozen=True)
class FixedRounds:
    """Rounds of every drafter used alone, (S, N) float64: expected over coins, or under given ones.

    >>> table = FixedRounds(np.array([[3.0, 4.0], [5.0, 2.0]]))
    >>> table.best, table.overall.tolist(), table.per_query.tolist()
    (1, [4.0, 2.0], [3.0, 2.0])
    """

    rounds: NDArray[np.float64]

    @property
    def best(self) -> int:
        """Index of the drafter with the fewest rounds over all sequences, the first of equals."""
        return int(self.rounds.sum(axis=0).argmin())

    @property
    def overall(self) -> NDArray[np.float64]:
        """(S,) rounds of that drafter."""
        return self.rounds[:, self.best]

    @property
    def per_query(self) -> NDArray[np.float64]:
        """(S,) rounds of each sequence's own best drafter."""
        return self.rounds.min(axis=1)


@kernel
def _rounds_from(t, length, first, k, c, is_deep, alpha_flat, alpha_deep, value):
    """Return the rounds expected from row t of a sequence on when column c drafts now; value[t + 1:] is known."""
    reach = 1.0  # all drafts so far accepted
    rounds = 1.0
    for d in range(min(k, length - t)):
        row = first + t + d
        accept = np.float64(alpha_deep[row, d, c]) if is_deep else np.float64(alpha_flat[row, c])
        rounds += reach * (1.0 - accept) * value[t + d + 1]
        reach *= accept
    if t + k < length:  # k accepted, then the bonus token; past the end nothing is left to do
        rounds += reach * value[t + k + 1]
    return rounds


@kernel
def _expected_rounds(begin, end, k, alpha_flat, alpha_deep, column, deep, out):
    longest = 0
    for s in range(begin.shape[0]):
        longest = max(longest, end[s] - begin[s])
    value = np.empty(longest + 1)  # value[t]: rounds expected from row t of the sequence to its end
    for s in range(begin.shape[0]):
        length = end[s] - begin[s]
        value[length] = 0.0
        for i in range(column.shape[0]):
            for t in range(length - 1, -1, -1):
                value[t] = _rounds_from(t, length, begin[s], k, column[i], deep[i], alpha_flat, alpha_deep, value)
            out[s, i] = value[0]


@kernel
def _informed_rounds(begin, end, k, alpha_flat, gamma_flat, alpha_deep, gamma_deep, column, deep, out):
    longest = 0
    for s in range(begin.shape[0]):
        longest = max(longest, end[s] - begin[s])
    value = np.empty(longest + 1)
    for s in range(begin.shape[0]):
        length = end[s] - begin[s]
        value[length] = 0.0
        for t in range(length - 1, -1, -1):
            row = begin[s] + t
            best = 0
            largest = -1.0
            for i in range(column.shape[0]):
                c = column[i]
                gamma = np.float64(gamma_deep[row, 0, c]) if deep[i] else np.float64(gamma_flat[row, c])
                if gamma > largest:
                    best = i
                    largest = gamma
            value[t] = _rounds_from(t, length, begin[s], k, column[best], deep[best], alpha_flat, alpha_deep, value)
        out[s] = value[0]


@kernel
def _coin_rounds(begin, end, sequence_id, seed, replicate, k, alpha_flat, alpha_deep, column, deep, fixed, switching):
    n = column.shape[0]
    longest = 0
    for s in range(begin.shape[0]):
        longest = max(longest, end[s] - begin[s])
    uniforms = np.empty(longest)
    value = np.empty(longest + 1, np.int64)
    for s in range(begin.shape[0]):
        first, last = begin[s], end[s]
        length = last - first
        fill(seed, COIN, sequence_id[s], 0, replicate, uniforms[:length])
        value[length] = 0
        for t in range(length - 1, -1, -1):
            fewest = length
            for i in range(n):
                got = accepted_drafts(uniforms, first, first + t, last, k, i, alpha_flat, alpha_deep, column, deep)
                fewest = min(fewest, value[min(t + got + 1, length)])
            value[t] = fewest + 1
        switching[s] = value[0]
        for i in range(fixed.shape[1]):
            t = 0
            rounds = 0
            while t < length:
                t += 1 + accepted_drafts(uniforms, first, first + t, last, k, i, alpha_flat, alpha_deep, column, deep)
                rounds += 1
            fixed[s, i] = rounds


def expected_fixed_rounds(trace: Trace, *, k: int | None = None) -> FixedRounds:
    """Return the rounds that each drafter, used alone, needs on average over the coins: exact, no sampling.

    By recursion from the end of a sequence: V(t) = 1 + sum_d (prod_{j<d} a_j) (1 - a_d) V(t+d+1) + (prod_{j<k} a_j)
    V(t+k+1).
    """
    k = draft_length(trace, k)
    check_values(trace)
    column, deep = block_layout(trace)
    out = np.empty((trace.sequences, len(trace.drafters)))
    done = 0
    for part in trace.parts():
        here = len(part.begin)
        _expected_rounds(
            part.begin, part.end, k, part.alpha_flat, part.alpha_deep, column, deep, out[done : done + here]
        )
        done += here
    return FixedRounds(out)


def informed_rounds(trace: Trace, *, k: int | None = None) -> NDArray[np.float64]:
    """Return (S,) the rounds expected over the coins when the drafter with the largest gamma is used in each round.

    The round that starts at row t drafts with argmax_i gamma[t, 0, i], the first of equals: the best choice for its
    first draft, given the prefix. Exact, by the recursion of `expected_fixed_rounds`, V(t) with that drafter's alphas.
    The target's law of row t is needed, which nobody has before drafting: an estimate of the ceiling for contextual
    selection, not attainable. It looks at one draft alone, so for k > 1 it is a proxy for the largest expected
    committed length. On one path it may take more rounds than a fixed drafter; never fewer, in expectation, than the
    clairvoyant. With k = 1, drafters of depth 1 and alpha = gamma (greedy target) no policy that does not see the coins
    takes fewer. Raises ValueError where such a gamma was not observed.

    >>> trace = Trace.from_arrays(token=[1, 2, 3, 4], alpha=[[1, 0], [0, 1], [0, 1], [1, 0]], drafters=["a", "b"], k=1,
    ...                           gamma=[[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.9, 0.1]], offsets=[0, 4], domains=["x"])
    >>> informed_rounds(trace), expected_fixed_rounds(trace).rounds
    (array([2.]), array([[3., 3.]]))
    """
    k = draft_length(trace, k)
    check_values(trace)
    column, deep = block_layout(trace)
    out = np.empty(trace.sequences)
    done = 0
    for part in trace.parts():
        here = slice(done, done + len(part.begin))
        for begin, end, position in zip(part.begin, part.end, part.position, strict=True):
            if np.isnan(part.gamma_flat[begin:end]).any() or np.isnan(part.gamma_deep[begin:end, :1]).any():
                raise ValueError(f"sequence {position}: gamma of a first draft is NaN, nobody can be informed by it")
        _informed_rounds(
            part.begin,
            part.end,
            k,
            part.alpha_flat,
            part.gamma_flat,
            part.alpha_deep,
            part.gamma_deep,
            column,
            deep,
            out[here],
        )
        done = here.stop
    return out


def _under_coins(
    trace: Trace, k: int | None, seed: int, replicate: int, drafters: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the rounds of the first `drafters` drafters alone, (S, drafters), and of the best choice among all."""
    k = draft_length(trace, k)
    seed, replicate = coin_place(seed, replicate)
    check_values(trace)
    column, deep = block_layout(trace)
    fixed = np.empty((trace.sequences, drafters))
    switching = np.empty(trace.sequences, np.int64)
    done = 0
    for part in trace.parts():
        here = slice(done, done + len(part.begin))
        _coin_rounds(
            part.begin,
            part.end,
            part.sequence_id,
            seed,
            replicate,
            k,
            part.alpha_flat,
            part.alpha_deep,
            column,
            deep,
            fixed[here],
            switching[here],
        )
        done = here.stop
    return fixed, switching


def fixed_rounds(trace: Trace, *, k: int | None = None, seed: int = 0, replicate: int = 0) -> FixedRounds:
    """Return the rounds of each drafter, used alone, under the coins of (seed, replicate): those that `replay` uses."""
    return FixedRounds(_under_coins(trace, k, seed, replicate, len(trace.drafters))[0])


def clairvoyant_rounds(trace: Trace, *, k: int | None = None, seed: int = 0, replicate: int = 0) -> NDArray[np.int64]:
    """Return (S,) the fewest rounds in which any choice of drafters decodes each sequence under these coins.

    By dynamic programming over rows, so also for drafters whose acceptance depends on depth. It sees text and coins
    beforehand and depends on their coupling across drafters: a limit to measure against, not attainable.
    """
    return _under_coins(trace, k, seed, replicate, 0)[1]
