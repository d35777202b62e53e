"""A static draft tree over another drafter: at every node the most likely tokens of its law, by rank.

The tree is a set of paths of ranks: (0, 2) is the third likeliest token behind the likeliest one. Its shape does not
depend on the text, so only nodes on the path must be known to say what is accepted: at the node reached, the tokens of
the ranks that have a child there. That makes a tree over any drafter with laws as cheap to record as the drafter, and
exact. Drafted live, every node of the tree has to be computed.

The temperature of the laws does not matter: ranks are the same at all. Of equally likely tokens the first ids come
first.
Source: static trees as in Cai et al. 2024, "Medusa", and Li et al. 2024, "EAGLE".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import Rule, between
from traces.drafters.base import DeepLaws, DrafterError, FlatDrafter, Logits, Reading, States
from traces.sampling import Dense, OneHot, top_ids
from traces.trees import LEFT, ROOT, likeliest_paths

__all__ = ["Options", "StaticTree"]

# Share of rank r: how often the target's token is the head's (r + 1)-th likeliest. Of eagle-matched on every eighth
# text of each domain in traces/data/pool/texts.safetensors (184 texts, six sevenths of them not trained on): the mean
# of [token = r-th largest logit] over the target's own tokens and the six depths of rounds that follow the text; of
# rank 0 it is 0.301 at depth 0 and 0.223 at depth 5. The tree's shape hangs on the shares, what is accepted does not.
SHARES = (0.249, 0.0995, 0.0584, 0.0418, 0.0321, 0.0258, 0.0202, 0.0172, 0.0143, 0.0125, 0.0104, 0.0096)


@dataclass(frozen=True)
class Options:
    """over : the name of a drafter listed before. paths : of ranks, each behind its own beginning; or
    nodes : so many of the likeliest paths under `shares`, the chances that the token of each rank is accepted.
    """

    over: str
    nodes: Annotated[int, between(1, 1024)] = 24
    shares: tuple[Annotated[float, Rule(lambda share: 0 < share < 1, "in (0, 1)")], ...] = SHARES
    paths: tuple[tuple[Annotated[int, between(0, 255)], ...], ...] = ()


class StaticTree(Reading):
    """A tree whose shape is fixed, over any drafter with laws."""

    kind = "tree"
    certain = True
    rule = "tree"

    def __init__(
        self, name: str, processing: Processing, k: int, options: Options, over: FlatDrafter | DeepLaws
    ) -> None:
        super().__init__(name, processing, k, over)
        self._depth, self.paths = k, _paths(name, options, self.k)
        self.k = max(map(len, self.paths))
        places = {path: node for node, path in enumerate(self.paths)}
        self._ranks = 1 + max(path[-1] for path in self.paths)
        # row: the node reached, the last row being the root; column: rank of a child; entry: that child, or LEFT
        self._child = torch.full((len(self.paths) + 1, self._ranks), LEFT, dtype=torch.int64)
        for path, node in places.items():
            self._child[places.get(path[:-1], ROOT), path[-1]] = node
        self._at = torch.empty(0, 0, dtype=torch.int64)

    def describe(self) -> manifest.Drafter:
        details: dict[str, manifest.JSON] = {"over": self.over.name, "paths": [list(path) for path in self.paths]}
        return manifest.Drafter(self.name, self.kind, self.rule, self._depth, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self._at = torch.full((len(prompts), 0), LEFT, dtype=torch.int64)

    def keep(self, rows: Tensor) -> None:
        self._at = self._at[rows]

    def score(self, found: Logits, target: Dense | OneHot, token: Tensor) -> tuple[Tensor, Tensor]:
        batch, depths, _ = found.values.shape
        fresh = torch.full((batch, 1), ROOT, dtype=torch.int64)
        self._at = torch.cat([fresh, self._at], 1)[:, :depths]
        # a law of the prefix alone is the same in all rounds
        values = found.values if isinstance(self.over, DeepLaws) else found.values[:, :1]
        ids = top_ids(values.flatten(0, 1), self._ranks)
        if found.ids is not None:
            ids = torch.where(ids >= 0, found.ids[ids.clamp(min=0)], -1)
        ids = ids.view(batch, -1, self._ranks).expand(-1, depths, -1)
        # a row of the table for LEFT is not needed: what it yields is masked
        child = self._child[torch.where(self._at == ROOT, len(self.paths), self._at.clamp(min=0))]
        left = self._at == LEFT
        child = child.masked_fill(left[..., None], LEFT).to(ids.device)
        offered = (child >= 0) & (ids >= 0)
        if isinstance(target, OneHot):
            chance = (ids == target.token[:, None, None]).float()
        else:
            chance = target.probs.gather(1, ids.clamp(min=0).flatten(1)).view_as(child)
        gamma = torch.where(offered, chance, 0.0).sum(-1).clamp(max=1).cpu()
        hit = offered & (ids == token[:, None, None])
        accepted = hit.any(-1).cpu()
        reached = torch.where(hit, child, LEFT).amax(-1).cpu()
        gamma = gamma.masked_fill(left, torch.nan)
        self._at = reached
        return accepted.float(), gamma


def _paths(name: str, options: Options, k: int) -> list[tuple[int, ...]]:
    """Return the paths of the tree, at most k long, parents first."""
    if not options.paths:
        if not options.shares:
            raise DrafterError(f"drafter {name!r}: shares is empty; allowed: at least one, or paths")
        return likeliest_paths(options.shares, options.nodes, k)
    paths = sorted(set(options.paths), key=lambda path: (len(path), path))
    if () in paths:
        raise DrafterError(f"drafter {name!r}: paths hold an empty one; allowed: ranks, one a depth")
    for path in paths:
        if len(path) > 1 and path[:-1] not in paths:
            raise DrafterError(f"drafter {name!r}: paths hold {list(path)} without its beginning")
    return [path for path in paths if len(path) <= k]
