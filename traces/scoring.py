"""How every drafter does on a text, row by row: alpha and gamma of each, at every depth of a draft.

The collector and the live decoder use this; see `traces.collect` for what a row is. Nothing here draws a token: the
target's law and the text's token are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from traces.acceptance import alpha_gamma, deep_alpha_gamma
from traces.drafters.base import (
    PAD,
    DeepDrafter,
    DeepLaws,
    Drafter,
    FlatDrafter,
    Logits,
    Prefix,
    Proposal,
    Reading,
    TreeDrafter,
    Trees,
)
from traces.sampling import Dense, Law, OneHot, faults, process, top_probability
from traces.targets import Target
from traces.trees import Followed

__all__ = ["Row", "Scorer", "blocks_of", "score_columns"]


@dataclass(frozen=True)
class Row:
    """Scores of N drafters at one row of B texts, as the columns of a trace hold them; on the CPU.

    confidence : (B, N); alpha_flat, gamma_flat : (B, N1); alpha_deep, gamma_deep : (B, k, N2); proposed, match_length :
    (B, N2). laws : of each drafter at the first draft, `OneHot` of PAD where there is none
    """

    confidence: Tensor
    alpha_flat: Tensor
    gamma_flat: Tensor
    alpha_deep: Tensor
    gamma_deep: Tensor
    proposed: Tensor
    match_length: Tensor
    laws: tuple[Law, ...]


@dataclass(frozen=True)
class _Score:
    """One drafter's. alpha, gamma : (B, D), D being how many rounds have begun, or fewer that draft less deep."""

    alpha: Tensor
    gamma: Tensor
    law: Law
    confidence: Tensor
    proposed: Tensor
    match: Tensor


class Scorer:
    """Drafters that follow a batch of texts.

    k : depths of a draft. sound : called with (logits (B, W), a drafter's name, place), may overwrite rows that give no
    law. clock : called with the name of a part, times the block
    """

    def __init__(
        self,
        target: Target,
        drafters: Sequence[Drafter],
        k: int,
        sound: Callable[[Tensor, str, str], None],
        clock: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._target, self._drafters, self._k, self._sound, self._clock = target, drafters, k, sound, clock
        self.flat, self.deep = blocks_of(drafters, k)

    def begin(self, texts: int) -> None:
        """Begin with rows 0 of so many texts."""
        k, drafters = self._k, self._drafters
        certain = [i for i, d in enumerate(drafters) if isinstance(d, DeepDrafter | DeepLaws)]
        self._begun = 0
        self._followed = {i: Followed(texts, k) for i, d in enumerate(drafters) if isinstance(d, TreeDrafter)}
        self._rounds = {i: torch.full((texts, k, k), PAD, dtype=torch.int64) for i in certain}
        self._alive = {i: torch.zeros(texts, k, dtype=torch.bool) for i in certain}

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""
        for followed in self._followed.values():
            followed.keep(rows)
        self._rounds = {i: rounds[rows] for i, rounds in self._rounds.items()}
        self._alive = {i: alive[rows] for i, alive in self._alive.items()}

    def row(self, prefix: Prefix, law: Dense | OneHot, token: Tensor, place: str) -> Row:
        """Return the scores of the next row: the texts so far, the target's law there and their next token (B,)."""
        self.open(prefix, place)
        return self.close(law, token)

    def rows(self, prefix: Prefix, law: Dense | OneHot, token: Tensor, place: str) -> Row:
        """Return the scores of the next C rows of one text, each as if it were a text: all drafters must be flat.

        prefix : up to the last of these rows, `hidden` (C, H) at the last tokens of all. law : of C rows; token : (C,)
        """
        self.open(prefix, place)
        for drafter in self._drafters:
            assert isinstance(drafter, FlatDrafter)
            with self._clock(f"forward: {drafter.name}"):
                found = drafter.block(prefix, len(token))
            self._found[drafter] = self._possible(drafter, found)
        return self.close(law, token)

    def open(self, prefix: Prefix, place: str) -> None:
        """Begin the next row: the texts so far, and what errors call it."""
        self._begun = min(self._begun + 1, self._k)
        self._prefix, self._place = prefix, place
        self._found: dict[Drafter, Logits] = {}  # this row's, computed once for all that read them
        self._drafted: dict[Drafter, Proposal | Trees] = {}

    def close(self, law: Dense | OneHot, token: Tensor) -> Row:
        """Return the scores of the row that is open: the target's law there and the texts' next token (B,)."""
        batch, count, k = len(token), len(self._drafters), self._k
        confidence = torch.empty(batch, count)
        columns = {name: torch.zeros(batch, k, len(self.deep)) for name in ("alpha_deep", "gamma_deep")}
        columns |= {name: torch.empty(batch, len(self.flat)) for name in ("alpha_flat", "gamma_flat")}
        numbers = {name: torch.zeros(batch, len(self.deep), dtype=torch.int64) for name in ("proposed", "match_length")}
        laws = []
        for i in range(count):
            score = self._score(i, law, token)
            laws.append(score.law)
            confidence[:, i] = score.confidence
            if i in self.flat:
                column = self.flat.index(i)
                columns["alpha_flat"][:, column] = score.alpha[:, 0]
                columns["gamma_flat"][:, column] = score.gamma[:, 0]
            else:
                column, depths = self.deep.index(i), score.alpha.shape[1]
                columns["alpha_deep"][:, :depths, column] = score.alpha
                columns["gamma_deep"][:, :depths, column] = score.gamma
                numbers["proposed"][:, column] = score.proposed
                numbers["match_length"][:, column] = score.match
        return Row(confidence=confidence, laws=tuple(laws), **columns, **numbers)

    def found(self, drafter: Drafter) -> Logits | Proposal | Trees:
        """Return what a drafter says at the row that is open; of a reading, what the drafter that it reads says."""
        if isinstance(drafter, Reading):
            return self.logits(drafter.over)
        if isinstance(drafter, FlatDrafter | DeepLaws):
            return self.logits(drafter)
        if isinstance(drafter, TreeDrafter):
            return self.trees(drafter)
        assert isinstance(drafter, DeepDrafter)
        return self.proposal(drafter)

    def logits(self, drafter: FlatDrafter | DeepLaws) -> Logits:
        """Return a drafter's logits (B, D, W) of the D rounds that have begun; D is 1 for a flat one."""
        if drafter not in self._found:
            with self._clock(f"forward: {drafter.name}"):
                found = drafter.logits(self._prefix)
            self._found[drafter] = self._possible(drafter, found)
        return self._found[drafter]

    def proposal(self, drafter: DeepDrafter) -> Proposal:
        """Return what a drafter proposes at the row that is open."""
        if drafter not in self._drafted:
            with self._clock(f"forward: {drafter.name}"):
                self._drafted[drafter] = drafter.propose(self._prefix)
        found = self._drafted[drafter]
        assert isinstance(found, Proposal)
        return found

    def trees(self, drafter: TreeDrafter) -> Trees:
        """Return a drafter's trees at the row that is open."""
        if drafter not in self._drafted:
            with self._clock(f"forward: {drafter.name}"):
                trees = drafter.trees(self._prefix)
            if trees.faulty is not None:
                self._sound(torch.where(trees.faulty, torch.nan, 0.0)[:, None], drafter.name, self._place)
            self._drafted[drafter] = trees
        found = self._drafted[drafter]
        assert isinstance(found, Trees)
        return found

    def _score(self, i: int, law: Dense | OneHot, token: Tensor) -> _Score:
        drafter = self._drafters[i]
        if isinstance(drafter, FlatDrafter | DeepLaws):
            return self._of_laws(i, drafter, law, token)
        if isinstance(drafter, Reading):
            return self._of_reading(drafter, law, token)
        if isinstance(drafter, TreeDrafter):
            return self._of_trees(i, drafter, law, token)
        assert isinstance(drafter, DeepDrafter)
        proposal = self.proposal(drafter)
        with self._clock(f"processing: {drafter.name}"):
            rounds = torch.cat([proposal.tokens[:, None], self._rounds[i][:, :-1]], 1)
            self._rounds[i] = rounds
            places = torch.arange(self._k)
            # what the round of a rows ago drafted at its depth a
            alpha, gamma = self._certain(i, rounds[:, places, places], law, token)
            proposed = (proposal.tokens != PAD).sum(1)
            sure = torch.where(proposed > 0, 1.0, torch.nan)
            first = OneHot(proposal.tokens[:, 0].to(token.device))
            return _Score(alpha, gamma, first, sure, proposed, proposal.match)

    def _of_laws(self, i: int, drafter: FlatDrafter | DeepLaws, law: Dense | OneHot, token: Tensor) -> _Score:
        """Score a chain drawn from a law; its rounds that would have begun before row 0 have drafted nothing."""
        found = self.logits(drafter)
        values = found.values
        batch, depths, _ = values.shape
        with self._clock(f"processing: {drafter.name}"):
            each = process(values.flatten(0, 1), drafter.processing, found.ids, found.index)  # all depths in one pass
            first = each.rows(slice(None, None, depths))
            if isinstance(each, OneHot) and isinstance(drafter, DeepLaws):
                # a round goes on only while its drafts are the text, as with any certain ones
                here = F.pad(each.token.view(-1, depths), (0, self._k - depths), value=PAD).cpu()
                alpha, gamma = self._certain(i, here, law, token)
            else:
                alpha, gamma = (scores.view(batch, depths).cpu() for scores in alpha_gamma(law, each, token))
            sure = top_probability(values[:, 0], first).cpu()
        k = drafter.k if isinstance(drafter, DeepLaws) else self._k
        return _Score(alpha, gamma, first, sure, _all(batch, min(k, self._k)), _all(batch, 0))

    def _of_reading(self, drafter: Reading, law: Dense | OneHot, token: Tensor) -> _Score:
        found = self.logits(drafter.over)
        with self._clock(f"processing: {drafter.name}"):
            depths, batch = min(self._begun, drafter.k), len(token)
            values = found.values[:, :depths].expand(-1, depths, -1)
            alpha, gamma = drafter.score(Logits(values, found.ids, found.index), law, token)
            first = process(values[:, 0], drafter.processing, found.ids, found.index)
            sure = top_probability(values[:, 0], first).cpu()
            if drafter.rule == "tree":
                first = OneHot(torch.full_like(token, PAD))
        return _Score(alpha.cpu(), gamma.cpu(), first, sure, _all(batch, drafter.k), _all(batch, 0))

    def _of_trees(self, i: int, drafter: TreeDrafter, law: Dense | OneHot, token: Tensor) -> _Score:
        trees = self.trees(drafter)
        with self._clock(f"processing: {drafter.name}"):
            alpha, gamma = self._followed[i].step(trees, law, token)
            proposed = self._followed[i].deepest
            sure = torch.ones(len(token)) if trees.confidence is None else trees.confidence.cpu().float()
            match = _all(len(token), 0) if trees.match is None else trees.match
        first = OneHot(torch.full_like(token, PAD))
        return _Score(alpha, gamma, first, torch.where(proposed > 0, sure, torch.nan), proposed, match)

    def _possible(self, drafter: FlatDrafter | DeepLaws, found: Logits) -> Logits:
        """Return logits (B, W) or (B, D, W) as those (B, D, W) of the rounds that have begun, looked through."""
        flat = isinstance(drafter, FlatDrafter)
        values = found.values[:, None] if flat else found.values[:, : self._begun]
        if found.ids is None:  # padded ids have probability 0
            values = self._target.known(values.flatten(0, 1)).unflatten(0, values.shape[:2])
        if faults(values.flatten(0, 1)):  # one look at all depths: on a GPU each look waits for it
            for depth in range(values.shape[1]):
                where = self._place if flat else f"{self._place}, depth {depth}"
                self._sound(values[:, depth], drafter.name, where)
        return Logits(values, found.ids, found.index)

    def _certain(self, i: int, here: Tensor, law: Dense | OneHot, token: Tensor) -> tuple[Tensor, Tensor]:
        """Score certain drafts here (B, k) of the rounds begun 0 .. k - 1 rows ago, PAD for none."""
        alive = self._alive[i]
        alive = torch.cat([torch.ones_like(alive[:, :1]), alive[:, :-1]], 1)
        alpha, gamma = deep_alpha_gamma(law, here.to(token.device), alive.to(token.device), token)
        self._alive[i] = alive & (here == token.cpu()[:, None])
        return alpha.cpu(), gamma.cpu()


def _all(texts: int, value: int) -> Tensor:
    return torch.full((texts,), value, dtype=torch.int64)


def blocks_of(drafters: Sequence[Drafter], k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return which drafters make the flat block of a trace, and which the deep one."""
    flat = tuple(i for i, drafter in enumerate(drafters) if isinstance(drafter, FlatDrafter) or k == 1)
    return flat, tuple(i for i in range(len(drafters)) if i not in flat)


def score_columns(lead: tuple[int, ...], flat: int, deep: int, k: int, fill: float) -> dict[str, np.ndarray]:
    """Return the columns of a trace that a `Row` fills, (*lead, ..) each, of so many flat and deep drafters.

    Floats are `fill` at first, counts 0.
    """
    shapes = {
        "confidence": (flat + deep,), "alpha_flat": (flat,), "gamma_flat": (flat,), "alpha_deep": (k, deep),
        "gamma_deep": (k, deep),
    }  # fmt: skip
    found = {name: np.full((*lead, *shape), fill, np.float32) for name, shape in shapes.items()}
    return found | {name: np.zeros((*lead, deep), np.int16) for name in ("proposed", "match_length")}
