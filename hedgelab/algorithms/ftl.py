"""Follow the leader: the drafter with the smallest loss so far, uniform over exact ties.

No sublinear bound against an adversary (two experts and alternating losses make it pay T/2); on stationary data it is
hard to beat, which is why every comparison has it.
"""

from __future__ import annotations

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner


def init(params, n):
    """Return the state before any loss: cumulative losses."""
    return np.zeros((1, n))


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the leaders."""
    for i in range(probs.shape[0]):
        probs[i] = -state[0, i]
    uniform_over_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the losses up."""
    for i in range(losses.shape[0]):
        state[0, i] += losses[i]


LEARNER = Learner(
    name="ftl",
    init=init,
    play=play,
    observe=observe,
    reference="Hannan 1957; Cesa-Bianchi & Lugosi 2006, sec. 3.2",
)
