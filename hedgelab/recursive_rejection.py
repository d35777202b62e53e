r"""Acceptance under recursive rejection: k drafts of one position, looked at one by one.

Draft j comes from q_j and is accepted with probability min(1, p_j(y) / q_j(y)); p_1 = p, and after a rejection
p_{j+1} = (p_j - q_j)_+ normalised. When all are rejected the output comes from p_{k+1}. SpecInfer (Miao et al. 2024)
draws the drafts i.i.d., q_j = q (unconfirmed against its text); recursive speculative decoding (Jeon et al. 2024, arXiv
2402.14160) draws them without replacement, q_j = q without the j-1 rejected tokens, normalised. The output is always
~ p. When q is exhausted no draft is left; samplers that then go on with other drafts (Sequoia, unconfirmed) differ.

All residuals lie on one curve. Let r_c = (p - c q)_+ and m(c) = sum_v r_c(v).

    Claim   p_j = r_c / m(c) with c = c_j: c_1 = 0, c_{j+1} = c_j + m(c_j) / (1 - q(rejected so far))
    Proof   Let s = 1 - q(rejected). Off the rejected tokens m (p_j - q_j) = p - c q - m q / s where p > c q, so its
            positive part is r at c + m / s. A token rejected now has m q / s > r_c, so r at c + m / s is 0 there, and
            stays 0: the rejected tokens need no other treatment.

    Claim   alpha(x) = E min(1, C q(x) / p(x)), gamma = E sum_v min(p(v), C q(v)), with C = c_{k+1} and the rejected
            drafts Y_1, ..., Y_{k-1} drawn in turn from (q_j - p_j)_+ normalised
    Proof   Drafts y_1, ..., y_k are drawn and rejected with probability prod_j (q_j - p_j)_+(y_j). The j-th factor sums
            over y_j to sum_v (p_j - q_j)_+(v) = m(c_{j+1}) / m(c_j), so the product is the law of Y times m(C). The
            output is then x with probability r_C(x) / m(C): x comes out rejected with probability E r_C(x), and
            accepted with p(x) - E r_C(x) = E min(p(x), C q(x)).

For i.i.d. drafts C is a number: C = 1 for one draft, and each further one adds m(C). It is the expected number of
drafts looked at, and the rule is the chain's with q inflated by it. Without replacement C is 1 for one draft,
1 + m(1) / (1 - q(Y_1)) for two, and from three on depends on the *order* of the rejected drafts, so states can't be
shared by set: the exact value enumerates ordered tuples of k-1 rejected tokens.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab._jit import kernel
from hedgelab.laws import at_token, checked_laws, on_path

__all__ = ["LARGEST_VOCABULARY", "MOST_TUPLES", "checked_drafts", "recursive"]

LARGEST_VOCABULARY = 64  # without replacement
MOST_TUPLES = 2**24  # ordered tuples of rejected tokens a row, without replacement; seconds at V = 64


@kernel
def without_replacement(p, q, token, drafts, alpha, gamma):
    """Write alpha and gamma (R,) of `drafts` drafts without replacement, by depth-first search over rejected tokens.

    p, q : (R, V) laws; token : (R,)
    """
    size = p.shape[1]
    rejected = np.zeros(size, np.bool_)
    # one entry a level, level = number of rejected drafts
    c = np.empty(drafts + 1)
    chance = np.empty(drafts + 1)  # of these rejected drafts, in this order
    latest = np.empty(drafts + 1, np.int64)  # the token of the level that is being rejected
    excess = np.empty((drafts, size))  # (q_j - p_j)_+
    total = np.empty(drafts)
    for row in range(p.shape[0]):
        alpha[row] = 0.0
        gamma[row] = 0.0
        x = token[row]
        c[0] = 0.0
        chance[0] = 1.0
        level = 0
        entering = True
        while level >= 0:
            if entering:
                left = 0.0
                mass = 0.0
                for v in range(size):
                    mass += max(p[row, v] - c[level] * q[row, v], 0.0)
                    if not rejected[v]:
                        left += q[row, v]
                end = level == drafts or left <= 0.0 or mass <= 0.0
                if not end:
                    total[level] = 0.0
                    for v in range(size):
                        excess[level, v] = 0.0
                        if not rejected[v]:
                            residual = max(p[row, v] - c[level] * q[row, v], 0.0) / mass
                            excess[level, v] = max(q[row, v] / left - residual, 0.0)
                            total[level] += excess[level, v]
                    c[level + 1] = c[level] + mass / left
                    latest[level] = -1
                    if level + 1 == drafts or total[level] <= 0.0:
                        # no need to know which one is rejected last, or none can be
                        level += 1
                        chance[level] = chance[level - 1]
                        latest[level - 1] = size
                        end = True
                if end:
                    ratio = 1.0
                    if c[level] * q[row, x] < p[row, x]:
                        ratio = c[level] * q[row, x] / p[row, x]
                    alpha[row] += chance[level] * ratio
                    accepted = 0.0
                    for v in range(size):
                        accepted += min(p[row, v], c[level] * q[row, v])
                    gamma[row] += chance[level] * accepted
                    level -= 1
                entering = False
                continue
            # back at a level: take up the token that was rejected there last, go to the next one
            v = latest[level]
            if 0 <= v < size:
                rejected[v] = False
            v += 1
            while v < size and excess[level, v] <= 0.0:
                v += 1
            if v < size:
                latest[level] = v
                rejected[v] = True
                chance[level + 1] = chance[level] * (excess[level, v] / total[level])
                level += 1
                entering = True
            else:
                level -= 1


def checked_drafts(drafts: int) -> int:
    """Return a number of drafts as int. Raises ValueError for what is no whole number of at least 1.

    >>> checked_drafts(np.int64(2))
    2
    """
    if isinstance(drafts, bool) or not isinstance(drafts, (int, np.integer)) or drafts < 1:
        raise ValueError(f"drafts must be a whole number of at least 1, got {drafts!r}")
    return int(drafts)


def _inflated(p: NDArray[np.float64], q: NDArray[np.float64], drafts: int) -> NDArray[np.float64]:
    """Return C (...): the expected number of `drafts` i.i.d. drafts that are looked at."""
    looked_at = np.ones(np.broadcast_shapes(p.shape, q.shape)[:-1])
    for _ in range(drafts - 1):
        looked_at = looked_at + np.maximum(p - looked_at[..., None] * q, 0.0).sum(axis=-1)
    return looked_at


def recursive(
    p: ArrayLike, q: ArrayLike, token: ArrayLike, drafts: int, replacement: bool = True
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (alpha, gamma), each (...), of recursive rejection over `drafts` drafts from q.

    p, q : (..., V), scaled here to sum to 1 exactly; token : (...), the path's; drafts : at least 1, 1 is the chain
    replacement : True for i.i.d. drafts, any V, in time V x drafts. False for drafts without replacement, exact for
        V <= 64 in time V^drafts: at most 2^24 ordered tuples n (n-1) ... (n-drafts+2), n the tokens with q > 0, so 5
        drafts at V = 64. When n < drafts, q is exhausted after n drafts and the rule is that of n drafts.

    Raises ValueError as `chain` does, and beyond those limits.

    >>> p, q = [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]
    >>> [round(float(recursive(p, q, 0, drafts)[1]), 12) for drafts in (1, 2, 3)]
    [0.5, 0.75, 0.875]
    >>> [round(float(recursive(p, q, 0, drafts, replacement=False)[1]), 12) for drafts in (1, 2, 3)]
    [0.5, 1.0, 1.0]
    """
    target, draft = checked_laws(p=p, q=q)
    drafts = checked_drafts(drafts)
    target, draft = (law / law.sum(axis=-1, keepdims=True) for law in (target, draft))
    chance = on_path(target, token)
    if replacement:
        inflated = _inflated(target, draft, drafts)
        alpha = np.minimum(1.0, inflated * at_token(draft, token, "token") / chance)
        return alpha, np.minimum(1.0, np.minimum(target, inflated[..., None] * draft).sum(axis=-1))

    size = target.shape[-1]
    if size > LARGEST_VOCABULARY:
        raise ValueError(
            f"without replacement is exact for vocabularies of at most {LARGEST_VOCABULARY}, got {size}: "
            "no cheap closed form is known; use replacement=True for i.i.d. drafts"
        )
    support = int((draft > 0).sum(axis=-1).max())
    drafts = min(drafts, support)
    tuples = math.perm(support, drafts - 1)
    if tuples > MOST_TUPLES:
        raise ValueError(
            f"{drafts} drafts without replacement from {support} tokens need {tuples} ordered tuples a row; "
            f"allowed: {MOST_TUPLES}"
        )
    index = np.asarray(token)
    shape = np.broadcast_shapes(target.shape[:-1], draft.shape[:-1], index.shape)
    rows = (
        np.ascontiguousarray(np.broadcast_to(target, (*shape, size)).reshape(-1, size)),
        np.ascontiguousarray(np.broadcast_to(draft, (*shape, size)).reshape(-1, size)),
        np.ascontiguousarray(np.broadcast_to(index, shape).reshape(-1), dtype=np.int64),
    )
    alpha, gamma = np.empty(len(rows[2])), np.empty(len(rows[2]))
    without_replacement(*rows, drafts, alpha, gamma)
    return np.minimum(1.0, alpha).reshape(shape), np.minimum(1.0, gamma).reshape(shape)
