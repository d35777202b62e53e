"""Draft trees of certain tokens: which node the path has reached, and which tokens would be accepted there.

A token is accepted if a child of the node reached holds it; then that child is reached. So alpha is 1 or 0, and gamma
is the target's mass on the children (rule "tree" of `hedgelab.acceptance`). A path that has left the tree never comes
back: alpha is 0 there and gamma undefined (NaN). Behind the deepest node both are 0: nothing is proposed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from traces.sampling import Dense, OneHot, top_ids

__all__ = [
    "PAD",
    "ROOT",
    "Expand",
    "Followed",
    "Trees",
    "chain",
    "depths_of",
    "grow",
    "likeliest_paths",
    "lineage_of",
    "walk",
]

PAD = -1  # stands where there is no token, or no node; no id
ROOT, LEFT = -1, -2
Expand: TypeAlias = Callable[[int, Tensor, Tensor], Tensor]  # see `grow`


@dataclass(frozen=True)
class Trees:
    """Draft trees of certain tokens, one a text. Children of one node are different tokens.

    tokens : (B, M) int64 on the CPU, PAD where there is no node. parent : (B, M) int64, the place of a node's parent,
    which comes before it; -1 for a child of the root, the last token of the text. confidence : (B,), how likely the
    drafter takes its best first token to be; None for sure
    match : (B,) int64, length of the match that was looked up, None for a drafter that looks up none
    faulty : (B,) bool, texts at which the drafter found no law, None for nowhere; their trees mean nothing
    """

    tokens: Tensor
    parent: Tensor
    confidence: Tensor | None = None
    match: Tensor | None = None
    faulty: Tensor | None = None


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


def lineage_of(parent: Tensor) -> Tensor:
    """Return which nodes are ancestors of each node, or itself: (B, M, M) bool, the node's row, the other's column.

    parent : (B, M), parents before their children

    >>> lineage_of(torch.tensor([[-1, 0, -1, 1]])).int()[0].tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 1]]
    """
    batch, nodes = parent.shape
    found = torch.eye(nodes, dtype=torch.bool, device=parent.device).repeat(batch, 1, 1)
    for node in range(nodes):
        above = parent[:, node]
        inherited = found.gather(1, above.clamp(min=0)[:, None, None].expand(-1, 1, nodes))[:, 0]
        found[:, node] |= inherited & (above >= 0)[:, None]
    return found


def chain(tokens: Tensor) -> Trees:
    """Return drafts (B, k), PAD behind the last one, as trees with one child a node.

    >>> chain(torch.tensor([[7, 8, 9]])).parent
    tensor([[-1,  0,  1]])
    """
    return Trees(tokens, torch.arange(-1, tokens.shape[1] - 1).expand(len(tokens), -1))


def walk(trees: Trees, drawn: Tensor) -> Tensor:
    """Return the nodes (B, A) int64 that are accepted, from the root down, PAD behind the last one.

    drawn : (B, 1 + M) int64, the target's token behind the root, then behind each node

    >>> trees = Trees(torch.tensor([[5, 6, 5, 7]]), torch.tensor([[-1, -1, 1, 2]]))
    >>> walk(trees, torch.tensor([[6, 0, 5, 8, 0]]))
    tensor([[1, 2]])
    """
    drawn = drawn.to(trees.tokens.device)
    at, found = torch.full_like(drawn[:, 0], ROOT), []
    while trees.tokens.shape[1]:
        wanted = drawn.gather(1, at.clamp(min=ROOT)[:, None] + 1)
        hit = (trees.parent == at[:, None]) & (trees.tokens == wanted) & (trees.tokens != PAD)
        accepted = hit.any(1)
        if not bool(accepted.any()):
            break
        at = torch.where(accepted, hit.int().argmax(1), LEFT)
        found.append(torch.where(accepted, at, PAD))
    return torch.stack(found, 1) if found else drawn[:, :0]


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


@torch.inference_mode()
def grow(expand: Expand, width: int, nodes: int, depth: int) -> Trees:
    """Return trees of at most `nodes` nodes, the likeliest that are found level by level, likeliest first.

    expand : called with (d, parent, token) for d = 0 .. depth - 1, returns log-probabilities (B, Q, W) behind each of
    the Q nodes of depth d - 1 that are expanded, or (B, 1, W) where all have one law. token : (B, Q) int64, their
    columns of W. parent : (B, Q) int64, which of the nodes given at d - 1 each stands behind. At d = 0 the root alone
    is expanded, and both are (1, 1) zeros.

    A node is as likely as the product of the probabilities on its way down. At each depth the `width` likeliest nodes
    are expanded, each with the `width` likeliest tokens behind it; the likeliest of all nodes so found stay. A child is
    never likelier than its parent, so that parents stay with their children. Of equally likely nodes the one found
    first comes first: less deep, behind a likelier parent, of a smaller column. `tokens` of the trees are columns;
    `faulty` where a law held NaN.
    Source: Li et al. 2024, "EAGLE-2: faster inference of language models with dynamic draft trees", section 4.

    >>> laws = torch.tensor([[[0.7, 0.2, 0.1], [0.9, 0.1, 0.0]]]).log()
    >>> trees = grow(lambda d, parent, token: laws[:, d : d + 1], 2, 4, 2)
    >>> trees.tokens.tolist(), trees.parent.tolist()
    ([[0, 0, 1, 0]], [[-1, 0, -1, 2]])
    """
    parent = token = torch.zeros(1, 1, dtype=torch.int64)
    chance, name = torch.zeros(1, 1), torch.full((1, 1), ROOT)  # of the nodes to expand; names count what was found
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    confidence = faulty = torch.empty(0)
    for d in range(depth):
        laws = expand(d, parent, token)
        batch, count = len(laws), parent.shape[1]
        chance, name = chance.to(laws.device), name.to(laws.device)
        missing = laws[..., :1].isnan()  # a softmax with one NaN is NaN throughout
        best = top_ids(laws.masked_fill(missing, -torch.inf).flatten(0, 1), width).view(batch, -1, width)
        each = laws.gather(-1, best.clamp(min=0)).clamp(max=0).masked_fill(best < 0, -torch.inf)
        best = best.expand(-1, count, -1)
        bad = (missing[..., 0] & (chance > -torch.inf)).any(1)
        confidence, faulty = (each[:, 0, 0].exp(), bad) if d == 0 else (confidence, faulty | bad)
        chances, columns = (chance[..., None] + each).flatten(1), best.flatten(1)
        found.append((chances, columns, name.repeat_interleave(width, 1).expand(batch, -1)))
        order = chances.argsort(dim=1, descending=True, stable=True)[:, :width]
        chance, token, parent = chances.gather(1, order), columns.gather(1, order).clamp(min=0), order // width
        name = order + sum(level.shape[1] for level, _, _ in found[:-1])
    chances, columns, above = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    order = chances.argsort(dim=1, descending=True, stable=True)[:, :nodes]
    real = chances.gather(1, order) > -torch.inf
    place = torch.full_like(columns, ROOT)
    place.scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    above = above.gather(1, order)
    parent = torch.where(real & (above >= 0), place.gather(1, above.clamp(min=0)), ROOT)
    tokens = torch.where(real, columns.gather(1, order), PAD)
    return Trees(tokens.cpu(), parent.cpu(), confidence.cpu(), faulty=faulty.cpu())
