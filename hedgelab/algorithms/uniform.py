"""Uniform: a drafter at random, the floor of every comparison."""

from __future__ import annotations

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner


def init(params, n):
    """Return a state that is never used."""
    return np.zeros((1, n))


@kernel
def play(params, state, context, rng, probs):
    """1/N each."""
    for i in range(probs.shape[0]):
        probs[i] = 1.0 / probs.shape[0]


@kernel
def observe(params, state, context, probs, pick, losses):
    """Learn nothing."""


LEARNER = Learner(name="uniform", init=init, play=play, observe=observe, feedback="none")
