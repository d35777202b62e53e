"""Any causal language model with the target's tokenizer as a drafter, with a cache of its own."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Cache

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from traces.drafters.base import Branches, DrafterError, FlatDrafter, Layers, Logits, Prefix, States
from traces.kv import Stepper
from traces.targets import Target

__all__ = ["Causal", "Options"]


@dataclass(frozen=True)
class Options:
    """model : a target's name, a folder, or a Hugging Face repository. dtype : as for the target."""

    model: str
    dtype: str = "float32"


class Causal(FlatDrafter):
    """A second language model. It reads the same ids, so its tokenizer must have the target's content."""

    kind = "causal"

    def __init__(self, name: str, processing: Processing, target: Target, drafter: Target) -> None:
        super().__init__(name, processing)
        if drafter.tokenizer_sha256 != target.tokenizer_sha256:
            raise DrafterError(
                f"drafter {name!r}: the tokenizer of {drafter.info.name!r} ({drafter.vocabulary} ids, sha256 "
                f"{drafter.tokenizer_sha256[:12]}) differs from that of the target {target.info.name!r} "
                f"({target.vocabulary} ids, sha256 {target.tokenizer_sha256[:12]}); they must hold the same tokens"
            )
        self._drafter, self._vocabulary = drafter, target.vocabulary
        self._stepper = Stepper(drafter.model)
        self.context = drafter.context
        self._room = 0

    def describe(self) -> manifest.Drafter:
        details: dict[str, manifest.JSON] = {"config_sha256": self._drafter.config_sha256}
        return manifest.Drafter(self.name, self.kind, self.rule, 1, self.processing, self._drafter.info, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self._stepper.begin(prompts, capacity + self._room)

    def keep(self, rows: Tensor) -> None:
        self._stepper.keep(rows)

    def logits(self, prefix: Prefix) -> Logits:
        return Logits(self._drafter.known(self._stepper.step(prefix.tokens[:, -1])))

    def prepare(self, nodes: int, rounds: int | None = None) -> None:
        self._room = nodes

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        return _Branches(self._drafter, _Offshoots(self._stepper))


class _Branches:
    """The model's own cache, and keys of nodes behind it."""

    def __init__(self, drafter: Target, tree: _Offshoots) -> None:
        self._drafter, self._tree = drafter, tree

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        return Logits(self._drafter.known(self._tree.grow(parent, tokens)))


class _Offshoots:
    """A tree that grows level by level behind the last token of the one text that a stepper has read.

    Nothing of it stays: the layers here share the stepper's stores and count on their own, so that keys of nodes lie
    behind the text's end, where the next step writes. Of no use after that.

    Raises ValueError for models that would not heed the mask of a tree.
    """

    def __init__(self, stepper: Stepper) -> None:
        layers = stepper._cache.layers
        if not all(type(layer).__name__ == "_RoomyLayer" for layer in layers):
            raise ValueError(f"{type(stepper._model).__name__}: draft trees need plain attention layers")
        self._stepper, self._cache = stepper, Cache(layers=[copy.copy(layer) for layer in layers])
        self._text = stepper._mask[:, : stepper._length].bool()
        self._lineage = self._text.new_zeros(1, 0)  # of the latest level's nodes: which nodes are ancestors, or itself
        self._depth = 0

    @torch.inference_mode()
    def grow(self, parent: Tensor, tokens: Tensor) -> Tensor:
        """Add a level of nodes with tokens (Q,) int64 behind nodes parent (Q,) of the level before, 0 being the root.

        Return logits (Q, V) behind each. Raises ValueError where the stepper's capacity has no room for them.
        """
        stepper, device, count = self._stepper, self._text.device, len(tokens)
        end, capacity = self._text.shape[1] + self._lineage.shape[1] + count, stepper._mask.shape[1]
        if end > capacity:
            raise ValueError(f"{end} tokens of text and tree; capacity is {capacity}")
        itself = torch.eye(count, dtype=torch.bool, device=device)
        self._lineage = torch.cat([self._lineage[parent.to(device)], itself], 1)
        seen = torch.cat([self._text.expand(count, -1), self._lineage], 1)
        hidden = torch.zeros(seen.shape, dtype=stepper._model.dtype, device=device)
        hidden.masked_fill_(~seen, torch.finfo(hidden.dtype).min)
        positions = (stepper._position + self._depth)[:, None].expand(1, count)
        self._depth += 1
        out = stepper._forward(
            tokens[None].to(device), positions, hidden=False, mask=hidden[None, None], logits=0, cache=self._cache
        )
        logits: Tensor = out.logits[0]
        return logits
