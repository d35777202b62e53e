"""An eagle head: trained on the target's hidden states, it feeds on its own features inside a draft.

Its law depends on the depth: see `traces.heads`. Where a draft is drawn (temperature above 0) the recorded law at depth
d is that of a round which drafted the text's last d tokens, whether or not it could have.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from traces.checkpoints import Card, load_head
from traces.drafters.base import PAD, Branches, DeepLaws, DrafterError, Layers, Logits, Prefix, States
from traces.heads import Head, HeadError, Rounds, taps_of
from traces.sampling import index_of
from traces.targets import Target

__all__ = ["Options", "TrainedHead", "card_details", "open_head"]


@dataclass(frozen=True)
class Options:
    """checkpoint : the folder that `python -m traces train` wrote."""

    checkpoint: str


class TrainedHead(DeepLaws):
    """A head that drafts up to k tokens, with a law at every depth."""

    kind = "head"
    needs_hidden = True

    def __init__(self, name: str, processing: Processing, k: int, checkpoint: Path, target: Target) -> None:
        super().__init__(name, processing)
        self._head, self._card = open_head(name, checkpoint, target, "eagle")
        self.k, self.taps = k, self._head.taps
        self._index = index_of(self._head.ids, target.vocabulary)
        self._rounds = Rounds(self._head, k)

    def describe(self) -> manifest.Drafter:
        details = card_details(self._card)
        return manifest.Drafter(self.name, self.kind, self.rule, self.k, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self._rounds.begin(prompts, capacity, taps_of(states or {}, self.taps), PAD)

    def keep(self, rows: Tensor) -> None:
        self._rounds.keep(rows)

    def logits(self, prefix: Prefix) -> Logits:
        outputs = self._rounds.step(prefix.tokens[:, -1], taps_of(prefix.before, self.taps))
        return self.behind(outputs)

    def prepare(self, nodes: int, rounds: int | None = None) -> None:
        self._rounds = Rounds(self._head, rounds or self.k, nodes)

    def branches(self, prefix: Prefix, layers: Layers | None) -> Branches:
        return _Branches(self, self._rounds)

    def behind(self, outputs: Tensor) -> Logits:
        """Return the logits that outputs (..., H) of the head mean."""
        return Logits(self._head.logits(outputs), self._head.ids, self._index)


class _Branches:
    """The head on its own outputs."""

    def __init__(self, drafter: TrainedHead, rounds: Rounds) -> None:
        self._drafter, self._tree = drafter, rounds.branches()

    def grow(self, parent: Tensor, tokens: Tensor) -> Logits:
        return self._drafter.behind(self._tree.grow(parent[None], tokens[None])[0])


def open_head(name: str, checkpoint: Path, target: Target, *kinds: str, why: str = "") -> tuple[Head, Card]:
    """Return a checkpoint's head of one of the kinds, and its card; DrafterError names the drafter, and says `why`."""
    try:
        head, card = load_head(checkpoint, target)
    except HeadError as error:
        raise DrafterError(f"drafter {name!r}: {error}") from error
    if head.kind not in kinds:
        held = f"{checkpoint} holds a head of kind {head.kind}"
        raise DrafterError(f"drafter {name!r}: {held}; allowed here: {' or '.join(kinds)}{why}")
    return head, card


def card_details(card: Card) -> dict[str, manifest.JSON]:
    """Return what a manifest says about a trained head."""
    return {
        "taps": list(card.taps),
        "vocabulary": card.width,
        "weights_sha256": card.weights_sha256,
        "texts_sha256": list(card.texts_sha256),
        "domains": list(card.domains),
        "training_tokens": card.training_tokens,
        "tokens_seen": card.tokens_seen,
        "steps": card.steps,
    }
