"""Medusa heads: one head a depth, all reading the state at which the round began; see `traces.heads`.

A head knows nothing of the tokens drafted before its own: its law at depth d is the same whatever they are. So the law
that is recorded for the round begun a tokens ago comes from the inputs kept of that moment. At temperature 0 the draft
is the chain of each head's most likely token. Fewer heads than k: a round drafts no deeper than there are heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from traces.drafters.base import Branches, DeepLaws, DrafterError, Layers, Logits, Prefix, States
from traces.drafters.head import card_details, open_head
from traces.heads import taps_of
from traces.sampling import index_of
from traces.targets import Target

__all__ = ["Medusa", "Options"]


@dataclass(frozen=True)
class Options:
    """checkpoint : the folder that `python -m traces train` wrote."""

    checkpoint: str


class Medusa(DeepLaws):
    """Independent heads on the target's state, as many laws as there are heads, at most k."""

    kind = "medusa"
    needs_hidden = True

    def __init__(self, name: str, processing: Processing, k: int, checkpoint: Path, target: Target) -> None:
        super().__init__(name, processing)
        self._head, self._card = open_head(name, checkpoint, target, "medusa")
        self.taps, self.k = self._head.taps, min(k, self._card.depth)
        self._deepest = k  # of the recording
        self._followed = self.k
        self._index = index_of(self._head.ids, target.vocabulary)

    def describe(self) -> manifest.Drafter:
        details = card_details(self._card) | {"heads": self._card.depth, "last_token": self._head.last_token}
        return manifest.Drafter(self.name, self.kind, self.rule, self._deepest, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        # inputs of the last rounds, newest first
        width = self._head.rows.shape[1]
        self._inputs = torch.zeros(len(prompts), self._followed, width, device=self._head.rows.device)

    def keep(self, rows: Tensor) -> None:
        self._inputs = self._inputs[rows.to(self._inputs.device)]

    @torch.inference_mode()
    def logits(self, prefix: Prefix) -> Logits:
        head = self._head
        newest = head.inputs(
            prefix.tokens[:, -1].to(self._inputs.device), head.feature(taps_of(prefix.before, self.taps))
        )
        self._inputs = torch.cat([newest[:, None], self._inputs[:, :-1]], 1)
        outputs = [head.draft(d, self._inputs[:, d]) for d in range(self._followed)]
        return Logits(head.logits(torch.stack(outputs, 1)), head.ids, self._index)

    def prepare(self, nodes: int, rounds: int | None = None) -> None:
        self._followed = min(rounds or self.k, self.k)

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        return _Branches(self, self._inputs[:, 0])

    @torch.inference_mode()
    def deeper(self, inputs: Tensor) -> Logits:
        """Return the logits (D - 1, 1, W) of a round with inputs (1, H) at its depths from the second on."""
        outputs = [self._head.draft(d, inputs) for d in range(1, self.k)]
        return Logits(self._head.logits(torch.stack(outputs)), self._head.ids, self._index)


class _Branches:
    """One law a depth, whatever was drafted before: all are computed at once when the first is asked for."""

    def __init__(self, drafter: Medusa, inputs: Tensor) -> None:
        self._drafter, self._inputs, self._depth = drafter, inputs, 0

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        self._depth += 1
        if self._depth >= self._drafter.k:
            raise DrafterError(
                f"drafter {self._drafter.name!r}: no head for depth {self._depth}; there are {self._drafter.k}"
            )
        if self._depth == 1:
            self._found = self._drafter.deeper(self._inputs)
        law = self._found.values[self._depth - 1]
        return Logits(law.expand(len(tokens), -1), self._found.ids, self._found.index)
