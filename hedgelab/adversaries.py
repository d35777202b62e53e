r"""Adversaries: losses chosen each round, after the learner's distribution is known.

``adversary(settings, memory, t, probs, totals, rng, losses)``
    Writes the losses (N,) in [0, 1] of round t (from 0). `settings` (P,) are its numbers, `memory` (rows, N) its own
    state, zeros before round 0; `probs` (N,) what is played this round, `totals` (N,) the cumulative losses before it.

They are adaptive: they see the distribution, not the pick drawn from it. `hedgelab.worlds` makes games of them.
"""

from __future__ import annotations

from hedgelab._jit import kernel

__all__ = ["all_but_the_leader", "breakaway", "heaviest_half", "repeated_half", "select_largest"]


@kernel
def select_largest(values, rank):
    """Return the entry of `values` (n,) that is the `rank`-th from above, rank in 1..n, and leave them reordered.

    Hoare's FIND (1961): O(n) on average, also where many are equal.

    >>> import numpy as np
    >>> float(select_largest(np.array([0.3, 0.1, 0.3, 0.2]), 3))
    0.2
    """
    target = rank - 1
    low = 0
    high = values.shape[0] - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i = low
        j = high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                held = values[i]
                values[i] = values[j]
                values[j] = held
                i += 1
                j -= 1
        if target <= j:
            high = j
        elif target >= i:
            low = i
        else:
            break  # everything between j and i equals the pivot
    return values[target]


@kernel
def heaviest_half(settings, memory, t, probs, totals, rng, losses):
    """Loss 1 for the max(1, N // 2) largest probabilities, 0 for the others; among equals a uniformly random choice.

    One row of memory, scratch; no settings.
    """
    n = probs.shape[0]
    left = max(1, n // 2)
    scratch = memory[0]
    for i in range(n):
        scratch[i] = probs[i]
    threshold = select_largest(scratch, left)
    tied = 0
    for i in range(n):
        if probs[i] > threshold:
            left -= 1
        elif probs[i] == threshold:
            tied += 1
    for i in range(n):
        losses[i] = 1.0 if probs[i] > threshold else 0.0
        if probs[i] == threshold:
            # `left` of the `tied` entries still to come get a loss: every subset is equally likely
            if left == tied or (left > 0 and rng.random() * tied < left):
                losses[i] = 1.0
                left -= 1
            tied -= 1


@kernel
def repeated_half(settings, memory, t, probs, totals, rng, losses):
    """The choice of `heaviest_half` at every `length`-th round, repeated in between; settings = (length,).

    Two rows of memory: scratch, and the losses that are repeated.
    """
    if t % int(settings[0]) == 0:
        heaviest_half(settings, memory, t, probs, totals, rng, memory[1])
    for i in range(losses.shape[0]):
        losses[i] = memory[1, i]


@kernel
def all_but_the_leader(totals, losses):
    """Write loss 0 for the smallest of `totals` (n,), the first of equals, and 1 for the others."""
    leader = 0
    for i in range(1, totals.shape[0]):
        if totals[i] < totals[leader]:
            leader = i
    for i in range(losses.shape[0]):
        losses[i] = 1.0
    losses[leader] = 0.0


@kernel
def breakaway(settings, memory, t, probs, totals, rng, losses):
    """`heaviest_half` until round `settings[0]`, then loss for all but the leader. One row of memory, scratch."""
    if t < settings[0]:
        heaviest_half(settings, memory, t, probs, totals, rng, losses)
    else:
        all_but_the_leader(totals, losses)
