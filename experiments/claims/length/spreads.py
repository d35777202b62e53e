"""Claim 2: how far estimates vary over the rows of a domain."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from experiments.intervals import Draws
from experiments.settings import Arrays
from experiments.texts import Texts
from hedgelab.lengths import ESTIMATORS
from hedgelab.regret import Interval

__all__ = ["deviations", "ratios", "shares"]


def _known(arrays: Arrays, estimator: str) -> NDArray[np.int64]:
    """Return the drafters that an estimator is defined for."""
    return np.flatnonzero(~np.isnan(arrays["mean"][ESTIMATORS.index(estimator)]).any(axis=(0, 2)))


def _squares(arrays: Arrays, estimator: str, k: int, here: NDArray[np.bool_], draws: Draws) -> NDArray[np.float64]:
    """Return (1 + B, N) sums over the whole windows of texts `here` of squared distances to their mean."""
    e, own = ESTIMATORS.index(estimator), Draws(draws.weights[:, here], draws.degrees)
    rows = np.maximum(own.sums(arrays["whole"][here, k - 1]), 1.0)[:, None]
    first, second = (own.sums(arrays[name][e, here, :, k - 1]) for name in ("first", "second"))
    return second - first**2 / rows


def variances(arrays: Arrays, estimator: str, draws: Draws) -> NDArray[np.float64]:
    """Return (1 + B, N) variances over whole windows at the focus, around each domain's own mean."""
    texts, k = Texts(arrays), int(arrays["focus"])
    squares = sum(_squares(arrays, estimator, k, texts.of(domain), draws) for domain in texts.groups[:-1])
    return squares / draws.sums(arrays["whole"][:, k - 1])[:, None]


def ratios(arrays: Arrays, above: str, below: str) -> dict[str, Callable[..., Interval]]:
    """Return {drafter: ratio of the variances of two estimators}, where both are defined."""

    @functools.cache
    def drawn(comparisons: int) -> tuple[Draws, NDArray[np.float64]]:
        draws = Texts(arrays).draws(comparisons=comparisons)
        return draws, variances(arrays, above, draws) / variances(arrays, below, draws)

    def ratio(i: int, comparisons: int = 1) -> Interval:
        draws, values = drawn(comparisons)
        return draws.interval(values[:, i], comparisons)

    both = np.intersect1d(_known(arrays, above), _known(arrays, below))
    return {f"{arrays['drafters'][i]} {above}/{below}": functools.partial(ratio, i) for i in both}


def deviations(arrays: Arrays) -> dict[str, dict[str, Interval]]:
    """Return {estimator: {drafter: standard deviation}} at the focus, tokens."""
    draws = Texts(arrays).draws()
    found = {}
    for name in ESTIMATORS:
        values = np.sqrt(variances(arrays, name, draws))
        found[name] = {str(arrays["drafters"][i]): draws.interval(values[:, i]) for i in _known(arrays, name)}
    return found


def shares(arrays: Arrays) -> str:
    """Return in words how often each estimator has the least variance, over drafters, domains and k from 2 on."""
    texts, none = Texts(arrays), Draws(np.empty((0, len(arrays["rows"]))), 0)
    a, b, c = np.concatenate(
        [
            [_squares(arrays, name, k, texts.of(domain), none)[0] for name in ESTIMATORS]
            for domain in texts.groups[:-1]
            for k in range(2, arrays["mean"].shape[-1] + 1)
        ],
        axis=1,
    )
    known = ~np.isnan(a)
    least = np.bincount(np.stack([a, b, c])[:, known].argmin(axis=0), minlength=3)
    cells = ", ".join(f"{name} {count}" for name, count in zip(ESTIMATORS, least, strict=True))
    return f"least variance {cells} of {least.sum()} cells; C below B in {(c < b).sum()} of {len(b)}"
