"""The token game's rounds, compiled: one engine for all learners and adversaries, reached as function pointers.

`hedgelab.token_game` says what a round is and is the way in; nothing is checked here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import boolean, float64, int32, int64

from hedgelab._jit import compiled_once, kernel, uncompiled
from hedgelab.contract import ADVERSARY, OBSERVE, PLAY, RNG
from hedgelab.decode_loop import draw, given_array, is_distribution
from hedgelab.lanes import count_outside, lane_moments

__all__ = ["BOLD", "QPM_D", "QUEUE", "compiled_game", "no_adversary", "plain_game", "play_block"]

QUEUE = 0
BOLD = 1
QPM_D = 2


@kernel
def no_adversary(settings, memory, t, probs, totals, rng, losses):
    """Leave the given losses as they are."""


@kernel
def _own_entry(losses, pick):
    """Blot out all entries of `losses` (n,) but one."""
    own = losses[pick]
    for i in range(losses.shape[0]):
        losses[i] = np.nan
    losses[pick] = own


@kernel
def play_block(
    play,
    observe,
    adversary,
    settings,
    memory,
    adaptive,
    params,
    states,
    rng,
    world_rng,
    first,
    losses,
    delays,
    mode,
    own_entry_only,
    clock,
    waits,
    slot_probs,
    slot_losses,
    slot_pick,
    slot_copy,
    slot_next,
    due_first,
    due_last,
    held,
    heads,
    tails,
    following,
    kept_loss,
    totals,
    sums,
    times,
    regret,
    picks,
    round_loss,
    probs_out,
    losses_out,
):
    """Play rounds first, first + 1, ... of a game, one a row of `losses` (B, N); return B, -1 - b where the play of
    row b is no distribution, or -1 - B - b where a loss in it lies outside [0, 1].

    params (P,), states (copies, rows, N): the learner's copies; delays (B,): the loss of round s is revealed at the end
    of round s + delay, never where the delay is -1; own_entry_only: to the learner, the pick's entry alone. Writes
    picks and round_loss (B,), regret at `times` (M,), and probs_out, losses_out (B, N) where not empty.

    Carried from block to block: clock (2,) = how many times have passed, and QPM-D's waiting pick (-1: none), which was
    drawn from held (N,); waits (copies,), whether a copy waits for a loss; the ring of G = longest delay + 1 slots,
    slot_* (G, ...), and lists of the rounds whose loss is revealed in one round: due_first, due_last (G,), slot_next;
    for QPM-D a queue of revealed losses a drafter: heads, tails (N,), following, kept_loss (T,); totals (N,); sums
    (3,) = expected loss, loss of the picks, variance of the losses under the plays.
    """
    n = losses.shape[1]
    ring = slot_next.shape[0]
    context = np.empty(0)
    current = np.empty(n)
    shown_probs = np.empty(n)
    shown_totals = np.empty(n)
    for b in range(losses.shape[0]):
        t = first + b
        slot = t % ring
        probs = slot_probs[slot]
        copy = 0
        if mode == BOLD:
            while waits[copy]:
                copy += 1
        if mode == QPM_D:
            # the base learner waits with its pick until a loss of that drafter is there; until then the pick is played
            while clock[1] < 0 or heads[clock[1]] >= 0:
                if clock[1] >= 0:
                    pick = clock[1]
                    for i in range(n):
                        current[i] = np.nan
                    current[pick] = kept_loss[heads[pick]]
                    heads[pick] = following[heads[pick]]
                    observe(params, states[0], context, held, pick, current)
                for i in range(n):
                    held[i] = np.nan
                play(params, states[0], context, rng, held)
                if not is_distribution(held):
                    return -1 - b
                clock[1] = draw(held, rng.random())
            pick = clock[1]
            for i in range(n):
                probs[i] = 1.0 if i == pick else 0.0
        else:
            for i in range(n):
                probs[i] = np.nan
            play(params, states[copy], context, rng, probs)
            if not is_distribution(probs):
                return -1 - b
            pick = draw(probs, rng.random())
        if adaptive:
            for i in range(n):  # copies, so that nothing the adversary writes but its losses counts
                shown_probs[i] = probs[i]
                shown_totals[i] = totals[i]
                current[i] = np.nan
            adversary(settings, memory, t, shown_probs, shown_totals, world_rng, current)
        else:
            for i in range(n):
                current[i] = losses[b, i]
        if count_outside(current, 0.0, 1.0) > 0:
            return -1 - losses.shape[0] - b
        expected, square = lane_moments(probs, current)
        for i in range(n):
            totals[i] += current[i]
        sums[0] += expected
        sums[1] += current[pick]
        sums[2] += max(square - expected * expected, 0.0)
        picks[b] = pick
        round_loss[b] = expected
        if probs_out.shape[0] > 0:
            for i in range(n):
                probs_out[b, i] = probs[i]
                losses_out[b, i] = current[i]
        if ring == 1 and delays[b] == 0 and mode != QPM_D:
            if own_entry_only:
                _own_entry(current, pick)
            observe(params, states[copy], context, probs, pick, current)
        else:
            for i in range(n):
                slot_losses[slot, i] = current[i]
            if own_entry_only:
                _own_entry(slot_losses[slot], pick)
            slot_pick[slot] = pick
            slot_copy[slot] = copy
            waits[copy] = True
            if delays[b] >= 0:  # into the list of what is revealed in that round, in the order of the rounds played
                due = (t + delays[b]) % ring
                slot_next[slot] = -1
                if due_first[due] < 0:
                    due_first[due] = t
                else:
                    slot_next[due_last[due] % ring] = t
                due_last[due] = t
        s = due_first[slot]
        due_first[slot] = -1
        while s >= 0:
            here = s % ring
            who = slot_pick[here]
            if mode == QPM_D:
                kept_loss[s] = slot_losses[here, who]
                following[s] = -1
                if heads[who] < 0:
                    heads[who] = s
                else:
                    following[tails[who]] = s
                tails[who] = s
            else:
                observe(params, states[slot_copy[here]], context, slot_probs[here], who, slot_losses[here])
            waits[slot_copy[here]] = False
            s = slot_next[here]
        while clock[0] < times.shape[0] and times[clock[0]] == t + 1:
            best = np.inf
            for i in range(n):
                best = min(best, totals[i])
            regret[clock[0]] = sums[0] - best
            clock[0] += 1
    return losses.shape[0]


_SIGNATURE = int64(
    PLAY,
    OBSERVE,
    ADVERSARY,
    float64[::1],  # settings
    float64[:, ::1],  # memory
    boolean,  # adaptive
    float64[::1],  # params
    float64[:, :, ::1],  # states
    RNG,
    RNG,  # world_rng
    int64,  # first
    given_array(float64, 2),  # losses
    given_array(int64, 1),  # delays
    int64,  # mode
    boolean,  # own_entry_only
    int64[::1],  # clock
    boolean[::1],  # waits
    float64[:, ::1],  # slot_probs
    float64[:, ::1],  # slot_losses
    int64[::1],  # slot_pick
    int64[::1],  # slot_copy
    int64[::1],  # slot_next
    int64[::1],  # due_first
    int64[::1],  # due_last
    float64[::1],  # held
    int64[::1],  # heads
    int64[::1],  # tails
    int64[::1],  # following
    float64[::1],  # kept_loss
    float64[::1],  # totals
    float64[::1],  # sums
    int64[::1],  # times
    float64[::1],  # regret
    int32[::1],  # picks
    float64[::1],  # round_loss
    float64[:, ::1],  # probs_out
    float64[:, ::1],  # losses_out
)


def compiled_game() -> Any:
    """Return the engine, compiled or from the cache."""
    return compiled_once(play_block, _SIGNATURE)


@cache
def plain_game() -> Any:
    """Return the engine as plain Python, its helpers too."""
    return uncompiled(play_block)
