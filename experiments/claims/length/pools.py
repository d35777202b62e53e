"""The variance of one drafter's loss in pools of more and more drafters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claims.length.recorded import DRAFTS, focus
from experiments.settings import Arrays, Setting, trace_of

__all__ = ["VARIANCES", "pools", "subpools"]

VARIANCES = ("full", "uniform", "own")  # as `variances` returns them


def windows(trace: hl.Trace, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return of each whole window and drafter, (R, N): E[Z | path], E[Z^2 | path] and a Z drawn with the row's coins,
    Z = k + 1 - Y the tokens that a round does not commit."""
    rng = np.random.default_rng(0)
    alpha = trace.alpha
    starts = np.concatenate(
        [np.arange(b, max(b, e - k + 1)) for b, e in zip(trace.offsets[:-1], trace.offsets[1:], strict=True)]
    )
    coins = rng.random(trace.rows)
    reach, alive = np.ones((len(starts), len(trace.drafters))), np.ones((len(starts), len(trace.drafters)), bool)
    mean, square, drawn = reach.copy(), reach.copy(), reach.copy()  # of Y: sums of P(Y > m) and (2 m + 1) P(Y > m)
    for d in range(k):
        accept = alpha[starts + d, d if alpha.shape[1] > 1 else 0].astype(np.float64)
        reach *= accept
        mean += reach
        square += (2 * d + 3) * reach
        alive &= coins[starts + d][:, None] < accept
        drawn += alive
    most = k + 1
    return most - mean, most * most - 2 * most * mean + square, most - drawn


def variances(
    mean: NDArray[np.float64], square: NDArray[np.float64], drawn: NDArray[np.float64], k: int, seed: int
) -> list[float]:
    """Return variances over rows, tokens squared, of estimates of one drafter's loss, averaged over the N drafters:

    full information (B); importance weighting Z 1[I = i] / w(i) with w uniform; and with the w of EXP3Spec playing
    these rows, drafters counted by w and not alike: so they are in the sum that bounds its regret, and w that come to
    nothing would else decide alone. mean, square, drawn : (R, N) of `windows`. Exact over picks and coins given the
    path and w.
    """
    n = mean.shape[1]
    centre = mean.mean(axis=0) ** 2
    full = (mean**2).mean(axis=0) - centre
    uniform = n * square.mean(axis=0) - centre
    probs = hl.play(drawn / k, "exp3spec", seed=seed, record=True).probs
    assert probs is not None
    weighted = (square - probs * centre).sum(axis=1).mean()
    return [float(full.mean()), float(uniform.mean()), float(weighted)]


def subpools(setting: Setting, seed: int) -> Arrays:
    """Return (draws, sizes) variances over random sub-pools of a trace's drafters; those of a draw are nested."""
    trace = trace_of(setting)
    n, k = len(trace.drafters), focus(trace.k)
    sizes = [size for size in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if size < n] + [n]
    parts = windows(trace, k)
    found = np.empty((setting["draws"], len(sizes), len(VARIANCES)))
    for draw in range(setting["draws"]):
        order = np.random.default_rng([seed, draw]).permutation(n)
        for j, size in enumerate(sizes):
            mean, square, drawn = (part[:, order[:size]] for part in parts)
            found[draw, j] = variances(mean, square, drawn, k, draw)
    return {"sizes": np.array(sizes), **{name: found[:, :, v] for v, name in enumerate(VARIANCES)}}


def pools(setting: Setting, seed: int) -> Arrays:
    """Return (draws, 1) variances in synthetic pools: mean acceptances drawn from [0.2, 0.8]."""
    n, k = setting["drafters"], DRAFTS
    found = np.empty((setting["draws"], len(VARIANCES)))
    for draw in range(setting["draws"]):
        means = np.random.default_rng([seed, draw, n]).uniform(0.2, 0.8, (1, n))
        trace = hl.worlds.pool(means, setting["rows"] // 8, sequences=8, k=k, seed=1000 * seed + draw)
        found[draw] = variances(*windows(trace, k), k, draw)
    return {"sizes": np.array([n]), **{name: found[:, v, None] for v, name in enumerate(VARIANCES)}}
