"""Interpolated Witten-Bell n-grams over token ids, counted from the target's own training texts.

q_n(v | c) = (count(c v) + d(c) q_{n-1}(v | shorter c)) / (s(c) + d(c)), with s(c) the occurrences of the context c and
d(c) the number of different tokens seen behind it; q_0 is uniform over the ids ever seen. Source: Witten and Bell 1991,
"The zero-frequency problem", method C, interpolated as in Chen and Goodman 1999. Ids never seen have q = 0, so the law
lives on a reduced vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import between
from traces.drafters.base import PAD, Branches, DrafterError, FlatDrafter, Layers, Logits, Prefix, unread
from traces.sampling import index_of
from traces.targets import Target
from traces.texts import Texts

__all__ = ["NGram", "Options", "WittenBell"]


@dataclass(frozen=True)
class Options:
    """texts : a training trace's folder, or a file of texts; domains : which of them, () for all; order : longest n."""

    texts: str
    domains: tuple[str, ...] = ()
    order: Annotated[int, between(1, 6)] = 4


@dataclass(frozen=True)
class _Order:
    """Contexts of one length: sorted keys (C,), offsets (C+1,) into column and share, and the weight left (C,)."""

    keys: Tensor
    offsets: Tensor
    column: Tensor
    share: Tensor
    rest: Tensor


class WittenBell:
    """The counts, ready for batches of contexts.

    ids : (R,) int64, the reduced vocabulary; index : (V,) id -> column, -1 for ids never seen
    """

    def __init__(self, texts: Texts, order: int) -> None:
        bits = int(texts.vocabulary).bit_length()
        if (order - 1) * bits > 62:
            raise ValueError(
                f"contexts of {order - 1} ids below {texts.vocabulary} do not fit 62 bits; use a lower order"
            )
        self.order, self._bits = order, bits
        token, own = texts.token.astype(np.int64), texts.own()
        place = np.arange(len(token)) - np.repeat(texts.offsets[:-1], np.diff(texts.offsets))  # within its text
        ids, column = np.unique(token[own], return_inverse=True)
        self.ids = torch.from_numpy(ids)
        self.index = index_of(self.ids, texts.vocabulary)
        count = np.bincount(column, minlength=len(ids))
        total, width = count.sum(), len(ids)
        # d = width different ids share the left-over mass equally: one count each
        self.base = torch.from_numpy(((count + 1) / (total + width)).astype(np.float32))
        self.orders = [
            self._count(token, np.flatnonzero(own & (place >= length)), ids, length) for length in range(1, order)
        ]

    def _count(self, token: np.ndarray, at: np.ndarray, ids: np.ndarray, length: int) -> _Order:
        key = np.zeros(len(at), np.int64)
        for back in range(length, 0, -1):
            key = (key << self._bits) | token[at - back]
        keys, context = np.unique(key, return_inverse=True)
        pairs, count = np.unique(context * len(ids) + np.searchsorted(ids, token[at]), return_counts=True)
        row = pairs // len(ids)
        kinds = np.bincount(row, minlength=len(keys))
        seen = np.bincount(row, weights=count, minlength=len(keys))
        return _Order(
            keys=torch.from_numpy(keys),
            offsets=torch.from_numpy(np.concatenate([[0], np.cumsum(kinds)])),
            column=torch.from_numpy(pairs % len(ids)),
            share=torch.from_numpy((count / (seen + kinds)[row]).astype(np.float32)),
            rest=torch.from_numpy((kinds / (seen + kinds)).astype(np.float32)),
        )

    def law(self, tokens: Tensor) -> Tensor:
        """Return q (B, R) float32 behind texts (B, L), of which the last order - 1 tokens count; PAD is no token."""
        batch, length = tokens.shape
        left = torch.ones(batch)  # what the longer contexts leave for the shorter ones
        added = []
        for order, back in reversed(list(zip(self.orders, range(1, self.order), strict=True))):
            if back > length:
                continue
            context = tokens[:, length - back :]
            key = torch.zeros(batch, dtype=torch.int64)
            for column in context.unbind(1):
                key = (key << self._bits) | column.clamp(min=0)
            if not len(order.keys):
                continue
            place = torch.searchsorted(order.keys, key).clamp(max=len(order.keys) - 1)
            rows = torch.nonzero((order.keys[place] == key) & (context != PAD).all(1))[:, 0]
            place = place[rows]
            size = order.offsets[place + 1] - order.offsets[place]
            ends = size.cumsum(0)
            entry = torch.arange(int(ends[-1]) if len(ends) else 0) + torch.repeat_interleave(
                order.offsets[place] - ends + size, size
            )
            row = torch.repeat_interleave(rows, size)
            added.append((row, order.column[entry], order.share[entry] * left[row]))
            left[rows] *= order.rest[place]
        law = self.base * left[:, None]
        for row, column, share in added:
            law[row, column] += share  # no pair occurs twice within one order
        return law


class NGram(FlatDrafter):
    """An n-gram drafter: a specialist when it counts one domain's texts, a generalist when it counts all."""

    kind = "ngram"

    def __init__(self, name: str, processing: Processing, options: Options, texts: Texts, target: Target) -> None:
        super().__init__(name, processing)
        if texts.tokenizer_sha256 != target.tokenizer_sha256:
            raise DrafterError(
                f"drafter {name!r}: its texts were written by {texts.target!r} with another tokenizer than that of the "
                f"target {target.info.name!r}"
            )
        self.options, self._source = options, texts.sha256
        self._texts = texts.select(options.domains) if options.domains else texts
        try:
            self.model = WittenBell(self._texts, options.order)
        except ValueError as error:
            raise DrafterError(f"drafter {name!r}: {error}") from error
        self._ids, self._index = self.model.ids.to(target.device), self.model.index.to(target.device)
        self._device = target.device

    def describe(self) -> manifest.Drafter:
        details = {
            "order": self.options.order,
            "domains": list(self.options.domains) or list(self._texts.domains),
            "texts_sha256": self._source,
            "training_tokens": int(self._texts.own().sum()),
            "vocabulary": len(self.model.ids),
        }
        return manifest.Drafter(self.name, self.kind, self.rule, 1, self.processing, None, details)

    def logits(self, prefix: Prefix) -> Logits:
        return self.behind(prefix.tokens)

    def block(self, prefix: Prefix, count: int) -> Logits:
        unread(self, prefix, count)
        width = max(1, self.options.order - 1)
        before = F.pad(prefix.tokens, (width - 1, 0), value=PAD)
        return self.behind(before[0].unfold(0, width, 1)[-count:])

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        return _Branches(self, prefix.tokens)

    def behind(self, tokens: Tensor) -> Logits:
        """Return the logits behind texts (B, L), of which the last order - 1 tokens count."""
        return Logits(self.model.law(tokens).log_().to(self._device), self._ids, self._index)


class _Branches:
    """The last tokens of every node's own text."""

    def __init__(self, drafter: NGram, tokens: Tensor) -> None:
        self._drafter, self._last = drafter, tokens[:, -drafter.options.order :]

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        longer = torch.cat([self._last[parent.cpu()], tokens.cpu()[:, None]], 1)
        self._last = longer[:, -self._drafter.options.order :]
        return self._drafter.behind(self._last)
