r"""MOSS: minimax optimal for stochastic bandits, no width once a drafter has had more than its share of rounds.

    index(i) = mean(i) + sqrt(max(0, ln(T / (N n(i)))) / n(i))

Audibert and Bubeck 2009, T the horizon. Lattimore and Szepesvari 2020, Theorem 9.1, bound the regret by
39 sqrt(T N) + sum_i gap_i for the index with sqrt(4 ...) and 1-subgaussian rewards. Rewards in [0, 1] are
1/2-subgaussian (Hoeffding's lemma): doubled they fit that theorem and its index becomes twice this one, which makes the
regret here at most 39/2 sqrt(T N) + sum_i gap_i.

A decoder does not know T. Without a horizon the learner is MOSS-anytime of Degenne and Perchet 2016: the coming round
t = 1 + losses seen stands for T, and the squared width is times (1 + alpha)/2. Their alpha = 1.35 and the regret bound
113 sqrt(T N) for it are recalled, unconfirmed; the form of the index was checked against SMPyBandits (MOSSAnytime).
Drafters without a loss come first.
"""

from __future__ import annotations

import math

from hedgelab._jit import kernel
from hedgelab.algorithms.counts import MEAN, ROWS, SEEN, count, no_counts
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner, Parameter

_SHARE = ROWS  # 1 / n, infinite while n = 0
_LOG = ROWS + 1  # ln(N n)


def init(params, n):
    """Return the state before any loss."""
    state = no_counts(2, n)
    state[_SHARE] = math.inf
    state[_LOG] = -math.inf
    return state


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the drafters of largest index; params = (horizon or NaN, alpha)."""
    log_horizon = math.log(params[0])
    factor = 1.0
    if math.isnan(log_horizon):
        log_horizon = math.log(state[SEEN, 0] + 1.0)
        factor = 0.5 * (1.0 + params[1])
    for i in range(probs.shape[0]):
        width = max(0.0, log_horizon - state[_LOG, i]) * state[_SHARE, i]
        probs[i] = state[MEAN, i] + math.sqrt(factor * width)
    uniform_over_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Count the pick's reward."""
    n = count(state, pick, 1.0 - losses[pick])
    state[_SHARE, pick] = 1.0 / n
    state[_LOG, pick] = math.log(n * state.shape[1])


LEARNER = Learner(
    name="moss",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={
        "horizon": Parameter(None, "rounds T; none: anytime, the coming round t for T", low=1.0),
        "alpha": Parameter(1.35, "anytime alone: squared width times (1 + alpha) / 2", low=0.0),
    },
    bound="39/2 sqrt(T N) + sum_i gap_i with the horizon; anytime O(sqrt(T N))",
    reference="Audibert & Bubeck 2009; Lattimore & Szepesvari 2020, Thm 9.1; anytime: Degenne & Perchet 2016",
)
