r"""Explore-then-commit: m looks at every drafter, then the best mean for ever.

Losses drawn independently per drafter with gaps gap(i): by Hoeffding's inequality drafter i has the larger mean of m
rewards than the best one with probability at most exp(-m gap(i)^2), so the expected regret is at most

    sum_i gap(i) (m + T exp(-m gap(i)^2))

(Lattimore and Szepesvari 2020, Theorem 6.1, number unconfirmed, there for unit sub-Gaussian rewards). With a
`horizon` T and no `rounds` m = ceil((T / N)^(2/3) (ln T)^(1/3)). After committing, gaps below z = sqrt(ln T / m) cost
at most z a round, those above it together N z exp(-m z^2) = N z / T, so whatever the gaps, for T >= 2, the regret is
at most

    2 T^(2/3) (N ln T)^(1/3) + 2 N

(the rate is that of Slivkins 2019, Theorem 1.5, number unconfirmed). With neither, m = 32: a gap of 0.3 is then missed
with probability at most 0.06. No T is asked for, but regret grows linearly where the choice was wrong.

Exploring is uniform over the drafters with the fewest losses *seen*. Losses that are still on their way do not count,
so under a delay of D plays some drafters get up to D more looks than m; their means use all of them. Once every drafter
has m, the leaders at that moment, uniformly where means are exactly tied, are played for ever and nothing more is
learnt, late losses included. The bounds are for no delay.
"""

from __future__ import annotations

import math

import numpy as np

from hedgelab._jit import kernel
from hedgelab.algorithms.ties import uniform_over_largest
from hedgelab.contract import Learner, Parameter

_COUNT = 0
_SUM = 1  # of rewards: sums of whole-number rewards are exact, so equal means compare equal
_MEAN = 2
_LOOKS = 3  # m
_EXPLORED = 4  # drafters with m losses seen

ROUNDS = 32  # m when neither it nor a horizon is given


def init(params, n):
    """Return the state before any loss; params = (rounds or NaN, horizon or NaN)."""
    rounds, horizon = params
    if math.isnan(rounds):
        rounds = ROUNDS
        if not math.isnan(horizon):
            rounds = max(1, math.ceil((horizon / n) ** (2 / 3) * math.log(horizon) ** (1 / 3)))
    state = np.zeros((5, n))
    state[_LOOKS, 0] = rounds
    return state


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the least explored, later over the leaders."""
    n = probs.shape[0]
    exploring = state[_EXPLORED, 0] < n
    for i in range(n):
        probs[i] = -state[_COUNT, i] if exploring else state[_MEAN, i]
    uniform_over_largest(probs)


@kernel
def observe(params, state, context, probs, pick, losses):
    """While exploring, update the pick's mean."""
    if state[_EXPLORED, 0] == probs.shape[0]:
        return
    state[_COUNT, pick] += 1.0
    state[_SUM, pick] += 1.0 - losses[pick]
    state[_MEAN, pick] = state[_SUM, pick] / state[_COUNT, pick]
    if state[_COUNT, pick] == state[_LOOKS, 0]:
        state[_EXPLORED, 0] += 1.0


LEARNER = Learner(
    name="explore-then-commit",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={
        "rounds": Parameter(
            None, "losses per drafter before committing; none: by the horizon, else 32", 1.0, integer=True
        ),
        "horizon": Parameter(None, "rounds T, for (T/N)^(2/3) (ln T)^(1/3) losses per drafter", 1.0, integer=True),
    },
    bound="sum_i gap_i (m + T exp(-m gap_i^2)); horizon: 2 T^(2/3) (N ln T)^(1/3) + 2 N",
    reference="Lattimore & Szepesvari 2020, ch 6; horizon: Slivkins 2019; bounds proved in the file",
)
