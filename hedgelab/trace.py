"""A trace: one verified target path per prompt, every drafter scored on it. Immutable, read through memory maps.

On disk a trace is a folder: `manifest.json` (see hedgelab.manifest), safetensors shards (columns and encodings in
hedgelab.columns) and, outside the trace's hash, `measured.json` with what changes from run to run. `open_trace` checks
manifest, names, sizes, headers, dtypes and shapes, without reading columns; `Trace.validate_values` checks the values;
`check_trace` also hashes every byte.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.blocks import Block, Part
from hedgelab.columns import COLUMNS, STOPS, shape_of
from hedgelab.errors import TraceError
from hedgelab.manifest import FORMAT_VERSION, MANIFEST, MEASURED, Manifest
from hedgelab.shards import open_shard, read_file
from hedgelab.typed_json import unseal

__all__ = ["FORMAT_VERSION", "Part", "Trace", "TraceError", "open_trace", "sample_trace"]


class Trace:
    """A trace, or a selection of its sequences; made by `open_trace`, `Trace.from_arrays` and `Trace.select`.

    S sequences, T rows, N drafters, D = 1 where every drafter is flat, else k. All arrays are read-only.
    """

    def __init__(
        self, manifest: Manifest, blocks: Sequence[Block], folder: Path | None, base_sha256: str | None = None
    ) -> None:
        counts = [block.sequences for block in blocks]
        self.manifest = manifest
        self.folder = folder  # None in memory
        self._blocks = tuple(blocks)
        self._base_sha256 = base_sha256
        self._selected: NDArray[np.int64] | None = None  # sequences of the whole trace; None: all
        self._block = np.repeat(np.arange(len(counts)), counts)  # (S,) which block holds the sequence
        self._local = np.concatenate([np.zeros(0, np.int64), *(np.arange(count) for count in counts)])  # and where

    # -------------------------------------------------------------- what it is

    @property
    def k(self) -> int:
        """Draft length that deep blocks hold."""
        return self.manifest.k

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of the N drafters."""
        return tuple(drafter.name for drafter in self.manifest.drafters)

    @property
    def flat_columns(self) -> NDArray[np.int64]:
        """(N1,) drafter index of each column of the flat blocks."""
        return np.array(self.manifest.flat, np.int64)

    @property
    def deep_columns(self) -> NDArray[np.int64]:
        """(N2,) drafter index of each column of the deep blocks."""
        return np.array(self.manifest.deep, np.int64)

    @property
    def sequences(self) -> int:
        """S."""
        return len(self._block)

    @property
    def rows(self) -> int:
        """T."""
        return int(self.offsets[-1])

    def __repr__(self) -> str:
        return f"<Trace {self.manifest.name!r}: {self.sequences} sequences, {len(self.drafters)} drafters, k={self.k}>"

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of what the trace says: of the manifest's bytes, which hold the shards' hashes, and of the selection.

        In memory: of manifest and columns.
        """
        digest = self._base_sha256
        if digest is None:
            whole = hashlib.sha256(self.manifest.to_json().encode())
            for block in self._blocks:
                for name in COLUMNS:
                    if name in block.stored:
                        whole.update(block.stored[name].data)
            digest = whole.hexdigest()
        if self._selected is None:
            return digest
        return hashlib.sha256(digest.encode() + self._selected.astype("<i8").tobytes()).hexdigest()

    @functools.cached_property
    def measured(self) -> dict[str, Any]:
        """Content of measured.json (call costs, times, host): what varies from run to run. Empty if there is none."""
        if self.folder is None or not (self.folder / MEASURED).exists():
            return {}
        document, problems = unseal(read_file(self.folder / MEASURED), MEASURED)
        if document is None or problems:
            raise TraceError(*problems)
        return document

    # -------------------------------------------------------------- sequences

    @functools.cached_property
    def _begin_end(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        begin, end = np.empty((2, self.sequences), np.int64)
        for b, block in enumerate(self._blocks):
            mine = self._block == b
            if mine.any():
                begin[mine] = block.offsets[self._local[mine]]
                end[mine] = block.offsets[self._local[mine] + 1]
        return begin, end

    @functools.cached_property
    def offsets(self) -> NDArray[np.int64]:
        """(S+1,) rows of sequence s are offsets[s]:offsets[s+1]."""
        begin, end = self._begin_end
        return _frozen(np.concatenate([np.zeros(1, np.int64), np.cumsum(end - begin)]))

    @functools.cached_property
    def sequence_id(self) -> NDArray[np.int64]:
        """(S,) unique in a trace, repeated where a selection repeats; keys the coins."""
        return self._of_sequences("sequence_id")

    @functools.cached_property
    def domains(self) -> NDArray[np.str_]:
        """(S,) domain name of each sequence."""
        return _named(self.manifest.domains, self._of_sequences("domain"))

    @functools.cached_property
    def stop(self) -> NDArray[np.str_]:
        """(S,) why each sequence ended, one of columns.STOPS."""
        return _named(STOPS, self._of_sequences("stop"))

    @functools.cached_property
    def first_token(self) -> NDArray[np.int32]:
        """(S,) the token that prefill makes, which is not a row; -1 where a given path does not say."""
        return self._of_sequences("first_token")

    @functools.cached_property
    def prompt_ids(self) -> NDArray[np.str_]:
        """(S,) name of each prompt."""
        return _frozen(np.array([self._piece("prompt_id", s).tobytes().decode() for s in range(self.sequences)], str))

    def prompt_tokens(self, sequence: int) -> NDArray[np.int32]:
        """Return the token ids of a sequence's prompt, (P,)."""
        if not 0 <= sequence < self.sequences:
            raise IndexError(f"sequence {sequence}; allowed: 0 to {self.sequences - 1}")
        return self._piece("prompt_token", sequence)

    def _piece(self, name: str, sequence: int) -> NDArray:
        block, i = self._blocks[self._block[sequence]], self._local[sequence]
        offsets = block["prompt_offsets" if name == "prompt_token" else "prompt_id_offsets"]
        return block[name][offsets[i] : offsets[i + 1]]

    def _of_sequences(self, name: str) -> NDArray:
        column = COLUMNS[name]
        shape = (self.sequences, *(32 for _ in column.shape[1:]))
        values = np.empty(shape, np.dtype(column.dtype).newbyteorder("="))
        for b, block in enumerate(self._blocks):
            mine = self._block == b
            values[mine] = block[name][self._local[mine]]
        return _frozen(values)

    # -------------------------------------------------------------- rows

    @functools.cached_property
    def _runs(self) -> list[tuple[Block, slice]]:
        """The longest ranges of rows that, one after the other, are the rows of this trace."""
        begin, end = self._begin_end
        new = np.ones(self.sequences, bool)
        new[1:] = (self._block[1:] != self._block[:-1]) | (begin[1:] != end[:-1])
        first = np.flatnonzero(new)
        last = np.append(first[1:], self.sequences) - 1
        return [
            (self._blocks[self._block[i]], slice(int(begin[i]), int(end[j]))) for i, j in zip(first, last, strict=False)
        ]

    def _of_rows(self, name: str) -> NDArray:
        """Return a column: a view where the rows lie in one piece, else gathered."""
        pieces = [block[name][rows] for block, rows in self._runs]
        if len(pieces) == 1:
            return pieces[0]
        column = COLUMNS[name]
        empty = np.empty(shape_of(column, {**self.manifest.sizes, "T": 0}), np.dtype(column.dtype).newbyteorder("="))
        return _frozen(np.concatenate([empty, *pieces]))

    @functools.cached_property
    def token(self) -> NDArray[np.int32]:
        """(T,) the path, EOS included."""
        return self._of_rows("token")

    @functools.cached_property
    def alpha(self) -> NDArray[np.float32]:
        """(T, D, N) chance that a drafter's draft at this row and depth is accepted, given the path's next token.

        Flat drafters repeat over depth. A view where all drafters are flat, or all deep, and the rows lie in one piece.
        """
        return self._by_depth("alpha")

    @functools.cached_property
    def gamma(self) -> NDArray[np.float32]:
        """(T, D, N) chance of acceptance before the next token is known; NaN where the path had left the draft."""
        return self._by_depth("gamma")

    def _by_depth(self, name: str) -> NDArray[np.float32]:
        flat, deep = self.flat_columns, self.deep_columns
        if not len(deep):
            return self._of_rows(name + "_flat")[:, None, :]
        if not len(flat):
            return self._of_rows(name + "_deep")
        values = np.empty((self.rows, self.k, len(flat) + len(deep)), np.float32)
        values[:, :, flat] = self._of_rows(name + "_flat")[:, None, :]
        values[:, :, deep] = self._of_rows(name + "_deep")
        return _frozen(values)

    @functools.cached_property
    def proposed(self) -> NDArray[np.int16]:
        """(T, N) drafts that a round starting here proposes; k for flat drafters."""
        return self._spread("proposed", self.k)

    @functools.cached_property
    def match_length(self) -> NDArray[np.int16]:
        """(T, N) length of a lookup drafter's match, 0 for none and for flat drafters."""
        return self._spread("match_length", 0)

    def _spread(self, name: str, flat: int) -> NDArray[np.int16]:
        values = np.full((self.rows, len(self.drafters)), flat, np.int16)
        values[:, self.deep_columns] = self._of_rows(name)
        return _frozen(values)

    @functools.cached_property
    def confidence(self) -> NDArray[np.float32]:
        """(T, N) the drafter's own top probability before drafting; NaN where it proposes nothing or nobody knows."""
        return self._of_rows("confidence")

    @functools.cached_property
    def target_logprob(self) -> NDArray[np.float32]:
        """(T,) natural log-probability of the token under the processed target law."""
        return self._of_rows("target_logprob")

    @functools.cached_property
    def target_entropy(self) -> NDArray[np.float32]:
        """(T,) entropy of the processed target law, nats."""
        return self._of_rows("target_entropy")

    @functools.cached_property
    def target_top2_margin(self) -> NDArray[np.float32]:
        """(T,) raw logit of the target's first choice minus that of its second."""
        return self._of_rows("target_top2_margin")

    # -------------------------------------------------------------- for engines

    def parts(self) -> Iterator[Part]:
        """Yield the trace in order, cut where the shard changes; nothing is copied but the indices of sequences."""
        begin, end = self._begin_end
        bounds = np.flatnonzero(np.diff(self._block, prepend=-1, append=-1))
        for first, last in itertools.pairwise(bounds):
            block = self._blocks[self._block[first]]
            mine = slice(int(first), int(last))
            yield Part(
                alpha_flat=block["alpha_flat"],
                gamma_flat=block["gamma_flat"],
                alpha_deep=block["alpha_deep"],
                gamma_deep=block["gamma_deep"],
                proposed=block["proposed"],
                match_length=block["match_length"],
                confidence=block["confidence"],
                begin=_frozen(begin[mine]),
                end=_frozen(end[mine]),
                sequence_id=self.sequence_id[mine],
                position=_frozen(np.arange(first, last)),
            )

    def select(self, which: ArrayLike) -> Trace:
        """Return the trace of some sequences: a mask (S,) of bool, or indices in any order, repeats allowed.

        Nothing is copied; TraceError where nothing is selected or an index lies outside 0 to S-1.

        >>> trace = Trace.from_arrays(token=[1, 2, 3], alpha=[[0.5], [1], [0]], gamma=[[0.5], [1], [0]],
        ...                           offsets=[0, 2, 3], domains=["code", "chat"], drafters=["lookup"], k=4)
        >>> trace.select(trace.domains == "chat").token
        array([3], dtype=int32)
        """
        index = np.asarray(which)
        if index.dtype == bool:
            if index.shape != (self.sequences,):
                raise TraceError(f"select: mask of shape {index.shape}; allowed: ({self.sequences},)")
            index = np.flatnonzero(index)
        if index.size == 0:
            raise TraceError("select: no sequence is selected; allowed: at least one")
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise TraceError(f"select: {index.dtype} of shape {index.shape}; allowed: a mask, or indices of shape (s,)")
        outside = (index < 0) | (index >= self.sequences)
        if outside.any():
            raise TraceError(f"select: index {index[outside.argmax()]}; allowed: 0 to {self.sequences - 1}")
        index = index.astype(np.int64)
        selection = Trace.__new__(Trace)
        selection.manifest, selection.folder = self.manifest, self.folder
        selection._blocks, selection._base_sha256 = self._blocks, self._base_sha256
        selection._block, selection._local = self._block[index], self._local[index]
        selection._selected = index if self._selected is None else self._selected[index]
        return selection

    # -------------------------------------------------------------- checks

    def validate_values(self) -> None:
        """Raise a TraceError with every problem of the values, each with its shard, row and drafter; cached.

        Ranges of every column; gamma is NaN only in deep blocks where alpha is 0; both are 0 where nothing was
        proposed; sequences are not empty, their ids unique; prompts match their hashes. A trace with bandit feedback
        may also have NaN in alpha and gamma: what was not observed.
        """
        if self._value_problems:
            raise TraceError(*self._value_problems)

    @functools.cached_property
    def _value_problems(self) -> tuple[str, ...]:
        problems = [problem for block in self._blocks for problem in block.problems]
        if len(self._blocks) > 1:
            ids = np.concatenate([block["sequence_id"] for block in self._blocks])
            names, counts = np.unique(ids, return_counts=True)
            if (counts > 1).any():
                problems.append(f"sequence_id: {names[counts.argmax()]} appears {counts.max()} times; allowed: once")
        return tuple(dict.fromkeys(problems))

    def check(self) -> list[str]:
        """Return everything that is wrong with the whole trace on disk, see `checking.check_trace`, or in memory."""
        from hedgelab.checking import check_trace  # it opens traces

        return list(self._value_problems) if self.folder is None else check_trace(self.folder)

    # -------------------------------------------------------------- other ways in and out

    @staticmethod
    def from_arrays(
        *,
        token: ArrayLike,
        alpha: ArrayLike,
        gamma: ArrayLike,
        offsets: ArrayLike,
        domains: Sequence[str],
        drafters: Sequence[str],
        k: int,
        feedback: str = "full",
        proposed: ArrayLike | None = None,
        confidence: ArrayLike | None = None,
        sequence_id: ArrayLike | None = None,
        depths: Sequence[int] | None = None,
    ) -> Trace:
        """Return a trace in memory, of copies of the arrays; TraceError lists every problem of shapes and values.

        token : (T,) int. alpha, gamma : (T, N), (T, 1, N) or (T, k, N) in [0, 1], see `Trace.alpha`; gamma may be NaN
        where a deep alpha is 0. offsets : (S+1,) int, ascending from 0 to T. domains : S names. drafters : N names.
        proposed : (T, N) int in 0 to k, default k. confidence : (T, N) in [0, 1] or NaN, default NaN. sequence_id :
        (S,) int, unique, default 0 to S-1. depths : N times 1 or k, default what the shape of alpha says; a drafter of
        depth 1 in an alpha of k depths must be constant over depth.

        >>> trace = Trace.from_arrays(token=[7, 8], alpha=[[0.5, 1], [0, 1]], gamma=[[0.5, 1], [0.25, 1]],
        ...                           offsets=[0, 2], domains=["code"], drafters=["ngram", "lookup"], k=5)
        >>> trace.alpha.shape
        (2, 1, 2)
        """
        from hedgelab.arrays import trace_from_arrays  # it makes traces

        return trace_from_arrays(
            token, alpha, gamma, offsets, domains, drafters, k, feedback, proposed, confidence, sequence_id, depths
        )


def _frozen(values: NDArray) -> NDArray:
    values.flags.writeable = False
    return values


def _named(names: Sequence[str], index: NDArray) -> NDArray[np.str_]:
    if index.size and not (index.min() >= 0 and index.max() < len(names)):
        raise TraceError(f"a name index lies outside 0 to {len(names) - 1}; `check` tells where")
    return _frozen(np.array(names, str)[index])


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Return the trace in a folder, complete or not, as views of memory maps; columns are not read.

    TraceError lists every problem of manifest, file sizes, headers, names, dtypes and shapes.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise TraceError(f"{folder}: {'is not a folder' if folder.exists() else 'no such folder'}")
    raw = read_file(folder / MANIFEST)
    manifest = Manifest.from_json(raw)
    blocks, problems = open_blocks(folder, manifest)
    if problems:
        raise TraceError(*problems)
    return Trace(manifest, blocks, folder, hashlib.sha256(raw).hexdigest())


def open_blocks(folder: Path, manifest: Manifest) -> tuple[list[Block], list[str]]:
    """Return the shards that can be opened, and the problems of those that can't."""
    blocks: list[Block] = []
    problems: list[str] = []
    for shard in manifest.shards:
        try:
            stored, sizes = open_shard(folder, shard, manifest)
        except TraceError as error:
            problems += error.problems
        else:
            blocks.append(Block(manifest, shard.file, stored, sizes, shard.sequences))
    return blocks, problems


def sample_trace(name: str) -> Trace:
    """Return a trace that comes with the package; TraceError names those there are."""
    data = Path(__file__).resolve().parent / "data"
    names = sorted(path.parent.name for path in data.glob(f"*/{MANIFEST}"))
    if name not in names:
        raise TraceError(f"no sample trace {name!r}; there are: {', '.join(names) or 'none'}")
    return open_trace(data / name)
