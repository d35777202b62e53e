"""Fixed: one drafter for every round, what a system without selection does."""

from __future__ import annotations

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner, Parameter


def init(params, n):
    """Return a state that is never used. Raises ValueError when there is no such drafter."""
    if params[0] >= n:
        raise ValueError(f"learner 'fixed': drafter must lie in [0, {n - 1}], got {int(params[0])}")
    return np.zeros((1, n))


@kernel
def play(params, state, context, rng, probs):
    """All mass on one drafter."""
    for i in range(probs.shape[0]):
        probs[i] = 0.0
    probs[int(params[0])] = 1.0


@kernel
def observe(params, state, context, probs, pick, losses):
    """Learn nothing."""


LEARNER = Learner(
    name="fixed",
    init=init,
    play=play,
    observe=observe,
    feedback="none",
    parameters={"drafter": Parameter(0, "index or name of the drafter", low=0, integer=True)},
)
