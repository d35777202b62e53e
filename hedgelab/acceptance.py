r"""Acceptance of a draft token: alpha given the path's token, gamma given only the prefix.

    rule          alpha                     gamma
    chain         min(1, q(x) / p(x))       sum_v min(p(v), q(v)) = 1 - TV(p, q)     draft ~ q, rejection sampling
    one_hot       1[x = y]                  p(y)                                     draft is the token y
    independent   q(x)                      sum_v p(v) q(v)                          draft ~ q must equal a sample of p

p and q are the laws as sampled, after all processing of logits. Always E_p alpha = gamma. Leviathan, Kalman and
Matias 2023 (Theorem 3.5) for the chain; given the output x, it was an accepted draft with probability exactly alpha(x).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["chain", "gamma_interval", "independent", "one_hot"]

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def _laws(**laws: ArrayLike) -> list[NDArray[np.float64]]:
    checked = []
    for name, law in laws.items():
        array = np.asarray(law, dtype=np.float64)
        if array.ndim < 1 or array.shape[-1] == 0:
            raise ValueError(f"{name} must have shape (..., V) with V >= 1, got {array.shape}")
        if not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError(f"{name} holds entries that are no probabilities")
        total = array.sum(axis=-1)
        if not np.allclose(total, 1.0, atol=1e-4, rtol=0):
            worst = np.unravel_index(np.abs(total - 1).argmax(), total.shape)
            raise ValueError(f"{name}{list(map(int, worst))} sums to {total[worst]:g}, not to 1")
        checked.append(array)
    if len({array.shape[-1] for array in checked}) > 1:
        sizes = ", ".join(f"{name} {array.shape[-1]}" for name, array in zip(laws, checked, strict=True))
        raise ValueError(f"the laws have different vocabularies: {sizes}")
    return checked


def _at(law: NDArray[np.float64], token: ArrayLike, name: str) -> NDArray[np.float64]:
    index = np.asarray(token)
    if not np.issubdtype(index.dtype, np.integer):
        raise ValueError(f"{name} must be integers, got dtype {index.dtype}")
    if ((index < 0) | (index >= law.shape[-1])).any():
        raise ValueError(f"{name} must lie in [0, {law.shape[-1] - 1}]")
    law, index = np.broadcast_arrays(law, index[..., None])
    return np.take_along_axis(law, index[..., :1], axis=-1)[..., 0]


def chain(p: ArrayLike, q: ArrayLike, token: ArrayLike) -> Pair:
    """Return (alpha, gamma), each (...), of a draft from q (..., V) against p (..., V) on a path with `token` (...).

    Raises ValueError for laws that are none, other vocabularies, or a token of probability 0 under p: no path holds it.

    >>> alpha, gamma = chain([0.6, 0.2, 0.1, 0.1], [0.7, 0.2, 0.05, 0.05], 2)
    >>> float(alpha), round(float(gamma), 12)
    (0.5, 0.9)
    """
    p, q = _laws(p=p, q=q)
    on_path = _at(p, token, "token")
    if (on_path <= 0).any():
        raise ValueError("token has probability 0 under p: it cannot be on a path sampled from p")
    return np.minimum(1.0, _at(q, token, "token") / on_path), np.minimum(1.0, np.minimum(p, q).sum(axis=-1))


def one_hot(p: ArrayLike, draft: ArrayLike, token: ArrayLike) -> Pair:
    """Return (alpha, gamma) of the drafted token `draft` (...) itself, the rule of greedy drafters and of lookup.

    >>> tuple(map(float, one_hot([0.6, 0.2, 0.1, 0.1], 0, 2)))
    (0.0, 0.6)
    """
    (p,) = _laws(p=p)
    _at(p, token, "token")
    return (np.asarray(token) == np.asarray(draft)).astype(np.float64), _at(p, draft, "draft")


def independent(p: ArrayLike, q: ArrayLike, token: ArrayLike) -> Pair:
    """Return (alpha, gamma) of a draft from q that must equal an independent sample of p. Lossless, and worse than
    `chain`.

    >>> round(float(independent([0.6, 0.2, 0.1, 0.1], [0.7, 0.2, 0.05, 0.05], 0)[1]), 12)
    0.47
    """
    p, q = _laws(p=p, q=q)
    return _at(q, token, "token"), (p * q).sum(axis=-1)


def gamma_interval(log_p: ArrayLike, log_q: ArrayLike, tail_p: ArrayLike, tail_q: ArrayLike) -> Pair:
    """Return (low, high) around the chain rule's gamma from log-probabilities at M common ids and the masses elsewhere.

    log_p, log_q : (..., M); tail_p, tail_q : (...). gamma lies in [overlap, overlap + min(tail_p, tail_q)], both
    ends moved outward by the rounding of float32 records.

    >>> low, high = gamma_interval(np.log([0.5, 0.3]), np.log([0.4, 0.2]), 0.2, 0.4)
    >>> round(float(low), 5), round(float(high), 5)
    (0.6, 0.8)
    """
    overlap = np.exp(np.minimum(np.asarray(log_p, np.float64), np.asarray(log_q, np.float64))).sum(axis=-1)
    # a float32 log-probability l is off by |l| 2^-24, so its probability by at most e^-1 2^-24; sums of float32 laws
    # by about 1e-6
    slack = 2e-6
    rest = np.minimum(np.asarray(tail_p, np.float64), np.asarray(tail_q, np.float64))
    return np.maximum(overlap - slack, 0.0), np.minimum(overlap + rest + slack, 1.0)
