r"""Follow the perturbed leader, with Gumbel noise: picks argmin_i (L(i) - G(i) / eta_t), fresh G a round.

Hannan 1957; Kalai and Vempala 2005. The noise is a choice. Gumbel noise is taken because the pick then follows
*exactly* Hedge's distribution exp(-eta L) (the Gumbel-max identity): every bound of Hedge holds in expectation, against
adaptive adversaries too because the noise is drawn anew each round, and a test can say what the law must be. Kalai and
Vempala's exponential noise has a law without closed form at N > 2 and a bound of the same order with a worse constant.

The weights that the learner writes are one-hot: the noise comes from the policy's own stream, one uniform a drafter, in
order. With E = -ln(1 - U) exponential and G = -ln E, the argmin above is that of E(i) exp(eta (L(i) - min L)), a race
of exponential clocks with rates proportional to Hedge's weights.

The rate is Hedge's: eta_t = c sqrt(ln N / t) by default. Regret that is read off the one-hot weights is itself random.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.hedge import rate
from hedgelab.contract import Learner, Parameter
from hedgelab.lanes import lane_min
from hedgelab.vexp import vexp

_LOSS = 0  # L
_SEEN = 1  # losses observed


def init(params, n):
    """Return the state before any loss."""
    return np.zeros((2, n))


@kernel
def play(params, state, context, rng, probs):
    """Draw the noise and follow the leader."""
    n = probs.shape[0]
    loss = state[_LOSS]
    eta = rate(params, state[_SEEN, 0], n)
    lowest = lane_min(loss)
    first, winner = math.inf, 0
    for i in range(n):
        probs[i] = 0.0
        clock = -math.log(1.0 - rng.random()) * vexp(eta * (loss[i] - lowest))
        if clock < first:
            first, winner = clock, i
    probs[winner] = 1.0


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the losses up."""
    total = state[_LOSS]
    for i in range(losses.shape[0]):
        total[i] += losses[i]
    state[_SEEN, 0] += 1.0


LEARNER = Learner(
    name="ftpl",
    init=init,
    play=play,
    observe=observe,
    randomises=True,
    parameters={
        "learning_rate": Parameter(None, "fixed rate eta; none: scale * sqrt(ln N / t)", low=0.0),
        "scale": Parameter(2.0, "constant c of the anytime rate", low=1e-9),
    },
    bound="Hedge's, in expectation",
    reference="Hannan 1957; Kalai & Vempala 2005; Gumbel noise: the law is Hedge's",
)
