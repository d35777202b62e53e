"""Nodes of a draft tree read behind one text, level by level, with keys that nobody else sees.

A node attends to the text, its ancestors and itself, at the position that its depth gives; which is what the mask of
`mask_of` says, of one level as of a whole tree. Keys of nodes lie behind the text's end in the cache: the next token or
tree that is read writes over them.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

__all__ = [
    "FINAL_NORMS",
    "MOVED_ON",
    "Behind",
    "FirstLayers",
    "Levels",
    "PlacedLayer",
    "VerifyError",
    "Where",
    "cache_name",
    "check_context",
    "cut_short",
    "mask_of",
    "plain_layers",
]

FINAL_NORMS = ("norm", "ln_f", "final_layernorm", "final_layer_norm")  # where architectures keep their last norm

MOVED_ON = "the text has moved on since these levels were begun; begin new ones"


class VerifyError(ValueError):
    """Nodes cannot be read with this model, or are none of those read; the message says why."""


class Where:
    """Where all layers of a cache put the next keys: said once a pass, not once a layer.

    place : (B, Q) int64, the columns that they go to. rows : (B, 1), the texts. columns : how many are then in use
    """

    place: Tensor
    rows: Tensor
    columns: int

    def aim(self, place: Tensor, columns: int) -> None:
        """Put the next keys at columns `place` (B, Q), all of them below `columns`."""
        self.place, self.columns = place, columns
        self.rows = torch.arange(len(place), device=place.device)[:, None]


class PlacedLayer(DynamicLayer):
    """A cache layer that each text fills at columns of its own."""

    def __init__(self, capacity: int, where: Where) -> None:
        super().__init__()
        self._capacity, self._where, self._columns = capacity, where, 0
        self._store: list[Tensor] = []

    @classmethod
    def over(cls, store: Sequence[Tensor], where: Where) -> PlacedLayer:
        """Return a layer on keys and values (B, heads, columns, size) that others hold, too."""
        found = cls(store[0].shape[2], where)
        found.lazy_initialization(*store)
        found._store = list(store)
        return found

    def row(self, text: int, where: Where) -> PlacedLayer:
        """Return the same keys and values of one text, as a layer of its own."""
        return PlacedLayer.over([store[text : text + 1] for store in self._store], where)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self._store:
            self.lazy_initialization(key_states, value_states)
            # zeros, not what memory holds: 0 times NaN would reach the outputs
            shapes = [(*new.shape[:2], self._capacity, new.shape[3]) for new in (key_states, value_states)]
            self._store = [key_states.new_zeros(shape) for shape in shapes]
        where = self._where
        for store, new in zip(self._store, (key_states, value_states), strict=True):
            store[where.rows, :, where.place] = new.transpose(1, 2)
        self._columns = where.columns
        return self._show()

    def move(self, source: Tensor, aim: Tensor) -> None:
        """Copy columns source (B, A) of each text to its columns aim (B, A)."""
        rows = torch.arange(len(source), device=source.device)[:, None]
        for store in self._store:
            store[rows, :, aim] = store[rows, :, source]

    def batch_select_indices(self, indices: Tensor) -> None:
        self._store = [store[indices] for store in self._store]
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (store[:, :, : self._columns] for store in self._store)
        self.keys, self.values = keys, values
        return keys, values


def cache_name(model: Any) -> str:
    """Return the name of a model's argument for its cache."""
    # transformers renamed it; old names warn, new names are unknown to older releases
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def plain_layers(model: Any) -> int:
    """Return how many attention layers a model has; VerifyError for one that would not heed the mask of a tree.

    Such are models with attention windows, a recurrent state, or positions that the keys' places decide.
    """
    config = model.config.get_text_config()
    layers = DynamicCache(config=model.config).layers
    plain = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
    placed = "position_ids" in inspect.signature(model.forward).parameters and not getattr(config, "alibi", False)
    if not (plain and placed):
        raise VerifyError(
            f"{type(model).__name__}: draft trees need plain attention layers whose mask and positions can be given"
        )
    return len(layers)


def mask_of(text: Tensor, place: Tensor, lineage: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what to add to the scores of nodes: (B, 1, Q, W), 0 where a node sees a column, else the least number.

    text : (B, W) bool, columns of the text itself. place : (B, M) int64, the nodes' columns. lineage : (B, Q, M) bool,
    which of them are ancestors of each of the last Q nodes, or itself

    >>> text = torch.tensor([[False, True, False, False, False]])  # one token behind padding
    >>> mask_of(text, torch.tensor([[2, 3]]), torch.eye(2, dtype=torch.bool)[None], torch.float32)[0, 0] == 0
    tensor([[False,  True,  True, False, False],
            [False,  True, False,  True, False]])
    """
    seen = text[:, None].repeat(1, lineage.shape[1], 1)
    seen.scatter_(2, place[:, None].expand(-1, lineage.shape[1], -1), lineage)
    hidden = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return hidden.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]


@dataclass(frozen=True)
class Behind:
    """What nodes stand behind.

    text : (W,) bool, the columns of the text. end, position : of the first node. room : most nodes. context : most
    tokens that the model reads, None for any number. dtype : of the mask. moved_on : whether the text has
    """

    text: Tensor
    end: int
    position: int
    room: int
    context: int | None
    dtype: torch.dtype
    moved_on: Callable[[], bool]


def check_context(position: int, context: int | None) -> None:
    """Raise VerifyError for a node at a position that the model does not reach."""
    if context is not None and position >= context:
        raise VerifyError(f"a node at position {position}; the model reads {context} tokens")


class Levels:
    """Nodes behind the last token that a model has read of one text, a level at a time.

    Made by `Stepper.levels`, of use until that reads, keeps or begins something. The nodes are no part of the text
    unless `accept` says so.
    """

    def __init__(
        self,
        read: Callable[[Tensor, Tensor, Tensor, Cache], Tensor],
        rows: Sequence[PlacedLayer],
        where: Where,
        behind: Behind,
        taken: Callable[[int], None] | None = None,
    ) -> None:
        """read : called with ids (1, Q), positions (1, Q), their mask and the cache, returns what is known behind each,
        (1, Q, .). rows : the text's keys. taken : called with how many nodes were accepted
        """
        self._read, self._rows, self._where, self._behind, self._taken = read, rows, where, behind, taken
        self._cache = Cache(layers=[*rows])
        # of each node of the latest level, which nodes are its ancestors, or itself; the text's last token has none
        self._lineage = torch.zeros(1, 0, dtype=torch.bool, device=behind.text.device)
        self._parents: list[int] = []  # of all nodes; -1 behind the text
        self._begin = 0  # of the latest level's nodes
        self._depth = 0

    @torch.inference_mode()
    def grow(self, parent: Tensor, tokens: Tensor) -> Tensor:
        """Read a level of nodes with tokens (Q,) int64 behind nodes parent (Q,) of the level before, 0 for the text's
        last token; return the logits (Q, V) behind each.

        Raises VerifyError for a parent that the level before does not have, where the nodes outnumber the room or reach
        the model's context, and behind a text that has moved on.
        """
        self._check(parent, len(tokens))
        behind, device, count, used = self._behind, self._behind.text.device, len(tokens), len(self._parents)
        parent = parent.to(device)
        itself = torch.eye(count, dtype=torch.bool, device=device)
        self._lineage = torch.cat([self._lineage[parent], itself], 1)
        place = behind.end + torch.arange(used + count, device=device)[None]
        mask = mask_of(behind.text[None, : behind.end + used + count], place, self._lineage[None], behind.dtype)
        self._where.aim(place[:, used:], behind.end + used + count)
        positions = torch.full((1, count), behind.position + self._depth, device=device)
        found = self._read(tokens.to(device)[None], positions, mask, self._cache)[0]
        self._parents += (parent + self._begin).tolist() if used else [-1] * count
        self._begin, self._depth = used, self._depth + 1
        return found

    def _check(self, parent: Tensor, count: int) -> None:
        behind, above = self._behind, len(self._lineage)
        if behind.moved_on():
            raise VerifyError(MOVED_ON)
        if count == 0 or len(parent) != count or not 0 <= int(parent.min()) <= int(parent.max()) < above:
            raise VerifyError(f"{count} nodes behind nodes {parent.tolist()}; the level before has {above}")
        if len(self._parents) + count > behind.room:
            raise VerifyError(f"a tree of {len(self._parents) + count} nodes; room was made for {behind.room}")
        check_context(behind.position + self._depth, behind.context)

    @torch.inference_mode()
    def accept(self, nodes: Sequence[int]) -> None:
        """Make a path part of the text: nodes numbered in the order in which they were read, from the text downwards.

        All others are dropped, and these levels are of no further use. VerifyError if it is no path.
        """
        behind, device = self._behind, self._behind.text.device
        if behind.moved_on() or self._taken is None:
            raise VerifyError("no nodes can be accepted here: the text is another's, or has moved on")
        above = -1
        for node in nodes:
            if not 0 <= node < len(self._parents) or self._parents[node] != above:
                raise VerifyError(f"path {list(nodes)}: node {node} does not follow there")
            above = node
        aim = torch.arange(len(nodes), device=device)[None]
        source = torch.tensor([list(nodes)], dtype=torch.int64, device=device)
        for row in self._rows:
            row.move(behind.end + source, behind.end + aim)
        self._taken(len(nodes))


class FirstLayers:
    """A model's first layers at the last token of a text, which the model has not read yet, and at nodes behind it.

    levels : called with a number of layers, returns levels behind what the model has read, with hidden states for
    logits. token : the text's last. Reading with another number of layers drops all nodes and begins anew.
    """

    def __init__(self, levels: Callable[[int], Levels], token: int) -> None:
        self._make, self._token, self._layer = levels, token, -1

    def root(self, layer: int) -> Tensor:
        """Return the hidden state (1, H) after so many layers at the text's last token."""
        if layer != self._layer:
            self._levels = self._make(layer)
            self._root = self._levels.grow(torch.zeros(1, dtype=torch.int64), torch.tensor([self._token]))
            self._layer = layer
        return self._root

    def grow(self, layer: int, parent: Tensor, tokens: Tensor) -> Tensor:
        """Return them (Q, H) at a further level of nodes with tokens (Q,) behind nodes parent (Q,) of the level before.

        The first level stands behind the text's last token: parent 0. VerifyError as of `Levels.grow`, and for a tree
        whose levels before were read with other layers.
        """
        if layer != self._layer and self._layer >= 0:
            raise VerifyError(f"{layer} layers asked for behind nodes read with {self._layer}; ask for root({layer})")
        self.root(layer)
        return self._levels.grow(parent, tokens)


def cut_short(model: Any, layer: int) -> Any:
    """Return a model's body with its first `layer` layers alone and no final norm; all weights are shared.

    VerifyError for as many layers as it has, or more: what the last one writes is seen behind the final norm only.
    """
    body, count = model.base_model, int(model.config.get_text_config().num_hidden_layers)
    stacks = [name for name, part in body.named_children() if isinstance(part, nn.ModuleList) and len(part) == count]
    norms = [name for name in FINAL_NORMS if name in dict(body.named_children())]
    if len(stacks) != 1 or len(norms) != 1:
        raise VerifyError(f"{type(model).__name__}: no stack of {count} layers and a final norm to leave out")
    if not 0 <= layer < count:
        raise VerifyError(f"{layer} of {count} layers of {type(model).__name__}; allowed: 0 to {count - 1}")
    cut = copy.copy(body)
    layers, (stack,), (norm,) = getattr(body, stacks[0])[:layer], stacks, norms
    cut._modules = {**body._modules, stack: layers, norm: nn.Identity()}
    return cut
