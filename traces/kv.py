"""One forward step of a causal language model over a batch of left-padded texts, with its cache."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from traces.levels import Behind, Levels, PlacedLayer, Where, cache_name, plain_layers

__all__ = ["Stepper"]

_PAD = -1


class _RoomyLayer(DynamicLayer):
    """A cache layer with room for the whole text: appending copies one token, not everything before it.

    With 64 texts of 150 tokens, growing by concatenation took 63% of a decoding step's time.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity, self._length = capacity, 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        begin, end = self._length, self._length + key_states.shape[-2]
        if begin == 0:
            self.lazy_initialization(key_states, value_states)
            self._all_keys = key_states.new_empty((*key_states.shape[:2], self._capacity, key_states.shape[3]))
            self._all_values = value_states.new_empty((*value_states.shape[:2], self._capacity, value_states.shape[3]))
        self._all_keys[:, :, begin:end] = key_states
        self._all_values[:, :, begin:end] = value_states
        self._length = end
        return self._show()

    def row(self, text: int, where: Where) -> PlacedLayer:
        """Return keys and values of one text, with the room behind it, as a layer that nodes are read with."""
        return PlacedLayer.over([store[text : text + 1] for store in (self._all_keys, self._all_values)], where)

    def advance(self, count: int) -> None:
        """Take what lies in so many columns behind the texts as theirs."""
        self._length += count
        self._show()

    def batch_select_indices(self, indices: Tensor) -> None:
        wanted = indices.tolist()
        if any(source < place or source >= len(self._all_keys) for place, source in enumerate(wanted)):
            self._all_keys, self._all_values = self._all_keys[indices], self._all_values[indices]
        else:  # rows only move up, into places already left: only those rows are copied
            for place, source in enumerate(wanted):
                if source != place:
                    self._all_keys[place, :, : self._length] = self._all_keys[source, :, : self._length]
                    self._all_values[place, :, : self._length] = self._all_values[source, :, : self._length]
            self._all_keys, self._all_values = self._all_keys[: len(wanted)], self._all_values[: len(wanted)]
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = self._all_keys[:, :, : self._length], self._all_values[:, :, : self._length]
        self.keys, self.values = keys, values
        return keys, values


class Stepper:
    """A model, the texts it has read and its cache.

    `begin` reads the prompts and `step` one more token a row; both return logits (B, V) of the next token, in the
    model's dtype. With `hidden`, `step` also keeps the hidden states after every layer in `self.hidden`; `begin` keeps
    those after the layers `taps` at all prompt tokens in `self.prompt_states`, layer -> (B, P, H).

    nodes : room behind the texts for so many nodes of a draft tree, see `levels`. context : most tokens that the model
    reads, None for any number; nodes do not reach it
    """

    def __init__(
        self,
        model: Any,
        hidden: bool = False,
        taps: Collection[int] = (),
        nodes: int = 0,
        context: int | None = None,
    ) -> None:
        self._model, self._room, self._context = model, nodes, context
        self._wants_hidden, self._taps = hidden, sorted(set(taps))
        self.hidden: tuple[Tensor, ...] = ()
        self.prompt_states: dict[int, Tensor] = {}
        self._cache_name = cache_name(model)
        self._moves = 0  # how often the texts have changed: what was begun behind them is then of no use

    @torch.inference_mode()
    def begin(self, prompts: Tensor, capacity: int) -> Tensor:
        """Read prompts (B, P), left-padded with -1; no text will exceed `capacity` tokens."""
        device, capacity = self._model.device, capacity + self._room
        real = (prompts != _PAD).to(device)
        self._moves += 1
        self._mask = torch.zeros(len(prompts), capacity, dtype=torch.int64, device=device)
        self._length = prompts.shape[1]
        self._mask[:, : self._length] = real
        self._position = self._mask.sum(1)
        self._cache = self._new_cache(capacity)
        positions = (self._mask[:, : self._length].cumsum(1) - 1).clamp(min=0)
        out = self._forward(prompts.clamp(min=0).to(device), positions, hidden=bool(self._taps))
        self.prompt_states = {tap: out.hidden_states[tap] for tap in self._taps}
        return out.logits[:, -1]

    @torch.inference_mode()
    def step(self, token: Tensor) -> Tensor:
        """Read one token (B,) a row."""
        self._mask[:, self._length] = 1
        self._length += 1
        self._moves += 1
        out = self._forward(token[:, None].to(self._model.device), self._position[:, None], hidden=self._wants_hidden)
        self._position = self._position + 1
        if self._wants_hidden:
            self.hidden = tuple(state[:, -1] for state in out.hidden_states)
        return out.logits[:, -1]

    @torch.inference_mode()
    def read(self, tokens: Tensor) -> Tensor:
        """Read tokens (B, C), as many of each row, in one pass; return logits (B, C, V) behind each.

        With `hidden`, states are (B, C, H) then.
        """
        count = tokens.shape[1]
        self._mask[:, self._length : self._length + count] = 1
        self._length += count
        self._moves += 1
        positions = self._position[:, None] + torch.arange(count, device=self._model.device)
        out = self._forward(tokens.to(self._model.device), positions, hidden=self._wants_hidden, logits=0)
        self._position = self._position + count
        if self._wants_hidden:
            self.hidden = tuple(out.hidden_states)
        logits: Tensor = out.logits
        return logits

    def levels(self, text: int = 0) -> Levels:
        """Return the root of a draft tree behind the last token read of one text, whose law the reading returned.

        Nodes can be accepted where there is one text alone. Raises VerifyError for models that would not heed the mask
        of a tree.
        """
        plain_layers(self._model)
        layers = [layer for layer in self._cache.layers if isinstance(layer, _RoomyLayer)]

        def take(count: int) -> None:
            for layer in layers:
                layer.advance(count)
            self._mask[:, self._length : self._length + count] = 1
            self._length, self._position, self._moves = self._length + count, self._position + count, self._moves + 1

        def read(ids: Tensor, positions: Tensor, mask: Tensor, cache: Cache) -> Tensor:
            logits: Tensor = self._forward(ids, positions, hidden=False, mask=mask, logits=0, cache=cache).logits
            return logits

        where = Where()
        rows = [layer.row(text, where) for layer in layers]
        return Levels(read, rows, where, self._behind(text), take if len(self._mask) == 1 else None)

    def _behind(self, text: int) -> Behind:
        """Return what nodes behind a text must know of it."""
        end, now = self._end_of(text), self._moves
        position, dtype = int(self._position[text]), self._model.dtype
        moved_on = lambda: self._moves != now  # noqa: E731
        return Behind(self._mask[text].bool(), end, position, self._room, self._context, dtype, moved_on)

    def _end_of(self, text: int) -> int:
        """Return the column behind a text's last token."""
        return self._length

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""
        rows = rows.to(self._model.device)
        self._moves += 1
        self._mask, self._position = self._mask[rows], self._position[rows]
        self._cache.batch_select_indices(rows)

    def _forward(
        self,
        ids: Tensor,
        positions: Tensor,
        hidden: bool,
        mask: Tensor | None = None,
        logits: int = 1,
        cache: Cache | None = None,
    ) -> Any:
        """Read ids (B, Q) at positions (B, Q). mask : as the model takes it. logits : of how many last ones, 0: all."""
        return self._model(
            input_ids=ids,
            attention_mask=self._mask[:, : self._length] if mask is None else mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=logits,
            output_hidden_states=hidden,
            **{self._cache_name: self._cache if cache is None else cache},
        )

    def _new_cache(self, capacity: int) -> Cache:
        usual = DynamicCache(config=self._model.config)
        if usual.layers and all(type(layer) is DynamicLayer for layer in usual.layers):
            return Cache(layers=[_RoomyLayer(capacity) for _ in usual.layers])
        return usual  # sliding windows, state-space layers: the model's own kind of cache
