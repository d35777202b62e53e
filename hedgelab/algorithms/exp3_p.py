r"""EXP3.P: exponential weights on optimistic reward estimates, mixed with the uniform distribution.

    Ghat(i) += (g(i) 1[I = i] + beta) / p(i) for every i,   g = 1 - l
    p(i) = (1 - gamma) exp(eta Ghat(i)) / sum_j exp(eta Ghat(j)) + gamma / N

Auer, Cesa-Bianchi, Freund, Schapire 2002; here the form of Bubeck and Cesa-Bianchi 2012, Theorem 3.2. The estimate
is biased upwards by beta / p(i). With `horizon` T

    eta = 0.95 sqrt(ln N / (T N)),   gamma = 1.05 sqrt(N ln N / T),   beta = sqrt(ln(N / delta) / (T N))

and probability at least 1 - delta the regret of the picks is at most 5.15 sqrt(T N ln(N / delta)), equation (3.10),
against an adversary that may react to them. With no `delta` beta = sqrt(ln N / (T N)), and for every delta at once
the regret is at most 5.15 sqrt(T N ln N) + sqrt(T N / ln N) ln(1 / delta), equation (3.11); in expectation
ln(1 / delta) becomes 1 (Theorem 3.3). gamma is cut at 1, where those bounds exceed T.

A decoder does not know T. Without a `horizon` t takes its place, t - 1 losses seen: all three shrink as they would,
and neither theorem covers that. Nor is a bound proved here under delay.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.exponential import exponential_weights
from hedgelab.contract import Learner, Parameter

_LOSS = 0  # -Ghat
_ANCHOR = 1
_SEEN = 2


def init(params, n):
    """Return the state before any loss."""
    return np.zeros((3, n))


@kernel
def tuning(params, seen, n):
    """Return (eta, gamma, beta) after `seen` losses; params = (horizon or NaN, delta or NaN).

    >>> import numpy as np
    >>> [round(x, 4) for x in tuning(np.array([1000.0, 0.1]), 0.0, 2)]
    [0.0177, 0.0391, 0.0387]
    """
    rounds = seen + 1.0 if math.isnan(params[0]) else params[0]
    log_n = math.log(n)
    log_confidence = log_n if math.isnan(params[1]) else math.log(n / params[1])
    eta = 0.95 * math.sqrt(log_n / (n * rounds))
    gamma = min(1.05 * math.sqrt(n * log_n / rounds), 1.0)
    beta = math.sqrt(log_confidence / (n * rounds))
    return eta, gamma, beta


@kernel
def play(params, state, context, rng, probs):
    """Exponential weights on the estimated rewards, and a share gamma of uniform exploration."""
    n = probs.shape[0]
    eta, gamma, _ = tuning(params, state[_SEEN, 0], n)
    state[_ANCHOR, 0] = exponential_weights(state[_LOSS], eta, state[_ANCHOR, 0], probs)
    for i in range(n):
        probs[i] = (1.0 - gamma) * probs[i] + gamma / n


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the pick's reward over its probability, and to every drafter its optimistic bias."""
    n = probs.shape[0]
    _, _, beta = tuning(params, state[_SEEN, 0], n)
    for i in range(n):
        state[_LOSS, i] -= beta / probs[i]  # p >= gamma / N > 0
    state[_LOSS, pick] -= (1.0 - losses[pick]) / probs[pick]
    state[_SEEN, 0] += 1.0


LEARNER = Learner(
    name="exp3-p",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={
        "horizon": Parameter(None, "rounds T that the constants are tuned to; none: t, no theorem", 1.0, integer=True),
        "delta": Parameter(None, "probability that the bound may fail; none: a bound for every delta", 1e-12, 1.0),
    },
    bound="horizon: 5.15 sqrt(T N ln N) + sqrt(T N / ln N) ln(1/delta) with probability 1 - delta",
    reference="Auer, Cesa-Bianchi, Freund & Schapire 2002; Bubeck & Cesa-Bianchi 2012, Thm 3.2",
)
