"""Prompt lookup: copy what followed the last occurrence of the text's own longest suffix.

Source: Saxena 2023, "Prompt lookup decoding"; the match is the longest suffix of n = longest .. shortest tokens that
occurs earlier in prompt or text, its most recent occurrence wins, and up to k tokens behind it are the draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import between
from traces.drafters.base import PAD, DeepDrafter, DrafterError, Prefix, Proposal, States

__all__ = ["Lookup", "Options", "SuffixIndex"]


@dataclass(frozen=True)
class Options:
    """longest, shortest : lengths of the suffixes tried, in tokens."""

    longest: Annotated[int, between(1, 16)] = 4
    shortest: Annotated[int, between(1, 16)] = 2


class SuffixIndex:
    """One growing text with the most recent end of every n-gram in it: a token costs O(longest), whatever the length.

    >>> index = SuffixIndex([1, 2, 3, 1, 2], longest=3, shortest=1)
    >>> index.find(4)
    ([3, 1, 2], 2)
    """

    def __init__(self, tokens: list[int], longest: int, shortest: int) -> None:
        self._lengths = range(longest, shortest - 1, -1)
        self._tokens: list[int] = []
        self._latest: dict[tuple[int, ...], int] = {}  # n-gram -> position behind its latest occurrence but the suffix
        for token in tokens:
            self.append(token)

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, token: int) -> None:
        """Add a token. The suffixes that end before it enter the index now: a suffix must not match itself."""
        end = len(self._tokens)
        for n in self._lengths:
            if n <= end:
                self._latest[tuple(self._tokens[end - n :])] = end
        self._tokens.append(token)

    def find(self, k: int) -> tuple[list[int], int]:
        """Return (draft of at most k tokens, length of the match); ([], 0) without a match."""
        end = len(self._tokens)
        for n in self._lengths:
            if n <= end:
                start = self._latest.get(tuple(self._tokens[end - n :]))
                if start is not None:
                    return self._tokens[start : start + k], n
        return [], 0


class Lookup(DeepDrafter):
    """Prompt lookup over prompt and text."""

    kind = "lookup"

    def __init__(self, name: str, processing: Processing, k: int, options: Options) -> None:
        super().__init__(name, processing)
        if options.shortest > options.longest:
            raise DrafterError(
                f"drafter {name!r}: shortest is {options.shortest}; allowed: at most longest = {options.longest}"
            )
        self.k = k
        self.options = options
        self._texts: list[SuffixIndex] = []

    def describe(self) -> manifest.Drafter:
        details = {"longest": self.options.longest, "shortest": self.options.shortest}
        return manifest.Drafter(self.name, self.kind, self.rule, self.k, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        longest, shortest = self.options.longest, self.options.shortest
        self._width = prompts.shape[1]
        self._texts = [
            SuffixIndex([token for token in prompt if token != PAD], longest, shortest) for prompt in prompts.tolist()
        ]

    def keep(self, rows: Tensor) -> None:
        self._texts = [self._texts[row] for row in rows.tolist()]

    def propose(self, prefix: Prefix) -> Proposal:
        for text, fresh in zip(self._texts, prefix.tokens[:, self._width :].tolist(), strict=True):
            for token in fresh:
                text.append(token)
        self._width = prefix.tokens.shape[1]
        found = [text.find(self.k) for text in self._texts]
        tokens = [draft + [PAD] * (self.k - len(draft)) for draft, _ in found]
        return Proposal(torch.tensor(tokens, dtype=torch.int64), torch.tensor([match for _, match in found]))
