"""A dynamic draft tree over a trained head: it grows where the head is sure of itself.

At each depth the likeliest nodes are expanded, and the likeliest of all are kept, see `traces.trees.grow`. A node is as
likely as the product of the head's own probabilities on its way down, at temperature 1, before the target has seen any
of it. Over an eagle head every node stands on its parent's own output and attends to the text and its ancestors, so the
whole tree is computed at every row: that is what it costs to record. Over medusa heads all nodes of a depth share one
law, and only the search for the likeliest products is left.
Source: Li et al. 2024, "EAGLE-2: faster inference of language models with dynamic draft trees".
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, Self

import torch
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import between
from traces.drafters.base import PAD, DrafterError, Prefix, States, TreeDrafter, Trees
from traces.drafters.head import card_details, open_head
from traces.heads import Head, Rounds, taps_of
from traces.targets import Target
from traces.trees import Expand, grow

__all__ = ["DynamicTree", "Options"]

_WHY = ": behind a node off the path others need the target's own layers"


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
        if options.depth is not None and options.depth > k:
            raise DrafterError(f"drafter {name!r}: depth is {options.depth}; drafts have {k}, allowed: at most that")
        head, self._card = open_head(name, checkpoint, target, "eagle", "medusa", why=_WHY)
        self._options, self._depth, self.nodes = options, k, options.nodes
        self.k, self.taps = options.depth or k, head.taps
        if head.kind == "medusa":
            self.k = min(self.k, self._card.depth)
        self._head, self._ids = head, head.ids.cpu()
        self._source: _Source = _Independent(head) if head.kind == "medusa" else _OwnFeatures(head, options, self.k)

    def describe(self) -> manifest.Drafter:
        shape: dict[str, manifest.JSON] = {"width": self._options.width, "nodes": self.nodes, "deepest": self.k}
        details = shape | card_details(self._card)
        return manifest.Drafter(self.name, self.kind, self.rule, self._depth, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self._source.begin(prompts, capacity, taps_of(states or {}, self.taps))

    def keep(self, rows: Tensor) -> None:
        self._source.keep(rows)

    def fresh(self) -> Self:
        found = super().fresh()
        found._source = self._source.fresh()
        return found

    def trees(self, prefix: Prefix) -> Trees:
        outputs = self._source.step(prefix.tokens[:, -1], taps_of(prefix.before, self.taps))

        def expand(depth: int, parent: Tensor, token: Tensor) -> Tensor:
            return torch.log_softmax(self._head.logits(outputs(depth, parent, token)), -1)

        found = grow(expand, self._options.width, self.nodes, self.k)
        tokens = torch.where(found.tokens != PAD, self._ids[found.tokens.clamp(min=0)], PAD)
        return Trees(tokens, found.parent, found.confidence, faulty=found.faulty)


class _Source(Protocol):
    """A head that says what comes behind the nodes of a tree."""

    def begin(self, prompts: Tensor, capacity: int, states: list[Tensor]) -> None:
        """Read prompts (B, P) and the target's states (B, P, H) at them."""

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""

    def fresh(self) -> _Source:
        """Return the same head for other texts."""

    def step(self, token: Tensor, states: list[Tensor]) -> Expand:
        """Read a token (B,), with the states (B, H) at the one before it.

        Return what is asked as in `grow`, for outputs (B, Q, H).
        """


class _OwnFeatures:
    """An eagle head: each node stands on its parent's own output."""

    def __init__(self, head: Head, options: Options, depth: int) -> None:
        self._head, self._rounds = head, Rounds(head, 1, options.width * (depth - 1))

    def begin(self, prompts: Tensor, capacity: int, states: list[Tensor]) -> None:
        self._rounds.begin(prompts, capacity, states, PAD)

    def keep(self, rows: Tensor) -> None:
        self._rounds.keep(rows)

    def fresh(self) -> _OwnFeatures:
        found = copy.copy(self)
        found._rounds = copy.copy(self._rounds)
        return found

    def step(self, token: Tensor, states: list[Tensor]) -> Expand:
        self._rounds.step(token, states)
        branches, ids = self._rounds.branches(), self._head.ids
        return lambda depth, parent, token: branches.grow(parent, ids[token]) if depth else branches.outputs


class _Independent:
    """Medusa heads: one law a depth, whatever was drafted before."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def begin(self, prompts: Tensor, capacity: int, states: list[Tensor]) -> None:
        """Nothing is kept of a text."""

    def keep(self, rows: Tensor) -> None:
        """Nothing is kept of a text."""

    def fresh(self) -> _Independent:
        return self

    @torch.inference_mode()
    def step(self, token: Tensor, states: list[Tensor]) -> Expand:
        head = self._head
        inputs = head.inputs(token.to(head.rows.device), head.feature(states))
        return lambda depth, parent, token: head.draft(depth, inputs)[:, None]
