"""Ties without bias: what index policies and leaders share."""

from __future__ import annotations

from hedgelab._jit import kernel
from hedgelab.lanes import lane_max

__all__ = ["uniform_over_largest"]


@kernel
def uniform_over_largest(scores):
    """Replace `scores` (n,), without NaN, by the uniform distribution over its exactly largest entries.

    >>> import numpy as np
    >>> scores = np.array([1.0, 3.0, 3.0])
    >>> uniform_over_largest(scores)
    >>> scores.tolist()
    [0.0, 0.5, 0.5]
    """
    best = lane_max(scores)
    tied = 0
    for i in range(scores.shape[0]):
        ties = scores[i] == best
        tied += ties
        scores[i] = ties
    for i in range(scores.shape[0]):
        scores[i] /= tied
