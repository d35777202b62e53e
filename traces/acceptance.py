"""alpha and gamma of drafts against the target's law, batched, on the full vocabulary."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from traces.sampling import Dense, Law, OneHot

__all__ = ["alpha_gamma", "deep_alpha_gamma", "several_alpha_gamma"]


def alpha_gamma(target: Dense | OneHot, draft: Law, token: Tensor) -> tuple[Tensor, Tensor]:
    """Return alpha and gamma, (B k,) float32 in [0, 1], of k drafts for each of the target's B rows.

    alpha = min(1, q(x) / p(x)) at the path's token x (B,), which p can draw; gamma = sum_v min(p(v), q(v)). A draft
    that proposes nothing (`OneHot` token -1) has both 0. The k drafts of row 0 come first, as one law of B k rows.
    Source: Leviathan, Kalman, Matias 2023, "Fast inference from transformers via speculative decoding", section 3.

    >>> from hedgelab.storage.manifest import Processing
    >>> from traces.sampling import process
    >>> p = process(torch.tensor([[0.6, 0.2, 0.1, 0.1]]).log(), Processing(1.0))
    >>> q = process(torch.tensor([[0.7, 0.2, 0.05, 0.05]]).log(), Processing(1.0))
    >>> [round(float(value), 6) for value in alpha_gamma(p, q, torch.tensor([2]))]
    [0.5, 0.9]
    """
    batch = len(token)
    k = draft.size // batch
    each = token.repeat_interleave(k)
    if isinstance(target, OneHot):  # p is certain: both are the draft's probability of that token
        certain = draft.at(target.token.repeat_interleave(k))
        return certain, certain
    if isinstance(draft, OneHot):
        chance = target.probs.gather(1, draft.token.clamp(min=0).view(batch, k)).flatten()
        return (draft.token == each).float(), torch.where(draft.token >= 0, chance, 0.0)
    of_target = target.probs if isinstance(draft, Dense) else target.probs.index_select(1, draft.ids)
    # over the target's own row sum, so that equal laws give exactly 1 although float32 sums miss it by an ulp
    gamma = torch.minimum(of_target[:, None], draft.probs.unflatten(0, (batch, k))).sum(-1) / target.total[:, None]
    alpha = draft.at(each) / target.at(token).repeat_interleave(k)
    return alpha.clamp(max=1), gamma.flatten().clamp(max=1)


def deep_alpha_gamma(target: Dense | OneHot, drafts: Tensor, alive: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """Return alpha and gamma, (B, k) float32, of one-hot drafts at k depths that meet the same position.

    drafts : (B, k) int64, the id that a round begun d rows earlier drafted for this position, -1 for none
    alive : (B, k) bool, whether that round's drafts equal the path so far
    Where nothing was drafted both are 0; where the path left the draft alpha is 0 and gamma is NaN (undefined).
    """
    given = drafts >= 0
    if isinstance(target, OneHot):
        chance = (drafts == target.token[:, None]).float()
    else:
        chance = target.probs.gather(1, drafts.clamp(min=0))
    alpha = (given & alive & (drafts == token[:, None])).float()
    gamma = torch.where(given, torch.where(alive, chance, torch.nan), 0.0)
    return alpha, gamma


def several_alpha_gamma(
    target: Dense | OneHot, draft: Law, token: Tensor, survivors: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return alpha and gamma, (B, k) float32, of k rounds that meet one position, and who survives it (B, k, m).

    The rule is that of `hedgelab.several_drafts`: i.i.d. drafts from q are verified one by one, as many as survive.

    draft : B k laws, those of row 0 first, or B where every round has the same law; token : (B,), which p can draw
    survivors : (B, k, m) float64, P(n of a round's m drafted sequences are the path so far) for n = 1 .. m; all 0 for
        a round that can't have come here: alpha is 0, gamma NaN, and nobody survives

    >>> from hedgelab.storage.manifest import Processing
    >>> from traces.sampling import process
    >>> p = process(torch.tensor([[0.5, 0.5]]).log(), Processing(1.0))
    >>> q = process(torch.tensor([[0.25, 0.75]]).log(), Processing(1.0))
    >>> two = torch.tensor([[[0.0, 1.0]]], dtype=torch.float64)
    >>> alpha, gamma, after = several_alpha_gamma(p, q, torch.tensor([0]), two)
    >>> alpha.tolist(), gamma.tolist(), after.tolist()
    ([[0.625]], [[0.8125]], [[[0.8, 0.2]]])
    """
    m = survivors.shape[-1]
    overlap = _overlaps(target, draft, m)
    more = torch.cat([torch.ones_like(overlap[..., :1]), 1 - overlap[..., :-1]], -1)  # C_j - C_{j-1}
    before = more.cumsum(-1) - more
    chance = target.at(token).double()[:, None, None]
    here = draft.at(token.repeat_interleave(overlap.shape[1])).double().view(*overlap.shape[:2], 1).clamp(max=1)
    # P(draft j is the one accepted | the path's token)
    accepted = torch.minimum(more * here, chance - before * here).clamp(min=0) / chance
    # by how many drafts are behind the accepted one
    behind = torch.stack([(survivors[..., i:] * accepted[..., : m - i]).sum(-1) for i in range(m)], -1)
    gone = survivors.sum(-1) == 0
    alpha = behind.sum(-1)
    gamma = (survivors * overlap).sum(-1).masked_fill(gone, torch.nan)
    after = (behind[..., None] * _binomials(here, m)).sum(-2)
    after = after / torch.where(alpha > 0, alpha, 1.0)[..., None]
    return alpha.float().clamp(max=1), gamma.float().clamp(max=1), after


def _overlaps(target: Dense | OneHot, draft: Law, drafts: int) -> Tensor:
    """Return sum_v min(p(v), C_n q(v)) for n = 1 .. drafts, (B, k, drafts) float64 in [0, 1], of B k draft laws.

    C_1 = 1, and C_{n+1} - C_n is what remains of p: 1 - the n-th sum. Ids outside a reduced vocabulary add nothing.
    """
    batch = target.size
    k = draft.size // batch
    total = torch.ones(batch, 1, 1, device=target.token.device if isinstance(target, OneHot) else target.probs.device)
    if isinstance(target, OneHot):  # one column is enough: that of its token
        p, q = total, draft.at(target.token.repeat_interleave(k)).view(batch, k, 1)
    elif isinstance(draft, OneHot):
        p = target.probs.gather(1, draft.token.clamp(min=0).view(batch, k))[..., None]
        q = (draft.token >= 0).float().view(batch, k, 1)
    else:
        p = (target.probs if isinstance(draft, Dense) else target.probs.index_select(1, draft.ids))[:, None]
        q = draft.probs.unflatten(0, (batch, k))
        total = target.total[:, None, None]
    inflated = torch.ones(batch, k, 1, dtype=torch.float64, device=q.device)
    scratch, found = torch.empty_like(q), []
    for _ in range(drafts):
        torch.mul(q, inflated.float(), out=scratch)
        torch.minimum(scratch, p, out=scratch)
        found.append((scratch.sum(-1, keepdim=True).double() / total).clamp(max=1))
        inflated = inflated + 1 - found[-1]
    return torch.cat(found, -1)


def _binomials(chance: Tensor, drafts: int) -> Tensor:
    """Return P(j of i drafts are the path's token), chance (..., 1) each: (..., i, j), both from 0 to drafts - 1."""
    of = [[float(math.comb(i, j)) for j in range(drafts)] for i in range(drafts)]
    i, j = torch.arange(drafts, device=chance.device)[:, None], torch.arange(drafts, device=chance.device)
    chance = chance[..., None]
    return torch.tensor(of, dtype=chance.dtype, device=chance.device) * chance**j * (1 - chance) ** (i - j).clamp(min=0)
