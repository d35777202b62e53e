r"""Optimistic Hedge: exponential weights that count the last loss twice, as a guess of the next.

    w_t ∝ exp(-eta_t (L_{t-1} + m_t)),   m_t = l_{t-1}, m_1 = 0
    eta_t = c sqrt(ln N / (4 + D_{t-1})),   D_t = sum_{s <= t} span(l_s - m_s)^2,   span(x) = max x - min x

Rakhlin and Sridharan 2013; Syrgkanis, Agarwal, Luo and Schapire 2015 (the hint of the last loss). Regret is small where
losses change slowly: for any rates that never rise, on every sequence and for every hint known before the play,

    R_T <= ln N / eta_T + sum_t eta_t span(l_t - m_t)^2 / 8

so that the default rate gives (1/c + c/4) sqrt((4 + D_T) ln N), c = 2 best: sqrt((4 + D_T) ln N), at most 2 sqrt((T +
1) ln N) as span <= 2. Proof: with Phi(x) = -ln(mean exp(-eta_t x)) / eta_t, concave with gradient w_t at L_{t-1} + m_t,
<w_t, m_t> <= Phi(L_{t-1} + m_t) - Phi(L_{t-1}), and by Hoeffding's lemma <w_t, l_t - m_t> <= Phi(L_t) - Phi(L_{t-1} +
m_t) + eta_t span^2 / 8; Phi falls with eta, so the sum telescopes to Phi(L_T) <= min L_T + ln N / eta_T. And sum
span_t^2 / sqrt(4 + D_{t-1}) <= 2 sqrt(D_T), because 4 + D_{t-1} >= D_t. The span makes the weights blind to a constant
added to all losses.

Under delay the hint is the last loss *seen*, and D compares each loss with the one seen before it; the bound is then
not proved.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.exponential import exponential_weights
from hedgelab.contract import Learner, Parameter
from hedgelab.lanes import lane_max, lane_min

_LOSS = 0  # L
_HINT = 1  # m
_GUESS = 2  # L + m
_CHANGE = 3  # l - m, scratch
_ANCHOR = 4
_VARIATION = 5  # D


def init(params, n):
    """Return the state before any loss."""
    return np.zeros((6, n))


@kernel
def play(params, state, context, rng, probs):
    """Exponential weights on the losses seen and the hint."""
    eta = params[0]
    if math.isnan(eta):
        eta = params[1] * math.sqrt(math.log(probs.shape[0]) / (4.0 + state[_VARIATION, 0]))
    state[_ANCHOR, 0] = exponential_weights(state[_GUESS], eta, state[_ANCHOR, 0], probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the losses up, measure the hint, and hint at the same loss again."""
    total, hint, guess, change = state[_LOSS], state[_HINT], state[_GUESS], state[_CHANGE]
    for i in range(losses.shape[0]):
        change[i] = losses[i] - hint[i]
        hint[i] = losses[i]
        total[i] += losses[i]
        guess[i] = total[i] + losses[i]
    span = lane_max(change) - lane_min(change)
    state[_VARIATION, 0] += span * span


LEARNER = Learner(
    name="optimistic-hedge",
    init=init,
    play=play,
    observe=observe,
    parameters={
        "learning_rate": Parameter(None, "fixed rate eta; none: scale * sqrt(ln N / (4 + D))", low=0.0),
        "scale": Parameter(2.0, "constant c of the anytime rate", low=1e-9),
    },
    bound="(1/c + c/4) sqrt((4 + D_T) ln N), D_T the variation of the losses",
    reference="Rakhlin & Sridharan 2013; Syrgkanis et al. 2015; bound derived in the file",
)
