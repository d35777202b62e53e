"""Verification of draft trees: one forward step of the target over all nodes, behind its cache.

A node attends to the text, its ancestors and itself, at the position that its depth gives, so its logits are those of a
text that ends with the path to it. Of what was read only the accepted path stays: its keys move up behind the text's,
the others are written over. Texts of a batch accept different numbers of drafts, so each has an end of its own in the
cache; left padding and what lies behind an end are never seen.
Source: tree attention as in Miao et al. 2024, "SpecInfer", section 4.2, and Cai et al. 2024, "Medusa".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Cache

from traces.kv import Stepper
from traces.levels import (
    MOVED_ON,
    FirstLayers,
    Levels,
    PlacedLayer,
    VerifyError,
    Where,
    cache_name,
    check_context,
    cut_short,
    mask_of,
    plain_layers,
)
from traces.trees import PAD, Trees, chain, depths_of, lineage_of

__all__ = ["Verifier", "VerifyError"]


class Verifier(Stepper):
    """A model, the texts it has read and its cache, which trees can be tried on.

    nodes : most nodes of a tree. context : most tokens that the model reads, None for any number. Otherwise as
    `Stepper`; `hidden` holds after `verify` states (B, 1 + M, H), behind the token and behind each node; with
    `taps` it is empty and `states` holds those of the layers named alone, layer -> (B, 1 + M, H)

    Raises VerifyError for models that would not heed the mask of a tree: with attention windows, a recurrent state,
    or positions that the keys' places decide.
    """

    def __init__(
        self,
        model: Any,
        nodes: int,
        hidden: bool = False,
        taps: Collection[int] = (),
        context: int | None = None,
    ) -> None:
        super().__init__(model, hidden, taps, nodes, context)
        self._count = plain_layers(model)
        self.states: dict[int, Tensor] = {}
        self._trees: Trees | None = None
        self._cut: dict[int, Any] = {}  # number of layers -> the model's body with so many

    def begin(self, prompts: Tensor, capacity: int) -> Tensor:
        self._where = Where()
        self._where.aim(torch.arange(prompts.shape[1], device=self._model.device).expand_as(prompts), prompts.shape[1])
        self._trees = None
        logits = super().begin(prompts, capacity)
        self._end = torch.full_like(self._position, prompts.shape[1])  # column behind each text's last token
        return logits

    @torch.inference_mode()
    def verify(self, token: Tensor, trees: Trees) -> Tensor:
        """Read one token (B,) a row and a tree behind it; return logits (B, 1 + M, V) behind the token and each node.

        Logits at places without a node mean nothing. Until `accept` is called, nothing of this is part of the texts.
        Raises VerifyError where there is no room for the trees, and where one reaches the model's context.
        """
        device, nodes = self._model.device, trees.tokens.shape[1]
        width = int(self._end.max()) + 1 + nodes
        if nodes > self._room:
            raise VerifyError(f"trees of {nodes} nodes; this verifier was made for {self._room}")
        if width > self._mask.shape[1]:
            raise VerifyError(f"{width} columns of texts and trees; room was made for {self._mask.shape[1]}")
        real = F.pad(trees.tokens != PAD, (1, 0), value=True)
        ids = torch.cat([token.cpu()[:, None], trees.tokens.clamp(min=0)], 1).to(device)
        # the token is the node before all others; a place without a node hangs on it, too
        parent = F.pad(torch.where(real[:, 1:], trees.parent + 1, 0), (1, 0), value=-1)
        depth = depths_of(parent, real).clamp(min=0).to(device)
        if self._context is not None:  # on a GPU each look waits for it
            check_context(int((self._position[:, None] + depth).max()), self._context)
        self._trees, self._moves = trees, self._moves + 1
        place = self._end[:, None] + torch.arange(1 + nodes, device=device)
        mask = mask_of(self._mask[:, :width].bool(), place, lineage_of(parent).to(device), self._model.dtype)
        self._where.aim(place, width)
        out = self._forward(ids, self._position[:, None] + depth, hidden=self._wants_hidden, mask=mask, logits=0)
        if self._wants_hidden:
            self.hidden = () if self._taps else tuple(out.hidden_states)
            self.states = {tap: out.hidden_states[tap] for tap in self._taps}
        logits: Tensor = out.logits
        return logits

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
        self._trees, self._moves, device = None, self._moves + 1, self._model.device
        beside = torch.arange(path.shape[1]).expand_as(path)
        source = torch.where(path != PAD, path, beside).to(device) + self._end[:, None] + 1
        for layer in self._layers:
            layer.move(source, self._end[:, None] + 1 + beside.to(device))
        count = 1 + (path != PAD).sum(1).to(device)
        column = torch.arange(self._mask.shape[1], device=device)
        self._mask[(column >= self._end[:, None]) & (column < (self._end + count)[:, None])] = 1
        self._end, self._position = self._end + count, self._position + count

    def step(self, token: Tensor) -> Tensor:
        logits = self.read(token[:, None])[:, 0]
        self.hidden = tuple(state[:, 0] for state in self.hidden)
        self.states = {tap: state[:, 0] for tap, state in self.states.items()}
        return logits

    def read(self, tokens: Tensor) -> Tensor:
        drafts = chain(tokens[:, 1:].cpu())
        logits = self.verify(tokens[:, 0], drafts)
        self.accept(torch.arange(tokens.shape[1] - 1).expand_as(drafts.tokens))
        return logits

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self._end, self._trees = self._end[rows.to(self._end.device)], None

    def levels(self, text: int = 0) -> Levels:
        self._check_settled()
        return self._levels(text, self._model, self._count, "logits")

    def layers(self, text: int, token: int) -> FirstLayers:
        """Return the model's first layers at a token behind one text, and at nodes behind that; see `FirstLayers`.

        Keys go behind the text's end only, where `verify` writes: it returns the same after this as without. Of use
        until texts are read, kept or begun.
        """
        self._check_settled()
        now = self._moves

        def levels(layer: int) -> Levels:
            if self._moves != now:
                raise VerifyError(MOVED_ON)
            if layer not in self._cut:
                self._cut[layer] = cut_short(self._model, layer)
            return self._levels(text, self._cut[layer], layer, "last_hidden_state")

        return FirstLayers(levels, token)

    def _levels(self, text: int, model: Any, layers: int, wanted: str) -> Levels:
        where, name = Where(), cache_name(model)

        def read(ids: Tensor, positions: Tensor, mask: Tensor, cache: Cache) -> Tensor:
            out = model(
                input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **{name: cache}
            )  # fmt: skip
            found: Tensor = getattr(out, wanted)
            return found

        rows = [layer.row(text, where) for layer in self._layers[:layers]]
        return Levels(read, rows, where, self._behind(text))

    def _end_of(self, text: int) -> int:
        return int(self._end[text])

    def _check_settled(self) -> None:
        if self._trees is not None:  # its keys lie where nodes would be written
            raise VerifyError("a tree was verified whose path is not yet accepted")

    def _new_cache(self, capacity: int) -> Cache:
        self._layers = [PlacedLayer(capacity, self._where) for _ in range(self._count)]
        return Cache(layers=[*self._layers])


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
