"""Claim 2: what estimates choose, and whether their order is that of MAT."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Result
from experiments.intervals import UNTOLD
from experiments.settings import Arrays
from experiments.texts import Texts
from hedgelab.lengths import ESTIMATORS
from hedgelab.regret import Interval

__all__ = ["levels", "of_learner", "picks", "rankings"]


def picks(arrays: Arrays) -> dict[str, Callable[..., Interval]]:
    """Return by domain the mean B of the drafter that A picks minus that of the one that B picks, each on the other
    half of the prompts than that on which it was picked."""
    texts = Texts(arrays)
    sums = arrays["mean"][:2, :, :, arrays["focus"] - 1]
    sums = sums[:, :, ~np.isnan(sums).any(axis=(0, 1))]  # among the drafters that A knows
    gap = np.zeros(len(texts))
    first, second = texts.halves()
    for domain in texts.groups[:-1]:
        for half, other in ((first, second), (second, first)):
            a, b = sums[:, texts.of(domain) & half].sum(axis=1).argmax(axis=1)
            scored = texts.of(domain) & other
            gap[scored] = sums[1, scored, a] - sums[1, scored, b]
    return {domain: partial(texts.ratio, gap, arrays["rows"], domain) for domain in texts.groups[:-1]}


def of_learner(result: Result) -> dict[str, Callable[..., Interval]]:
    """Return MAT of a learner with A, and with B, minus its MAT with C."""
    arrays, texts = result.arrays, Texts(result.arrays)
    return {
        f"{result.setting['learner']}, {name} - C": partial(
            texts.difference, arrays["tokens"], arrays["rounds"][e], arrays["rounds"][2]
        )
        for e, name in enumerate(ESTIMATORS[:2])
    }


def _means(
    arrays: Arrays, here: NDArray[np.bool_], sums: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean B over rows and MAT of each drafter, (..., N), from sums (..., N) over the texts here."""
    k = arrays["focus"]
    rows = sums(arrays["rows"][here, None])
    return sums(arrays["mean"][1, here, :, k - 1]) / rows, rows / sums(arrays["rounds"][here, :, k - 1])


def _suspect(lengths: NDArray[np.float64], rates: NDArray[np.float64]) -> tuple[int, int]:
    """Return the pair (i, j) for which it is least unlikely, in standard errors, that i has the larger mean B and j
    the larger MAT; both (1 + B, N), their values and those in resamples."""
    scores = []
    for values, sign in ((lengths, 1.0), (rates, -1.0)):
        covariance = np.cov(values[1:].T)
        spread = np.sqrt(np.maximum(np.diag(covariance)[:, None] + np.diag(covariance)[None] - 2 * covariance, 1e-12))
        scores.append(sign * (values[0][:, None] - values[0][None]) / spread)
    worst = np.minimum(*scores)
    np.fill_diagonal(worst, -np.inf)
    i, j = np.unravel_index(int(worst.argmax()), worst.shape)
    return int(i), int(j)


def rankings(arrays: Arrays) -> dict[str, Callable[..., Interval]]:
    """Return by domain, and over all, min(B_i - B_j, MAT_j - MAT_i) of the most suspect pair: above 0 where the two
    contradict each other. The pair is found on half of the prompts and measured on the others; both differences must
    lie above 0, so the interval's ends are the smaller of theirs (an intersection-union test), the upper one 0 or more:
    another pair may contradict more."""
    texts = Texts(arrays)
    first, second = texts.halves()

    def contradiction(group: str, i: int, j: int, comparisons: int = 1) -> Interval:
        draws = texts.draws(group, comparisons, second)
        lengths, rates = _means(arrays, texts.of(group) & second, draws.sums)
        pair = [draws.interval(v, comparisons) for v in (lengths[:, i] - lengths[:, j], rates[:, j] - rates[:, i])]
        estimate, low, high = (min(ends) for ends in zip(*pair, strict=True))
        return Interval(estimate, low, max(high, 0.0))

    found: dict[str, Callable[..., Interval]] = {}
    for group in texts.groups:
        if not all((texts.of(group) & half).any() for half in (first, second)):
            found[group] = lambda comparisons: UNTOLD
            continue
        i, j = _suspect(*_means(arrays, texts.of(group) & first, texts.draws(group, among=first).sums))
        found[f"{group}: {arrays['drafters'][i]}, {arrays['drafters'][j]}"] = partial(contradiction, group, i, j)
    return found


def levels(arrays: Arrays) -> str:
    """Return in words by how much the mean of B over all rows exceeds walked MAT."""
    lengths, rates = _means(arrays, np.full(len(arrays["rows"]), True), partial(np.sum, axis=0))
    gap, names = lengths - rates, arrays["drafters"]
    low, high = int(gap.argmin()), int(gap.argmax())
    return (
        f"mean B minus MAT from {gap[low]:+.3f} ({names[low]}) to {gap[high]:+.3f} ({names[high]}), correlation of "
        f"the two over drafters {np.corrcoef(lengths, rates)[0, 1]:.4f}"
    )
