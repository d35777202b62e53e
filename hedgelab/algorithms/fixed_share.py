r"""Fixed-Share: exponential weights that give a share back to everyone, to follow a best drafter that changes.

    v(i) ∝ w_t(i) exp(-eta_t l_t(i)),   w_{t+1}(i) = (1 - alpha_t) v(i) + alpha_t / N,   w_1 = 1/N

Herbster and Warmuth 1998, in the form where all drafters, the sharer included, get the same share (Cesa-Bianchi and
Lugosi 2006, section 5.2; Herbster and Warmuth's alpha is (N - 1)/N of this one). Against the best sequence of drafters
with m changes, fixed eta and alpha:

    R_T <= ((m + 1) ln N + m ln(1/alpha) + (T - 1 - m) ln(1/(1 - alpha))) / eta + eta T / 8.

A decoder knows neither T nor m, so the defaults are anytime: alpha_t = 1/(t + 1) and eta_t = c sqrt(ln(N t) / t), and
then

    R_T <= (m + 1) ln(N T) / eta_T + sum_{t < T} ln((t + 1)/t) / eta_t + sum_{t <= T} eta_t / 8.

Proof: <w_t, l_t> - l_t(i) <= (ln v(i) - ln w_t(i)) / eta_t + eta_t / 8 by Hoeffding's lemma; ln v(i) <= ln w_{t+1}(i) +
ln(1/(1 - alpha_t)) while the comparator stays, <= 0 where it leaves; and w_t >= 1/(N t). Sum by parts, eta falling.
Derived here, checked on streams that switch.

t counts the losses seen. Under delay each loss updates the weights when it arrives. All weights stay above alpha_t (1 -
rounding) / N, so none can be lost to underflow.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner, Parameter
from hedgelab.lanes import lane_min, lane_sum
from hedgelab.vexp import vexp

_WEIGHT = 0  # w
_SEEN = 1  # losses observed


def init(params, n):
    """Return the state before any loss."""
    state = np.zeros((2, n))
    state[_WEIGHT] = 1.0 / n
    return state


@kernel
def play(params, state, context, rng, probs):
    """The weights."""
    for i in range(probs.shape[0]):
        probs[i] = state[_WEIGHT, i]


@kernel
def observe(params, state, context, probs, pick, losses):
    """Multiply, normalise, share."""
    n = losses.shape[0]
    weight = state[_WEIGHT]
    state[_SEEN, 0] += 1.0
    t = state[_SEEN, 0]
    eta = params[2] * math.sqrt(math.log(n * t) / t) if math.isnan(params[0]) else params[0]
    share = 1.0 / (t + 1.0) if math.isnan(params[1]) else params[1]
    smallest = lane_min(losses)
    for i in range(n):
        weight[i] *= vexp(eta * (smallest - losses[i]))
    keep = (1.0 - share) / lane_sum(weight)
    for i in range(n):
        weight[i] = keep * weight[i] + share / n


LEARNER = Learner(
    name="fixed-share",
    init=init,
    play=play,
    observe=observe,
    parameters={
        "learning_rate": Parameter(None, "fixed rate eta; none: scale * sqrt(ln(N t) / t)", low=0.0),
        "share": Parameter(None, "fixed share alpha; none: 1 / (t + 1)", low=1e-12, high=1.0),
        "scale": Parameter(2.0, "constant c of the anytime rate", low=1e-9),
    },
    bound="fixed: ((m+1) ln N + m ln(1/a) + (T-1-m) ln(1/(1-a)))/eta + eta T/8 to m changes",
    reference="Herbster & Warmuth 1998; Cesa-Bianchi & Lugosi 2006, sec 5.2; anytime derived in the file",
)
