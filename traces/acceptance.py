"""alpha and gamma of drafts against the target's law, batched, on the full vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from traces.sampling import Dense, Law, OneHot

__all__ = ["alpha_gamma", "deep_alpha_gamma"]


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
