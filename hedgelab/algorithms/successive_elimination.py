r"""Successive elimination: play the drafters evenly, and drop one once it is surely worse than another.

    drop i when mean(i) + r(n(i)) < max over active j of mean(j) - r(n(j)),    r(n) = sqrt(ln(c N n^2 / delta) / (2 n))

Even-Dar, Mannor and Mansour 2006, who sample all active drafters once per phase and drop by twice the radius
sqrt(ln(c N t^2 / delta) / t), c > 4 (their constants unconfirmed). Here Hoeffding's inequality for means of rewards
1 - loss in [0, 1] is used with its own constant: a mean of n leaves its interval with probability at most
2 exp(-2 n r^2) = 2 delta / (c N n^2), which sums over all n and N drafters to delta for c = pi^2 / 3. So, for losses
drawn independently per drafter, with probability at least 1 - delta no interval ever fails, the best drafter is never
dropped, and drafter i is seen at most until 4 r(n) < gap(i): regret at most

    sum_i gap(i) min{n : 4 r(n) < gap(i)},        of order sum_i ln(N / (delta gap(i))) / gap(i).

That holds for all T: no horizon is needed; nothing is promised with probability delta, or against adversaries.

Even means uniform over the active drafters with the fewest losses seen. Under delay the best drafter stays just as
surely, since the intervals hold at every count; a dropped drafter's late losses are ignored. The last drafter stays:
the one with the largest lower bound is never below it. Drafters with equal losses are never told apart.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner, Parameter

_ACTIVE = 0  # 1 or 0
_COUNT = 1
_SUM = 2  # of rewards
_UPPER = 3  # mean + r; infinite while n = 0
_LOWER = 4  # mean - r

_C = math.pi**2 / 3.0


def init(params, n):
    """Return the state before any loss."""
    state = np.zeros((5, n))
    state[_ACTIVE] = 1.0
    state[_UPPER] = math.inf
    state[_LOWER] = -math.inf
    return state


@kernel
def radius(count, n, delta):
    """Return r(count) for n drafters, count >= 1.

    >>> round(radius(100.0, 4, 0.1), 4)
    0.2654
    """
    return math.sqrt(math.log(_C * n * count * count / delta) / (2.0 * count))


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the least seen of the active drafters."""
    for i in range(probs.shape[0]):
        probs[i] = -state[_COUNT, i] if state[_ACTIVE, i] > 0.0 else -math.inf
    uniform_over_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Update the pick's interval and drop whoever lies below another."""
    if state[_ACTIVE, pick] == 0.0:
        return
    n = probs.shape[0]
    count = state[_COUNT, pick] + 1.0
    state[_COUNT, pick] = count
    state[_SUM, pick] += 1.0 - losses[pick]
    mean = state[_SUM, pick] / count
    width = radius(count, n, params[0])
    state[_UPPER, pick] = mean + width
    state[_LOWER, pick] = mean - width
    best = -math.inf
    for i in range(n):
        if state[_ACTIVE, i] > 0.0:
            best = max(best, state[_LOWER, i])
    for i in range(n):
        if state[_UPPER, i] < best:
            state[_ACTIVE, i] = 0.0


LEARNER = Learner(
    name="successive-elimination",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={"delta": Parameter(0.05, "probability that the best drafter may be dropped", 1e-12, 1.0)},
    bound="sum_i gap_i min{n : 4 r(n) < gap_i} with probability 1 - delta",
    reference="Even-Dar, Mannor & Mansour 2006; constants of r: proved in the module",
)
