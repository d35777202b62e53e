r"""Intervals of claims: bootstrap over prompts, Student over seeds, both at a level shared by several comparisons.

Intervals of m comparisons looked at together have level 1 - 0.05 / m each (Bonferroni), so that all of them cover at
once with at least 95%.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.regret import Interval, student_quantile

__all__ = [
    "exact",
    "exponent",
    "jackknife",
    "of_difference_of_ratios",
    "of_mean",
    "of_ratio",
    "of_resamples",
    "percentile",
]


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


def of_resamples(values: ArrayLike, comparisons: int = 1) -> Interval:
    """Return the mean of a statistic over few bootstrap resamples (B,), with Student's interval around it.

    The spread of resamples *is* the standard error: it is not divided by sqrt(B), and B - 1 degrees of freedom say how
    well it is known. For resamples too dear to draw the hundreds that `percentile` needs.

    >>> [round(end, 4) for end in of_resamples([1.0, 2.0, 3.0])]
    [2.0, -2.3027, 6.3027]
    """
    drawn = np.asarray(values, np.float64)
    mean = float(drawn.mean())
    if len(drawn) < 2:
        return Interval(mean, math.nan, math.nan)
    half = student_quantile(len(drawn) - 1, 0.025 / comparisons) * float(drawn.std(ddof=1))
    return Interval(mean, mean - half, mean + half)


def jackknife(
    statistic: Callable[[NDArray[np.float64]], float], runs: NDArray[np.float64], comparisons: int = 1
) -> Interval:
    """Return a statistic of the runs (S, ...), seeds say, with Student's interval on its jackknife standard error.

    The error is sqrt((S - 1) / S sum_s (statistic without s - their mean)^2): that of the mean, if that is what it is.

    >>> [round(end, 4) for end in jackknife(lambda runs: float(runs.mean()), np.array([1.0, 2.0, 3.0]))]
    [2.0, -0.4841, 4.4841]
    """
    whole = statistic(runs)
    count = len(runs)
    if count < 2:
        return Interval(whole, math.nan, math.nan)
    without = np.array([statistic(np.delete(runs, s, axis=0)) for s in range(count)])
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    half = student_quantile(count - 1, 0.025 / comparisons) * error
    return Interval(whole, whole - half, whole + half)


def exponent(x: ArrayLike, y: ArrayLike, floor: float = 1.0) -> float:
    """Return b of y = a x^b, by least squares of ln max(y, floor) on ln x; x, y : (M,).

    floor : where a regret of less than one loss counts as one, so that a negative one has a logarithm

    >>> round(exponent([1, 10, 100], [2, 20, 200]), 12), exponent([1, 10, 100], [-5, -50, -500])
    (1.0, 0.0)
    """
    slope, _ = np.polyfit(np.log(np.asarray(x, np.float64)), np.log(np.maximum(y, floor)), 1)
    return float(slope)
