r"""Thompson sampling with Gaussian posteriors, for any stochastic losses in [0, 1].

    theta(i) ~ N(sum of i's rewards / (n(i) + 1), 1 / (n(i) + 1)),   play argmax theta,   reward = 1 - loss

Agrawal and Goyal 2013 and 2017: the posterior of a mean with prior N(0, 1) under unit noise. The rewards need not be
Gaussian: for independent draws in [0, 1] the expected regret is O(sqrt(N T ln N)) for T >= N (2013, Theorem 3, number
unconfirmed), with unit variance where 1/4 would do, so it explores more than `thompson-beta`. That the prior counts as
one reward of zero in the mean follows from the posterior; it was not compared with the paper's listing (unconfirmed).

The sample is drawn inside `play` from the policy's stream, one normal per drafter in their order, and `probs` is
one-hot: the expected loss <probs, losses> that engines report holds the noise of that draw; average over seeds.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.one_hot import one_hot_at_largest
from hedgelab.contract import Learner

_MEAN = 0  # of the posterior
_DEVIATION = 1
_COUNT = 2
_SUM = 3  # of rewards


def init(params, n):
    """Return the state before any loss: the standard normal prior."""
    state = np.zeros((4, n))
    state[_DEVIATION] = 1.0
    return state


@kernel
def play(params, state, context, rng, probs):
    """Sample every posterior; all probability to the largest sample."""
    for i in range(probs.shape[0]):
        probs[i] = state[_MEAN, i] + state[_DEVIATION, i] * rng.standard_normal()
    one_hot_at_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Update the pick's posterior."""
    state[_COUNT, pick] += 1.0
    state[_SUM, pick] += 1.0 - losses[pick]
    precision = state[_COUNT, pick] + 1.0
    state[_MEAN, pick] = state[_SUM, pick] / precision
    state[_DEVIATION, pick] = 1.0 / math.sqrt(precision)


LEARNER = Learner(
    name="thompson-gauss",
    init=init,
    play=play,
    observe=observe,
    randomises=True,
    feedback="bandit",
    bound="O(sqrt(T N ln N)) for T >= N",
    reference="Agrawal & Goyal 2013",
)
