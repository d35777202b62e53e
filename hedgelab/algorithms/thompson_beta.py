r"""Thompson sampling with Beta posteriors: play each drafter as often as it is believed to be the best.

    theta(i) ~ Beta(a(i), b(i)) from the prior Beta(1, 1),   play argmax theta;   a(I) += 1 - l(I),   b(I) += l(I)

Thompson 1933. The theorems are for losses in {0, 1}, drawn independently per drafter: expected regret at most
(1 + epsilon) sum_i gap(i) ln T / kl(mu_i, mu_best) + O(N / epsilon^2), and O(sqrt(N T ln T)) whatever the gaps
(Agrawal and Goyal 2013, Theorems 1 and 2, numbers unconfirmed). For other losses in [0, 1] they toss a coin of that
bias first (Agrawal and Goyal 2012) and the theorems carry over; here the loss itself is added, a fractional count. That
is usual practice, has less noise, and is outside the theorems. Adversarial losses can defeat it.

The sample is drawn inside `play` from the policy's stream, one Beta per drafter in their order, and `probs` is one-hot:
the expected loss <probs, losses> that engines report holds the noise of that draw; average over seeds.
"""

from __future__ import annotations

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.one_hot import one_hot_at_largest
from hedgelab.contract import Learner

_A = 0  # 1 + rewards
_B = 1  # 1 + losses


def init(params, n):
    """Return the state before any loss: the uniform prior."""
    return np.ones((2, n))


@kernel
def play(params, state, context, rng, probs):
    """Sample every posterior; all probability to the largest sample."""
    for i in range(probs.shape[0]):
        probs[i] = rng.beta(state[_A, i], state[_B, i])
    one_hot_at_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Update the pick's posterior."""
    state[_A, pick] += 1.0 - losses[pick]
    state[_B, pick] += losses[pick]


LEARNER = Learner(
    name="thompson-beta",
    init=init,
    play=play,
    observe=observe,
    randomises=True,
    feedback="bandit",
    bound="0/1 losses: (1 + epsilon) sum_i gap_i ln T / kl(mu_i, mu_best) + O(N / epsilon^2)",
    reference="Thompson 1933; Agrawal & Goyal 2013",
)
