r"""AdaNormalHedge: NormalHedge's potential with the cumulative size of the regrets in place of a scale to solve for.

    Phi(R, C) = exp([R]_+^2 / (3C)),   C(i) = sum |r(i)|,   r(i) = <w, l> - l(i)
    w(i) ∝ (Phi(R(i) + 1, C(i) + 1) - Phi(R(i) - 1, C(i) + 1)) / 2

Luo and Schapire 2015 ("Achieving all with no parameters: Adaptive NormalHedge"), uniform prior; uniform where every
weight is 0. No parameter. R and C are those of the weights that were played; under delay no bound is proved. Without
delay, for every drafter i,

    R_T(i) <= sqrt(3 C_T(i) (ln N + ln B)),   B = 1 + (3/2) mean_j (1 + ln(1 + C_T(j))).

Proof (theirs). Phi(R + r, C + |r|) <= Phi(R, C) + w r + (3/2) |r| / (C + 1) for |r| <= 1, w the weight (their lemma;
here checked on a grid). sum_i w(i) r(i) = 0, and sum |r| / (C + 1) <= 1 + ln(1 + C_T), so the mean of Phi ends below B.
Against mixtures of drafters the published bound has ln(1 + ln N) more under the root (their Theorem 1, unconfirmed).

The difference of the two exponentials is exp(A) (1 - exp(B - A)): A relative to the largest A, so nothing overflows,
and the second factor by expm1, so nothing cancels.
"""

from __future__ import annotations

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner
from hedgelab.lanes import lane_dot, lane_max, lane_sum
from hedgelab.special import vexpm1
from hedgelab.vexp import vexp

_REGRET = 0  # R
_SIZE = 1  # C
_EXPONENT = 2  # scratch


def init(params, n):
    """Return the state before any loss."""
    return np.zeros((3, n))


@kernel
def play(params, state, context, rng, probs):
    """Weigh by the potential's difference over one round."""
    n = probs.shape[0]
    regret, size, exponent = state[_REGRET], state[_SIZE], state[_EXPONENT]
    for i in range(n):
        up = max(regret[i] + 1.0, 0.0)
        exponent[i] = up * up / (3.0 * (size[i] + 1.0))
    top = lane_max(exponent)
    for i in range(n):
        up = max(regret[i] + 1.0, 0.0)
        down = max(regret[i] - 1.0, 0.0)
        drop = (up - down) * (up + down) / (3.0 * (size[i] + 1.0))  # of the exponent, from up to down
        probs[i] = -vexpm1(-drop) * vexp(exponent[i] - top)
    total = lane_sum(probs)
    scale = 1.0 / total if total > 1e-290 else 0.0
    for i in range(n):
        probs[i] = probs[i] * scale if scale > 0.0 else 1.0 / n


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the instantaneous regrets of the weights that were played, and their sizes."""
    expected = lane_dot(probs, losses)
    for i in range(losses.shape[0]):
        regret = expected - losses[i]
        state[_REGRET, i] += regret
        state[_SIZE, i] += abs(regret)


LEARNER = Learner(
    name="adanormalhedge",
    init=init,
    play=play,
    observe=observe,
    bound="sqrt(3 C_T (ln N + ln B)), B = 1 + 1.5 mean(1 + ln(1 + C_T)), C the sizes of the regrets",
    reference="Luo & Schapire 2015; bound to one drafter from its lemma, see the file",
)
