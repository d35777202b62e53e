r"""AdaHedge: exponential weights whose rate falls with the mixability gaps suffered so far.

    eta_t = ln N / Delta_{t-1},   w_t(i) ∝ exp(-eta_t L_{t-1}(i)),
    Delta_t = Delta_{t-1} + delta_t,   delta_t = <w_t, l_t> + ln(sum_i w_t(i) exp(-eta_t l_t(i))) / eta_t  >= 0

de Rooij, van Erven, Grünwald and Koolen 2014 ("Follow the leader if you can, Hedge if you must"). While Delta = 0 the
rate is infinite: uniform over the leaders, and the mix loss is the smallest loss. No parameter; scaling or shifting the
losses changes no weight. With V the sum of the variances of the losses under w_t,

    R_T <= 2 Delta_T <= 2 sqrt(V ln N) + (4/3) ln N + 2.

Proof (theirs, in short). The mix losses sum to at most L* + ln N / eta_T = L* + Delta_{T-1}, as they are differences of
mix losses of constant rates, which rise as the rate falls. Bernstein's inequality for zero-mean variables up to 1, eta
delta <= v (exp(eta) - 1 - eta), gives delta / eta <= v / 2 + delta / 3, so Delta_T^2 = sum (2 delta_t Delta_{t-1} +
delta_t^2) <= V ln N + ((2/3) ln N + 1) Delta_T: solve for Delta_T.

Under delay delta_t is the gap of the weights that were *played*, at the rate that the learner has when the loss
arrives. It is nonnegative for any weights and any rate (Jensen), one pass of exponentials, and without delay the
published one: while Delta = 0 all losses seen were equal, so all drafters lead. No bound is proved under delay.

The gap in floating point. Losses are taken from the smallest among those with w > 0; with x = eta (l - min) >= 0 the
gap is <w, x> + ln sum w exp(-x), over eta. For x <= 1 the logarithm goes through expm1, because the gap is then of the
order eta^2 and would drown in the rounding of 1; above, the sum itself is safe: it holds the weight of the smallest
loss.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.exponential import exponential_weights
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner
from hedgelab.lanes import lane_dot, lane_sum
from hedgelab.special import vexpm1
from hedgelab.vexp import vexp

_LOSS = 0  # L
_SCRATCH = 1  # l - min
_EXPONENTIAL = 2  # exp(-x) or exp(-x) - 1, scratch
_GAP = 3  # Delta
_ANCHOR = 4


def init(params, n):
    """Return the state before any loss."""
    return np.zeros((5, n))


@kernel
def rate(gap, n):
    """Return eta = ln N / Delta for Delta > 0, finite."""
    return min(math.log(n) / gap, 1e300) if gap > 1e-300 else 1e300


@kernel
def play(params, state, context, rng, probs):
    """Exponential weights at the adapted rate."""
    n = probs.shape[0]
    gap = state[_GAP, 0]
    if gap > 0.0:
        state[_ANCHOR, 0] = exponential_weights(state[_LOSS], rate(gap, n), state[_ANCHOR, 0], probs)
    else:
        for i in range(n):
            probs[i] = -state[_LOSS, i]
        uniform_over_largest(probs)


@kernel
def mixability_gap(probs, losses, eta, excess, exponential):
    """Return <w, l> + ln(sum w exp(-eta l)) / eta, or <w, l> - min l where eta is infinite.

    The smallest loss counts where w > 0; excess, exponential : (n,) scratch.
    """
    n = losses.shape[0]
    smallest = math.inf
    largest = -math.inf
    for i in range(n):
        smallest = losses[i] if losses[i] < smallest and probs[i] > 0.0 else smallest
        largest = losses[i] if losses[i] > largest else largest
    for i in range(n):
        excess[i] = max(losses[i] - smallest, 0.0)  # without weight it may be lower: counts for nothing
    mean = lane_dot(probs, excess)
    if eta == math.inf:
        return mean
    if eta * (largest - smallest) <= 1.0:
        for i in range(n):
            exponential[i] = vexpm1(-eta * excess[i])
        log_mix = math.log1p(lane_dot(probs, exponential))
    else:
        for i in range(n):
            exponential[i] = vexp(-eta * excess[i])
        log_mix = math.log(lane_dot(probs, exponential) / lane_sum(probs))
    return mean + log_mix / eta


@kernel
def observe(params, state, context, probs, pick, losses):
    """Add the losses and the gap up."""
    total = state[_LOSS]
    gap = state[_GAP, 0]
    eta = rate(gap, losses.shape[0]) if gap > 0.0 else math.inf
    if losses.shape[0] > 1:
        state[_GAP, 0] = gap + max(mixability_gap(probs, losses, eta, state[_SCRATCH], state[_EXPONENTIAL]), 0.0)
    for i in range(losses.shape[0]):
        total[i] += losses[i]


LEARNER = Learner(
    name="adahedge",
    init=init,
    play=play,
    observe=observe,
    bound="2 sqrt(V ln N) + (4/3) ln N + 2, V the losses' variance under w",
    reference="de Rooij, van Erven, Grunwald & Koolen 2014; bound proved in the file",
)
