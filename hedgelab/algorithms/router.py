"""Router: the distribution that its context holds, so what was decided for a text before it began. Learns nothing.

Not in the registry: without a context of its own there is nothing to play. `hedgelab.router` makes such contexts from
prompts; `hedgelab.replay(trace, LEARNER, context=router.contexts(trace))` runs them.
"""

from __future__ import annotations

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner


def init(params, n):
    """Return a state that is never used."""
    return np.zeros((1, n))


@kernel
def play(params, state, context, rng, probs):
    """Play the context; where it is not one probability a drafter, what is written is no distribution."""
    n = probs.shape[0]
    for i in range(n):
        probs[i] = context[i] if context.shape[0] == n else 0.0


@kernel
def observe(params, state, context, probs, pick, losses):
    """Learn nothing."""


LEARNER = Learner(name="router", init=init, play=play, observe=observe, feedback="none")
