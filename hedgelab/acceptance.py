r"""Acceptance of a draft token: alpha given the path's token, gamma given only the prefix.

    rule          alpha                       gamma
    chain         min(1, q(x) / p(x))         sum_v min(p(v), q(v)) = 1 - TV(p, q)     draft ~ q, rejection sampling
    one_hot       1[x = y]                    p(y)                                     draft is the token y
    tree          1[x in S]                   sum_{v in S} p(v)                        drafts are the tokens S
    recursive     E min(1, C q(x) / p(x))     E sum_v min(p(v), C q(v))                several drafts ~ q, one by one
    sequences     E min(1, C q(x) / p(x))     E sum_v min(p(v), C q(v))                several drafted sequences
    independent   q(x)                        sum_v p(v) q(v)                          draft ~ q, must equal a sample

p and q are the laws as sampled, after all processing of logits; arrays broadcast over leading axes. Every rule
outputs x ~ p exactly, and given the output x, it was an accepted draft with probability exactly alpha(x); so always
E_p alpha = gamma. Leviathan, Kalman and Matias 2023 (Theorem 3.5) for the chain; C is the expected number of drafts
that are looked at, see `hedgelab.recursive_rejection`, and of sequences only those are that equal the path so far, see
`hedgelab.several_drafts`. Where only the top of p is recorded alpha and gamma are
intervals, see `hedgelab.truncated_laws`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.laws import at_token, checked_laws, on_path
from hedgelab.recursive_rejection import recursive
from hedgelab.several_drafts import sequences
from hedgelab.truncated_laws import chain_interval, gamma_interval, one_hot_interval, tree_interval

__all__ = [
    "chain",
    "chain_interval",
    "gamma_interval",
    "independent",
    "one_hot",
    "one_hot_interval",
    "recursive",
    "sequences",
    "tree",
    "tree_interval",
]

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def chain(p: ArrayLike, q: ArrayLike, token: ArrayLike) -> Pair:
    """Return (alpha, gamma), each (...), of a draft from q (..., V) against p (..., V) on a path with `token` (...).

    Raises ValueError for laws that are none, other vocabularies, or a token of probability 0 under p: no path holds it.

    >>> alpha, gamma = chain([0.6, 0.2, 0.1, 0.1], [0.7, 0.2, 0.05, 0.05], 2)
    >>> float(alpha), round(float(gamma), 12)
    (0.5, 0.9)
    """
    p, q = checked_laws(p=p, q=q)
    chance = on_path(p, token)
    return np.minimum(1.0, at_token(q, token, "token") / chance), np.minimum(1.0, np.minimum(p, q).sum(axis=-1))


def one_hot(p: ArrayLike, draft: ArrayLike, token: ArrayLike) -> Pair:
    """Return (alpha, gamma) of the drafted token `draft` (...) itself, the rule of greedy drafters and of lookup.

    >>> tuple(map(float, one_hot([0.6, 0.2, 0.1, 0.1], 0, 2)))
    (0.0, 0.6)
    """
    (p,) = checked_laws(p=p)
    at_token(p, token, "token")
    return (np.asarray(token) == np.asarray(draft)).astype(np.float64), at_token(p, draft, "draft")


def tree(p: ArrayLike, children: ArrayLike, token: ArrayLike) -> Pair:
    """Return (alpha, gamma) of a draft tree's node: the next token is accepted iff it is among the node's children.

    p : (..., V); children : bool (..., V), at most one draft a token, none at a leaf (both are then 0); token : (...)

    The rule of certain trees (EAGLE, Medusa, top-k, retrieval), and of sampled tokens that are accepted by membership.
    It speaks of a node on the path: where the path has left the tree, alpha is 0 and gamma is undefined (NaN).

    >>> alpha, gamma = tree([0.6, 0.2, 0.1, 0.1], [True, True, False, False], [1, 2])
    >>> alpha.tolist(), round(float(gamma), 12)
    ([1.0, 0.0], 0.8)
    """
    (p,) = checked_laws(p=p)
    members = np.asarray(children)
    if members.dtype != np.bool_ or members.ndim < 1 or members.shape[-1] != p.shape[-1]:
        raise ValueError(f"children must be bool (..., {p.shape[-1]}), got {members.dtype} {members.shape}")
    at_token(p, token, "token")
    # a law's rounding may lift the sum above 1
    gamma = np.minimum(1.0, np.where(members, p, 0.0).sum(axis=-1))
    return at_token(members, token, "token").astype(np.float64), gamma


def independent(p: ArrayLike, q: ArrayLike, token: ArrayLike) -> Pair:
    """Return (alpha, gamma) of a draft from q that must equal an independent sample of p. Lossless, and worse than
    `chain`.

    >>> round(float(independent([0.6, 0.2, 0.1, 0.1], [0.7, 0.2, 0.05, 0.05], 0)[1]), 12)
    0.47
    """
    p, q = checked_laws(p=p, q=q)
    return at_token(q, token, "token"), (p * q).sum(axis=-1)
