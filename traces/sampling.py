"""Logits -> processed law -> token: the one place where p and q are made.

A law is a batch of next-token distributions, one a row. Three shapes: `Dense` (a probability for every id), `Reduced`
(only some ids can be drawn), `OneHot` (one id has probability 1). What `process` returns is at once what `draw` samples
from and what alpha and gamma are computed with, always in float32, whatever the model's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from hedgelab.storage.manifest import Processing

__all__ = [
    "Dense",
    "Law",
    "OneHot",
    "Reduced",
    "draw",
    "entropy",
    "faults",
    "index_of",
    "process",
    "top2_margin",
    "top_ids",
    "top_probability",
]

_BLOCK = 256  # ids in a block of the two-level inverse CDF
_CANDIDATES = 1024  # ids sorted before a nucleus is looked for; wider nuclei take a full sort


@dataclass(frozen=True)
class Dense:
    """probs : (B, V) float32, rows sum to 1. `total` (B,) is the row sum as float32 additions give it."""

    probs: Tensor
    total: Tensor

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.probs)

    def at(self, token: Tensor) -> Tensor:
        """Return the probability (B,) of one id a row."""
        return self.probs.gather(1, token[:, None])[:, 0]

    def rows(self, keep: Tensor | slice) -> Dense:
        """Return the law of some rows."""
        return Dense(self.probs[keep], self.total[keep])


@dataclass(frozen=True)
class Reduced:
    """probs : (B, R) float32 over `ids` (R,) int64; other ids have probability 0. index : (V,) id -> column or -1."""

    probs: Tensor
    ids: Tensor
    index: Tensor

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.probs)

    def at(self, token: Tensor) -> Tensor:
        """Return the probability (B,) of one id a row."""
        column = self.index[token]
        return torch.where(column >= 0, self.probs.gather(1, column.clamp(min=0)[:, None])[:, 0], 0.0)

    def rows(self, keep: Tensor | slice) -> Reduced:
        """Return the law of some rows."""
        return Reduced(self.probs[keep], self.ids, self.index)


@dataclass(frozen=True)
class OneHot:
    """token : (B,) int64, the id of probability 1; -1 where nothing is proposed (no law at all)."""

    token: Tensor

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.token)

    def at(self, token: Tensor) -> Tensor:
        """Return the probability (B,) of one id a row."""
        return (self.token == token).float()

    def rows(self, keep: Tensor | slice) -> OneHot:
        """Return the law of some rows."""
        return OneHot(self.token[keep])


Law: TypeAlias = Dense | Reduced | OneHot


def faults(logits: Tensor) -> dict[int, str]:
    """Return what is wrong with each row of logits (B, V) that has no law: NaN, +inf, or no finite entry.

    Entries of -inf are allowed while one is finite: such ids have probability 0.

    >>> faults(torch.tensor([[0.0, float("-inf")], [float("nan"), 0.0]]))
    {1: 'NaN'}
    """
    peak = logits.amax(-1)  # amax keeps NaN, so one pass sees all three
    if bool(torch.isfinite(peak).all()):
        return {}
    return {
        row: "NaN" if value != value else "+inf" if value > 0 else "no finite value"
        for row, value in enumerate(peak.tolist())
        if value != value or value in (float("inf"), float("-inf"))
    }


def index_of(ids: Tensor, vocabulary: int) -> Tensor:
    """Return the map (V,) int64 from ids to columns of a reduced vocabulary, -1 for ids outside.

    >>> index_of(torch.tensor([1, 3]), 5)
    tensor([-1,  0, -1,  1, -1])
    """
    index = torch.full((vocabulary,), -1, dtype=torch.int64, device=ids.device)
    index[ids] = torch.arange(len(ids), device=ids.device)
    return index


def process(logits: Tensor, processing: Processing, ids: Tensor | None = None, index: Tensor | None = None) -> Law:
    """Return the law that logits (B, W) mean under temperature, then top-k, then top-p.

    ids, index : for logits over a reduced vocabulary, see `Reduced`. Column w stands for ids[w], or for id w.

    - temperature 0: the argmax; the first of equal logits wins.
    - top-k: the k largest logits; of equal ones the lowest columns stay.
    - top-p: the shortest prefix, in order of probability and then column, whose mass reaches top_p. Which ids belong is
      decided once, in float64; the law of the ids that stay is renormalised in float32.

    Rows must have passed `faults`.

    >>> process(torch.tensor([[1.0, 3.0, 3.0]]), Processing(temperature=0.0))
    OneHot(token=tensor([1]))
    """
    if processing.temperature == 0:
        first = logits.argmax(-1)
        return OneHot(first if ids is None else ids[first])
    kept = logits.float()
    if 0 < processing.top_k < kept.shape[1]:
        least = torch.topk(kept, processing.top_k).values[:, -1:]
        kept = _keep_first(kept, least, torch.full_like(least[:, 0], processing.top_k, dtype=torch.int64))
    if processing.top_p < 1:
        kept = _keep_first(kept, *_nucleus(kept, processing))
    # ids are ordered before the division: it can make two logits equal
    probs = torch.softmax(kept / processing.temperature, -1)
    if ids is None:
        return Dense(probs, probs.sum(-1))
    if index is None:
        raise ValueError("a reduced vocabulary needs the map from ids to its columns")
    return Reduced(probs, ids, index)


def draw(law: Law, uniforms: Tensor) -> Tensor:
    """Return one id a row (B,) by inverse CDF at uniforms (B,) float64 in [0, 1); never an id of probability 0.

    The CDF is summed in float64, in blocks: first over the sums of blocks of ids, then inside one block.
    """
    if isinstance(law, OneHot):
        if bool((law.token < 0).any()):
            raise ValueError("a row that proposes nothing cannot be drawn from")
        return law.token
    probs = law.probs
    batch, width = probs.shape
    blocks = -(-width // _BLOCK)
    whole = width - width % _BLOCK
    sums = torch.zeros(batch, blocks, dtype=torch.float64, device=probs.device)
    sums[:, : whole // _BLOCK] = probs[:, :whole].unflatten(1, (-1, _BLOCK)).sum(-1, dtype=torch.float64)
    if whole < width:
        sums[:, -1] = probs[:, whole:].sum(-1, dtype=torch.float64)
    edges = sums.cumsum(-1)
    total = edges[:, -1]
    # rounding must not let the target reach the total: it would point past the last id
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    block = torch.searchsorted(edges, target[:, None], right=True)[:, 0]
    before = torch.where(block > 0, edges.gather(1, (block - 1).clamp(min=0)[:, None])[:, 0], 0.0)
    columns = block[:, None] * _BLOCK + torch.arange(_BLOCK, device=probs.device)
    inside = probs.gather(1, columns.clamp(max=width - 1)).double() * (columns < width)
    cdf = inside.cumsum(-1)
    place = torch.searchsorted(cdf, (target - before)[:, None], right=True)[:, 0]
    # the block's own sum may end a rounding error below its share: then its last possible id is meant
    last = _BLOCK - 1 - (inside > 0).flip(1).int().argmax(1)
    column = block * _BLOCK + torch.minimum(place, last)
    return column if isinstance(law, Dense) else law.ids[column]


def top2_margin(logits: Tensor) -> Tensor:
    """Return the largest minus the second largest logit (B,) float32; 0 where they tie, inf where one is finite."""
    best = torch.topk(logits, min(2, logits.shape[1])).values.float()
    return best[:, 0] - best[:, 1] if best.shape[1] == 2 else torch.full_like(best[:, 0], torch.inf)


def top_ids(logits: Tensor, count: int) -> Tensor:
    """Return the columns (B, count) int64 of the largest logits (B, W), largest first; of equal ones the first columns.

    -1 stands where a row has fewer columns of probability above 0.

    >>> top_ids(torch.tensor([[1.0, 3.0, 3.0, float("-inf")]]), 4)
    tensor([[ 1,  2,  0, -1]])
    """
    logits = logits.float()
    size = min(count, logits.shape[1])
    best = torch.topk(logits, min(size + 1, logits.shape[1]))
    least, columns = best.values[:, size - 1 : size], best.indices[:, :size]
    # which of equal ones topk takes is not said: it matters where some of them stay outside
    crowded = (best.values[:, -1:] == least)[:, 0] & (least[:, 0] > -torch.inf) & (best.values.shape[1] > size)
    if bool(crowded.any()):
        sizes = torch.full((int(crowded.sum()),), size, dtype=torch.int64, device=logits.device)
        kept = _keep_first(logits[crowded], least[crowded], sizes)
        columns[crowded] = (kept > -torch.inf).nonzero()[:, 1].view(-1, size)
    columns = columns.sort(-1).values
    chosen = logits.gather(1, columns)
    order = chosen.argsort(stable=True, dim=-1, descending=True)
    columns = torch.where(chosen.gather(1, order) > -torch.inf, columns.gather(1, order), -1)
    return torch.nn.functional.pad(columns, (0, count - size), value=-1)


def top_probability(logits: Tensor, law: Law) -> Tensor:
    """Return how sure a drafter is, (B,) float32: the largest probability of its law.

    Of a one-hot law that would always be 1, so there it is the largest probability of the logits at temperature 1.
    """
    if isinstance(law, OneHot):
        wide = logits.float()
        return (wide.amax(-1) - wide.logsumexp(-1)).exp()
    return law.probs.amax(-1)


def entropy(law: Law) -> Tensor:
    """Return the entropy (B,) float32 of a law in nats."""
    if isinstance(law, OneHot):
        return torch.zeros(law.token.shape[0], device=law.token.device)
    # x log x through log of the smallest positive number where x is 0: the product is 0 and needs no mask
    return -torch.linalg.vecdot(law.probs, law.probs.clamp(min=torch.finfo(torch.float32).tiny).log_())


def _nucleus(kept: Tensor, processing: Processing) -> tuple[Tensor, Tensor]:
    """Return the smallest logit (B, 1) of the nucleus and the nucleus' size (B,)."""
    scaled = kept.double() / processing.temperature
    mass = (scaled - scaled.amax(-1, keepdim=True)).exp_()
    goal = processing.top_p * mass.sum(-1, keepdim=True)
    count = min(_CANDIDATES, mass.shape[1])
    reached = torch.topk(mass, count).values.cumsum(-1) >= goal
    if not bool(reached[:, -1].all()):
        reached = mass.sort(-1, descending=True).values.cumsum(-1) >= goal
        reached[:, -1] = True  # rounding may leave the whole mass just below a top_p near 1
    size = reached.int().argmax(-1) + 1
    least = torch.topk(kept, int(size.max())).values.gather(1, size[:, None] - 1)  # order of mass = order of logits
    return least, size


def _keep_first(kept: Tensor, least: Tensor, size: Tensor) -> Tensor:
    """Return logits with all but the `size` (B,) largest at -inf; of those equal to `least` the first columns stay."""
    above = kept > least
    tied = kept == least
    room = size - above.sum(-1)
    stays = above | tied
    crowded = tied.sum(-1) > room
    if bool(crowded.any()):
        ranked = tied[crowded].cumsum(-1)
        stays[crowded] = above[crowded] | (tied[crowded] & (ranked <= room[crowded, None]))
    return kept.masked_fill(~stays, -torch.inf)
