r"""UCB1: the largest upper confidence bound of the mean reward, reward = 1 - loss.

    index(i) = mean(i) + sqrt(2 ln t / n(i)),        t losses seen so far

Auer, Cesa-Bianchi, Fischer 2002. Drafters without a loss come first. Ties, those of the start included, are broken
uniformly at random by the policy's stream: `probs` is uniform over the tied.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner

_MEAN = 0
_WIDTH = 1  # 1 / sqrt(n), kept so that a play is one multiply-add a drafter; infinite while n = 0
_COUNT = 2
_SUM = 3  # of rewards: sums of whole-number rewards are exact, so equal means compare equal
_SEEN = 4


def init(params, n):
    """Return the state before any loss."""
    state = np.zeros((5, n))
    state[_WIDTH] = math.inf
    return state


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the drafters of largest index."""
    # before the second loss ln t is 0 or less: any positive factor keeps "unseen first", and t = 1 has one seen drafter
    factor = math.sqrt(2.0 * math.log(max(state[_SEEN, 0], 1.5)))
    for i in range(probs.shape[0]):
        probs[i] = state[_MEAN, i] + factor * state[_WIDTH, i]
    uniform_over_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Update the pick's mean."""
    count = state[_COUNT, pick] + 1.0
    state[_COUNT, pick] = count
    state[_SUM, pick] += 1.0 - losses[pick]
    state[_MEAN, pick] = state[_SUM, pick] / count
    state[_WIDTH, pick] = 1.0 / math.sqrt(count)
    state[_SEEN, 0] += 1.0


LEARNER = Learner(
    name="ucb1",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    bound="sum_i (8 ln T / gap_i) + (1 + pi^2/3) sum_i gap_i",
    reference="Auer, Cesa-Bianchi & Fischer 2002, Thm 1",
)
