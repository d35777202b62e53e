r"""UCB1: the largest upper confidence bound of the mean reward, reward = 1 - loss.

    index(i) = mean(i) + sqrt(2 ln t / n(i)),        t losses seen so far

Auer, Cesa-Bianchi, Fischer 2002. Drafters without a loss come first. Ties, those of the start included, are broken
uniformly at random by the policy's stream: `probs` is uniform over the tied.
"""

from __future__ import annotations

import math

from hedgelab._jit import kernel
from hedgelab.algorithms.counts import MEAN, ROWS, SEEN, count, no_counts
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner

_WIDTH = ROWS  # 1 / sqrt(n), infinite while n = 0


def init(params, n):
    """Return the state before any loss."""
    state = no_counts(1, n)
    state[_WIDTH] = math.inf
    return state


@kernel
def largest_bound(beta, state, probs):
    """Write the uniform distribution over the drafters of largest mean + beta sqrt(2 ln t / n) into `probs` (n,)."""
    # before the second loss ln t is 0 or less: any positive factor keeps "unseen first", and t = 1 has one seen drafter
    factor = beta * math.sqrt(2.0 * math.log(max(state[SEEN, 0], 1.5)))
    for i in range(probs.shape[0]):
        probs[i] = state[MEAN, i] + factor * state[_WIDTH, i]
    uniform_over_largest(probs)


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the drafters of largest index."""
    largest_bound(1.0, state, probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Count the pick's reward."""
    state[_WIDTH, pick] = 1.0 / math.sqrt(count(state, pick, 1.0 - losses[pick]))


LEARNER = Learner(
    name="ucb1",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    bound="sum_i (8 ln T / gap_i) + (1 + pi^2/3) sum_i gap_i",
    reference="Auer, Cesa-Bianchi & Fischer 2002, Thm 1",
)
