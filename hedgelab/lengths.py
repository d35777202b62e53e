r"""Expected committed length of a round, three estimators from one verified path.

A round that starts at row t with draft length k commits Y tokens in 1..k+1. With a_j, g_j the alpha and gamma of its
j-th draft:

    plug-in A          1 + sum_{m<=k} prod_{j<=m} g_j                 biased at target temperature > 0
    realised B         1 + sum_{m<=k} prod_{j<=m} a_j                 = E[Y | path], unbiased
    Rao-Blackwell C    1 + sum_{m<=k} (prod_{j<m} a_j) g_m            unbiased

The first m drafts are accepted with probability E prod_{j<=m} a_j, and g_m is the mean of a_m given the path before
it: so the terms of B and C have the mean P(Y > m). A is the published formula (arXiv 2510.20064), there written
sum_{m<=k+1} m (1 - g_m) prod_{j<m} g_j with g_{k+1} = 0. It is exact if E prod_{j<=m} g_j = E (prod_{j<m} a_j) g_m for
every m <= k, so for greedy targets and where gamma does not depend on the path. Where a path has left a draft tree
gamma is undefined: use B or C.

All three lie in [1, k+1]. No order of their variances is fixed, but Var C <= Var B where alpha is 0 or 1: with R_m the
product of the first m alphas, B - C = sum_m R_{m-1} (a_m - g_m) is a martingale, and its covariance with C is
sum_{l<m} E R_{m-1} g_m (a_l - g_l), where a_l is 1 or R_{m-1} is 0: no term is negative.

The exact E Y needs the laws of all paths: `hedgelab.token_worlds.TokenWorld.expected_length`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import float64, int64, void
from numpy.typing import ArrayLike, NDArray

from hedgelab._jit import compiled_once, kernel
from hedgelab.prefetch import fetch_row

__all__ = ["ESTIMATORS", "censored", "committed_lengths", "plug_in", "rao_blackwell", "realised"]

ESTIMATORS = ("A", "B", "C")
_AHEAD = 6  # rows, beyond those of the round, that are asked for before they are read


@kernel
def committed_lengths(
    alpha_flat, gamma_flat, alpha_deep, gamma_deep, row, k, estimator, flat_columns, deep_columns, out
):
    """Write each drafter's estimate for a round that starts at `row` into `out` (N,), in tokens, 1..k+1.

    alpha_flat, gamma_flat : (T, N1), drafters whose acceptance depends on the prefix only
    alpha_deep, gamma_deep : (T, K, N2), entry [t, d]: row t as the d-th draft of a round that began at t - d
    estimator : index into ESTIMATORS; rows `row` to `row + k - 1` must belong to one sequence
    """
    for column in range(flat_columns.shape[0]):
        reach = 1.0
        length = 1.0
        for d in range(k):
            if estimator == 0:
                reach *= np.float64(gamma_flat[row + d, column])
                length += reach
            elif estimator == 1:
                reach *= np.float64(alpha_flat[row + d, column])
                length += reach
            else:
                length += reach * np.float64(gamma_flat[row + d, column])
                reach *= np.float64(alpha_flat[row + d, column])
        out[flat_columns[column]] = length
    # depth by depth, neighbouring drafters together: such loops become vector instructions
    deep = deep_columns.shape[0]
    if deep == 0:
        return
    fetch_row(alpha_deep, row + k + _AHEAD)
    fetch_row(gamma_deep, row + k + _AHEAD)
    reaches, lengths = np.empty(deep), np.empty(deep)
    for column in range(deep):
        reaches[column] = 1.0
        lengths[column] = 1.0
    for d in range(k):
        if estimator == 0:
            for column in range(deep):
                reaches[column] *= np.float64(gamma_deep[row + d, d, column])
                lengths[column] += reaches[column]
        elif estimator == 1:
            for column in range(deep):
                reaches[column] *= np.float64(alpha_deep[row + d, d, column])
                lengths[column] += reaches[column]
        else:
            for column in range(deep):
                before = reaches[column]
                term = before * np.float64(gamma_deep[row + d, d, column])
                after = before * np.float64(alpha_deep[row + d, d, column])
                lengths[column] += term if before != 0.0 else 0.0  # gamma may be undefined behind an alpha of 0
                reaches[column] = after if before != 0.0 else 0.0
    for column in range(deep):
        out[deep_columns[column]] = lengths[column]


_NEEDS = {"A": "gamma", "B": "alpha", "C": "alpha and gamma"}


@kernel
def _lengths(alpha, gamma, drafts, estimator, out):
    """Write the estimate from the first drafts[t] drafts of a round that starts at row t; NaN where drafts[t] < 0.

    alpha, gamma : (T, K, N); drafts : (R,) int64, at most K and T - t; out : (R, N) float64
    """
    none = alpha[:, 0, :0]
    no_columns = np.empty(0, np.int64)
    columns = np.arange(alpha.shape[2])
    for row in range(drafts.shape[0]):
        if drafts[row] < 0:
            for i in range(out.shape[1]):
                out[row, i] = np.nan
        else:
            committed_lengths(none, none, alpha, gamma, row, drafts[row], estimator, no_columns, columns, out[row])


def _compiled_lengths() -> Any:
    """Return the kernel above, compiled or from the cache: once for every layout of its arrays."""
    given = numba.types.Array(float64, 3, "A", readonly=True)
    return compiled_once(_lengths, void(given, given, int64[::1], int64, float64[:, ::1]))


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _by_depth(name: str, values: ArrayLike, k: int, nan_allowed: bool) -> NDArray:
    """Return values as (T, k, N) float64, a view that repeats what depends on the prefix only."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 2:
        array = array[:, None, :]
    if array.ndim != 3 or (array.shape[1] != 1 and array.shape[1] < k):
        raise ValueError(
            f"{name} must be (T, N), (T, 1, N) or (T, D, N) with D >= k = {k} depths, got {np.shape(values)}"
        )
    array = array[:, :k]
    bad = ~((array >= 0) & (array <= 1))
    if nan_allowed:
        bad &= ~np.isnan(array)
    if bad.any():
        row, depth, column = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        allowed = "[0, 1] or NaN" if nan_allowed else "[0, 1]"
        raise ValueError(f"{name}[{row}, {depth}, {column}] is {array[row, depth, column]:g}; allowed: {allowed}")
    return np.broadcast_to(array, (len(array), k, array.shape[2]))


def _windows(rows: int, k: int, offsets: ArrayLike | None) -> NDArray[np.int64]:
    """Return (max(0, rows - k + 1),) the drafts to use for each start: k, or -1 where a sequence ends before."""
    drafts = np.full(max(0, rows - k + 1), k, np.int64)
    if offsets is None:
        return drafts
    cuts = np.asarray(offsets)
    if cuts.ndim != 1 or cuts.dtype.kind not in "iu" or len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != rows:
        raise ValueError(f"offsets must be integers (S+1,) from 0 to T = {rows}, got {cuts.dtype} {cuts.shape}")
    if (np.diff(cuts.astype(np.int64)) < 0).any():
        raise ValueError("offsets must not descend")
    start = np.arange(len(drafts))
    drafts[start + k > cuts[np.searchsorted(cuts, start, side="right")]] = -1
    return drafts


def _estimates(
    estimator: str,
    alpha: ArrayLike | None,
    gamma: ArrayLike | None,
    k: int,
    drafts: NDArray[np.int64] | None,
    offsets: ArrayLike | None = None,
) -> NDArray[np.float64]:
    for name, values in (("alpha", alpha), ("gamma", gamma)):
        if values is None and name in _NEEDS[estimator]:
            raise ValueError(f"estimator {estimator} needs {_NEEDS[estimator]}")
    known = {}
    if alpha is not None:
        known["alpha"] = _by_depth("alpha", alpha, k, nan_allowed=False)
    if gamma is not None:
        known["gamma"] = _by_depth("gamma", gamma, k, nan_allowed=True)
    shapes = {(len(array), array.shape[2]) for array in known.values()}
    if len(shapes) > 1:
        raise ValueError(f"alpha and gamma must agree in (T, N), got {' and '.join(map(str, sorted(shapes)))}")
    rows, n = shapes.pop()
    drafts = _windows(rows, k, offsets) if drafts is None else drafts
    out = np.empty((len(drafts), n))
    if out.size == 0:
        return out
    # the kernel does not read what the estimator does not need
    first = next(iter(known.values()))
    _compiled_lengths()(known.get("alpha", first), known.get("gamma", first), drafts, ESTIMATORS.index(estimator), out)
    undefined = np.isnan(out) & (drafts >= 0)[:, None]
    if undefined.any():
        row, column = (int(i) for i in np.unravel_index(int(undefined.argmax()), undefined.shape))
        raise ValueError(
            f"estimator {estimator}, round from row {row}, drafter {column}: gamma is undefined (NaN) at a draft that "
            "it needs; A needs it even where the path has left a draft tree, C only before"
        )
    return out


def plug_in(gamma: ArrayLike, k: int, *, offsets: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return A, (T-k+1, N): tokens committed by a round of k drafts from each row, all gammas plugged in. Biased.

    gamma : (T, N), (T, 1, N), or (T, D, N) with D >= k, entry [t, d] row t as the d-th draft of a round from t - d
    offsets : (S+1,) where sequences begin and end; starts whose k drafts cross an end get NaN

    (0, N) when k > T. Raises ValueError for values outside [0, 1], a gamma that is needed and undefined (NaN), other
    shapes, k < 1.

    >>> plug_in([[0.5], [1.0], [0.25]], 2).ravel().tolist()
    [2.0, 2.25]
    """
    return _estimates("A", None, gamma, _whole("k", k), None, offsets)


def realised(alpha: ArrayLike, k: int, *, offsets: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return B, (T-k+1, N): tokens that a round of k drafts from each row commits, on average over coins, on this path.

    alpha, offsets, raises : as gamma in `plug_in`, but NaN is an error: not observed.

    >>> realised([[1.0], [0.0], [0.5]], 2).ravel().tolist()
    [2.0, 1.0]
    """
    return _estimates("B", alpha, None, _whole("k", k), None, offsets)


def rao_blackwell(
    alpha: ArrayLike, gamma: ArrayLike, k: int, *, offsets: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return C, (T-k+1, N): `realised` with the last factor of every term replaced by its mean given the path before.

    alpha, gamma, offsets, raises : as in `plug_in` and `realised`; gamma may be NaN where a draft before it has
    alpha 0, so where the path has left a tree.

    >>> rao_blackwell([[1.0], [0.0], [0.5]], [[0.5], [0.5], [0.25]], 2).ravel().tolist()
    [2.0, 1.5]
    """
    return _estimates("C", alpha, gamma, _whole("k", k), None, offsets)


def censored(
    alpha: ArrayLike | None, gamma: ArrayLike | None, k: int, ends: ArrayLike, *, estimator: str = "C"
) -> NDArray[np.float64]:
    """Return (T, N): an estimate for a round from each row that looks no further than the chunk which the row is in.

    ends : (T,) int, one past the last row of that chunk, so of the round that really ran. The estimate from row t has
        the terms m <= min(k, ends[t] - t) of A, B or C alone.
    alpha, gamma : as in the estimators; one that `estimator` does not use may be None

    What a learner that waits for nothing would use, and biased: chunks end where the *chosen* drafter c was rejected.
    At a chunk's first row, term m is there with probability prod_{j<m} a^c_j, so censored B and C of drafter i have the
    mean 1 + sum_m E (prod_{j<m} a^c_j a^i_j) g^i_m <= E Y. Equal iff c surely accepts wherever i goes on: so for i = c
    when its alpha is 0 or 1, never for a drafter that goes on where c may not. It can rank the chosen drafter above a
    better one.

    >>> censored([[1.0], [0.5], [1.0]], [[0.5], [0.5], [1.0]], 2, [1, 3, 3]).ravel().tolist()
    [1.5, 2.0, 2.0]
    """
    k = _whole("k", k)
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")
    needed = {"A": (None, gamma), "B": (alpha, None), "C": (alpha, gamma)}[estimator]
    if (alpha is None and estimator != "A") or (gamma is None and estimator != "B"):
        raise ValueError(f"estimator {estimator} needs {_NEEDS[estimator]}")
    stop = np.asarray(ends)
    rows = max(len(np.asarray(given)) for given in needed if given is not None)
    if stop.shape != (rows,) or stop.dtype.kind not in "iu":
        raise ValueError(f"ends must be integers ({rows},), one a row, got {stop.dtype} {stop.shape}")
    seen = stop.astype(np.int64) - np.arange(rows)
    if ((seen < 1) | (stop > rows)).any():
        raise ValueError(f"ends[t] must lie in [t + 1, {rows}]")
    return _estimates(estimator, *needed, k, np.minimum(seen, k))
