"""Verification of draft trees: one forward step of the target over all nodes, behind its cache.

A node attends to the text, its ancestors and itself, at the position that its depth gives, so its logits are those of a
text that ends with the path to it. Of what was read only the accepted path stays: its keys move up behind the text's,
the others are written over. Texts of a batch accept different numbers of drafts, so each has an end of its own in the
cache; left padding and what lies behind an end are never seen.
Source: tree attention as in Miao et al. 2024, "SpecInfer", section 4.2, and Cai et al. 2024, "Medusa".
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from traces.drafters.base import PAD, Trees
from traces.kv import Stepper
from traces.trees import depths_of, lineage_of

__all__ = ["Verifier", "VerifyError"]


class VerifyError(ValueError):
    """Trees cannot be verified with this model, or a path is none of the trees; the message says why."""


class Verifier(Stepper):
    """A model, the texts it has read and its cache, which trees can be tried on.

    nodes : most nodes of a tree. Otherwise as `Stepper`; `hidden` holds after `verify` states (B, 1 + M, H), behind the
    token and behind each node.

    Raises VerifyError for models that would not heed the mask of a tree: with attention windows, a recurrent state,
    or positions that the keys' places decide.
    """

    def __init__(self, model: Any, nodes: int, hidden: bool = False, taps: Collection[int] = ()) -> None:
        super().__init__(model, hidden, taps)
        config = model.config.get_text_config()
        layers = DynamicCache(config=model.config).layers
        plain = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
        placed = "position_ids" in inspect.signature(model.forward).parameters and not getattr(config, "alibi", False)
        if not (plain and placed):
            raise VerifyError(
                f"{type(model).__name__}: draft trees need plain attention layers whose mask and positions can be given"
            )
        self._room, self._count = nodes, len(layers)
        self._trees: Trees | None = None

    def begin(self, prompts: Tensor, capacity: int) -> Tensor:
        self._where = _Where(torch.arange(prompts.shape[1], device=self._model.device).expand_as(prompts))
        logits = super().begin(prompts, capacity + self._room)
        self._end = torch.full_like(self._position, prompts.shape[1])  # column behind each text's last token
        return logits

    @torch.inference_mode()
    def verify(self, token: Tensor, trees: Trees) -> Tensor:
        """Read one token (B,) a row and a tree behind it; return logits (B, 1 + M, V) behind the token and each node.

        Logits at places without a node mean nothing. Until `accept` is called, nothing of this is part of the texts.
        """
        device, nodes = self._model.device, trees.tokens.shape[1]
        if nodes > self._room:
            raise VerifyError(f"trees of {nodes} nodes; this verifier was made for {self._room}")
        self._trees = trees
        ids = torch.cat([token.cpu()[:, None], trees.tokens.clamp(min=0)], 1).to(device)
        # the token is the node before all others; a place without a node hangs on it, too
        parent = F.pad(torch.where(trees.tokens != PAD, trees.parent + 1, 0), (1, 0), value=-1)
        depth = depths_of(parent, torch.ones_like(parent, dtype=torch.bool)).to(device)
        place = self._end[:, None] + torch.arange(1 + nodes, device=device)
        width = int(self._end.max()) + 1 + nodes
        seen = self._mask[:, None, :width].bool().repeat(1, 1 + nodes, 1)
        seen.scatter_(2, place[:, None].expand(-1, 1 + nodes, -1), lineage_of(parent).to(device))
        hidden = torch.zeros(seen.shape, dtype=self._model.dtype, device=device)
        hidden.masked_fill_(~seen, torch.finfo(self._model.dtype).min)
        self._where.place = place
        positions = self._position[:, None] + depth
        out = self._forward(ids, positions, hidden=self._wants_hidden, mask=hidden[:, None], logits=0)
        if self._wants_hidden:
            self.hidden = tuple(out.hidden_states)
        return out.logits

    @torch.inference_mode()
    def accept(self, path: Tensor) -> None:
        """Make the token of the last `verify` and the nodes of a path (B, A) part of the texts; drop all others.

        path : int64, from a child of the token downwards, PAD behind its end. VerifyError if it is none of the trees.
        """
        trees = self._trees
        if trees is None:
            raise VerifyError("no tree was verified since the last path was accepted")
        path = path.cpu().long()
        _check_path(trees, path)
        self._trees, device = None, self._model.device
        beside = torch.arange(path.shape[1]).expand_as(path)
        source = torch.where(path != PAD, path, beside).to(device) + self._end[:, None] + 1
        for layer in self._layers:
            layer.move(source, self._end[:, None] + 1 + beside.to(device))
        count = 1 + (path != PAD).sum(1).to(device)
        column = torch.arange(self._mask.shape[1], device=device)
        self._mask[(column >= self._end[:, None]) & (column < (self._end + count)[:, None])] = 1
        self._end, self._position = self._end + count, self._position + count

    def step(self, token: Tensor) -> Tensor:
        none = torch.empty(len(token), 0, dtype=torch.int64)
        logits = self.verify(token, Trees(none, none))[:, 0]
        self.accept(none)
        self.hidden = tuple(state[:, 0] for state in self.hidden)
        return logits

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self._end, self._trees = self._end[rows.to(self._end.device)], None

    def _new_cache(self, capacity: int) -> Cache:
        self._layers = [_PlacedLayer(capacity, self._where) for _ in range(self._count)]
        return Cache(layers=[*self._layers])


class _Where:
    """place : (B, Q) int64, the columns of the cache that the next keys go to."""

    def __init__(self, place: Tensor) -> None:
        self.place = place


class _PlacedLayer(DynamicLayer):
    """A cache layer that each text fills at columns of its own."""

    def __init__(self, capacity: int, where: _Where) -> None:
        super().__init__()
        self._capacity, self._where, self._columns = capacity, where, 0
        self._store: list[Tensor] = []

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self._store:
            self.lazy_initialization(key_states, value_states)
            # zeros, not what memory holds: 0 times NaN would reach the outputs
            shapes = [(*new.shape[:2], self._capacity, new.shape[3]) for new in (key_states, value_states)]
            self._store = [key_states.new_zeros(shape) for shape in shapes]
        place = self._where.place
        rows = torch.arange(len(place), device=place.device)[:, None]
        for store, new in zip(self._store, (key_states, value_states), strict=True):
            store[rows, :, place] = new.transpose(1, 2)
        self._columns = int(place.max()) + 1
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


def _check_path(trees: Trees, path: Tensor) -> None:
    """Raise VerifyError unless path (B, A) leads down a tree of each text, with PAD behind its end alone."""
    if path.shape[1] == 0:
        return
    at = path.clamp(min=0)
    if bool((path >= trees.tokens.shape[1]).any()):
        raise VerifyError(f"path names node {int(path.max())}; the trees have {trees.tokens.shape[1]}")
    above = F.pad(path[:, :-1], (1, 0), value=-1)
    ended = (path == PAD).cumsum(1) > 0
    right = (trees.parent.gather(1, at) == above) & (trees.tokens.gather(1, at) != PAD)
    wrong = torch.where(ended, path != PAD, ~right)
    if bool(wrong.any()):
        text, depth = wrong.nonzero()[0].tolist()
        raise VerifyError(f"path of text {text}: node {int(path[text, depth])} does not follow at depth {depth}")
