"""The decode loop itself, compiled: one engine for all learners, which reach it as function pointers.

`hedgelab.decode_replay` says what a round is and is the way in; nothing is checked here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba import boolean, float32, float64, int32, int64

from hedgelab._jit import compiled_once, kernel, uncompiled
from hedgelab.coins import COIN, fill
from hedgelab.contract import OBSERVE, PLAY, RNG
from hedgelab.feedback import ACCEPTANCE, row_losses, rows_until_known
from hedgelab.lanes import count_outside, lane_sum
from hedgelab.lengths import committed_lengths

__all__ = ["accepted_drafts", "compiled_engine", "draw", "given_array", "is_distribution", "plain_engine"]


@kernel
def draw(probs, uniform):
    """Return the index whose share of [0, 1) holds `uniform`; never one of probability 0."""
    n = probs.shape[0]
    total = 0.0
    begin = 0
    while n - begin > 64:  # whole blocks are passed by their sum
        block = lane_sum(probs[begin : begin + 64])
        if uniform < total + block:
            break
        total += block
        begin += 64
    for i in range(begin, n):
        total += probs[i]
        if uniform < total:
            return i
    last = n - 1
    while not probs[last] > 0.0:  # rounding left the sum below 1
        last -= 1
    return last


@kernel
def is_distribution(probs):
    """Return whether `probs` (n,) are non-negative and sum to 1 within 1e-6; NaN fails."""
    return count_outside(probs, 0.0, 2.0) == 0 and abs(lane_sum(probs) - 1.0) < 1e-6


@kernel
def accepted_drafts(uniforms, first, row, end, k, drafter, alpha_flat, alpha_deep, column, deep):
    """Return how many drafts of a round that starts at `row` are accepted on the path, 0..min(k, end - row).

    uniforms : coins of the sequence, which begins at row `first`
    column, deep : (N,) the drafter's column in its block, and whether that is the deep block
    """
    c = column[drafter]
    accepted = 0
    if deep[drafter]:
        while accepted < k and row + accepted < end:
            if not uniforms[row + accepted - first] < alpha_deep[row + accepted, accepted, c]:
                break
            accepted += 1
    else:
        while accepted < k and row + accepted < end:
            if not uniforms[row + accepted - first] < alpha_flat[row + accepted, c]:
                break
            accepted += 1
    return accepted


@kernel
def replay_part(
    play,
    observe,
    params,
    fresh,
    states,
    rng,
    begin,
    end,
    sequence_id,
    seed,
    replicate,
    coins,
    seen,
    alpha_flat,
    gamma_flat,
    alpha_deep,
    gamma_deep,
    flat_columns,
    deep_columns,
    column,
    deep,
    contexts,
    k,
    objective,
    estimator,
    bandit,
    censored,
    block_reward,
    own_entry_only,
    every_token,
    carry_over,
    picks,
    accepted,
    committed,
    rounds,
    expected_loss,
    losses_seen,
):
    """Replay the sequences of one part; return the number of rounds, or -1 - r if round r was played no distribution.

    params (P,), fresh (rows, N), states (copies, rows, N), seen (copies,) the losses that each copy has seen, coins
    (rows of the part,) or empty: then those of (seed, replicate, sequence, position); contexts (T', C) float32, what
    is known before a round starts at a row, C = 0: nothing. Writes picks, accepted, committed (one entry a round),
    rounds (one a sequence) and, where not empty, expected_loss and losses_seen (one entry a row, in the order of the
    sequences).
    """
    # loops instead of slice assignments: those would compile numba's error messages for shapes, 10 s of a first run
    n = fresh.shape[1]
    lag = rows_until_known(objective, k)
    # A loss waits for at most lag + k rows, a round has at least one row: so many rounds can be waiting at once.
    ring = lag + k + 1
    ring_start = np.zeros(ring, np.int64)
    ring_pick = np.zeros(ring, np.int64)
    ring_seen = np.zeros(ring, np.int64)
    ring_probs = np.zeros((ring, n))
    ring_context = np.zeros((ring, contexts.shape[1]))
    longest = 0
    for s in range(begin.shape[0]):
        longest = max(longest, end[s] - begin[s])
    uniforms = np.empty(longest)
    losses = np.empty(n)
    copies = states.shape[0]
    inner = np.empty(n)  # what a copy plays inside a round
    total_rounds = 0
    written = 0  # rows of the sequences before this one
    for s in range(begin.shape[0]):
        first, last = begin[s], end[s]
        if coins.shape[0] > 0:
            for i in range(last - first):
                uniforms[i] = coins[written + i]
        else:
            fill(seed, COIN, sequence_id[s], 0, replicate, uniforms[: last - first])
        if not carry_over:
            for copy in range(copies):
                for i in range(fresh.shape[0]):
                    for j in range(n):
                        states[copy, i, j] = fresh[i, j]
                seen[copy] = 0
        row = first
        waiting = first  # the first row whose loss has not been revealed
        newest = -1  # rounds of this sequence, and the one that holds `waiting`
        oldest = 0
        while row < last:
            newest += 1
            slot = newest % ring
            probs = ring_probs[slot]
            context = ring_context[slot]
            for i in range(contexts.shape[1]):
                context[i] = contexts[row, i]
            for i in range(n):
                probs[i] = np.nan
            copy = (row - first) % copies
            play(params, states[copy], context, rng, probs)
            if not is_distribution(probs):
                return -1 - total_rounds
            pick = draw(probs, rng.random())
            got = accepted_drafts(uniforms, first, row, last, k, pick, alpha_flat, alpha_deep, column, deep)
            cut = row + got >= last  # no token is left for the target: the sequence ends inside the drafts
            taken = got if cut else got + 1
            ring_start[slot] = row
            ring_pick[slot] = pick
            ring_seen[slot] = seen[copy]
            picks[total_rounds] = pick
            accepted[total_rounds] = got
            committed[total_rounds] = taken
            total_rounds += 1
            row += taken
            if bandit:
                # a reward that the end truncated is not the drafter's; k accepted drafts, and the first one, are whole
                if not cut or got == k or objective == ACCEPTANCE:
                    for i in range(n):
                        losses[i] = np.nan
                    start, c = ring_start[slot], column[pick]
                    if objective == ACCEPTANCE or block_reward:
                        gain = alpha_flat if objective == ACCEPTANCE and estimator else gamma_flat
                        gain_deep = alpha_deep if objective == ACCEPTANCE and estimator else gamma_deep
                        drafts = 1 if objective == ACCEPTANCE else min(k, got + 1, last - start)
                        mean = 0.0
                        for d in range(drafts):  # with a prefix on the path: the accepted and the first rejected
                            mean += np.float64(gain_deep[start + d, d, c] if deep[pick] else gain[start + d, c])
                        losses[pick] = 1.0 - mean / drafts
                    else:
                        losses[pick] = 1.0 - got / k
                    observe(params, states[0], context, probs, pick, losses)
                    seen[0] += 1
                continue
            if censored:
                if not cut or got == k:
                    for start in range(ring_start[slot], row if every_token else ring_start[slot] + 1):
                        committed_lengths(
                            alpha_flat,
                            gamma_flat,
                            alpha_deep,
                            gamma_deep,
                            start,
                            min(k, row - start),
                            estimator,
                            flat_columns,
                            deep_columns,
                            losses,
                        )
                        for i in range(n):
                            unseen = own_entry_only and i != pick
                            losses[i] = np.nan if unseen else 1.0 - losses[i] / (k + 1.0)
                        observe(params, states[0], context, probs, pick, losses)
                        seen[0] += 1
                continue
            while waiting + lag <= row:
                while oldest < newest and ring_start[(oldest + 1) % ring] <= waiting:
                    oldest += 1
                slot = oldest % ring
                if every_token or waiting == ring_start[slot]:
                    row_losses(
                        alpha_flat,
                        gamma_flat,
                        alpha_deep,
                        gamma_deep,
                        waiting,
                        k,
                        objective,
                        estimator,
                        flat_columns,
                        deep_columns,
                        losses,
                    )
                    copy = (waiting - first) % copies
                    played = ring_probs[slot]
                    known = ring_seen[slot]
                    if copies > 1 and waiting > ring_start[slot]:
                        # a play inside the round, by a copy that has seen since long all that it will have seen
                        play(params, states[copy], ring_context[slot], rng, inner)
                        if not is_distribution(inner):
                            return -total_rounds
                        played = inner
                        known = seen[copy]
                    if expected_loss.shape[0] > 0:
                        mixture = 0.0
                        for i in range(n):
                            mixture += played[i] * losses[i]
                        expected_loss[written + waiting - first] = mixture
                        losses_seen[written + waiting - first] = known
                    if own_entry_only:
                        for i in range(n):
                            if i != ring_pick[slot]:
                                losses[i] = np.nan
                    observe(params, states[copy], ring_context[slot], played, ring_pick[slot], losses)
                    seen[copy] += 1
                waiting += 1
        rounds[s] = newest + 1
        written += last - first
    return total_rounds


def given_array(dtype: Any, ndim: int) -> Any:
    """An array that the engine only reads: memory maps are read-only."""
    return numba.types.Array(dtype, ndim, "C", readonly=True)


_SIGNATURE = int64(
    PLAY,
    OBSERVE,
    float64[::1],  # params
    float64[:, ::1],  # fresh
    float64[:, :, ::1],  # states
    RNG,
    given_array(int64, 1),  # begin
    given_array(int64, 1),  # end
    given_array(int64, 1),  # sequence_id
    int64,  # seed
    int64,  # replicate
    given_array(float64, 1),  # coins
    int64[::1],  # seen
    given_array(float32, 2),  # alpha_flat
    given_array(float32, 2),  # gamma_flat
    given_array(float32, 3),  # alpha_deep
    given_array(float32, 3),  # gamma_deep
    given_array(int64, 1),  # flat_columns
    given_array(int64, 1),  # deep_columns
    given_array(int64, 1),  # column
    given_array(boolean, 1),  # deep
    given_array(float32, 2),  # contexts
    int64,  # k
    int64,  # objective
    int64,  # estimator
    boolean,  # bandit
    boolean,  # censored
    boolean,  # block_reward
    boolean,  # own_entry_only
    boolean,  # every_token
    boolean,  # carry_over
    int32[::1],  # picks
    int32[::1],  # accepted
    int32[::1],  # committed
    int64[::1],  # rounds
    float64[::1],  # expected_loss
    int64[::1],  # losses_seen
)


def compiled_engine() -> Any:
    """Return the engine, compiled or from the cache."""
    # The explicit signature takes learners as function pointers: one compiled engine serves them all.
    return compiled_once(replay_part, _SIGNATURE)


@cache
def plain_engine() -> Any:
    """Return the engine as plain Python, its helpers too."""
    return uncompiled(replay_part)
