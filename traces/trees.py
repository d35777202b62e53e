"""Draft trees of certain tokens: which node the path has reached, and which tokens would be accepted there.

A token is accepted if a child of the node reached holds it; then that child is reached. So alpha is 1 or 0, and gamma
is the target's mass on the children (rule "tree" of `hedgelab.acceptance`). A path that has left the tree never comes
back: alpha is 0 there and gamma undefined (NaN). Behind the deepest node both are 0: nothing is proposed.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from traces.drafters.base import PAD, Trees
from traces.sampling import Dense, OneHot

__all__ = ["ROOT", "Followed", "depths_of", "likeliest_paths"]

ROOT, LEFT = -1, -2


def depths_of(parent: Tensor, real: Tensor) -> Tensor:
    """Return the depth (..., M) int64 of every node, 0 for children of the root, -1 where there is none.

    parent : (..., M), parents before their children; real : (..., M) bool

    >>> depths_of(torch.tensor([-1, 0, -1, 1, 0]), torch.tensor([True, True, True, True, False]))
    tensor([ 0,  1,  0,  2, -1])
    """
    depth = torch.zeros_like(parent)
    for node in range(parent.shape[-1]):
        above = parent[..., node]
        depth[..., node] = torch.where(above < 0, 0, depth.gather(-1, above.clamp(min=0)[..., None])[..., 0] + 1)
    return torch.where(real, depth, -1)


class Followed:
    """The trees of the rounds begun at the last `k` tokens of each text, all followed along the text."""

    def __init__(self, texts: int, k: int) -> None:
        self._k = k
        self._tokens = torch.full((texts, k, 0), PAD, dtype=torch.int64)
        self._parent = torch.full((texts, k, 0), ROOT, dtype=torch.int64)
        self._at = torch.full((texts, k), LEFT, dtype=torch.int64)
        self._deepest = torch.zeros(texts, k, dtype=torch.int64)

    def step(self, trees: Trees, target: Dense | OneHot, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return alpha and gamma, (B, k) float32 on the CPU, at the path's token (B,) of the rounds begun 0 .. k - 1
        tokens ago, the first of them with `trees`.

        Entries of rounds that began before the first call are 0 and NaN, or 0 and 0.
        """
        device = token.device
        token = token.cpu()
        nodes = max(self._tokens.shape[2], trees.tokens.shape[1])
        fresh = torch.full_like(token, ROOT)
        deepest = depths_of(trees.parent, trees.tokens != PAD).amax(-1) + 1 if trees.tokens.shape[1] else fresh + 1
        self._tokens = _pushed(self._tokens, trees.tokens, nodes, PAD)
        self._parent = _pushed(self._parent, trees.parent, nodes, ROOT)
        self._at = torch.cat([fresh[:, None], self._at[:, :-1]], 1)
        self._deepest = torch.cat([deepest[:, None], self._deepest[:, :-1]], 1)
        children = (self._parent == self._at[..., None]) & (self._tokens != PAD)
        if isinstance(target, OneHot):
            chance = (self._tokens == target.token.cpu()[:, None, None]).float()
        else:
            ids = self._tokens.clamp(min=0).flatten(1).to(device)
            chance = target.probs.gather(1, ids).cpu().view_as(self._tokens)
        gamma = torch.where(children, chance, 0.0).sum(-1).clamp(max=1)
        hit = children & (self._tokens == token[:, None, None])
        accepted = hit.any(-1)
        offered = torch.arange(self._k) < self._deepest
        gamma = torch.where(offered, gamma.masked_fill(self._at == LEFT, torch.nan), 0.0)
        self._at = torch.where(accepted, hit.int().argmax(-1) if nodes else self._at, LEFT)
        return accepted.float(), gamma

    @property
    def deepest(self) -> Tensor:
        """Number of drafts (B,) on the longest way down of the latest trees."""
        return self._deepest[:, 0]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""
        self._tokens, self._parent = self._tokens[rows], self._parent[rows]
        self._at, self._deepest = self._at[rows], self._deepest[rows]


def _pushed(held: Tensor, fresh: Tensor, nodes: int, filler: int) -> Tensor:
    """Return the trees of k rounds, (B, k, nodes), with fresh ones (B, M) in front."""
    both = [F.pad(part, (0, nodes - part.shape[-1]), value=filler) for part in (fresh[:, None], held[:, :-1])]
    return torch.cat(both, 1)


def likeliest_paths(shares: Sequence[float], nodes: int, depth: int) -> list[tuple[int, ...]]:
    """Return the `nodes` likeliest paths of ranks, none longer than `depth`, every path behind its own beginning.

    shares : how often the token of rank 0, 1, ... of a law is accepted; a path is as likely as the product of its
    ranks' shares. If ranks at different depths are independent, no tree of as many nodes has more accepted drafts on
    average (Chen et al. 2024, "Sequoia", section 3.1). Of equally likely paths the shorter comes first, then the
    smaller ranks.

    >>> likeliest_paths([0.6, 0.3], 4, 3)
    [(0,), (0, 0), (1,), (0, 0, 0)]
    """
    queue: list[tuple[float, int, tuple[int, ...]]] = [(-share, 1, (rank,)) for rank, share in enumerate(shares)]
    heapq.heapify(queue)
    found: list[tuple[int, ...]] = []
    while queue and len(found) < nodes:
        chance, length, path = heapq.heappop(queue)
        found.append(path)
        if length < depth:
            for rank, share in enumerate(shares):
                heapq.heappush(queue, (chance * share, length + 1, (*path, rank)))
    return found
