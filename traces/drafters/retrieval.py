"""Retrieval: what followed the text's longest suffix elsewhere, in the target's own training texts or in packages.

Source: He et al. 2024, "REST: retrieval-based speculative decoding". The longest suffix of prompt and text, of n =
longest .. shortest tokens, that occurs in the index is looked up in a suffix array (`traces.suffix_array`). Of more
than `matches` occurrences every (i size // matches)-th is read, in the order of what follows them, so that each
continuation keeps its share. Two drafters are made of them:

- `retrieval`: a draft tree of certain tokens. The continuations, up to k tokens each, are a trie; its `nodes` most
  frequent nodes are the tree, of equally frequent ones the least deep, of those the smallest ids, of those the first in
  the order of what follows. A node is no more frequent than its parent, so the tree is closed. While it has room, the
  next shorter suffix that occurs more often adds its most frequent nodes that are not yet there.
- `retrieval-chain`: a law. q(v) is the share of the longest suffix's occurrences that v follows; where only texts' ends
  follow, the next shorter one's; below `shortest`, the share of v among all tokens of the index. Other ids have q = 0.

No match and no continuation reaches across a text's end.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import between, one_of
from traces.drafters.base import (
    PAD,
    Branches,
    DrafterError,
    FlatDrafter,
    Layers,
    Logits,
    Prefix,
    States,
    TreeDrafter,
    Trees,
)
from traces.package_texts import PACKAGES, package_texts
from traces.sampling import index_of
from traces.suffix_array import END, Matcher, SuffixArray
from traces.targets import Target
from traces.texts import Texts

__all__ = ["Draft", "Index", "Options", "Retrieval", "RetrievalChain", "TreeOptions", "draft_tree"]


@dataclass(frozen=True)
class Options:
    """What the index is made from, and how it is read.

    texts : a training trace's folder or a file of texts, None for none; domains : which of them, () for all; prompts :
        whether their prompts belong to the index, or the target's own tokens alone
    packages : texts of installed packages, see `traces.package_texts`
    longest, shortest : lengths of the suffixes tried, in tokens; matches : most occurrences read

    On the texts of the bundled traces neither prompts nor packages made more drafts accepted than the own tokens did.
    """

    texts: str | None = None
    domains: tuple[str, ...] = ()
    prompts: bool = False
    packages: tuple[Annotated[str, one_of(PACKAGES)], ...] = ()
    longest: Annotated[int, between(1, 64)] = 16
    shortest: Annotated[int, between(1, 64)] = 1
    matches: Annotated[int, between(1, 2**16)] = 256


@dataclass(frozen=True)
class TreeOptions(Options):
    """nodes : most tokens of a draft tree."""

    nodes: Annotated[int, between(1, 1024)] = 24


@dataclass
class Draft:
    """A draft tree. tokens, parents : of each node, -1 below the root, parents first.

    match : tokens of the longest suffix that something follows, 0 for none. share : of the first node among what
    follows that suffix, NaN for none
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    match: int = 0
    share: float = math.nan


class Index:
    """The texts' suffix array, and the texts of a batch that are looked up in it.

    ids : (R,) int64 ascending, the tokens of the index; count : (R,) int64, how often each occurs
    texts : where each text of the batch stands
    """

    def __init__(self, name: str, options: Options, texts: Texts | None, target: Target) -> None:
        if options.shortest > options.longest:
            raise DrafterError(
                f"drafter {name!r}: shortest is {options.shortest}; allowed: at most longest = {options.longest}"
            )
        if texts is None and not options.packages:
            raise DrafterError(f"drafter {name!r}: nothing to retrieve from; give texts, packages or both")
        if texts is None and options.domains:
            raise DrafterError(f"drafter {name!r}: domains are those of texts, and none are given")
        self.options = options
        pieces: list[NDArray[np.int32]] = []
        self.details: dict[str, Any] = {"longest": options.longest, "shortest": options.shortest}
        self.details["matches"] = options.matches
        if texts is not None:
            pieces += self._of_texts(name, texts, target)
        if options.packages:
            pieces += self._of_packages(target)
        self._array = SuffixArray(pieces)
        self.ids, self.count = np.unique(self._array.token[self._array.token != END], return_counts=True)
        if not len(self.ids):
            raise DrafterError(f"drafter {name!r}: its texts hold no tokens")
        self.details |= {"indexed_tokens": int(self.count.sum()), "vocabulary": len(self.ids)}

    def _of_texts(self, name: str, texts: Texts, target: Target) -> list[NDArray[np.int32]]:
        if texts.tokenizer_sha256 != target.tokenizer_sha256:
            raise DrafterError(
                f"drafter {name!r}: its texts were written by {texts.target!r} with another tokenizer than that of the "
                f"target {target.info.name!r}"
            )
        chosen = texts.select(self.options.domains) if self.options.domains else texts
        begins = chosen.offsets[:-1] if self.options.prompts else chosen.begin
        self.details |= {
            "domains": list(self.options.domains) or list(texts.domains),
            "texts_sha256": texts.sha256,
            "texts": len(begins),
            "prompts": self.options.prompts,
        }
        return [chosen.token[begin:end] for begin, end in zip(begins, chosen.offsets[1:], strict=True)]

    def _of_packages(self, target: Target) -> list[NDArray[np.int32]]:
        pieces, said = [], {}
        for package in dict.fromkeys(self.options.packages):
            source = package_texts(package)
            encoded = [target.tokenizer(text, add_special_tokens=False)["input_ids"] for text in source.texts]
            pieces += [np.array(ids, np.int32) for ids in encoded]
            said[package] = {
                "version": source.version,
                "license": source.license,
                "texts": len(source.texts),
                "sha256": hashlib.sha256("\0".join(source.texts).encode()).hexdigest(),
            }
        self.details["packages"] = said
        return pieces

    def begin(self, prompts: Tensor) -> None:
        """Start a batch; see `Drafter.begin`."""
        self._width = prompts.shape[1]
        self.texts = [
            Matcher(self._array, self.options.longest, [token for token in prompt if token != PAD])
            for prompt in prompts.tolist()
        ]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows; see `Drafter.keep`."""
        self.texts = [self.texts[row] for row in rows.tolist()]

    def follow(self, prefix: Prefix) -> list[Matcher]:
        """Return the texts of the batch, with the tokens that are new."""
        for text, fresh in zip(self.texts, prefix.tokens[:, self._width :].tolist(), strict=True):
            for token in fresh:
                text.append(token)
        self._width = prefix.tokens.shape[1]
        return self.texts

    def tree(self, text: Matcher, k: int, nodes: int) -> Draft:
        """Return the draft tree behind a text, of at most `nodes` nodes and k deep."""
        draft = Draft()
        place: dict[tuple[int, int], int] = {}  # of (parent, token) in the tree
        read = 0
        for length in range(len(text.spans) - 1, self.options.shortest - 1, -1):
            first, end = span = text.spans[length]
            if end - first == read:
                continue  # where the longer suffix occurs, and nowhere else
            read = end - first
            behind = self._array.behind(span, length, k, self.options.matches)
            # so many fill the tree, however many of them it holds already
            tokens, parents, counts = draft_tree(behind, nodes)
            if tokens and not draft.tokens:
                draft.match, draft.share = length, counts[0] / np.count_nonzero(behind[:, 0] != END)
            own: list[int] = []  # places in the tree
            for token, parent in zip(tokens, parents, strict=True):
                node = (own[parent] if parent >= 0 else -1, token)
                if node not in place:
                    if len(draft.tokens) == nodes:
                        return draft
                    place[node] = len(draft.tokens)
                    draft.tokens.append(token)
                    draft.parents.append(node[0])
                own.append(place[node])
        return draft

    def law(self, text: Matcher) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """Return the ids that may follow a text and how often they do."""
        for length in range(len(text.spans) - 1, self.options.shortest - 1, -1):
            found = self._array.behind(text.spans[length], length, 1, self.options.matches)[:, 0]
            found = found[found != END]
            if len(found):
                begins = np.flatnonzero(np.diff(found, prepend=END))
                return found[begins], np.diff(begins, append=len(found))
        return self.ids, self.count


def draft_tree(behind: NDArray[np.int32], nodes: int) -> tuple[list[int], list[int], list[int]]:
    """Return (tokens, parents, counts) of the `nodes` most frequent nodes of a trie, the most frequent first.

    behind : (m, k), the continuations in ascending order, END from their ends on; m (m + 1) k 2^bits < 2^63, for ids
        of so many bits. Ties go to the node less deep, then to the smaller id, then to the earlier row. parents :
        places in this tree, each before its children; -1 below the root

    >>> draft_tree(np.array([[3, 4], [3, 5], [3, 5], [6, END]]), 3)
    ([3, 5, 6], [-1, 0, -1], [3, 2, 1])
    """
    m, k = behind.shape
    differs = np.ones((m, k), bool)
    np.not_equal(behind[1:], behind[:-1], out=differs[1:])
    np.logical_or.accumulate(differs, axis=1, out=differs)
    # nodes lie depth after depth, each where its run of rows begins
    begin = np.flatnonzero(differs.T)
    depth, row = np.divmod(begin, m)
    token = behind[row, depth].astype(np.int64)
    count = np.empty_like(begin)
    np.subtract(begin[1:], begin[:-1], out=count[:-1])
    count[-1] = m * k - begin[-1]
    order = (((m - count) * k + depth) << int(token.max() + 1).bit_length() | token) * m + row
    order[token == END] = np.iinfo(np.int64).max
    best = np.argpartition(order, nodes)[:nodes] if nodes < len(order) else np.arange(len(order))
    best = best[np.argsort(order[best])]
    best = best[token[best] != END]
    above = np.searchsorted(begin, (depth[best] - 1) * m + row[best], side="right") - 1  # the run that the row is in
    place = {node: i for i, node in enumerate(best.tolist())}
    roots = depth[best] == 0
    parents = [-1 if root else place[node] for root, node in zip(roots.tolist(), above.tolist(), strict=True)]
    return token[best].tolist(), parents, count[best].tolist()


class Retrieval(TreeDrafter):
    """The draft tree."""

    kind = "retrieval"

    def __init__(
        self, name: str, processing: Processing, k: int, options: TreeOptions, texts: Texts | None, target: Target
    ) -> None:
        super().__init__(name, processing)
        self.k, self.nodes = k, options.nodes
        self.index = Index(name, options, texts, target)

    def describe(self) -> manifest.Drafter:
        details = {**self.index.details, "nodes": self.nodes}
        return manifest.Drafter(self.name, self.kind, self.rule, self.k, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self.index.begin(prompts)

    def keep(self, rows: Tensor) -> None:
        self.index.keep(rows)

    def fresh(self) -> Self:
        found = super().fresh()
        found.index = copy.copy(self.index)
        return found

    def trees(self, prefix: Prefix) -> Trees:
        drafts = [self.index.tree(text, self.k, self.nodes) for text in self.index.follow(prefix)]
        filled = torch.full((2, len(drafts), self.nodes), PAD, dtype=torch.int64)
        for row, draft in enumerate(drafts):
            filled[:, row, : len(draft.tokens)] = torch.tensor([draft.tokens, draft.parents], dtype=torch.int64)
        share = torch.tensor([draft.share for draft in drafts], dtype=torch.float32)
        return Trees(filled[0], filled[1], share, torch.tensor([draft.match for draft in drafts]))


class RetrievalChain(FlatDrafter):
    """The law behind the longest suffix that was found."""

    kind = "retrieval-chain"

    def __init__(
        self, name: str, processing: Processing, options: Options, texts: Texts | None, target: Target
    ) -> None:
        super().__init__(name, processing)
        self.index = Index(name, options, texts, target)
        self._ids = torch.from_numpy(self.index.ids.astype(np.int64)).to(target.device)
        self._column = index_of(self._ids, target.vocabulary)

    def describe(self) -> manifest.Drafter:
        return manifest.Drafter(self.name, self.kind, self.rule, 1, self.processing, None, self.index.details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self.index.begin(prompts)

    def keep(self, rows: Tensor) -> None:
        self.index.keep(rows)

    def fresh(self) -> Self:
        found = super().fresh()
        found.index = copy.copy(self.index)
        return found

    def logits(self, prefix: Prefix) -> Logits:
        return self.behind(self.index.follow(prefix))

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        return _Branches(self, self.index.texts)

    def behind(self, texts: Sequence[Matcher]) -> Logits:
        """Return the logits behind texts."""
        found = [self.index.law(text) for text in texts]
        values = np.full((len(found), len(self.index.ids)), -np.inf, np.float32)
        for row, (ids, count) in zip(values, found, strict=True):
            row[np.searchsorted(self.index.ids, ids)] = np.log(count)
        return Logits(torch.from_numpy(values).to(self._ids.device), self._ids, self._column)


class _Branches:
    """A matcher for every node's own text."""

    def __init__(self, drafter: RetrievalChain, root: Sequence[Matcher]) -> None:
        self._drafter, self._texts = drafter, root

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        pairs = zip(parent.tolist(), tokens.tolist(), strict=True)
        self._texts = [self._texts[above].extended(token) for above, token in pairs]
        return self._drafter.behind(self._texts)
