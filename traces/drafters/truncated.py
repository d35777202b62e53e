"""A truncated head: the target's first layers, then one trained layer; its law depends on the prefix alone.

It needs the target's first L layers on the last token before it can draft, so it costs at least as much as they do:
with most of the target's layers it is a model of high acceptance, not a way to decode faster.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from traces.drafters.base import PAD, Branches, FlatDrafter, Layers, Logits, Prefix, States, layers_for, unread
from traces.drafters.head import card_details, open_head
from traces.heads import Rounds, taps_of
from traces.sampling import index_of
from traces.targets import Target

__all__ = ["Options", "Truncated"]


@dataclass(frozen=True)
class Options:
    """checkpoint : the folder that `python -m traces train` wrote."""

    checkpoint: str


class Truncated(FlatDrafter):
    """The target cut short and continued by one trained layer, with a cache of that layer's keys."""

    kind = "truncated"
    needs_hidden = True

    def __init__(self, name: str, processing: Processing, checkpoint: Path, target: Target) -> None:
        super().__init__(name, processing)
        self._head, self._card = open_head(name, checkpoint, target, "truncated")
        self.taps = self.reads = self._head.taps
        self._index = index_of(self._head.ids, target.vocabulary)
        self._rounds = Rounds(self._head, 1)

    def describe(self) -> manifest.Drafter:
        details = card_details(self._card)
        return manifest.Drafter(self.name, self.kind, self.rule, 1, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self._rounds.begin(prompts, capacity, taps_of(states or {}, self.taps), PAD)

    def keep(self, rows: Tensor) -> None:
        self._rounds.keep(rows)

    def logits(self, prefix: Prefix) -> Logits:
        outputs = self._rounds.step(prefix.tokens[:, -1], taps_of(prefix.hidden, self.taps))
        return self.behind(outputs[:, 0])

    def block(self, prefix: Prefix, count: int) -> Logits:
        tokens = unread(self, prefix, count)
        states = [state[None] for state in taps_of(prefix.hidden, self.taps)]
        return self.behind(self._rounds.read(tokens, states)[0])

    def fresh(self) -> Self:
        found = super().fresh()
        found._rounds = copy.copy(self._rounds)
        return found

    def prepare(self, nodes: int, rounds: int | None = None) -> None:
        self._rounds = Rounds(self._head, 1, nodes)

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        return _Branches(self, self._rounds, layers_for(self, layers))

    def behind(self, outputs: Tensor) -> Logits:
        """Return the logits that outputs (..., H) of the trained layer mean."""
        return Logits(self._head.logits(outputs), self._head.ids, self._index)


class _Branches:
    """The target's first layers at every node, and the trained one on them."""

    def __init__(self, drafter: Truncated, rounds: Rounds, layers: Layers) -> None:
        self._drafter, self._tree, self._layers = drafter, rounds.branches(), layers

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        states = self._layers.grow(self._drafter.taps[0], parent, tokens)
        return self._drafter.behind(self._tree.grow(parent[None], tokens[None], [states[None]])[0])
