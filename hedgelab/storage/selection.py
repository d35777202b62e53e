"""Some sequences of some shards, in any order: how their columns are gathered, and when nothing needs to be."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hedgelab.storage.blocks import Block, Part
from hedgelab.storage.columns import COLUMNS, shape_of

__all__ = ["Selection", "frozen"]


def frozen(values: NDArray) -> NDArray:
    """Return the array itself, made read-only."""
    values.flags.writeable = False
    return values


class Selection:
    """S sequences; the i-th is sequence `local[i]` of `blocks[block[i]]`."""

    def __init__(self, blocks: Sequence[Block], block: NDArray[np.int64], local: NDArray[np.int64]) -> None:
        self.blocks = tuple(blocks)
        self.block = block
        self.local = local

    @classmethod
    def whole(cls, blocks: Sequence[Block]) -> Selection:
        """Return the selection of all sequences."""
        counts = np.array([block.sequences for block in blocks], np.int64)
        block = np.repeat(np.arange(len(counts)), counts)
        return cls(blocks, block, np.arange(len(block)) - np.repeat(np.cumsum(counts) - counts, counts))

    def take(self, index: NDArray[np.int64]) -> Selection:
        """Return the selection of some of these sequences."""
        return Selection(self.blocks, self.block[index], self.local[index])

    def __len__(self) -> int:
        return len(self.block)

    # -------------------------------------------------------------- one entry a sequence

    @functools.cached_property
    def begin_end(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First row of each sequence in its block, and one past its last; TraceError where offsets are damaged."""
        begin, end = np.empty((2, len(self)), np.int64)
        for block, mine, local in self._by_block():
            begin[mine] = block.offsets[local]
            end[mine] = block.offsets[local + 1]
        return frozen(begin), frozen(end)

    @functools.cached_property
    def offsets(self) -> NDArray[np.int64]:
        """(S+1,) rows of sequence s are offsets[s]:offsets[s+1]."""
        begin, end = self.begin_end
        return _cumulated(end - begin)

    def per_sequence(self, name: str) -> NDArray:
        """Return a column that has one entry a sequence, gathered."""
        column = COLUMNS[name]
        values = np.empty(shape_of(column, {"S": len(self)}), column.dtype)
        for block, mine, local in self._by_block():
            values[mine] = block[name][local]
        return frozen(values)

    def piece(self, name: str, sequence: int) -> NDArray:
        """Return one sequence's piece of a ragged column, `prompt_token` or `prompt_id`."""
        block, i = self.blocks[self.block[sequence]], self.local[sequence]
        offsets = block.ragged_offsets(name)
        return block[name][offsets[i] : offsets[i + 1]]

    def ragged(self, name: str) -> tuple[NDArray, NDArray[np.int64]]:
        """Return a ragged column and its offsets, gathered."""
        pieces = [self.piece(name, s) for s in range(len(self))]
        empty = np.empty(0, COLUMNS[name].dtype)
        return np.concatenate([empty, *pieces]), _cumulated(np.array([len(piece) for piece in pieces], np.int64))

    def _by_block(self) -> Iterator[tuple[Block, NDArray[np.bool_], NDArray[np.int64]]]:
        for b, block in enumerate(self.blocks):
            mine = self.block == b
            if mine.any():
                yield block, mine, self.local[mine]

    # -------------------------------------------------------------- one entry a row

    @functools.cached_property
    def runs(self) -> list[tuple[Block, slice]]:
        """The longest ranges of rows that, one after the other, are the rows of this selection."""
        begin, end = self.begin_end
        new = np.ones(len(self), bool)
        new[1:] = (self.block[1:] != self.block[:-1]) | (begin[1:] != end[:-1])
        first = np.flatnonzero(new)
        last = np.append(first, len(self))[1:] - 1
        return [
            (self.blocks[self.block[i]], slice(int(begin[i]), int(end[j]))) for i, j in zip(first, last, strict=True)
        ]

    def per_row(self, name: str, sizes: dict[str, float]) -> NDArray:
        """Return a column that has one entry a row: a view where the rows lie in one piece, else gathered."""
        pieces = [block[name][rows] for block, rows in self.runs]
        if len(pieces) == 1:
            return pieces[0]
        column = COLUMNS[name]
        return frozen(np.concatenate([np.empty(shape_of(column, {**sizes, "T": 0}), column.dtype), *pieces]))

    def per_record(self, name: str, sizes: dict[str, float]) -> NDArray:
        """Return a column of the recorded logits, `logit_row` counted in the rows of this selection."""
        column = COLUMNS[name]
        pieces = [np.empty(shape_of(column, {**sizes, "R": 0}), column.dtype)]
        before = 0
        for block, rows in self.runs:
            low, high = np.searchsorted(block["logit_row"], [rows.start, rows.stop])
            moved = before - rows.start if name == "logit_row" else None
            piece = block[name][low:high]
            pieces.append(piece if moved is None else piece + moved)
            before += rows.stop - rows.start
        return frozen(np.concatenate(pieces))

    # -------------------------------------------------------------- for engines

    def parts(self, sequence_id: NDArray[np.int64]) -> Iterator[Part]:
        """Yield the sequences in order, cut where the block changes."""
        begin, end = self.begin_end
        bounds = np.flatnonzero(np.diff(self.block, prepend=-1, append=-1))
        for first, last in itertools.pairwise(bounds):
            block = self.blocks[self.block[first]]
            mine = slice(int(first), int(last))
            yield Part(
                alpha_flat=block["alpha_flat"],
                gamma_flat=block["gamma_flat"],
                alpha_deep=block["alpha_deep"],
                gamma_deep=block["gamma_deep"],
                proposed=block["proposed"],
                match_length=block["match_length"],
                confidence=block["confidence"],
                begin=begin[mine],
                end=end[mine],
                sequence_id=sequence_id[mine],
                position=frozen(np.arange(first, last)),
            )


def _cumulated(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return frozen(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))
