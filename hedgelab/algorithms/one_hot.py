"""The largest sample takes all: what learners that randomise inside share."""

from __future__ import annotations

from hedgelab._jit import kernel

__all__ = ["one_hot_at_largest"]


@kernel
def one_hot_at_largest(samples):
    """Replace `samples` (n,), without NaN, by 1 at their first largest entry and 0 elsewhere.

    For samples of continuous distributions, which tie with probability zero; `hedgelab.algorithms.ties` shares among
    indices that do tie.

    >>> import numpy as np
    >>> samples = np.array([0.2, 0.7, 0.7])
    >>> one_hot_at_largest(samples)
    >>> samples.tolist()
    [0.0, 1.0, 0.0]
    """
    best = 0
    for i in range(samples.shape[0]):
        if samples[i] > samples[best]:
            best = i
    for i in range(samples.shape[0]):
        samples[i] = 0.0
    samples[best] = 1.0
