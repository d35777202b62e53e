r"""Hedge: exponential weights over cumulative losses.

    w_t(i) ∝ exp(-eta_t L_{t-1}(i))

Freund and Schapire 1997. With a fixed rate eta = sqrt(8 ln N / T) the regret is at most sqrt(T ln N / 2) on every
sequence of losses in [0, 1], chosen by any adversary (Cesa-Bianchi and Lugosi 2006, Theorem 2.2). A decoder does not
know T, so the default is anytime: eta_t = c sqrt(ln N / t) with t - 1 losses seen, regret at most (1/c + c/4) sqrt(T ln
N), c = 2 best. Under delay the weights are those of the losses seen so far; `hedgelab.bounds` has the bounds.

The older anytime schedule is the doubling trick (schedule = 1): periods of 1, 2, 4, ... losses, each a fresh Hedge with
the fixed rate tuned to its length, eta = sqrt(8 ln N / 2^k). A cut period costs at most sqrt(2^k ln N / 2) as well, so
the geometric sum gives sqrt 2 / (sqrt 2 - 1) sqrt(T ln N / 2) (Cesa-Bianchi and Lugosi 2006, section 2.3).
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.exponential import exponential_weights
from hedgelab.contract import Learner, Parameter

# rows of the state; scalars sit in column 0 of their row
_LOSS = 0  # L, of the present period under doubling
_ANCHOR = 1
_SEEN = 2  # losses observed
_PERIOD = 3  # length of the present period under doubling


def init(params, n):
    """Return the state before any loss."""
    state = np.zeros((4, n))
    state[_PERIOD, 0] = 1.0
    return state


@kernel
def rate(params, seen, n):
    """Return eta for the play after `seen` losses; params = (learning_rate or NaN, scale, ...)."""
    if not math.isnan(params[0]):
        return params[0]
    return params[1] * math.sqrt(math.log(n) / (seen + 1.0))


@kernel
def doubles(params):
    """Return whether params = (learning_rate or NaN, scale, schedule) ask for the doubling trick."""
    return math.isnan(params[0]) and params[2] == 1.0


@kernel
def play(params, state, context, rng, probs):
    """Exponential weights on the losses seen."""
    n = probs.shape[0]
    eta = math.sqrt(8.0 * math.log(n) / state[_PERIOD, 0]) if doubles(params) else rate(params, state[_SEEN, 0], n)
    state[_ANCHOR, 0] = exponential_weights(state[_LOSS], eta, state[_ANCHOR, 0], probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the losses up."""
    total = state[_LOSS]
    for i in range(losses.shape[0]):
        total[i] += losses[i]
    state[_SEEN, 0] += 1.0
    if doubles(params) and state[_SEEN, 0] + 1.0 == 2.0 * state[_PERIOD, 0]:
        state[_PERIOD, 0] *= 2.0
        state[_ANCHOR, 0] = 0.0
        for i in range(losses.shape[0]):
            total[i] = 0.0


LEARNER = Learner(
    name="hedge",
    init=init,
    play=play,
    observe=observe,
    parameters={
        "learning_rate": Parameter(None, "fixed rate eta; none: anytime, by schedule", low=0.0),
        "scale": Parameter(2.0, "constant c of the anytime rate", low=1e-9),
        "schedule": Parameter(
            0.0, "anytime rate: 0 scale * sqrt(ln N / t), 1 doubling trick", low=0.0, high=1.0, integer=True
        ),
    },
    bound="(1/c + c/4) sqrt(T ln N); fixed rate: sqrt(T ln N / 2); doubling: 3.42 sqrt(T ln N / 2)",
    reference="Freund & Schapire 1997; fixed rate: Cesa-Bianchi & Lugosi 2006, Thm 2.2; anytime: bounds.hedge_path",
)
