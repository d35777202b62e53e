"""What every index policy counts: losses seen, of each drafter and in all, and the mean of what they said.

The first rows of a state. A policy adds its own rows after them: the parts of its index that change only when a drafter
is observed, so that a play is a few multiplications a drafter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hedgelab._jit import kernel

__all__ = ["COUNT", "MEAN", "ROWS", "SEEN", "SUM", "count", "no_counts"]

MEAN = 0
COUNT = 1
SUM = 2  # sums of whole numbers are exact, so equal means compare equal
SEEN = 3  # losses of all drafters, in column 0
ROWS = 4


def no_counts(more: int, n: int) -> NDArray[np.float64]:
    """Return the state (ROWS + more, n) before any loss: zeros.

    >>> no_counts(1, 3).shape
    (5, 3)
    """
    return np.zeros((ROWS + more, n))


@kernel
def count(state, pick, value):
    """Count `value`, a reward or a loss of `pick`, into the first rows of `state`; return how many `pick` has.

    >>> state = no_counts(0, 2)
    >>> [float(count(state, 1, reward)) for reward in (0.25, 0.75)]
    [1.0, 2.0]
    >>> state[MEAN].tolist(), state[SEEN].tolist()
    ([0.0, 0.5], [2.0, 0.0])
    """
    n = state[COUNT, pick] + 1.0
    state[COUNT, pick] = n
    state[SUM, pick] += value
    state[MEAN, pick] = state[SUM, pick] / n
    state[SEEN, 0] += 1.0
    return n
