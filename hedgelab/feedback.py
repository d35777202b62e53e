"""Loss vectors in [0, 1] from recorded acceptances: what a round tells a learner.

acceptance   1 - gamma (or 1 - alpha) of the row as the first draft of a round
length       1 - len / (k + 1), len one of the estimators of `hedgelab.lengths`; range [0, k / (k + 1)]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hedgelab._jit import kernel
from hedgelab.lengths import ESTIMATORS, committed_lengths
from hedgelab.trace import Part, Trace

__all__ = [
    "ACCEPTANCE",
    "LENGTH",
    "OBJECTIVES",
    "draft_length",
    "loss_of",
    "loss_range",
    "losses",
    "rows_until_known",
    "whole_draft_length",
]

LONGEST_DRAFT = 1024
ACCEPTANCE = 0
LENGTH = 1
OBJECTIVES = {"acceptance": ("gamma", "alpha"), "length": ("C", "B", "A")}  # each with its estimators, default first


def loss_of(objective: str, estimator: str | None) -> tuple[int, int]:
    """Return the kernel codes (objective, estimator). Raises ValueError naming an unknown objective or estimator."""
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    allowed = OBJECTIVES[objective]
    estimator = allowed[0] if estimator is None else estimator
    if estimator not in allowed:
        raise ValueError(f"estimator of objective {objective!r} must be one of {', '.join(allowed)}, got {estimator!r}")
    if objective == "acceptance":
        return ACCEPTANCE, allowed.index(estimator)
    return LENGTH, ESTIMATORS.index(estimator)


def whole_draft_length(k: int) -> int:
    """Return k as an int. Raises ValueError when it is no draft length."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= LONGEST_DRAFT:
        raise ValueError(f"k must be a whole number in [1, {LONGEST_DRAFT}], got {k!r}")
    return int(k)


def draft_length(trace: Trace, k: int | None) -> int:
    """Return k, by default the trace's own. Raises ValueError when it is no draft length that the trace can answer
    for."""
    if k is None:
        return trace.k
    k = whole_draft_length(k)
    if len(trace.deep_columns) and k > trace.k:
        names = ", ".join(trace.drafters[i] for i in trace.deep_columns)
        raise ValueError(f"k must be at most {trace.k}, the depth recorded for {names}; got {k}")
    return k


def loss_range(objective: str, k: int) -> float:
    """Return the width of the interval that the losses fill.

    >>> loss_range("length", 4)
    0.8
    """
    return k / (k + 1) if objective == "length" else 1.0


def refuse_undefined_gamma(trace: Trace, k: int) -> None:
    """Raise ValueError if gamma is undefined (NaN) at one of the first k depths: estimator A needs it everywhere."""
    for part in trace.parts():
        for begin, end in zip(part.begin, part.end, strict=True):
            if np.isnan(part.gamma_deep[begin:end, :k]).any():
                raise ValueError(
                    "estimator A needs gamma at every depth, but a draft that the path left has none (NaN): use B or C"
                )


@kernel
def rows_until_known(objective, k):
    """Return how many rows, from its own on, must be verified before the loss of a row is known."""
    return k if objective == LENGTH else 1


@kernel
def row_losses(
    alpha_flat, gamma_flat, alpha_deep, gamma_deep, row, k, objective, estimator, flat_columns, deep_columns, out
):
    """Write the loss of every drafter at `row` into `out` (N,)."""
    if objective == LENGTH:
        committed_lengths(
            alpha_flat, gamma_flat, alpha_deep, gamma_deep, row, k, estimator, flat_columns, deep_columns, out
        )
        for i in range(out.shape[0]):
            out[i] = 1.0 - out[i] / (k + 1.0)
        return
    for column in range(flat_columns.shape[0]):
        accepted = gamma_flat[row, column] if estimator == 0 else alpha_flat[row, column]
        out[flat_columns[column]] = 1.0 - np.float64(accepted)
    for column in range(deep_columns.shape[0]):
        accepted = gamma_deep[row, 0, column] if estimator == 0 else alpha_deep[row, 0, column]
        out[deep_columns[column]] = 1.0 - np.float64(accepted)


@kernel
def _fill_losses(
    alpha_flat,
    gamma_flat,
    alpha_deep,
    gamma_deep,
    begin,
    end,
    k,
    objective,
    estimator,
    flat_columns,
    deep_columns,
    out,
):
    lag = rows_until_known(objective, k)
    written = 0
    for s in range(begin.shape[0]):
        for row in range(begin[s], end[s]):
            if row + lag <= end[s]:
                row_losses(
                    alpha_flat,
                    gamma_flat,
                    alpha_deep,
                    gamma_deep,
                    row,
                    k,
                    objective,
                    estimator,
                    flat_columns,
                    deep_columns,
                    out[written],
                )
            else:
                for i in range(out.shape[1]):
                    out[written, i] = np.nan
            written += 1
    return written


def part_losses(part: Part, trace: Trace, k: int, objective: int, estimator: int, out: NDArray[np.float64]) -> int:
    """Write one part's losses into the first rows of `out`; return how many rows there were."""
    return _fill_losses(
        part.alpha_flat,
        part.gamma_flat,
        part.alpha_deep,
        part.gamma_deep,
        part.begin,
        part.end,
        k,
        objective,
        estimator,
        trace.flat_columns,
        trace.deep_columns,
        out,
    )


def losses(
    trace: Trace, *, k: int | None = None, objective: str = "length", estimator: str | None = None
) -> NDArray[np.float64]:
    """Return the losses of every drafter at every row, (T, N) float64 in [0, 1].

    NaN where a loss never becomes known: with objective "length" the last k - 1 rows of each sequence.
    """
    k = draft_length(trace, k)
    code, estimator_code = loss_of(objective, estimator)
    if estimator == "A":
        refuse_undefined_gamma(trace, k)
    out = np.empty((trace.rows, len(trace.drafters)))
    written = 0
    for part in trace.parts():
        written += part_losses(part, trace, k, code, estimator_code, out[written:])
    return out
