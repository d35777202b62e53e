"""What a drafter is.

A drafter proposes the next tokens from what the text so far shows. Five shapes:

- `FlatDrafter`: a law that depends on the prefix alone. It returns logits; what becomes of them (its own temperature,
  top-k, top-p) is decided in `traces.sampling.process`, so the law that is recorded is the law that would be sampled.
- `DeepDrafter`: k tokens proposed at once, each certain (one-hot), so that alpha depends on the depth in the draft.
- `DeepLaws`: a law at every depth, which depends on the prefix and on where in it the round began: a draft module that
  feeds on its own features, or one head a depth. Like `FlatDrafter` it returns logits, up to k rows of them.
- `TreeDrafter`: a tree of certain tokens proposed at once; a token is accepted if it is a child of the node reached.
- `Reading`: another drafter's laws under another rule of drafting, such as a tree of its most likely tokens. The other
  one is computed once for both.

A collector and a decoder drive all the same way: `begin` with the prompts of a batch, then at each step `logits`,
`propose` or `trees` once, with one more token in the prefix; `keep` when rows have ended. A drafter never sees the
token that it is asked to draft; a `Reading` gets it afterwards, with the target's law, to say how its drafts fared.
Texts that are not at the same row have drafters of their own, made by `fresh_set`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import torch
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from traces.trees import PAD, Trees

if TYPE_CHECKING:
    from traces.sampling import Dense, OneHot

__all__ = [
    "PAD",
    "Branches",
    "ByLayer",
    "DeepDrafter",
    "DeepLaws",
    "Drafter",
    "DrafterError",
    "FlatDrafter",
    "Layers",
    "Logits",
    "Prefix",
    "Proposal",
    "Reading",
    "States",
    "TreeDrafter",
    "Trees",
    "fresh_set",
    "layers_for",
    "pad_left",
    "unread",
]

States: TypeAlias = Mapping[int, Tensor]  # layer -> the target's hidden states (B, P, H) at the prompts
ByLayer: TypeAlias = Sequence[Tensor] | Mapping[int, Tensor]  # hidden states after each layer, [0] being the embedding


class DrafterError(ValueError):
    """A drafter cannot be built or does not fit the target; the message names both."""


@dataclass(frozen=True)
class Prefix:
    """The texts so far.

    tokens : (B, L) int64 on the CPU, prompts left-padded with PAD
    hidden : after each layer of the target the hidden states (B, H) at the last token; of `FlatDrafter.block` (C, H),
        at the last C tokens; () unless a drafter has `needs_hidden`
    before : those (B, H) at the token before the last, of the drafters' taps at least. Who reads no others can draft
        before the target has read the last token
    """

    tokens: Tensor
    hidden: ByLayer = ()
    before: ByLayer = ()


@dataclass(frozen=True)
class Logits:
    """values : (B, W), of `DeepLaws` (B, D, W); ids (W,) and index (V,) map columns to ids and back, None when column w
    is id w.
    """

    values: Tensor
    ids: Tensor | None = None
    index: Tensor | None = None


@dataclass(frozen=True)
class Proposal:
    """tokens : (B, k) int64, PAD behind the last one proposed; match : (B,) int64, length of the match, 0 for none."""

    tokens: Tensor
    match: Tensor


class Branches(Protocol):
    """A draft tree that grows level by level behind the last token of one text.

    Made by `branches` right after the drafter's `logits` there; the root's law is what that returned. Of no use after
    the drafter's next call, and nothing of it stays in the drafter.
    """

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        """Add a level of nodes with tokens (Q,) int64 behind nodes parent (Q,) of the level before.

        The first level stands behind the root: parent 0. Return logits (Q, W) of what follows each node, in the round
        that began at the root.
        """


class Layers(Protocol):
    """The target's first layers behind the last token of one text, which the target itself has not read yet."""

    def root(self, layer: int) -> Tensor:
        """Return the hidden state (1, H) after so many layers at the last token."""

    def grow(self, layer: int, parent: Tensor, tokens: Tensor) -> Tensor:
        """Return them (Q, H) at a further level of nodes, as `Branches.grow` adds them."""


class Drafter(ABC):
    """What all shapes share. Subclasses hold what a batch needs between steps (caches, indices)."""

    kind: str
    needs_hidden = False
    taps: tuple[int, ...] = ()  # layers whose hidden states at the prompts `begin` must get
    reads: tuple[int, ...] = ()  # layers whose hidden states at the last token it reads
    context: int | None = None  # most tokens it reads, None for any number
    certain = False  # whether it drafts tokens, not laws: its processing is then that of an argmax

    def __init__(self, name: str, processing: Processing) -> None:
        if self.certain and processing.temperature != 0:
            raise DrafterError(f"drafter {name!r}: its drafts are certain; allowed temperature: 0")
        self.name = name
        self.processing = processing

    @abstractmethod
    def describe(self) -> manifest.Drafter:
        """Return what the manifest says about this drafter."""

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:  # noqa: B027
        """Start a batch: prompts (B, P) int64, left-padded with PAD; no text will exceed `capacity` tokens.

        states : at least those of `taps`. Most drafters keep nothing between steps.
        """

    def keep(self, rows: Tensor) -> None:  # noqa: B027
        """Go on with these rows (int64 indices into the present batch), in this order."""

    def fresh(self) -> Self:
        """Return the same drafter for other texts, to `begin` with: weights and indices are shared, texts are not.

        As it stands this is right for kinds whose `begin` makes anew whatever a batch changes; the others renew it.
        """
        return copy.copy(self)

    def prepare(self, nodes: int, rounds: int | None = None) -> None:  # noqa: B027
        """Make room for `branches` of so many nodes. Called before `begin` by whoever drafts live, never by a recorder.

        rounds : how many rounds, begun at the latest tokens, `DeepLaws.logits` follows from then on; None for k
        """


class _WithLaws(Drafter):
    """What drafters with laws share: how a chain drawn from them is accepted, and that trees can grow on them."""

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        """Return a draft tree's root behind the prefix (B = 1) of the latest `logits`.

        layers : the target's there; may be None for a drafter without `needs_hidden`. Of `DeepLaws` no node is deeper
        than k - 1 tokens
        """
        raise DrafterError(f"drafter {self.name!r}: kind {self.kind} has no branches, it cannot draft live")

    @property
    def rule(self) -> str:
        """The acceptance rule: a draft drawn from a processed law, one_hot if that is the argmax."""
        return "one_hot" if self.processing.temperature == 0 else "chain"


class FlatDrafter(_WithLaws):
    """A drafter whose law depends on the prefix alone (depth 1)."""

    @abstractmethod
    def logits(self, prefix: Prefix) -> Logits:
        """Return the logits of the next token."""

    def block(self, prefix: Prefix, count: int) -> Logits:
        """Return the logits (C, W) behind each of the last `count` tokens of one text, none of which it has read yet.

        The same as C calls of `logits` return, and leave behind; kinds that can read them in one pass do.
        """
        unread(self, prefix, count)
        end, found = prefix.tokens.shape[1] - count, []
        for place in range(count):
            found.append(self.logits(Prefix(prefix.tokens[:, : end + place + 1], _At(prefix.hidden, place))))
        return Logits(torch.cat([each.values for each in found]), found[0].ids, found[0].index)


class DeepLaws(_WithLaws):
    """A drafter with a law at each of up to k depths, whatever it drafted before being the text itself."""

    k: int

    @abstractmethod
    def logits(self, prefix: Prefix) -> Logits:
        """Return the logits (B, D, W) of the next token, D <= k: entry a is of the round that began a tokens ago.

        That round has drafted the text's last a tokens. Entries of rounds that would have begun before the first step
        mean nothing. D is the same at every step: no round drafts more than D tokens.
        """


class DeepDrafter(Drafter):
    """A drafter that proposes up to k certain tokens at once."""

    certain = True
    rule = "one_hot"

    @abstractmethod
    def propose(self, prefix: Prefix) -> Proposal:
        """Return the drafts of a round that begins here."""


class TreeDrafter(Drafter):
    """A drafter that proposes a tree of certain tokens, of at most `nodes` nodes and no deeper than k."""

    certain = True
    rule = "tree"
    k: int
    nodes: int

    @abstractmethod
    def trees(self, prefix: Prefix) -> Trees:
        """Return the trees of a round that begins here."""


class Reading(Drafter):
    """Another drafter's laws under another rule of drafting.

    over : the drafter whose laws are read, driven by whoever drives both. k : how deep the drafts of a round are.
    rule : the acceptance rule
    """

    rule: str

    def __init__(self, name: str, processing: Processing, k: int, over: FlatDrafter | DeepLaws) -> None:
        super().__init__(name, processing)
        self.over = over
        self.k = min(k, over.k) if isinstance(over, DeepLaws) else k

    @abstractmethod
    def score(self, found: Logits, target: Dense | OneHot, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return alpha and gamma, (B, D) float32, at the path's token (B,) of the rounds begun 0 .. D - 1 tokens ago.

        found : logits (B, D, W) of `over`, see `DeepLaws.logits`; D grows by one a call, to k. Called once a row, in
        order, with the target's law there. gamma is NaN where the path has left a round's drafts.
        """


def fresh_set(drafters: Sequence[Drafter]) -> list[Drafter]:
    """Return the same drafters for other texts, see `Drafter.fresh`; readings read the fresh ones."""
    made: dict[int, Drafter] = {}

    def fresh(drafter: Drafter) -> Drafter:
        if id(drafter) not in made:
            found = made[id(drafter)] = drafter.fresh()
            if isinstance(drafter, Reading) and isinstance(found, Reading):
                over = fresh(drafter.over)
                assert isinstance(over, FlatDrafter | DeepLaws)
                found.over = over
        return made[id(drafter)]

    return [fresh(drafter) for drafter in drafters]


def unread(drafter: Drafter, prefix: Prefix, count: int) -> Tensor:
    """Return the last `count` tokens (1, C) of one text; DrafterError unless it is one and has as many."""
    texts, length = prefix.tokens.shape
    if texts != 1 or not 1 <= count <= length:
        raise DrafterError(
            f"drafter {drafter.name!r}: block of {count} tokens of {texts} texts of {length}; allowed: some of one text"
        )
    return prefix.tokens[:, length - count :]


class _At(Mapping[int, Tensor]):
    """Of hidden states (C, H) by layer those (1, H) at one place, looked up when asked for."""

    def __init__(self, states: ByLayer, place: int) -> None:
        self._states, self._place = states, place

    def __getitem__(self, layer: int) -> Tensor:
        return self._states[layer][self._place : self._place + 1]

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[int]:
        return iter(self._states if isinstance(self._states, Mapping) else range(len(self._states)))


def layers_for(drafter: Drafter, layers: Layers | None) -> Layers:
    """Return the target's first layers; DrafterError where none were given."""
    if layers is None:
        raise DrafterError(
            f"drafter {drafter.name!r}: kind {drafter.kind} drafts live with the target's layers; none given"
        )
    return layers


def pad_left(prompts: Sequence[Sequence[int]]) -> Tensor:
    """Return prompts as one tensor (B, P), padded on the left.

    >>> pad_left([[5], [6, 7]])
    tensor([[-1,  5],
            [ 6,  7]])
    """
    width = max(map(len, prompts))
    rows = [[PAD] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    return torch.tensor(rows, dtype=torch.int64)
