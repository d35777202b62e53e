r"""NormalHedge: no learning rate, the scale is found from the regrets.

    mean_i exp([R_i]_+^2 / (2c)) = e,        w(i) ∝ ([R_i]_+ / c) exp([R_i]_+^2 / (2c)),        uniform when no R_i > 0

Chaudhuri, Freund and Hsu 2009 ("A parameter-free hedging algorithm"). R_i is the regret of the weights that were
*played*; under delay no bound is proved. The published bound to the best eps-quantile (their Theorem 1) is far above
measured regret at the horizons of a decoder (353 at N = 7, T = 512, where sqrt(T ln N / 2) is 22).

Solving for c. With u = 1/(2c), q_i = [R_i]_+^2 and m = max q, the root of G(u) = ln mean exp(u q) - 1 lies in
[1/m, (1 + ln N)/m]. Halley steps from the last root, kept inside the shrinking bracket, converge cubically. When a
step is so short that the next iterate is right to 2e-11, the weights at the new u come from those at the old one by
the Taylor polynomial of exp(du q) to degree 5 (|du q| < 2e-3 here, so the remainder is below 1e-19): about one pass
of exponentials a play.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner
from hedgelab.lanes import lane_dot, lane_max, normalise
from hedgelab.vexp import vexp

_REGRET = 0  # R
_SQUARE = 1  # q, scratch
_WEIGHT = 2  # exp(u q), scratch
_ROOT = 3  # u = 1/(2c) of the last solution

_TOLERANCE = 2e-11  # relative, of u


def init(params, n):
    """Return the state before any loss."""
    return np.zeros((4, n))


@kernel
def moments(weight, square):
    """Return (sum w, sum w q, sum w q^2) in four lanes each."""
    n = weight.shape[0]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):
        w0, w1, w2, w3 = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
        q0, q1, q2, q3 = square[i], square[i + 1], square[i + 2], square[i + 3]
        a0 += w0
        a1 += w1
        a2 += w2
        a3 += w3
        w0 *= q0
        w1 *= q1
        w2 *= q2
        w3 *= q3
        b0 += w0
        b1 += w1
        b2 += w2
        b3 += w3
        c0 += w0 * q0
        c1 += w1 * q1
        c2 += w2 * q2
        c3 += w3 * q3
    for i in range(whole, n):
        w0, q0 = weight[i], square[i]
        a0 += w0
        b0 += w0 * q0
        c0 += w0 * q0 * q0
    return (a0 + a1) + (a2 + a3), (b0 + b1) + (b2 + b3), (c0 + c1) + (c2 + c3)


@kernel
def clipped_squares(regret, square):
    """Write [R]_+^2 into `square` and return the largest."""
    for i in range(regret.shape[0]):
        positive = regret[i] if regret[i] > 0.0 else 0.0  # clip, then square
        square[i] = positive * positive
    return lane_max(square)


@kernel
def halley_step(u, value, slope, curvature, low, high):
    """Return (step, low, high, last): Halley's step from u for a rising function, inside the bracket [low, high].

    The bracket shrinks to the side of the root; a step that would leave it is bisection's. `last` : whether u + step is
    right to the tolerance.
    """
    if value > 0.0:
        high = u
    else:
        low = u
    denominator = 2.0 * slope * slope - value * curvature
    step = -2.0 * value * slope / denominator if denominator > 0.0 else -value / slope
    inside = low <= u + step <= high
    if not inside:
        step = 0.5 * (low + high) - u
    relative = abs(step) / u
    last = (inside and 10.0 * relative * relative * relative < _TOLERANCE) or relative < 1e-15
    return step, low, high, last


@kernel
def slope_weights(weight, square, step, probs):
    """Write w ∝ sqrt(q) exp((u + step) q) into `probs`, from weight = exp(u q), square = q; |step q| small."""
    for i in range(probs.shape[0]):
        z = step * square[i]
        correction = 1.0 + z * (1.0 + z * (0.5 + z * (1.0 / 6.0 + z * (1.0 / 24.0 + z * (1.0 / 120.0)))))
        probs[i] = weight[i] * correction * math.sqrt(square[i])
    normalise(probs)


@kernel
def play(params, state, context, rng, probs):
    """Solve for the scale, then weigh by potential slope."""
    n = probs.shape[0]
    regret, square, weight = state[_REGRET], state[_SQUARE], state[_WEIGHT]
    largest = clipped_squares(regret, square)
    if largest < 1e-200:
        for i in range(n):
            probs[i] = 1.0 / n
        return
    low = 1.0 / largest
    high = (1.0 + math.log(n)) / largest
    u = min(max(state[_ROOT, 0], low), high)
    step = 0.0
    for _ in range(100):
        for i in range(n):
            weight[i] = vexp(u * square[i])
        a, b, c = moments(weight, square)
        value = math.log(a / n) - 1.0
        slope = b / a
        curvature = c / a - slope * slope
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
    name="normalhedge",
    init=init,
    play=play,
    observe=observe,
    bound="O(sqrt(T ln N) + ln^2 N) to the best, also to quantiles",
    reference="Chaudhuri, Freund & Hsu 2009, Thm 1",
)
