"""Scaling: regret against the number of drafters, and laws fitted to it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

import hedgelab as hl
from experiments import growth
from experiments.claim import Results
from experiments.claims.scaling.asked import SHARE
from experiments.intervals import UNTOLD, Draws, of_mean, resample
from hedgelab.regret import Interval

__all__ = ["FEWEST", "FIRST", "Curve", "Regrets", "envelope", "fixed"]

FIRST = 8  # least N of a fit
FEWEST = 4  # points of a fit
DRAWS = 4000


@dataclass(frozen=True)
class Regrets:
    """Regret at P numbers of drafters. drafters : (P,). scores : P arrays (seeds,)."""

    drafters: NDArray[np.int64]
    scores: Sequence[NDArray[np.float64]]

    def among(self, use: NDArray[np.bool_]) -> Regrets:
        """Return some of the points. use : (P,)"""
        return Regrets(self.drafters[use], [score for score, each in zip(self.scores, use, strict=True) if each])

    @property
    def means(self) -> NDArray[np.float64]:
        """(P,) mean regret."""
        return np.array([score.mean() for score in self.scores])

    @property
    def variances(self) -> NDArray[np.float64]:
        """(P,) squared standard errors of the means; tiny where all runs are the same."""
        return np.array([max(score.var(ddof=1), 1e-12) / len(score) for score in self.scores])

    @functools.cached_property
    def _draws(self) -> list[Draws]:
        """Resamples of the seeds, at each N on their own, for N have different losses."""
        return [resample(np.arange(len(s)), resamples=DRAWS, seed=p) for p, s in enumerate(self.scores)]

    @functools.cached_property
    def drawn(self) -> NDArray[np.float64]:
        """(1 + DRAWS, P) mean regret, then that of resampled seeds."""
        each = [draws.sums(score) / len(score) for draws, score in zip(self._draws, self.scores, strict=True)]
        return np.stack(each, axis=1)

    def interval(self, statistic: ArrayLike, comparisons: int = 1) -> Interval:
        """Return the interval of a statistic of `drawn`, (1 + DRAWS,).

        It has the degrees of freedom of the N with the fewest seeds: a lower bound of Satterthwaite's (1946).
        """
        return min(self._draws, key=lambda draws: draws.degrees).interval(statistic, comparisons)

    def exponent(self, law: str = "", *, less: int = 0, comparisons: int = 1) -> Interval:
        """Return b of regret = a (N - less)^b, less that of a law on the same points and weights; UNTOLD below FEWEST
        points."""
        if len(self.drafters) < FEWEST:
            return UNTOLD
        x, weights = self.drafters - less, self.means**2 / self.variances
        own = growth.slope(x, growth.law(law, self.drafters), weights) if law else 0.0
        return self.interval(growth.slope(x, self.drawn, weights) - own, comparisons)

    def aic(self, law: str, values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return Akaike's criterion of a law, (...); values (..., P) in place of the means, with the same errors."""
        return growth.aic(growth.law(law, self.drafters), self.means if values is None else values, self.variances)

    def aic_beyond(self, worse: str, others: Sequence[str], *, comparisons: int = 1) -> Interval:
        """Return AIC of a law less the least of others; UNTOLD below FEWEST points."""
        if len(self.drafters) < FEWEST:
            return UNTOLD
        least = np.min([self.aic(law, self.drawn) for law in others], axis=0)
        return self.interval(self.aic(worse, self.drawn) - least, comparisons)


@dataclass(frozen=True)
class Curve(Regrets):
    """A learner's regret over T rounds at each N, in the world of one gap.

    gap, chosen : (P,) the gap and mean regret on the choosing seeds. at_end : (P,) whether it is an end of the grid,
    whose least is least_gap. coins : P arrays (seeds,), regret on fair coins
    """

    gap: NDArray[np.float64]
    chosen: NDArray[np.float64]
    at_end: NDArray[np.bool_]
    coins: Sequence[NDArray[np.float64]]
    T: int
    least_gap: float

    @property
    def trivial(self) -> NDArray[np.float64]:
        """(P,) regret of learning nothing."""
        return self.gap * self.T * (1 - 1 / self.drafters)

    @property
    def share(self) -> NDArray[np.float64]:
        """(P,) regret on the choosing seeds, as a share of the trivial one."""
        return self.chosen / self.trivial

    @property
    def learnt(self) -> NDArray[np.bool_]:
        """(P,) whether regret is that of the worst gap, and of a learner that has learnt."""
        return (self.share <= SHARE) & ~self.at_end

    @property
    def fits(self) -> NDArray[np.bool_]:
        """(P,) whether a law may be fitted to it."""
        return self.learnt & (self.drafters >= FIRST)

    @functools.cached_property
    def fitted(self) -> Regrets:
        """The points that a law may be fitted to."""
        return self.among(self.fits)

    def at(self, n: int) -> int:
        """Return the place of N = n."""
        return int(np.flatnonzero(self.drafters == n)[0])

    def least(self, *, comparisons: int = 1) -> Interval:
        """Return regret over sqrt(N T) / 20 where that is least, among N whose gap sqrt(N / T) / 4 the grid reaches."""
        bound = np.array([hl.bounds.lower_bandit(self.T, int(n)) for n in self.drafters])
        reached = np.sqrt(self.drafters / self.T) / 4 >= self.least_gap
        place = int(np.where(reached, self.means / bound, np.inf).argmin())
        return of_mean(self.scores[place] / bound[place], comparisons)

    def fair(self, *, comparisons: int = 1) -> Interval:
        """Return regret on fair coins over its expectation, mean over seeds and N."""
        pairs = zip(self.drafters, self.coins, strict=True)
        ratios = [coins / hl.bounds.fair_coins_exact(self.T, int(n)) for n, coins in pairs if len(coins)]
        return of_mean(np.concatenate(ratios), comparisons)


def envelope(results: Results, learner: str) -> Curve:
    """Return a learner's regret in the world that is worst for it at each N."""
    return _curve(results.where(kind="envelope", learner=learner))


def fixed(results: Results, learner: str) -> Curve:
    """Return a learner's regret at the fixed gap."""
    return _curve(results.where(kind="fixed", learner=learner))


def _curve(parts: Results) -> Curve:
    """Return the curve of all settings that have a part of it, in order of N; they have one grid of gaps."""
    grid, T = parts[0].setting["gaps"], parts[0].setting["T"]
    arrays_at = {n: part.arrays for part in parts for n in part.setting["drafters"]}
    points = sorted(arrays_at.items())
    gap = np.array([arrays[f"gap_{n}"] for n, arrays in points])
    choosing = np.array([arrays[f"choose_{n}"].mean(axis=1) for n, arrays in points])  # (P, gaps)
    return Curve(
        drafters=np.array([n for n, _ in points]),
        scores=[arrays[f"score_{n}"] for n, arrays in points],
        gap=np.array(grid)[gap],
        chosen=np.take_along_axis(choosing, gap[:, None], axis=1)[:, 0],
        at_end=np.isin(gap, (0, len(grid) - 1)) & (len(grid) > 1),
        coins=[arrays[f"coins_{n}"] for n, arrays in points],
        T=T,
        least_gap=min(grid),
    )
