"""A dynamic draft tree over an eagle head: it grows where the head is sure of itself.

At each depth the likeliest nodes are expanded, and the likeliest of all are kept, see `traces.trees.grow`. A node is as
likely as the product of the head's own probabilities on its way down, at temperature 1, before the target has seen any
of it. Every node stands on its parent's own output and attends to the text and its ancestors, so the whole tree is
computed at every row: that is what it costs to record.
Source: Li et al. 2024, "EAGLE-2: faster inference of language models with dynamic draft trees".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import between
from traces.drafters.base import PAD, DrafterError, Prefix, States, TreeDrafter, Trees
from traces.drafters.head import card_details, open_head
from traces.heads import Rounds, taps_of
from traces.targets import Target
from traces.trees import grow

__all__ = ["DynamicTree", "Options"]

_WHY = ": behind a node off the path other heads need the target's own layers"


@dataclass(frozen=True)
class Options:
    """checkpoint : the folder that `python -m traces train` wrote. width : nodes expanded at each depth, and tokens
    behind each. nodes : of a tree. depth : of a tree, at most that of the recording's drafts; None for as deep
    """

    checkpoint: str
    width: Annotated[int, between(1, 64)] = 4
    nodes: Annotated[int, between(1, 1024)] = 24
    depth: Annotated[int, between(1, 64)] | None = None


class DynamicTree(TreeDrafter):
    """A tree whose shape the head's own probabilities decide."""

    kind = "dynamic-tree"
    needs_hidden = True

    def __init__(
        self, name: str, processing: Processing, k: int, checkpoint: Path, options: Options, target: Target
    ) -> None:
        super().__init__(name, processing)
        if processing.temperature != 0:
            raise DrafterError(f"drafter {name!r}: its drafts are certain; allowed temperature: 0")
        if options.depth is not None and options.depth > k:
            raise DrafterError(f"drafter {name!r}: depth is {options.depth}; drafts have {k}, allowed: at most that")
        self._head, self._card = open_head(name, checkpoint, target, "eagle", _WHY)
        self._options, self._depth = options, k
        self.k, self.taps = options.depth or k, self._head.taps
        self._rounds = Rounds(self._head, 1, options.width * (self.k - 1))

    def describe(self) -> manifest.Drafter:
        options = self._options
        shape: dict[str, manifest.JSON] = {"width": options.width, "nodes": options.nodes, "deepest": self.k}
        details = shape | card_details(self._card)
        return manifest.Drafter(self.name, self.kind, self.rule, self._depth, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self._rounds.begin(prompts, capacity, taps_of(states or {}, self.taps), PAD)

    def keep(self, rows: Tensor) -> None:
        self._rounds.keep(rows)

    def trees(self, prefix: Prefix) -> Trees:
        head, ids = self._head, self._head.ids
        self._rounds.step(prefix.tokens[:, -1], taps_of(prefix.hidden, self.taps))
        branches = self._rounds.branches()

        def expand(depth: int, parent: Tensor, token: Tensor) -> Tensor:
            outputs = branches.grow(parent, ids[token]) if depth else branches.outputs
            return torch.log_softmax(head.logits(outputs), -1)

        found = grow(expand, self._options.width, self._options.nodes, self.k)
        tokens = torch.where(found.tokens != PAD, ids.cpu()[found.tokens.clamp(min=0)], PAD)
        return Trees(tokens, found.parent, found.confidence, faulty=found.faulty)
