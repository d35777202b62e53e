r"""NormalHedge.BH: NormalHedge with a potential that solves the backward heat equation.

    phi(y, t) = t^(-1/2) exp(y^2 / (2t)),    mean_i phi([R(i)]_+, t) = phi(0, t_0),
    w(i) ∝ d phi / d y ∝ [R(i)]_+ exp([R(i)]_+^2 / (2t)),    uniform when no R(i) > 0

Freund, Harvey, Portella, Qi and Wang 2026, arXiv 2602.08151 ("A second order regret bound for NormalHedge"): the clock
t is chosen so that the mean potential stays constant. They prove a regret of the order sqrt((t_0 + 2V)(ln(t_0 + 2V) + 2
ln(1/eps))) to the best eps-quantile, V the sum of second moments of the instantaneous regrets under a distribution of
the potential's curvature.

What is confirmed and what is not. The paper itself could not be read; its abstract, summaries and a third party's
account agree on the potential, on the conserved mean and on clipping the cumulative (not the instantaneous) regrets.
Unconfirmed: that the weights are the derivative, not a discrete difference, of phi; that t is solved for afresh each
round and may fall again, as here; and t_0. From the equation alone, for any t_0, R(i) <= sqrt(t (2 ln N + ln(t / t_0)))
at every moment, so t measures regret.

The start t_0. The theorem is said to need max(512 e^2 ln N, 1) (unconfirmed), which makes weights linear in [R]_+ for
thousands of rounds. That is good against adversaries (N = 2, T = 8192, always the favourite losing: regret 0.7 sqrt(T
ln N), 1.7 with t_0 = 1) and bad where one drafter of many leads (N = 256, T = 500, gap 0.2: 1.7 sqrt(T ln N), 0.2 with
t_0 = 1). The default 1, outside the theorem, behaves like NormalHedge on easy streams.

Regrets are those of the weights that were played; under delay nothing is proved.

Solving for t. With u = 1/(2t), q = [R]_+^2 and m = max q, the root of G(u) = ln mean exp(u q) + ln(u / u_0) / 2 lies in
[u_0/(1 + 2 u_0 m), min(u_0, (ln N + ln(1 + 2 u_0 m)/2)/m)]: mean exp(u q) <= exp(u m), and W(x) >= x/(1 + x) for
Lambert's W, give the first; mean exp(u q) >= max(1, exp(u m)/N) the second. Halley steps from the last root, and a
Taylor step for the weights, as in `normalhedge`: about one pass of exponentials a play.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.normalhedge import clipped_squares, halley_step, moments, slope_weights
from hedgelab.contract import Learner, Parameter
from hedgelab.lanes import lane_dot
from hedgelab.vexp import vexp

_REGRET = 0  # R
_SQUARE = 1  # q, scratch
_WEIGHT = 2  # exp(u q), scratch
_ROOT = 3  # u = 1/(2t) of the last solution


def init(params, n):
    """Return the state before any loss."""
    state = np.zeros((4, n))
    state[_ROOT, 0] = 0.5 / params[0]
    return state


@kernel
def play(params, state, context, rng, probs):
    """Solve for the clock, then weigh by the potential's slope."""
    n = probs.shape[0]
    regret, square, weight = state[_REGRET], state[_SQUARE], state[_WEIGHT]
    largest = clipped_squares(regret, square)
    if largest < 1e-200:
        state[_ROOT, 0] = 0.5 / params[0]
        for i in range(n):
            probs[i] = 1.0 / n
        return
    start = 0.5 / params[0]
    low = start / (1.0 + 2.0 * start * largest)
    high = min(start, (math.log(n) + 0.5 * math.log1p(2.0 * start * largest)) / largest)
    high = max(high, low)
    u = min(max(state[_ROOT, 0], low), high)
    step = 0.0
    for _ in range(100):
        for i in range(n):
            weight[i] = vexp(u * square[i])
        a, b, c = moments(weight, square)
        value = math.log(a / n) + 0.5 * math.log(u / start)
        tilted = b / a
        slope = tilted + 0.5 / u
        curvature = c / a - tilted * tilted - 0.5 / (u * u)
        step, low, high, last = halley_step(u, value, slope, curvature, low, high)
        if last:
            break
        u += step
    state[_ROOT, 0] = u + step
    slope_weights(weight, square, step, probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the instantaneous regrets of the weights that were played."""
    expected = lane_dot(probs, losses)
    for i in range(losses.shape[0]):
        state[_REGRET, i] += expected - losses[i]


LEARNER = Learner(
    name="normalhedge-bh",
    init=init,
    play=play,
    observe=observe,
    parameters={"start": Parameter(1.0, "clock t_0 before any regret", low=1e-6, high=1e12)},
    bound="O(sqrt(V ln(N V))), V a second moment of regrets; large start only",
    reference="Freund, Harvey, Portella, Qi & Wang 2026, arXiv 2602.08151 (form unconfirmed in part)",
)
