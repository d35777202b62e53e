r"""Intervals of claims: bootstrap over prompts, Student over seeds, both at a level shared by several comparisons.

Intervals of m comparisons looked at together have level 1 - 0.05 / m each (Bonferroni), so that all of them cover at
once with at least 95%, as far as each keeps its own level. Percentiles of a plain bootstrap do not with few prompts:
resamples of n vary less than samples by a factor of (n - 1) / n, and their tails are normal where Student's are due.
Here n - 1 of the n prompts of a domain are drawn and weighted by n / (n - 1) (Rao and Wu 1988), and percentiles are
stretched from the normal's tail to Student's with (prompts - domains) degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.regret import Interval, student_quantile

__all__ = [
    "UNTOLD",
    "Draws",
    "exact",
    "jackknife",
    "largest",
    "of_difference_of_ratios",
    "of_mean",
    "of_ratio",
    "of_resamples",
    "of_share",
    "percentile",
    "resample",
]

UNTOLD = Interval(math.nan, math.nan, math.nan)  # where there is nothing to measure
FEWEST = 200  # draws for each of the comparisons looked at together: five in each tail


@dataclass(frozen=True)
class Draws:
    """Resampled texts. weights : (B, S) how much each of S texts counts. degrees : of freedom of their spread."""

    weights: NDArray[np.float64]
    degrees: float

    def __matmul__(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the sums of values (S, ...) in each resample, (B, ...)."""
        return self.weights @ np.asarray(values, np.float64)

    def sums(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the sum of values (S, ...) over the texts, and then those in each resample, (1 + B, ...)."""
        rows = np.asarray(values, np.float64)
        return np.concatenate([rows.sum(axis=0, keepdims=True), self @ rows])

    def interval(self, statistic: ArrayLike, comparisons: int = 1) -> Interval:
        """Return the interval of a statistic of `sums`, (1 + B,): its value on the texts, then in each resample."""
        values = np.asarray(statistic, np.float64)
        return percentile(float(values[0]), values[1:], comparisons, degrees=self.degrees)


def resample(clusters: ArrayLike, strata: ArrayLike | None = None, *, resamples: int, seed: int = 0) -> Draws:
    """Return resamples of texts whose clusters (prompts) are drawn with replacement, within strata (domains).

    clusters, strata : (S,) labels; texts of one cluster go together. A stratum of n clusters gives n - 1 draws of
    weight n / (n - 1), one of a single cluster always itself: nothing is known of its spread.

    >>> drawn = resample(["a", "b", "b", "c"], resamples=4)
    >>> drawn.weights.shape, drawn.degrees, sorted(set((drawn @ [1.0, 0.5, 0.5, 1.0]).round(12).tolist()))
    ((4, 4), 2, [3.0])
    """
    labels = np.asarray(clusters)
    groups = np.zeros(len(labels), np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    if labels.ndim != 1 or len(labels) == 0 or groups.shape != labels.shape:
        raise ValueError(f"clusters and strata must be vectors of one length, got {labels.shape} and {groups.shape}")
    rng = np.random.Generator(np.random.PCG64(seed))
    weights, degrees = np.ones((resamples, len(labels))), 0
    for group in range(groups.max() + 1):
        members = np.flatnonzero(groups == group)
        _, inverse = np.unique(labels[members], return_inverse=True)
        count = int(inverse.max()) + 1
        if count > 1:
            drawn = rng.multinomial(count - 1, np.full(count, 1 / count), size=resamples)
            weights[:, members] = drawn[:, inverse] * (count / (count - 1))
        degrees += count - 1
    return Draws(weights, degrees)


def exact(value: float) -> Interval:
    """Return an interval of no width: a number that was computed, not estimated."""
    return Interval(float(value), float(value), float(value))


def largest(found: Iterable[tuple[str, float]]) -> dict[str, Interval]:
    """Return {case: the largest of its values, exactly}, of pairs (case, value); NaN only where all of them are.

    >>> largest([("a", 1.0), ("b", math.nan), ("a", 2.0), ("a", math.nan)])["a"]
    Interval(estimate=2.0, low=2.0, high=2.0)
    """
    most: dict[str, float] = {}
    for case, value in found:
        most[str(case)] = float(np.fmax(most.get(str(case), math.nan), value))
    return {case: exact(value) for case, value in most.items()}


def percentile(estimate: float, draws: ArrayLike, comparisons: int = 1, *, degrees: float = math.inf) -> Interval:
    """Return the estimate with the percentile interval of its bootstrap draws (B,), B at least 200 comparisons.

    degrees : of freedom of the draws' spread (`Draws.degrees`); ends are stretched away from the estimate by Student's
    quantile over the normal's. With less than one the ends are NaN

    >>> percentile(0.5, np.linspace(0, 1, 2001))
    Interval(estimate=0.5, low=0.025, high=0.975)
    >>> [round(end, 3) for end in percentile(0.5, np.linspace(0, 1, 2001), degrees=19)]
    [0.5, -0.007, 1.007]
    """
    values = np.asarray(draws, np.float64)
    if len(values) < FEWEST * comparisons:
        least = FEWEST * comparisons
        raise ValueError(f"{len(values)} draws are too few for {comparisons} comparisons: at least {least}")
    if degrees < 1:
        return Interval(float(estimate), math.nan, math.nan)
    tail = 0.025 / comparisons
    low, high = np.quantile(values, [tail, 1 - tail])
    normal = NormalDist().inv_cdf(1 - tail)
    stretch = 1.0 if math.isinf(degrees) else student_quantile(degrees, tail) / normal
    ends = (low, high) if stretch == 1.0 else (estimate + stretch * (end - estimate) for end in (low, high))
    return Interval(float(estimate), *(float(end) for end in ends))


def of_share(hits: int, count: int, comparisons: int = 1) -> Interval:
    """Return hits / count of independent cases with its exact binomial interval (Clopper and Pearson 1934).

    >>> [round(end, 4) for end in of_share(133, 140)]
    [0.95, 0.8997, 0.9797]
    """
    tail = 0.025 / comparisons

    def root(below: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if below(middle) else (low, middle)
        return (low + high) / 2

    low = root(lambda p: _binomial(range(hits, count + 1), count, p) < tail) if hits > 0 else 0.0
    high = root(lambda p: _binomial(range(hits + 1), count, p) >= tail) if hits < count else 1.0
    return Interval(hits / count, low, high)


def _binomial(values: range, count: int, p: float) -> float:
    """Return the probability that so many of `count` hit, each with probability 0 < p < 1."""
    whole = math.lgamma(count + 1)
    return math.fsum(
        math.exp(
            whole - math.lgamma(x + 1) - math.lgamma(count - x + 1) + x * math.log(p) + (count - x) * math.log1p(-p)
        )
        for x in values
    )


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


def of_ratio(above: ArrayLike, below: ArrayLike, draws: Draws, comparisons: int = 1) -> Interval:
    """Return sum(above) / sum(below), above and below (S,) of each text."""
    top, bottom = np.asarray(above, np.float64), np.asarray(below, np.float64)
    return draws.interval(draws.sums(top) / draws.sums(bottom), comparisons)


def of_difference_of_ratios(
    above: ArrayLike, below: ArrayLike, other: ArrayLike, draws: Draws, comparisons: int = 1
) -> Interval:
    """Return sum(above) / sum(below) - sum(above) / sum(other), paired: MAT of one policy minus another's.

    above : (S,) tokens of each text. below, other : (S,) the two policies' rounds

    >>> of_difference_of_ratios([4, 4], [2, 2], [4, 4], resample([0, 1], resamples=200))
    Interval(estimate=1.0, low=1.0, high=1.0)
    """
    top, first, second = (np.asarray(part, np.float64) for part in (above, below, other))
    tokens = draws.sums(top)
    return draws.interval(tokens / draws.sums(first) - tokens / draws.sums(second), comparisons)


def of_resamples(values: ArrayLike, comparisons: int = 1) -> Interval:
    """Return the mean of a statistic over few bootstrap resamples (B,), with Student's interval around it.

    The spread of resamples *is* the standard error: it is not divided by sqrt(B), B - 1 degrees of freedom say how well
    it is known, and sqrt(1 + 1 / B) that their mean is not the statistic. For resamples too dear to draw the hundreds
    that `percentile` needs.

    >>> [round(end, 4) for end in of_resamples([1.0, 2.0, 3.0])]
    [2.0, -2.9683, 6.9683]
    """
    drawn = np.asarray(values, np.float64)
    mean = float(drawn.mean())
    if len(drawn) < 2:
        return Interval(mean, math.nan, math.nan)
    error = float(drawn.std(ddof=1)) * math.sqrt(1 + 1 / len(drawn))
    half = student_quantile(len(drawn) - 1, 0.025 / comparisons) * error
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
