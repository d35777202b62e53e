"""Any causal language model with the target's tokenizer as a drafter, with a cache of its own."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from traces.drafters.base import Branches, DrafterError, FlatDrafter, Layers, Logits, Prefix, States, unread
from traces.kv import Stepper
from traces.levels import Levels
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

    def describe(self) -> manifest.Drafter:
        details: dict[str, manifest.JSON] = {"config_sha256": self._drafter.config_sha256}
        return manifest.Drafter(self.name, self.kind, self.rule, 1, self.processing, self._drafter.info, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self._stepper.begin(prompts, capacity)

    def keep(self, rows: Tensor) -> None:
        self._stepper.keep(rows)

    def logits(self, prefix: Prefix) -> Logits:
        return self.known(self._stepper.step(prefix.tokens[:, -1]))

    def block(self, prefix: Prefix, count: int) -> Logits:
        return self.known(self._stepper.read(unread(self, prefix, count))[0])

    def fresh(self) -> Self:
        found = super().fresh()
        found._stepper = copy.copy(self._stepper)
        return found

    def prepare(self, nodes: int, rounds: int | None = None) -> None:
        self._stepper = Stepper(self._drafter.model, nodes=nodes, context=self.context)

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        return _Branches(self, self._stepper.levels())

    def known(self, logits: Tensor) -> Logits:
        """Return the logits over the ids of the tokenizer."""
        return Logits(self._drafter.known(logits))


class _Branches:
    """Keys of nodes behind those of the text, in the model's own cache."""

    def __init__(self, drafter: Causal, levels: Levels) -> None:
        self._drafter, self._levels = drafter, levels

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        return self._drafter.known(self._levels.grow(parent, tokens))
