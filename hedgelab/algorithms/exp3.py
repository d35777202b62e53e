r"""EXP3: Hedge on importance-weighted losses, for feedback of the pick alone.

    Lhat(i) += l(i) 1[I = i] / w(i),        w ∝ exp(-eta_t Lhat),        eta_t = sqrt(ln N / (t N))

Auer, Cesa-Bianchi, Freund, Schapire 2002, in the form without mixing of Bubeck and Cesa-Bianchi 2012, Theorem 3.1:
pseudo-regret at most 2 sqrt(T N ln N) anytime, sqrt(2 T N ln N) with the fixed rate sqrt(2 ln N / (T N)).
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.exponential import exponential_weights
from hedgelab.contract import Learner, Parameter

_LOSS = 0  # Lhat
_ANCHOR = 1
_SEEN = 2


def init(params, n):
    """Return the state before any loss."""
    return np.zeros((3, n))


@kernel
def play(params, state, context, rng, probs):
    """Exponential weights on the estimated losses."""
    n = probs.shape[0]
    eta = params[0]
    if math.isnan(eta):
        eta = math.sqrt(math.log(n) / (n * (state[_SEEN, 0] + 1.0)))
    state[_ANCHOR, 0] = exponential_weights(state[_LOSS], eta, state[_ANCHOR, 0], probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the pick's loss over the probability with which it was picked: unbiased for every drafter."""
    state[_LOSS, pick] += losses[pick] / probs[pick]
    state[_SEEN, 0] += 1.0


LEARNER = Learner(
    name="exp3",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={"learning_rate": Parameter(None, "fixed rate eta; none: sqrt(ln N / (t N))", low=0.0)},
    bound="2 sqrt(T N ln N)",
    reference="Auer, Cesa-Bianchi, Freund & Schapire 2002; Bubeck & Cesa-Bianchi 2012, Thm 3.1",
)
