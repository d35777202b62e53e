r"""ML-Prod: multiplicative weights with a learning rate of its own for each drafter.

    w_t(i) ∝ eta_t(i) W_t(i),   eta_t(i) = min(1/2, sqrt(ln N / (1 + V_{t-1}(i)))),   V(i) = sum r(i)^2
    W_{t+1}(i) = (W_t(i) (1 + eta_t(i) r_t(i)))^(eta_{t+1}(i) / eta_t(i)),   W_1(i) = 1/N

Gaillard, Stoltz and van Erven 2014 ("A second-order bound with excess losses"), Adapt-ML-Prod. r is the regret of the
weights that were played. Regret to drafter i, without delay, at most

    2 sqrt(V_T ln N) + 2 ln N + max(2, sqrt((1 + V_T) / ln N)) ln(1 + (N/2) ln(1 + T)),   V_T = V_T(i), N >= 2.

Proof. ln W / eta adds ln(1 + eta r) / eta >= r - eta r^2 a round (eta r >= -1/2), so R <= sum eta r^2 + ln N / eta_1 +
ln W_{T+1} / eta_{T+1}. The first sum is at most 2 sqrt(V ln N), because 1 + V_{t-1} >= V_t. sum_i W grows only through
the powers, since sum eta W r = 0: x^a <= x + 1 - a for a <= 1, and the 1 - a of a drafter sum to at most ln(eta_1 /
eta_{T+1}) <= ln(1 + T) / 2. The paper's own bound (Corollary 4, number unconfirmed) has other constants.

W is kept as a logarithm.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner
from hedgelab.lanes import lane_dot, lane_max, normalise
from hedgelab.special import vlog1p
from hedgelab.vexp import vexp

_LOG_WEIGHT = 0  # ln W
_RATE = 1  # eta
_SQUARE = 2  # V


@kernel
def log_drafters(n):
    """Return ln N, and for a single drafter, where any rate will do, ln 2."""
    return math.log(max(n, 2))


def init(params, n):
    """Return the state before any loss."""
    state = np.zeros((3, n))
    state[_LOG_WEIGHT] = -math.log(n)
    state[_RATE] = min(0.5, math.sqrt(log_drafters(n)))
    return state


@kernel
def play(params, state, context, rng, probs):
    """Weights times rates."""
    n = probs.shape[0]
    log_weight, rate = state[_LOG_WEIGHT], state[_RATE]
    top = lane_max(log_weight)
    for i in range(n):
        probs[i] = rate[i] * vexp(log_weight[i] - top)
    normalise(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Multiply by 1 + eta r, then move to the new rates."""
    n = losses.shape[0]
    log_weight, rate, square = state[_LOG_WEIGHT], state[_RATE], state[_SQUARE]
    expected = lane_dot(probs, losses)
    log_n = log_drafters(n)
    for i in range(n):
        regret = expected - losses[i]
        square[i] += regret * regret
        slower = min(0.5, math.sqrt(log_n / (1.0 + square[i])))
        log_weight[i] = (log_weight[i] + vlog1p(rate[i] * regret)) * (slower / rate[i])
        rate[i] = slower


LEARNER = Learner(
    name="ml-prod",
    init=init,
    play=play,
    observe=observe,
    bound="2 sqrt(V ln N) + 2 ln N + max(2, sqrt((1 + V)/ln N)) ln(1 + (N/2) ln(1 + T))",
    reference="Gaillard, Stoltz & van Erven 2014 (Adapt-ML-Prod); bound derived in the file",
)
