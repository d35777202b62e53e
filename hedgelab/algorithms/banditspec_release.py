r"""What BanditSpec's released code plays: each drafter once, then the largest mean.

    index(i) = mean(i) + width(t) / sqrt(sum_j n(j))

The code (github.com/sail-sg/BanditSpec, generate_utils.py: the mean plus sqrt(6 ln t / total calls)) divides the bonus
by the number of *all* calls where UCBSpec (`ucbspec`) has the drafter's own. One number is added to every index, the
argmax is that of the means: after the warm-up the policy is greedy, and the best drafter, unlucky in its first round,
may never be played again, with positive probability. Expected regret is linear in T. The constant bonus is left out
here, because adding it could only round different means to equal ones.

Two details differ from that code: it chooses draft lengths, by tokens a second, and walks round them nearly twice
(2N - 1 rounds) first; and its argmax takes the first of tied indices, where all policies here are uniform over ties.
"""

from __future__ import annotations

import math

from hedgelab._jit import kernel
from hedgelab.algorithms.counts import MEAN, count, no_counts
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner


def init(params, n):
    """Return the state before any loss: an unseen drafter's mean is infinite."""
    state = no_counts(0, n)
    state[MEAN] = math.inf
    return state


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the drafters of largest mean."""
    for i in range(probs.shape[0]):
        probs[i] = state[MEAN, i]
    uniform_over_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Count the pick's reward."""
    count(state, pick, 1.0 - losses[pick])


LEARNER = Learner(
    name="banditspec-release",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    reference="released code of Hou et al. 2025, github.com/sail-sg/BanditSpec",
)
