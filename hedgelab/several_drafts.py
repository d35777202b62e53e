r"""Acceptance when m whole sequences are drafted, each of k tokens drawn on its own from the drafter's laws.

At each depth only the *survivors* are looked at, the sequences that equal the path so far: their next tokens are the
drafts of `hedgelab.recursive_rejection`, one by one in the order of the sequences. All m survive to the first depth.
When no draft is accepted the output is the last residual's and the round ends. SpecInfer (Miao et al. 2024,
unconfirmed against its text) verifies sampled token trees so. Fresh drafts at every node of the path instead are
`recursive` at every depth.

Let n survive at a depth, p and q be the laws there and x the path's token, C_0 = 0, C_1 = 1 and
C_{j+1} = C_j + sum_v (p - C_j q)_+.

    Claim   The drafts of the n survivors are i.i.d. ~ q, whatever led there; so the output is ~ p, independent of n.
    Proof   Who survives is decided by the tokens and coins of earlier depths. A sequence's next token is drawn from the
            drafter's law after its own tokens, which are the path's: q. Recursive rejection outputs x ~ p for every n.

    Claim   Draft j is accepted, as x, with probability w_j(x) = min(p(x), C_j q(x)) - min(p(x), C_{j-1} q(x)).
    Proof   min(p, C_j q) is the probability that one of the first j drafts is accepted as x: what they do does not
            depend on how many follow.

    Claim   Given that, 1 + Binomial(n - j, q(x)) survive to the next depth.
    Proof   Draft j survives. A draft y before it was rejected: its p_l(y) < q(y), so the residual at y is 0 and stays 0
            (residuals only shrink before they are scaled), and what is accepted later is not y: y is not x. The n - j
            drafts behind it were not looked at: they are independent of the drafts up to j, of the coins and so of the
            event, and each is x with probability q(x).

alpha at depth d is P(accepted | accepted at all depths before, path). By the first claim the path's tokens from here on
tell nothing about n, so with P_d(n) = P(n survive to depth d | accepted at all depths before, path)

    alpha_d = sum_n P_d(n) sum_{j <= n} w_j(x) / p(x) = sum_n P_d(n) min(1, C_n q(x) / p(x))
    gamma_d = sum_n P_d(n) sum_v min(p(v), C_n q(v))
    P_{d+1}(n') ~ sum_n P_d(n) sum_{j <= n} w_j(x) Binomial(n' - 1; n - j, q(x)),    P_0(m) = 1

The factor of that last line is p(x) alpha_d: where alpha_d = 0 no round goes on, alpha is 0 from there on and gamma is
undefined (NaN).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.laws import at_token, checked_laws, on_path
from hedgelab.recursive_rejection import checked_drafts

__all__ = ["sequences"]


def sequences(
    p: ArrayLike, q: ArrayLike, token: ArrayLike, drafts: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (alpha, gamma), each (..., k), of a round that drafts `drafts` sequences of k tokens, along a path.

    p, q : (..., k, V), the laws at each depth after the path's tokens, scaled here to sum to 1 exactly
    token : (..., k), the path's; drafts : at least 1, 1 is the chain at every depth

    Gamma is NaN where no round can be: behind a token that q gives probability 0. Takes time k (V drafts + drafts^2).
    Raises ValueError as `chain` does, for arrays without an axis of depths, and for less than one draft.

    >>> p, q = [[0.5, 0.5], [0.5, 0.5]], [[0.25, 0.75], [0.25, 0.75]]
    >>> alpha, gamma = sequences(p, q, [0, 0], 2)
    >>> [round(float(a), 12) for a in alpha]  # two drafts at first; the second one seldom follows
    [0.625, 0.525]
    """
    target, draft = checked_laws(p=p, q=q)
    m = checked_drafts(drafts)
    target, draft = (law / law.sum(axis=-1, keepdims=True) for law in (target, draft))
    chance = on_path(target, token)
    here = at_token(draft, token, "token")
    shape = np.broadcast_shapes(chance.shape, here.shape)
    if not shape:
        raise ValueError("p, q and token must have an axis of depths: (..., k, V), (..., k, V) and (..., k)")

    accepted = np.empty((*shape, m))  # w_j(x) / p(x)
    overlap = np.empty((*shape, m))  # sum_v min(p(v), C_n q(v))
    before, more = np.zeros(()), np.ones(())  # C_{j-1} and C_j - C_{j-1}
    for j in range(m):
        # in this form nothing cancels, and nothing overflows where p(x) is tiny
        accepted[..., j] = np.maximum(0.0, np.minimum(more * here, chance - before * here)) / chance
        before = before + more
        inflated = before[..., None] * draft
        overlap[..., j] = np.minimum(1.0, np.minimum(target, inflated).sum(axis=-1))
        more = np.maximum(target - inflated, 0.0).sum(axis=-1)

    alpha, gamma = np.empty(shape), np.empty(shape)
    here = np.broadcast_to(here, shape)
    weight = np.zeros((*shape[:-1], m))  # of n = 1 .. m survivors
    weight[..., -1] = 1.0
    for d in range(shape[-1]):
        gamma[..., d] = np.where(weight.any(axis=-1), (weight * overlap[..., d, :]).sum(axis=-1), np.nan)
        # by how many drafts are behind the accepted one
        behind = np.stack([(weight[..., i:] * accepted[..., d, : m - i]).sum(axis=-1) for i in range(m)], axis=-1)
        alpha[..., d] = behind.sum(axis=-1)
        weight = np.zeros_like(weight)
        equal = np.zeros_like(weight)  # Binomial(0 .. m - 1; i, q(x)), by Pascal's rule from i - 1 to i
        equal[..., 0] = 1.0
        same = here[..., d, None]
        for i in range(m):
            weight += behind[..., i, None] * equal
            equal[..., 1:] = equal[..., 1:] * (1.0 - same) + equal[..., :-1] * same
            equal[..., :1] *= 1.0 - same
        total = weight.sum(axis=-1, keepdims=True)
        weight = weight / np.where(total > 0, total, 1.0)
    return np.minimum(1.0, alpha), np.minimum(1.0, gamma)
