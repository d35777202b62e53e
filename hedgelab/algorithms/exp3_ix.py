r"""EXP3-IX: EXP3 with implicit exploration, small regret with high probability and not only in expectation.

    Lhat(i) += l(i) 1[I = i] / (w(i) + gamma_t),        w ∝ exp(-eta_t Lhat),        eta_t = 2 gamma_t

Neu 2015 ("Explore no more"). The estimate is biased downwards, sum over the pick of w lhat = l w / (w + gamma), which
keeps its variance at most 1 / gamma. Anytime (default): eta_t = sqrt(ln N / (N t)) with t - 1 losses seen. With a
`horizon` T: eta = sqrt(2 ln N / (N T)).

Against an adversary that may react to earlier picks, for each delta and with probability at least 1 - delta, the regret
of the picks is at most

    4 sqrt(N T ln N) + (sqrt(N T / ln N) + 1) ln(2 / delta)                   anytime
    2 sqrt(2 N T ln N) + (sqrt(N T / (2 ln N)) + 1) ln(2 / delta)             with the horizon

because, (i) exponential weights give sum <w, lhat> - Lhat(j) <= ln N / eta_T + sum_t (eta_t / 2) sum_i lhat_t(i);
(ii) l(I) = <w, lhat> + gamma sum_i lhat(i); (iii) sum_t a_t sum_i (lhat - l) <= ln(1/delta) with probability
1 - delta for 0 <= a_t <= 2 gamma_t (Neu's Lemma 1), used with a = eta and with a = 2 gamma_T for each of N drafters;
then sum_t 1 / sqrt t <= 2 sqrt T. The published statement is Theorem 1 (number recalled, unconfirmed); its factor in
front of ln(2/delta) was not compared. Integrating over delta gives the expected regret, with 1 + ln 2 for ln(2 /
delta). Under delay no bound is proved here.
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
def rate(params, seen, n):
    """Return eta = 2 gamma after `seen` losses; params = (horizon or NaN,)."""
    if not math.isnan(params[0]):
        return math.sqrt(2.0 * math.log(n) / (n * params[0]))
    return math.sqrt(math.log(n) / (n * (seen + 1.0)))


@kernel
def play(params, state, context, rng, probs):
    """Exponential weights on the estimated losses."""
    eta = rate(params, state[_SEEN, 0], probs.shape[0])
    state[_ANCHOR, 0] = exponential_weights(state[_LOSS], eta, state[_ANCHOR, 0], probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the pick's loss over its probability plus gamma."""
    gamma = 0.5 * rate(params, state[_SEEN, 0], probs.shape[0])
    state[_LOSS, pick] += losses[pick] / (probs[pick] + gamma)
    state[_SEEN, 0] += 1.0


LEARNER = Learner(
    name="exp3-ix",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={
        "horizon": Parameter(
            None, "rounds T for eta = sqrt(2 ln N / (N T)); none: sqrt(ln N / (N t))", 1.0, integer=True
        )
    },
    bound="4 sqrt(T N ln N) + (sqrt(T N / ln N) + 1) ln(2/delta) with probability 1 - delta",
    reference="Neu 2015; bound proved in the file",
)
