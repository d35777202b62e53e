"""Early exit: the target's own final norm and head on the hidden state after a layer in the middle, untrained.

Scalings or caps that some architectures put behind the head are not applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import between
from traces.drafters.base import Branches, DrafterError, FlatDrafter, Layers, Logits, Prefix, layers_for
from traces.targets import Target

__all__ = ["EarlyExit", "Options"]

_NORMS = ("norm", "ln_f", "final_layernorm", "final_layer_norm")  # where architectures keep their last norm


@dataclass(frozen=True)
class Options:
    """layer : the exit comes after this many layers."""

    layer: Annotated[int, between(1, 1000)]


class EarlyExit(FlatDrafter):
    """The target cut short: it reads the hidden state that the target's own pass computes anyway."""

    kind = "exit"
    needs_hidden = True

    def __init__(self, name: str, processing: Processing, options: Options, target: Target) -> None:
        super().__init__(name, processing)
        layers = int(target.model.config.get_text_config().num_hidden_layers)
        if options.layer >= layers:
            raise DrafterError(
                f"drafter {name!r}: layer is {options.layer}; {target.info.name!r} has {layers}, allowed: fewer"
            )
        self.layer, self._target = options.layer, target
        self.reads = (options.layer,)
        self._norm: Any = _final_norm(target)
        self._head: Any = target.model.get_output_embeddings()

    def describe(self) -> manifest.Drafter:
        return manifest.Drafter(
            self.name, self.kind, self.rule, 1, self.processing, self._target.info, {"layer": self.layer}
        )

    def logits(self, prefix: Prefix) -> Logits:
        return self.behind(prefix.hidden[self.layer])

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        return _Branches(self, layers_for(self, layers))

    def behind(self, states: Tensor) -> Logits:
        """Return the logits behind tokens with these hidden states (B, H)."""
        return Logits(self._target.known(self._head(self._norm(states))))


class _Branches:
    """The target's first layers at every node."""

    def __init__(self, drafter: EarlyExit, layers: Layers) -> None:
        self._drafter, self._layers = drafter, layers

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        return self._drafter.behind(self._layers.grow(self._drafter.layer, parent, tokens))


def _final_norm(target: Target) -> Any:
    body = target.model.base_model
    for name in _NORMS:
        if hasattr(body, name):
            return getattr(body, name)
    raise DrafterError(f"{target.info.name!r}: no final norm found among {', '.join(_NORMS)}; early exits need it")
