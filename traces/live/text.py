"""What is known of a text while it is decoded, and the drafters that follow it.

Rows and prefixes are those of `traces.collect`. A drafter's calls come in order of rows, one a row, whether it is asked
to draft there, scored afterwards, or only kept up; those that were not asked lag behind and catch up when they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from traces.collect import Job
from traces.drafters.base import Drafter, FlatDrafter, Logits, Prefix, Proposal, Reading, States, Trees
from traces.endings import Ending
from traces.sampling import Dense, OneHot, faults
from traces.scoring import Row, Scorer, blocks_of, score_columns
from traces.targets import Target

__all__ = ["DraftFault", "Scores", "Text", "Unit", "units_of"]

FLAT, DEEP = ("alpha_flat", "gamma_flat"), ("alpha_deep", "gamma_deep", "proposed", "match_length")


class DraftFault(ValueError):
    """A drafter failed: it raised, or its logits give no law."""

    def __init__(self, drafter: str, place: str, why: str) -> None:
        super().__init__(f"drafter {drafter!r} at {place}: {why}")
        self.drafter = drafter


class Text:
    """One text: its tokens and, of each row that a drafter may still ask for, the target's law and hidden states.

    written : the tokens so far, the first one included; rows = len(written) - 1 have been verified
    """

    def __init__(self, job: Job, ending: Ending, states: States, layers: Sequence[int] = ()) -> None:
        """states : the target's at the prompt, of the layers that drafters read there. layers : those kept of rows."""
        self.job, self.ending, self.stop = job, ending, ""
        self._layers = {layer: place for place, layer in enumerate(layers)}
        self.written: list[int] = []
        self._prompt, self._states = len(job.ids), states
        self._tokens = torch.full((1, self._prompt + ending.room(0)), -1, dtype=torch.int64)
        self._tokens[0, : self._prompt] = torch.tensor(job.ids)
        self._laws: dict[int, Dense | OneHot] = {}
        self._hidden: dict[int, Tensor] = {}  # row -> (layers, H), at the last token of its prefix

    @property
    def rows(self) -> int:
        """Rows verified."""
        return len(self.written) - 1

    @property
    def capacity(self) -> int:
        """Most tokens that the text can have, prompt included."""
        return self._tokens.shape[1]

    @property
    def prompt(self) -> Tensor:
        """(1, P) int64."""
        return self._tokens[:, : self._prompt]

    @property
    def states(self) -> States:
        """The target's states at the prompt, of the layers that drafters read there."""
        return self._states

    def append(self, token: int) -> bool:
        """Add a token; return whether the text ends with it."""
        self._tokens[0, self._prompt + len(self.written)] = token
        self.written.append(token)
        self.stop = self.ending.after(self.written)
        return bool(self.stop)

    def keep(self, row: int, law: Dense | OneHot | None, hidden: Tensor | None) -> None:
        """Remember a row: the target's law (one row), its states (layers, H) at the last token of the prefix."""
        if law is not None:
            self._laws[row] = law
        if hidden is not None:
            self._hidden[row] = hidden

    def forget(self, row: int) -> None:
        """Forget rows before `row`, all but what the row itself is drafted from."""
        for kept, end in ((self._laws, row), (self._hidden, row - 1)):
            for old in [each for each in kept if each < end]:
                del kept[old]

    def law(self, rows: Sequence[int]) -> Dense | OneHot:
        """Return the target's law at rows, as one law of as many rows."""
        laws = [self._laws[row] for row in rows]
        if isinstance(laws[0], OneHot):
            return OneHot(torch.cat([law.token for law in laws if isinstance(law, OneHot)]))
        dense = [law for law in laws if isinstance(law, Dense)]
        return Dense(torch.cat([law.probs for law in dense]), torch.cat([law.total for law in dense]))

    def tokens(self, rows: Sequence[int]) -> Tensor:
        """Return the tokens (C,) at rows, where their laws are."""
        law = self._laws[rows[0]]
        device = law.token.device if isinstance(law, OneHot) else law.probs.device
        return torch.tensor([self.written[1 + row] for row in rows], dtype=torch.int64, device=device)

    def _states_at(self, rows: Sequence[int]) -> States:
        return _Rows(self._hidden, rows, self._layers)

    def prefix(self, rows: Sequence[int], ahead: States | None = None) -> Prefix:
        """Return the prefix of the last of some successive rows, with the states at the last tokens of all.

        ahead : the states at the last token, of a row that the target has not read yet
        """
        last = rows[-1]
        read = self._tokens[:, : self._prompt + 1 + last]
        before: States
        if rows[0] == 0:
            before = {layer: state[:, -1] for layer, state in self._states.items()}
        else:
            before = self._states_at([rows[0] - 1])
        return Prefix(read, self._states_at(rows) if ahead is None else ahead, before)


class _Rows(Mapping[int, Tensor]):
    """Hidden states of some rows, layer -> (C, H), put together when they are asked for."""

    def __init__(self, hidden: Mapping[int, Tensor], rows: Sequence[int], layers: Mapping[int, int]) -> None:
        self._hidden, self._rows, self._layers = hidden, rows, layers

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._layers)

    def __getitem__(self, layer: int) -> Tensor:
        place = self._layers[layer]
        return torch.stack([self._hidden[row][place] for row in self._rows])


@dataclass
class Scores:
    """How all drafters did on the rows of one text: the columns of a trace, rows that were skipped NaN in alpha.

    Arrays as in `hedgelab.storage.columns`, with room for every row that the text may get.
    """

    flat: tuple[int, ...]  # drafters of the flat block, of the deep block
    deep: tuple[int, ...]
    columns: dict[str, NDArray]

    @classmethod
    def empty(cls, rows: int, drafters: Sequence[Drafter], k: int) -> Scores:
        """Return scores of no row yet."""
        flat, deep = blocks_of(drafters, k)
        return cls(flat, deep, score_columns((rows,), len(flat), len(deep), k, np.nan))

    def put(self, row: int, scores: Row, drafters: Sequence[int], scorer: Scorer) -> None:
        """Write the scores of some drafters at rows from `row` on; `scorer` made them, in the order of `drafters`."""
        rows = slice(row, row + len(scores.confidence))
        self.columns["confidence"][rows, list(drafters)] = scores.confidence.numpy()
        for names, block, own in ((FLAT, self.flat, scorer.flat), (DEEP, self.deep, scorer.deep)):
            if own:
                places = [block.index(drafters[i]) for i in own]
                for name in names:
                    self.columns[name][rows, ..., places] = getattr(scores, name).numpy()

    @property
    def alpha_flat(self) -> NDArray[np.float32]:
        return self.columns["alpha_flat"]

    @property
    def gamma_flat(self) -> NDArray[np.float32]:
        return self.columns["gamma_flat"]

    @property
    def alpha_deep(self) -> NDArray[np.float32]:
        return self.columns["alpha_deep"]

    @property
    def gamma_deep(self) -> NDArray[np.float32]:
        return self.columns["gamma_deep"]

    @property
    def flat_columns(self) -> NDArray[np.int64]:
        return np.array(self.flat, np.int64)

    @property
    def deep_columns(self) -> NDArray[np.int64]:
        return np.array(self.deep, np.int64)


def units_of(drafters: Sequence[Drafter]) -> list[tuple[int, ...]]:
    """Return the drafters, as indices, in groups that are evaluated together: a reading with the drafter it reads."""
    place = {drafter: i for i, drafter in enumerate(drafters)}
    groups: dict[int, list[int]] = {}
    for i, drafter in enumerate(drafters):
        groups.setdefault(place[drafter.over] if isinstance(drafter, Reading) else i, []).append(i)
    return [tuple(group) for group in groups.values()]


class Unit:
    """Drafters of one text that move together: one on its own, or one with all that read it.

    rows : how many rows their calls have been made for, whether scored or not
    """

    def __init__(
        self,
        members: Mapping[int, Drafter],
        target: Target,
        k: int,
        clock: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self.members, self.rows = dict(members), 0
        self._names = list(members)
        self._bases = [drafter for drafter in members.values() if not isinstance(drafter, Reading)]
        self._scorer = Scorer(target, list(members.values()), k, _sound, clock)
        self._flat = all(isinstance(drafter, FlatDrafter) for drafter in members.values())
        self._begun = self._open = False
        self._skipped = False  # whether the rounds that the scorer follows have missed a row

    def found(self, i: int, text: Text, ahead: States) -> tuple[Prefix, Logits | Proposal | Trees]:
        """Return what drafter i says at the next round's first row, and the prefix there: all before have been read.

        ahead : the target's states at the last token, which it has not read yet
        """
        assert self.rows == text.rows
        prefix = text.prefix([self.rows], ahead)
        self._begin(text)
        if not self._open:
            self._enter(text, prefix)
            self._open = True
        return prefix, self._scorer.found(self.members[i])

    def follow(self, text: Text, upto: int, scores: Scores | None = None, since: int = 0) -> None:
        """Make the calls of all rows before `upto`, and score those from `since` on."""
        self._begin(text)
        if self._open and self.rows < upto:
            self._open = False
            self._close(text, scores if self.rows >= since else None)
        if self._flat:
            if scores is None:
                since = upto
            self._block(text, min(since, upto), None)
            self._block(text, upto, scores)
        while self.rows < upto:
            self._enter(text, text.prefix([self.rows]))
            self._close(text, scores if self.rows >= since else None)

    def _begin(self, text: Text) -> None:
        if not self._begun:
            self._begun = True
            self._scorer.begin(1)
            for drafter in self.members.values():
                drafter.begin(text.prompt, text.capacity, text.states)

    def _enter(self, text: Text, prefix: Prefix) -> None:
        """Begin the next row. Behind rows that were not scored, only rounds that begin from here on are followed."""
        if self._skipped:
            self._scorer.begin(1)
            for drafter in self.members.values():
                if isinstance(drafter, Reading):
                    drafter.begin(text.prompt, text.capacity, text.states)
            self._skipped = False
        self._scorer.open(prefix, f"row {self.rows}")

    def _block(self, text: Text, upto: int, scores: Scores | None) -> None:
        """Make the calls of all rows before `upto` in one pass."""
        rows = range(self.rows, upto)
        if not rows:
            return
        prefix, place = text.prefix(rows), f"rows {rows[0]} to {rows[-1]}"
        if scores is None:
            for drafter in self._bases:
                assert isinstance(drafter, FlatDrafter)
                drafter.block(prefix, len(rows))
        else:
            found = self._scorer.rows(prefix, text.law(rows), text.tokens(rows), place)
            scores.put(rows[0], found, self._names, self._scorer)
        self.rows = upto

    def _close(self, text: Text, scores: Scores | None) -> None:
        """End the row that is open, scored or not."""
        row = self.rows
        if scores is None:
            for drafter in self._bases:  # whose calls keep them up with the text
                self._scorer.found(drafter)
            self._skipped = True
        else:
            found = self._scorer.close(text.law([row]), text.tokens([row]))
            scores.put(row, found, self._names, self._scorer)
        self.rows += 1


def _sound(logits: Tensor, model: str, place: str) -> None:
    for fault in faults(logits).values():
        raise DraftFault(model, place, f"its logits hold {fault}")
