r"""Squint: exponential weights on regret and its square, mixed over all learning rates up to 1/2.

    w(i) ∝ xi(R(i), V(i)),   xi(R, V) = integral_0^{1/2} exp(eta R - eta^2 V) d eta,   V(i) = sum r(i)^2

Koolen and van Erven 2015 ("Second-order quantile methods for experts and combinatorial games"), uniform prior on
drafters and the improper prior d eta / eta on rates. No parameter. R and V are those of the weights that were played;
under delay no bound is proved. Without delay, for T >= 2 and every drafter,

    R_T <= max(sqrt((16/3) V_T c), (16/3) c),   c = ln(1 + N (1 + ln T) / ln 2).

Proof. The potential mean_i integral_0^{1/2} (exp(eta R(i) - eta^2 V(i)) - 1) / eta d eta never exceeds 0, because exp(x
- x^2) <= 1 + x for x >= -1/2 and the weights make the linear terms cancel (the paper's argument). The other drafters
weigh at least -(1 + ln(3T/4)) each, since 1 - exp(eta R - eta^2 V) <= min(1, 3 eta T / 2). For a drafter of regret R >=
1/2 the integrand is nonnegative up to R/V, below -1/eta nowhere, and its exponent is at least 3R^2/(16V) over the upper
half of [0, R/(2V)], or 3R/16 over that of [0, 1/2] where V < R; either half has mass ln 2. The paper's own bound
(Theorem 4) is not quoted: its constants are unconfirmed.

In closed form, with s = sqrt V, x0 = -R/(2s) and x1 = (V - R)/(2s),

    xi = sqrt(pi)/(2s) exp(x0^2) (erf(x1) - erf(x0))

which over- and underflows. With p <= q the pair (x0, x1), or (-x1, -x0) where that makes q the larger in size, and d =
q^2 - p^2 = |V/4 - R/2|,

    p >= 0:  exp(x0^2) (erf(x1) - erf(x0)) = exp(b) (erfcx(p) - exp(-d) erfcx(q)),             b = max(R/2 - V/4, 0)
    p <  0:                                = exp(b) (2 - exp(-p^2) (erfcx(-p) + exp(-d) erfcx(q))),       b = R^2/(4V)

where every factor but exp(b) lies between a polynomial in T and its inverse; the largest b is taken out. The difference
cancels only where V and d are both small; there six Gauss-Legendre nodes give the integral to the last digits, V = 0
included (1/2).
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner
from hedgelab.lanes import lane_dot, lane_max, normalise
from hedgelab.special import erfcx
from hedgelab.vexp import vexp

_REGRET = 0  # R
_SQUARE = 1  # V
_EXPONENT = 2  # b, scratch

_HALF_ROOT_PI = 0.8862269254527580
_NODES = (0.03376524289842399, 0.16939530676686773, 0.38069040695840156)  # Gauss-Legendre on [0, 1]: u, 1 - u
_MASSES = (0.08566224618958518, 0.1803807865240693, 0.23395696728634552)


def init(params, n):
    """Return the state before any loss."""
    return np.zeros((3, n))


@kernel
def evidence(regret, square):
    """Return (m, b) with xi(R, V) = m exp(b), for V of at least 1/4 or |V/4 - R/2| of at least 1/4."""
    s = math.sqrt(max(square, 1e-300))
    half = 0.5 / s
    x0 = -regret * half
    x1 = (square - regret) * half
    tilt = 0.5 * regret - 0.25 * square
    p = x0 if tilt <= 0.0 else -x1
    q = x1 if tilt <= 0.0 else -x0
    size = abs(p)
    near = erfcx(size)
    far = vexp(-abs(tilt)) * erfcx(max(q, size))
    difference = near - far if p >= 0.0 else 2.0 - vexp(-size * size) * (near + far)
    return _HALF_ROOT_PI / s * difference, max(tilt, 0.0) if p >= 0.0 else x0 * x0


@kernel
def quadrature(regret, square):
    """Return xi(R, V) for V and |V/4 - R/2| below 1/4, by Gauss-Legendre quadrature."""
    linear, quadratic = 0.5 * regret, 0.25 * square
    total = 0.0
    for k in range(3):
        low, high = _NODES[k], 1.0 - _NODES[k]
        total += _MASSES[k] * (vexp((linear - quadratic * low) * low) + vexp((linear - quadratic * high) * high))
    return 0.5 * total


@kernel
def play(params, state, context, rng, probs):
    """Weigh by the mixture over learning rates."""
    n = probs.shape[0]
    regret, square, exponent = state[_REGRET], state[_SQUARE], state[_EXPONENT]
    for i in range(n):
        probs[i], exponent[i] = evidence(regret[i], square[i])
    for i in range(n):
        if square[i] < 0.25 and abs(0.5 * regret[i] - 0.25 * square[i]) < 0.25:
            probs[i], exponent[i] = quadrature(regret[i], square[i]), 0.0
    top = lane_max(exponent)
    for i in range(n):
        probs[i] *= vexp(exponent[i] - top)
    normalise(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the instantaneous regrets of the weights that were played, and their squares."""
    expected = lane_dot(probs, losses)
    for i in range(losses.shape[0]):
        regret = expected - losses[i]
        state[_REGRET, i] += regret
        state[_SQUARE, i] += regret * regret


LEARNER = Learner(
    name="squint",
    init=init,
    play=play,
    observe=observe,
    bound="max(sqrt(16/3 V c), 16/3 c), c = ln(1 + N (1 + ln T)/ln 2), V = sum r^2",
    reference="Koolen & van Erven 2015, improper prior; bound proved in the file",
)
