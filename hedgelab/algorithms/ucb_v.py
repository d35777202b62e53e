r"""UCB-V: an upper confidence bound that is narrow where the rewards vary little (empirical Bernstein).

    index(i) = mean(i) + sqrt(2 V(i) E_t / n(i)) + 3 c E_t / n(i),        E_t = zeta ln t

Audibert, Munos, Szepesvari 2009, for rewards in [0, 1]; V(i) is the empirical variance with divisor n(i), and
t = 1 + losses seen the coming round. Drafters without a loss come first. For c = 1 and zeta = 1.2, the defaults, their
Theorem 4 bounds the regret by 10 ln T sum_i (variance_i / gap_i + 2) (recalled, unconfirmed); SMPyBandits has zeta = 1.
The term 3 c E_t / n dominates for long: over a few hundred rounds the policy explores more than UCB1.
"""

from __future__ import annotations

import math

from hedgelab._jit import kernel
from hedgelab.algorithms.counts import MEAN, ROWS, SEEN, count, no_counts
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner, Parameter

# counted in losses: MEAN and SUM are those of the losses
_SQUARES = ROWS  # sum of squared losses
_SPREAD = ROWS + 1  # sqrt(2 zeta V / n)
_REACH = ROWS + 2  # 3 c zeta / n, infinite while n = 0


def init(params, n):
    """Return the state before any loss."""
    state = no_counts(3, n)
    state[_REACH] = math.inf
    return state


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the drafters of largest index."""
    log_t = math.log(max(state[SEEN, 0] + 1.0, 2.0))  # at t = 1 all are unseen, any positive factor will do
    root = math.sqrt(log_t)
    for i in range(probs.shape[0]):
        probs[i] = root * state[_SPREAD, i] + log_t * state[_REACH, i] - state[MEAN, i]
    uniform_over_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Count the pick's loss and its square; params = (zeta, c)."""
    loss = losses[pick]
    n = count(state, pick, loss)
    state[_SQUARES, pick] += loss * loss
    # from sums, not by Welford's updates: whole-number losses then give the same bits in any order, so ties stay ties
    mean = state[MEAN, pick]
    variance = max(0.0, state[_SQUARES, pick] / n - mean * mean)
    state[_SPREAD, pick] = math.sqrt(2.0 * params[0] * variance / n)
    state[_REACH, pick] = 3.0 * params[1] * params[0] / n


LEARNER = Learner(
    name="ucb-v",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={
        "zeta": Parameter(1.2, "exploration E_t = zeta ln t", low=1e-9),
        "c": Parameter(1.0, "factor of the term 3 E_t / n", low=0.0),
    },
    bound="10 ln T sum_i (variance_i / gap_i + 2), zeta = 1.2, c = 1 (constant unconfirmed)",
    reference="Audibert, Munos & Szepesvari 2009",
)
