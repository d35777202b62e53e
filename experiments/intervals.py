r"""Intervals of claims: bootstrap over prompts, Student over seeds, both at a level shared by several comparisons.

Intervals of m comparisons looked at together have level 1 - 0.05 / m each (Bonferroni), so that all of them cover at
once with at least 95%.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.regret import Interval, student_quantile

__all__ = ["exact", "of_difference_of_ratios", "of_mean", "of_ratio", "percentile"]


def exact(value: float) -> Interval:
    """Return an interval of no width: a number that was computed, not estimated."""
    return Interval(float(value), float(value), float(value))


def percentile(estimate: float, draws: ArrayLike, comparisons: int = 1) -> Interval:
    """Return the estimate with the percentile interval of its bootstrap draws (B,), B at least 40 comparisons.

    >>> percentile(0.5, np.linspace(0, 1, 2001))
    Interval(estimate=0.5, low=0.025, high=0.975)
    """
    values = np.asarray(draws, np.float64)
    if len(values) < 40 * comparisons:
        raise ValueError(f"{len(values)} draws are too few for {comparisons} comparisons: at least {40 * comparisons}")
    tail = 0.025 / comparisons
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(estimate), float(low), float(high))


def of_mean(values: ArrayLike, comparisons: int = 1) -> Interval:
    """Return the mean of independent values (S,), seeds say, with Student's interval; NaN ends for a single one.

    >>> [round(end, 4) for end in of_mean([1.0, 2.0, 3.0])]
    [2.0, -0.4841, 4.4841]
    """
    runs = np.asarray(values, np.float64)
    mean = float(runs.mean())
    if len(runs) < 2:
        return Interval(mean, math.nan, math.nan)
    half = student_quantile(len(runs) - 1, 0.025 / comparisons) * float(runs.std(ddof=1)) / math.sqrt(len(runs))
    return Interval(mean, mean - half, mean + half)


def of_ratio(above: ArrayLike, below: ArrayLike, counts: NDArray[np.float64], comparisons: int = 1) -> Interval:
    """Return sum(above) / sum(below) over the resamples `counts` (B, S), see `hedgelab.regret.bootstrap_counts`."""
    top, bottom = np.asarray(above, np.float64), np.asarray(below, np.float64)
    return percentile(top.sum() / bottom.sum(), (counts @ top) / (counts @ bottom), comparisons)


def of_difference_of_ratios(
    above: ArrayLike, below: ArrayLike, other: ArrayLike, counts: NDArray[np.float64], comparisons: int = 1
) -> Interval:
    """Return sum(above) / sum(below) - sum(above) / sum(other), paired: MAT of one policy minus another's.

    above : (S,) tokens of each text. below, other : (S,) the two policies' rounds

    >>> counts = np.ones((40, 2))
    >>> of_difference_of_ratios([4, 4], [2, 2], [4, 4], counts)
    Interval(estimate=1.0, low=1.0, high=1.0)
    """
    top, first, second = (np.asarray(part, np.float64) for part in (above, below, other))
    drawn = (counts @ top) / (counts @ first) - (counts @ top) / (counts @ second)
    return percentile(top.sum() / first.sum() - top.sum() / second.sum(), drawn, comparisons)
