r"""Intervals for alpha and gamma from truncated records: the target's top M tokens, and what lies elsewhere.

A record of one position holds, as the columns `logit_*` and `tail_*` of a trace do:

    ids      (..., M)   the target's M most probable tokens, each once
    log_p    (..., M)   log-probabilities of p at ids, -inf allowed
    log_q    (..., M)   a drafter's, at the same ids
    tail_p   (...)      mass of p elsewhere; tail_q (...) of q

Every function returns intervals as (low, high), moved outward by the rounding of float32 records, so that what was
computed on the full vocabulary lies inside.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["chain_interval", "gamma_interval", "one_hot_interval", "tree_interval"]

Interval = tuple[NDArray[np.float64], NDArray[np.float64]]

# A float32 log-probability l is off by |l| 2^-24, so sums of probabilities by at most 2^-24 times an entropy, below
# 1e-6 for any vocabulary; sums of float32 laws are off by about 1e-6.
_SLACK = 2e-6
_ULP = 2.0**-24
_TINY = 2.0**-126  # below it float32 has fewer digits


def gamma_interval(log_p: ArrayLike, log_q: ArrayLike, tail_p: ArrayLike, tail_q: ArrayLike) -> Interval:
    """Return (low, high) around the chain rule's gamma from log-probabilities at M common ids and the masses elsewhere.

    log_p, log_q : (..., M); tail_p, tail_q : (...). gamma lies in [overlap, overlap + min(tail_p, tail_q)], both
    ends moved outward by the rounding of float32 records.

    >>> low, high = gamma_interval(np.log([0.5, 0.3]), np.log([0.4, 0.2]), 0.2, 0.4)
    >>> round(float(low), 5), round(float(high), 5)
    (0.6, 0.8)
    """
    of_p, of_q = _logs(None, log_p=log_p, log_q=log_q)
    overlap = np.exp(np.minimum(of_p, of_q)).sum(axis=-1)
    return _widened(overlap, overlap + np.minimum(_tail("tail_p", tail_p), _tail("tail_q", tail_q)))


def _widened(low: ArrayLike, high: ArrayLike) -> Interval:
    return np.maximum(np.asarray(low) - _SLACK, 0.0), np.minimum(np.asarray(high) + _SLACK, 1.0)


def _record(ids: ArrayLike, **logs: ArrayLike) -> tuple[NDArray[np.integer], list[NDArray[np.float64]]]:
    index = np.asarray(ids)
    if index.ndim < 1 or index.shape[-1] == 0 or not np.issubdtype(index.dtype, np.integer):
        raise ValueError(f"ids must be integers (..., M) with M >= 1, got {index.dtype} {index.shape}")
    ordered = np.sort(index, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        raise ValueError("ids must name every token once")
    return index, _logs(index.shape[-1], **logs)


def _logs(entries: int | None, **logs: ArrayLike) -> list[NDArray[np.float64]]:
    """Return log-probabilities (..., M); M = `entries` where that is known, else that of the first."""
    arrays = []
    for name, log in logs.items():
        array = np.asarray(log, dtype=np.float64)
        if array.ndim < 1 or array.shape[-1] != (array.shape[-1] if entries is None else entries):
            raise ValueError(f"{name} must have shape (..., {entries or 'M'}), one entry an id; got {array.shape}")
        entries = array.shape[-1]
        if np.isnan(array).any() or (array > 1e-4).any() or (np.exp(array).sum(axis=-1) > 1 + 1e-3).any():
            raise ValueError(f"{name} holds entries that are no log-probabilities")
        arrays.append(array)
    return arrays


def _tail(name: str, tail: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(tail, dtype=np.float64)
    if not ((array >= -1e-4) & (array <= 1 + 1e-4)).all():
        raise ValueError(f"{name} holds entries that are no probabilities")
    return np.clip(array, 0.0, 1.0)


def _tokens(name: str, token: ArrayLike) -> NDArray[np.integer]:
    array = np.asarray(token)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be integers, got dtype {array.dtype}")
    return array


def _log_at(
    ids: NDArray[np.integer], log: NDArray[np.float64], token: NDArray[np.integer]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return whether the record holds the token, and its log-probability there, -inf elsewhere."""
    here = ids == token[..., None]
    return here.any(axis=-1), np.where(here, log, -np.inf).max(axis=-1)


def chain_interval(
    ids: ArrayLike,
    log_p: ArrayLike,
    log_q: ArrayLike,
    tail_p: ArrayLike,
    tail_q: ArrayLike,
    token: ArrayLike,
    token_logprob: ArrayLike | None = None,
) -> tuple[Interval, Interval]:
    """Return the intervals ((low, high) of alpha, (low, high) of gamma) of the chain rule, each end (...).

    ids, log_p, log_q, tail_p, tail_q : see the module; token : (...), the path's
    token_logprob : (...) log p(token), for tokens outside the record (the column `target_logprob` of a trace)

    alpha is known up to rounding where the record holds the token. Elsewhere 0 <= q(x) <= tail_q, so alpha lies in
    [0, tail_q / p(x)], which says something only with `token_logprob`. gamma : see `gamma_interval`. A recorded greedy
    drafter is the case of a one-hot q. Raises ValueError for records of wrong shapes, NaN, or values out of range.

    >>> alpha, _ = chain_interval([7, 3], np.log([0.5, 0.3]), np.log([0.4, 0.2]), 0.2, 0.1, [7, 4], np.log([0.5, 0.2]))
    >>> [end.round(4).tolist() for end in alpha]
    [[0.8, 0.0], [0.8, 0.5]]
    """
    index, (of_p, of_q) = _record(ids, log_p=log_p, log_q=log_q)
    rest_p, rest_q = _tail("tail_p", tail_p), _tail("tail_q", tail_q)
    x = _tokens("token", token)
    held, log_p_x = _log_at(index, of_p, x)
    held, log_p_x, log_q_x = np.broadcast_arrays(held, log_p_x, _log_at(index, of_q, x)[1])
    possible = np.isfinite(log_q_x)
    log_ratio = np.subtract(log_q_x, log_p_x, where=possible, out=np.full(possible.shape, -np.inf))
    # relative: the two logs' rounding, and that of the float32 laws they were taken of
    error = np.where(possible, np.abs(log_p_x) + np.abs(log_q_x), 0.0) * _ULP + _SLACK
    low, high = np.exp(np.minimum(log_ratio - error, 0.0)), np.exp(np.minimum(log_ratio + error, 0.0))
    low, high = np.maximum(low - _TINY, 0.0), np.minimum(high + _TINY, 1.0)
    most = np.ones(np.broadcast_shapes(held.shape, rest_q.shape))
    if token_logprob is not None:
        of_token = np.asarray(token_logprob, dtype=np.float64)
        if not (np.isfinite(of_token) & (of_token <= 1e-4)).all():
            raise ValueError("token_logprob holds entries that no token of a path has")
        chance = np.exp(of_token) * (1.0 - np.abs(of_token) * _ULP - _SLACK)
        # compared by products: a probability of the path may be as small as it likes
        most = np.where(rest_q + _SLACK < chance, (rest_q + _SLACK) / np.maximum(chance, _SLACK), 1.0)
    alpha = np.where(held, low, 0.0), np.where(held, high, most)
    return alpha, gamma_interval(of_p, of_q, rest_p, rest_q)


def one_hot_interval(
    ids: ArrayLike, log_p: ArrayLike, tail_p: ArrayLike, draft: ArrayLike, token: ArrayLike
) -> tuple[Interval, Interval]:
    """Return the intervals ((low, high) of alpha, (low, high) of gamma) of the drafted token `draft`, each end (...).

    alpha = 1[token = draft] is exact. gamma = p(draft) is known up to rounding where the record holds the draft;
    elsewhere it is at most tail_p and at most the smallest recorded probability, because the record holds the top M.

    >>> _, gamma = one_hot_interval([7, 3], np.log([0.5, 0.3]), 0.2, [3, 4], 7)
    >>> [end.round(4).tolist() for end in gamma]
    [[0.3, 0.0], [0.3, 0.2]]
    """
    index, (of_p,) = _record(ids, log_p=log_p)
    rest = _tail("tail_p", tail_p)
    y, x = _tokens("draft", draft), _tokens("token", token)
    accepted = (x == y).astype(np.float64)
    held, log_p_y = _log_at(index, of_p, y)
    known = np.exp(log_p_y)
    most = np.minimum(rest, np.exp(of_p.min(axis=-1)))
    low, high = _widened(np.where(held, known, 0.0), np.where(held, known, most))
    return (accepted, accepted), (low, high)


def tree_interval(ids: ArrayLike, log_p: ArrayLike, children: ArrayLike, token: ArrayLike) -> tuple[Interval, Interval]:
    """Return the intervals ((low, high) of alpha, (low, high) of gamma) of a tree's node, each end (...).

    children : bool (..., M), which of the ids are children of the node; all of its children must be among them.
    alpha = 1[token is a child] is exact, gamma = p(children) is known up to rounding.

    >>> alpha, gamma = tree_interval([7, 3, 5], np.log([0.5, 0.3, 0.1]), [True, False, True], [5, 3])
    >>> alpha[0].tolist(), [round(float(end), 4) for end in gamma]
    ([1.0, 0.0], [0.6, 0.6])
    """
    index, (of_p,) = _record(ids, log_p=log_p)
    members = np.asarray(children)
    if members.dtype != np.bool_ or members.ndim < 1 or members.shape[-1] != index.shape[-1]:
        raise ValueError(f"children must be bool (..., {index.shape[-1]}), got {members.dtype} {members.shape}")
    x = _tokens("token", token)
    accepted = ((index == x[..., None]) & members).any(axis=-1).astype(np.float64)
    mass = np.where(members, np.exp(of_p), 0.0).sum(axis=-1)
    return (accepted, accepted), _widened(mass, mass)
