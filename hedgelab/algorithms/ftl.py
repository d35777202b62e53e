"""Follow the leader: the drafter with the smallest loss so far, uniform over exact ties.

No sublinear bound against an adversary (two experts and alternating losses make it pay T/2); on stationary data it is
hard to beat, which is why every comparison has it.
"""

from __future__ import annotations

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner
from hedgelab.lanes import lane_min


def init(params, n):
    """Return the state before any loss: cumulative losses."""
    return np.zeros((1, n))


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the leaders."""
    total = state[0]
    best = lane_min(total)
    leaders = 0
    for i in range(probs.shape[0]):
        leads = total[i] == best
        leaders += leads
        probs[i] = leads
    for i in range(probs.shape[0]):
        probs[i] /= leaders


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
