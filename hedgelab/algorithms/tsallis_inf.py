r"""Tsallis-INF: optimal against adversaries and on stochastic losses at once, without knowing which.

    w(i) = 4 / (eta_t (Lhat(i) - x))^2,        x < min Lhat such that sum_i w(i) = 1

Zimmert and Seldin 2021, the regulariser -4 sum sqrt w (their alpha = 1/2). Two estimates of the losses, both unbiased:

    importance-weighted (default)   lhat(i) = l(i) 1[I = i] / w(i),                       eta_t = 2 / sqrt t
    reduced variance                lhat(i) = (l(i) - B(i)) 1[I = i] / w(i) + B(i),       eta_t = 4 / sqrt t
                                    for every i, B(i) = 1/2 where w(i) >= eta_t^2, else 0

t - 1 losses seen: both are anytime. Pseudo-regret at most 4 sqrt(N T) + 1 and 2 sqrt(N T) + 14 N ln T + 16, and of
order sum_i ln T / gap(i) on stochastic losses with one best drafter (Theorem 1; it prints 10 N ln T for the second,
its proof yields 14). Under delay no bound is proved here.

Solving for x. With a(i) = eta (Lhat(i) - min Lhat) / 2 >= 0 and d = eta (min Lhat - x) / 2 the condition is
sum_i (a(i) + d)^-2 = 1: the smallest a gives d >= 1, and N terms of at most d^-2 give d <= sqrt N, at every scale of
the losses. Newton's method on h(d) = (sum_i (a(i) + d)^-2)^(-1/2) = 1 instead of on the sum (their Algorithm 2): h is
concave, linear where all a are equal, so after one step the iterates rise to the root; as |h''| <= 3 h' / d, a relative
step of s leaves an error of 1.5 s^2. From the last root that is two or three passes a play. The weights after the last,
short step come from those before it by (1 + z)^-2 = 1 - 2 z + 3 z^2 - ..., |z| <= 1e-6.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.contract import Learner, Parameter
from hedgelab.lanes import lane_dot, lane_min, lane_sum, normalise

_LOSS = 0  # Lhat
_SQUARE = 1  # (a + d)^-2, scratch
_ROOT = 2  # d of the last play
_SEEN = 3

_TOLERANCE = 1e-6  # relative, of the last step in d


def init(params, n):
    """Return the state before any loss."""
    state = np.zeros((4, n))
    state[_ROOT, 0] = math.sqrt(n)
    return state


@kernel
def rate(params, seen):
    """Return eta after `seen` losses; params = (1 for reduced variance, else 0,)."""
    return (4.0 if params[0] > 0.0 else 2.0) / math.sqrt(seen + 1.0)


@kernel
def play(params, state, context, rng, probs):
    """Solve for the normalisation, then weigh."""
    n = probs.shape[0]
    loss, square = state[_LOSS], state[_SQUARE]
    half = 0.5 * rate(params, state[_SEEN, 0])
    least = lane_min(loss)
    d = min(max(state[_ROOT, 0], 1.0), math.sqrt(n))
    step = 0.0
    for _ in range(100):
        for i in range(n):
            inverse = 1.0 / (half * (loss[i] - least) + d)
            probs[i] = inverse
            square[i] = inverse * inverse
        total = lane_sum(square)
        step = total * (math.sqrt(total) - 1.0) / lane_dot(square, probs)
        if abs(step) < _TOLERANCE * d:
            break
        d = max(d + step, 1.0)
    state[_ROOT, 0] = d + step
    for i in range(n):
        z = step * probs[i]
        probs[i] = square[i] * (1.0 - z * (2.0 - 3.0 * z))
    normalise(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the estimated losses."""
    loss = state[_LOSS]
    baseline = 0.0
    if params[0] > 0.0:
        eta = rate(params, state[_SEEN, 0])
        for i in range(losses.shape[0]):
            if probs[i] >= eta * eta:
                loss[i] += 0.5
        baseline = 0.5 if probs[pick] >= eta * eta else 0.0
    loss[pick] += (losses[pick] - baseline) / probs[pick]
    state[_SEEN, 0] += 1.0


LEARNER = Learner(
    name="tsallis-inf",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={
        "reduced_variance": Parameter(
            0.0, "1: reduced-variance estimates, eta = 4 / sqrt t; 0: importance-weighted, 2 / sqrt t", 0.0, 1.0, True
        )
    },
    bound="4 sqrt(T N) + 1; reduced variance: 2 sqrt(T N) + 14 N ln T + 16",
    reference="Zimmert & Seldin 2021, Thm 1",
)
