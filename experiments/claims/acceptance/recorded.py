"""Recorded text: alpha and gamma of each row, and the laws behind some of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.labels import described
from experiments.settings import Arrays, Setting, trace_of

__all__ = ["BINS", "laws", "texts"]

BINS = 10  # of gamma, in the calibration curves


def _before(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the row before, (T, N), 0 before the first row of each text."""
    shifted = np.zeros_like(values)
    shifted[1:] = values[:-1]
    shifted[offsets[:-1]] = 0.0
    return shifted


def acceptances(trace: hl.Trace) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return alpha and gamma of a trace, (T, D, N) float64."""
    return trace.alpha.astype(np.float64), trace.gamma.astype(np.float64)


def texts(setting: Setting, seed: int) -> Arrays:
    """Return sums over each text's rows, (S, N), of the first draft's alpha a and gamma g; and what `described` says.

    off : sum of a - g; off_gamma, off_before : weighted by g and by the a of the row before, whose sums are gamma and
    before; gg, ga : products; off_later, later : sum of a - g over the depths from 1 on, and how many of them a round
    can reach; largest : (N,) |a - g| at any depth. curve : (S, kinds, BINS, 3) rows, sums of g and of a, by g
    """
    trace = trace_of(setting)
    about = described(trace)
    alpha, gamma = acceptances(trace)
    first = trace.offsets[:-1]
    a, g = alpha[:, 0], gamma[:, 0]
    before = _before(a, trace.offsets)
    deep = alpha[:, 1:] - gamma[:, 1:] if alpha.shape[1] > 1 else np.zeros((trace.rows, 0, len(trace.drafters)))
    reached = ~np.isnan(deep)
    reached[:, :, trace.flat_columns] = False  # the first draft over again
    for d in range(deep.shape[1]):  # no round began before the text
        reached[(first[:, None] + np.arange(d + 1)).clip(max=trace.rows - 1).ravel(), d] = False

    def sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.add.reduceat(values, first, axis=0)

    return {
        **about,
        "off": sums(a - g),
        "off_gamma": sums(g * (a - g)),
        "off_before": sums(before * (a - g)),
        "gamma": sums(g),
        "alpha": sums(a),
        "before": sums(before),
        "gg": sums(g * g),
        "ga": sums(g * a),
        "off_later": sums(np.where(reached, deep, 0.0).sum(axis=1)),
        "later": sums(reached.sum(axis=1).astype(np.float64)),
        "largest": np.nanmax(np.abs(alpha - gamma), axis=(0, 1)),
        "curve": _curve(a, g, np.repeat(np.arange(trace.sequences), np.diff(trace.offsets)), about["kinds"]),
    }


def _curve(
    a: NDArray[np.float64], g: NDArray[np.float64], text: NDArray[np.int64], kinds: NDArray[np.str_]
) -> NDArray[np.float64]:
    """Return (S, kinds, BINS, 3) as `texts`, from a, g (T, N), the texts of the rows (T,) and the drafters' kinds."""
    names = list(dict.fromkeys(kinds.tolist()))
    member = np.array([names.index(kind) for kind in kinds])
    shape = (int(text[-1]) + 1, len(names), BINS)
    bins = np.minimum((g * BINS).astype(np.int64), BINS - 1)
    cell = np.ravel_multi_index((text[:, None], member, bins), shape).ravel()
    found = np.empty((*shape, 3))
    for column, values in enumerate((np.ones_like(g), g, a)):
        found[..., column] = np.bincount(cell, values.ravel(), found[..., column].size).reshape(shape)
    return found


def laws(setting: Setting, seed: int) -> Arrays:
    """Return for each recorded row and drafter (R, N): how far gamma lies outside its interval, and the interval's
    width; NaN where it is not that of a chain of recorded law."""
    trace = trace_of(setting)
    rows = trace.column("logit_row")
    of_p, tail_p = trace.column("logit_p"), trace.column("tail_p")
    of_q, tail = trace.column("logit_q"), trace.column("tail_q")
    chain = np.array([drafter.rule == "chain" for drafter in trace.manifest.drafters])
    gamma = trace.gamma[rows, 0].astype(np.float64)
    outside, width = np.full(gamma.shape, np.nan), np.full(gamma.shape, np.nan)
    for i in np.flatnonzero(chain):
        known = np.flatnonzero(~np.isnan(of_q[:, i]).any(axis=1) & ~np.isnan(tail[:, i]))
        if len(known):
            low, high = hl.acceptance.gamma_interval(of_p[known], of_q[known, i], tail_p[known], tail[known, i])
            outside[known, i] = np.maximum(0.0, np.maximum(low - gamma[known, i], gamma[known, i] - high))
            width[known, i] = high - low
    return {"drafters": np.array(trace.drafters), "outside": outside, "width": width}
