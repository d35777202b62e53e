"""Claim 2: how the variance of a drafter's loss grows with the number of drafters."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments import growth
from experiments.claim import Answer, Results, answered
from experiments.claims.length.asked import CLAIM, LARGE
from experiments.claims.length.pools import VARIANCES
from experiments.intervals import of_mean

__all__ = ["growths", "of_growth"]


def growths(results: Results) -> dict[tuple[str, str], tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return {(source, variance): (sizes (M,), variances (draws, M))}, source: a trace's sub-pools or "pools"."""
    sources = {each.setting["trace"]: [each.arrays] for each in results.where(part="subpools")}
    sources["pools"] = [each.arrays for each in results.where(part="pool")]
    return {
        (source, name): (
            np.concatenate([each["sizes"] for each in found]),
            np.concatenate([each[name] for each in found], axis=1),
        )
        for name in VARIANCES
        for source, found in sources.items()
        if found
    }


def _slope(sizes: NDArray[np.int64], variances: NDArray[np.float64]) -> float:
    """Return the slope of log variance on log N, from N = LARGE on, mean over draws; NaN where one is not positive."""
    use = sizes >= LARGE
    return float(growth.slope(sizes[use], variances[:, use], np.ones(use.sum())).mean())


def _exponents(sizes: NDArray[np.int64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (draws,) c of variance = a + b N^c, by least squares of relative errors, from N = LARGE on; c in [0.2, 3]
    to within 0.001. A line's own intercept taken off would pass N^1.5 for linear."""
    n, each = sizes[sizes >= LARGE].astype(np.float64), variances[:, sizes >= LARGE]
    grid = np.linspace(0.2, 3, 2801)
    shapes = n ** grid[:, None]
    best = np.empty(len(each))
    for draw, constant in enumerate(1 / each):
        rows = np.stack([np.broadcast_to(constant, shapes.shape), shapes * constant], axis=-1)  # (grid, M, 2)
        found = np.linalg.pinv(rows) @ np.ones((len(n), 1))
        best[draw] = grid[((rows @ found - 1) ** 2).sum(axis=(1, 2)).argmin()]
    return best


def of_growth(results: Results) -> Answer:
    """Return the answer to question growth; intervals are Student's over draws of pools."""
    found = {key: grown for key, grown in growths(results).items() if (grown[0] >= LARGE).sum() >= 3}
    of = {name: {source: grown for (source, each), grown in found.items() if each == name} for name in VARIANCES}
    bare, flat = (
        ", ".join(f"{source} {_slope(*grown):.3f}" for source, grown in of[name].items())
        for name in ("uniform", "full")
    )
    return answered(
        CLAIM,
        "growth",
        {source: partial(of_mean, _exponents(*grown)) for source, grown in of["uniform"].items()},
        "Student's intervals are over draws of pools, nested sub-pools of one trace's drafters or synthetic pools, and "
        "not over prompts: every draw has the same text. The variance is N E Z^2 - (E Z)^2, affine in N by arithmetic "
        "where E Z^2 is that of any pool; exponents without the intercept: "
        f"{bare}; of the variance of B, full information: {flat}",
    )
