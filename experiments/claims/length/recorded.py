"""Recorded text: sums of the estimates over each text's rows, and learners that are fed with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.labels import described, labels
from experiments.settings import Arrays, Setting, trace_of
from hedgelab.lengths import ESTIMATORS

__all__ = ["DRAFTS", "focus", "learner", "texts"]

DRAFTS = 5  # draft length of questions about a single one


def focus(most: int) -> int:
    """Return the draft length of questions about a single one, where `most` was recorded."""
    return min(DRAFTS, most)


def _known_gamma(trace: hl.Trace) -> NDArray[np.bool_]:
    """Return (N,) whether a drafter's gamma is defined everywhere, which A needs."""
    known = np.ones(len(trace.drafters), bool)
    for part in trace.parts():
        for begin, end in zip(part.begin, part.end, strict=True):
            known[trace.deep_columns] &= ~np.isnan(part.gamma_deep[begin:end]).any(axis=(0, 1))
    return known


def texts(setting: Setting, seed: int) -> Arrays:
    """Return sums over each text's rows for k' = 1 to k, A's NaN where gamma is not known off the path; and what
    `described` says.

    whole : (S, k) rows with k' drafts before the end. mean : (3, S, N, k) sums of A, B and C over rows; first, second :
    (3, S, N, k) sums of them and of their squares over whole windows. rounds : (S, N, k) expected rounds of each
    drafter alone. focus : k' of questions about a single one
    """
    trace = trace_of(setting)
    k, n, first = trace.k, len(trace.drafters), trace.offsets[:-1]
    alpha, gamma = trace.alpha.astype(np.float64), trace.gamma.astype(np.float64)
    rows = np.diff(trace.offsets)
    ends = np.repeat(trace.offsets[1:], rows)
    left = ends - np.arange(trace.rows)
    known = _known_gamma(trace)
    sums = np.full((3, 3, trace.sequences, n, k), np.nan)
    for e, name in enumerate(ESTIMATORS):
        which = np.flatnonzero(known) if name == "A" else np.arange(n)
        if not len(which):
            continue
        a, g = alpha[:, :, which], gamma[:, :, which]
        for m in range(1, k + 1):
            lengths = hl.lengths.censored(a, g, m, ends, estimator=name)
            whole = np.where((left >= m)[:, None], lengths, 0.0)
            for j, values in enumerate((lengths, whole, whole**2)):
                sums[j, e, :, which, m - 1] = np.add.reduceat(values, first, axis=0).T
    rounds = [hl.oracles.expected_fixed_rounds(trace, k=m).rounds for m in range(1, k + 1)]
    return {
        **described(trace),
        "focus": np.array(focus(k)),
        "whole": np.maximum(rows[:, None] - np.arange(k), 0).astype(np.float64),
        "mean": sums[0],
        "first": sums[1],
        "second": sums[2],
        "rounds": np.stack(rounds, axis=-1),
    }


def learner(setting: Setting, seed: int) -> Arrays:
    """Return (3, S) rounds of each text with losses of A, B and C, mean over replicates of coins and picks; the texts'
    labels and tokens (S,)."""
    trace = trace_of(setting)
    known = _known_gamma(trace)
    trace = trace.among([name for name, here in zip(trace.drafters, known, strict=True) if here])
    k = focus(trace.k)
    rounds = np.zeros((len(ESTIMATORS), trace.sequences))
    for e, estimator in enumerate(ESTIMATORS):
        for replicate in range(setting["replicates"]):
            game = hl.replay(
                trace,
                setting["learner"],
                k=k,
                objective="length",
                estimator=estimator,
                seed=seed,
                replicate=replicate,
            )
            rounds[e] += game.sequence_rounds / setting["replicates"]
    return {**labels(trace), "rounds": rounds, "tokens": np.diff(trace.offsets).astype(np.float64)}
