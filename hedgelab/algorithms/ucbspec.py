r"""UCBSpec: a bound that holds at all times at once, for committed tokens Y in [1, K + 1].

    index(i) = mean_Y(i) + (K/2) sqrt((1 + n) / n^2 (1 + 2 ln(N t^2 sqrt(1 + n) / delta))),        n = n(i)

BanditSpec (Hou et al. 2025, arXiv 2505.15141), delta = 1/2; each drafter once first, t losses seen. A decode round pays
loss = 1 - (Y - 1)/K, so mean_Y = 1 + K mean(1 - loss): dividing index - 1 by K leaves the argmax, and K out of it:

    mean(1 - loss) + (1/2) sqrt((1 + n) / n^2 (1 + 2 ln(N t^2 sqrt(1 + n) / delta)))

Y lies in an interval of width K, so it is K/2-subgaussian: the width is the self-normalised bound of Abbasi-Yadkori,
Pal and Szepesvari 2011. Regret is in rounds: those of the policy less those of the best drafter until the text is
out; `hedgelab.bounds.ucbspec` bounds it, proof and constants there.
"""

from __future__ import annotations

import math

from hedgelab._jit import kernel
from hedgelab.algorithms.counts import MEAN, ROWS, SEEN, count, no_counts
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner, Parameter

# the squared width is offset + slope (4 ln t + 2 ln(N / delta))
_SLOPE = ROWS  # (1 + n) / (4 n^2)
_OFFSET = ROWS + 1  # slope (1 + ln(1 + n)), infinite while n = 0


def init(params, n):
    """Return the state before any loss."""
    state = no_counts(2, n)
    state[_OFFSET] = math.inf
    return state


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the drafters of largest index."""
    n = probs.shape[0]
    level = 4.0 * math.log(max(state[SEEN, 0], 1.0)) + 2.0 * math.log(n / params[0])
    for i in range(n):
        probs[i] = state[MEAN, i] + math.sqrt(state[_OFFSET, i] + state[_SLOPE, i] * level)
    uniform_over_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """Count the pick's reward."""
    n = count(state, pick, 1.0 - losses[pick])
    slope = (1.0 + n) / (4.0 * n * n)
    state[_SLOPE, pick] = slope
    state[_OFFSET, pick] = slope * (1.0 + math.log(1.0 + n))


LEARNER = Learner(
    name="ucbspec",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={"delta": Parameter(0.5, "failure probability of the bounds", low=1e-9, high=1.0)},
    bound="O(ln T) more rounds than the best drafter's, stationary means (constants: bounds.ucbspec)",
    reference="Hou et al. 2025, arXiv 2505.15141",
)
