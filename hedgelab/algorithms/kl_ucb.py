r"""KL-UCB: the largest mean reward that the drafter's rewards do not yet rule out, in relative entropy.

    index(i) = max { q in [mean(i), 1] : n(i) kl(mean(i), q) <= ln t + c ln ln t }
    kl(p, q) = p ln(p / q) + (1 - p) ln((1 - p) / (1 - q))

Garivier and Cappe 2011, t = 1 + losses seen the coming round. Their theorems have c = 3; c = 0 is what they advise in
practice and the default (theorem numbers and advice recalled, unconfirmed). On Bernoulli rewards the leading term
gap_i ln T / kl(mean_i, best mean) is the lower bound of Lai and Robbins 1985; on any rewards in [0, 1] it is, by
Pinsker's inequality, at most ln T / (2 gap_i).

Computed in losses, where kl(1 - p, 1 - q) = kl(p, q) makes the index the *smallest* mean loss that is not ruled out: an
index that differs from 1 by less than rounding can still be told from its neighbours. Equal mean and count give equal
bits, so ties stay ties. Drafters without a loss come first.
"""

from __future__ import annotations

import math

from hedgelab._jit import kernel
from hedgelab.algorithms.counts import COUNT, MEAN, ROWS, SEEN, SUM, count, no_counts
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner, Parameter
from hedgelab.vexp import vexp

# counted in losses: MEAN and SUM are those of the losses
_WIDTH = ROWS  # sqrt(2 v / n), see `variance_below`; infinite while n = 0
_LOGS = ROWS + 1  # n (mean ln mean + (1 - mean) ln(1 - mean)), the part of n kl(mean, r) without r


@kernel
def variance_below(mean):
    """Return v = max { s (1 - s) : s <= mean }.

    kl(mean, r) = integral over [r, mean] of (mean - s) / (s (1 - s)) ds >= (mean - r)^2 / (2 v): Pinsker's inequality
    with the variance kept.

    >>> variance_below(0.1), variance_below(0.9)
    (0.09000000000000001, 0.25)
    """
    return mean * (1.0 - mean) if mean < 0.5 else 0.25


@kernel
def smallest_mean(mean, radius):
    """Return the smallest r in [0, mean] with kl(mean, r) <= radius; 0 for r below 1e-308 or a mean below 1e-300.

    Newton's method for z = ln(mean / r), where h(z) = kl(mean, mean e^-z) - radius is convex and rising with slope
    (mean - r) / (1 - r). Both starts lie right of the root (one drops a positive term of kl, the other is
    `variance_below`'s bound), from where the steps go left without passing it.

    >>> smallest_mean(1.0, 2.0) == vexp(-2.0), smallest_mean(0.0, 2.0), smallest_mean(0.5, 0.0)
    (True, 0.0, 0.5)
    >>> round(smallest_mean(0.5, 0.5 * math.log(25 / 9)), 12)  # kl(1/2, 1/10)
    0.1
    """
    if mean <= 0.0 or radius <= 0.0:
        return mean
    if mean < 1e-300:  # radius / mean would overflow
        return 0.0
    if mean >= 1.0:
        return vexp(-radius)
    rest = 1.0 - mean
    z = (radius - rest * math.log(rest)) / mean
    near = mean - math.sqrt(2.0 * variance_below(mean) * radius)
    if near > 0.0:
        z = min(z, math.log(mean / near))
    for _ in range(50):
        r = mean * vexp(-z)
        slope = min((mean - r) / (1.0 - r), mean)
        if slope <= 0.0:
            break
        # ln((1 - mean) / (1 - r)) = ln(1 - slope), without the rounding of 1 - slope
        below_one = 1.0 - slope
        logarithm = math.log(below_one) * (slope / (1.0 - below_one)) if below_one < 1.0 else -slope
        step = (mean * z + rest * logarithm - radius) / slope
        z -= step
        if step <= 1e-9 * z:  # the next step would be of the order of (step / z)^2
            break
    return mean * vexp(-z)


def init(params, n):
    """Return the state before any loss."""
    state = no_counts(2, n)
    state[_WIDTH] = math.inf
    return state


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the drafters of largest index."""
    n = probs.shape[0]
    log_t = math.log(max(state[SEEN, 0] + 1.0, 2.0))  # at t = 1 all are unseen, any positive level will do
    level = log_t + params[0] * math.log(max(log_t, 1.0))
    root = math.sqrt(level)
    first = 0
    for i in range(n):
        probs[i] = state[MEAN, i] - root * state[_WIDTH, i]  # at most the bound that `smallest_mean` finds
        if probs[i] < probs[first]:
            first = i
    if state[COUNT, first] == 0.0:
        for i in range(n):
            probs[i] = -probs[i]
        uniform_over_largest(probs)
        return
    # only a drafter with n kl(mean, best) <= level can have a bound below `best`: no equation is solved for the others.
    # The margin of 1e-6 is far above rounding, so that ties are solved
    best = smallest_mean(state[MEAN, first], level / state[COUNT, first])
    log_best, log_rest = _logarithms(best)
    for i in range(n):
        spent = state[_LOGS, i] - state[SUM, i] * log_best - (state[COUNT, i] - state[SUM, i]) * log_rest
        if state[MEAN, i] > best and spent > level + 1e-6 * level:
            probs[i] = -2.0
        else:
            bound = smallest_mean(state[MEAN, i], level / state[COUNT, i])
            probs[i] = -bound
            if bound < best:
                best = bound
                log_best, log_rest = _logarithms(best)
    uniform_over_largest(probs)


@kernel
def _logarithms(r):
    # at e^-700 and below, where bounds become 0, a larger r only lets more equations be solved
    return math.log(max(r, 1e-304)), math.log(max(1.0 - r, 1e-16))


@kernel
def observe(params, state, context, probs, pick, losses):
    """Count the pick's loss."""
    n = count(state, pick, losses[pick])
    mean = state[MEAN, pick]
    state[_WIDTH, pick] = math.sqrt(2.0 * variance_below(mean) / n)
    logs = 0.0
    if 0.0 < mean < 1.0:
        logs = mean * math.log(mean) + (1.0 - mean) * math.log(1.0 - mean)
    state[_LOGS, pick] = n * logs


LEARNER = Learner(
    name="kl-ucb",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={"c": Parameter(0.0, "factor of ln ln t; 3 in the theorem", low=0.0)},
    bound="sum_i gap_i ln T / kl(mean_i, best) + O(ln ln T), c = 3",
    reference="Garivier & Cappe 2011",
)
