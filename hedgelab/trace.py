"""A trace: one verified target path per prompt, every drafter scored on it. Immutable, read through memory maps.

On disk a trace is a folder: `manifest.json` (see hedgelab.storage.manifest), safetensors shards (columns and
encodings in hedgelab.storage.columns) and, outside the trace's hash, `measured.json` with what changes from run to
run. `open_trace` checks manifest, names, sizes, headers, dtypes and shapes, without reading columns;
`Trace.validate_values` checks the values; `hedgelab.storage.checking.check_trace` also hashes every byte.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.storage.blocks import Block, Part
from hedgelab.storage.columns import COLUMNS, RAGGED, STOPS
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import FORMAT_VERSION, MANIFEST, MEASURED, Manifest
from hedgelab.storage.selection import Selection, frozen
from hedgelab.storage.shards import expected_columns, open_shard, read_file
from hedgelab.storage.typed_json import to_document, unseal

__all__ = ["ENGINE_COLUMNS", "FORMAT_VERSION", "Part", "Trace", "TraceError", "open_trace", "sample_trace"]


# what a decode loop reads
ENGINE_COLUMNS = ("alpha_flat", "gamma_flat", "alpha_deep", "gamma_deep", "proposed", "offsets", "sequence_id")


class Trace:
    """A trace, or a selection of its sequences; made by `open_trace`, `Trace.from_arrays` and `Trace.select`.

    S sequences, T rows, N drafters, D = 1 where every drafter is flat, else k. All arrays are read-only.
    """

    def __init__(
        self,
        manifest: Manifest,
        blocks: Sequence[Block],
        folder: Path | None,
        base_sha256: str | None = None,
        selection: Selection | None = None,
        selected: NDArray[np.int64] | None = None,
    ) -> None:
        self.manifest = manifest
        self.folder = folder  # None in memory
        self._blocks = tuple(blocks)
        self._base_sha256 = base_sha256
        self._selection = Selection.whole(blocks) if selection is None else selection
        self._selected = selected  # indices in the whole trace; None: all

    # -------------------------------------------------------------- what it is

    @property
    def k(self) -> int:
        """Draft length that deep blocks hold."""
        return self.manifest.k

    @functools.cached_property
    def drafters(self) -> tuple[str, ...]:
        """Names of the N drafters."""
        return tuple(drafter.name for drafter in self.manifest.drafters)

    @functools.cached_property
    def flat_columns(self) -> NDArray[np.int64]:
        """(N1,) drafter index of each column of the flat blocks."""
        return frozen(np.array(self.manifest.flat, np.int64))

    @functools.cached_property
    def deep_columns(self) -> NDArray[np.int64]:
        """(N2,) drafter index of each column of the deep blocks."""
        return frozen(np.array(self.manifest.deep, np.int64))

    @property
    def sequences(self) -> int:
        """S."""
        return len(self._selection)

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
                for name in sorted(block.stored):
                    whole.update(f"{name} {block.stored[name].shape}\n".encode())
                    whole.update(block.stored[name].reshape(-1).view(np.uint8).data)
            digest = whole.hexdigest()
        if self._selected is None:
            return digest
        return hashlib.sha256(digest.encode() + self._selected.astype("<i8").tobytes()).hexdigest()

    @functools.cached_property
    def measured(self) -> dict[str, Any]:
        """What measured.json says (call costs, times, host), which varies from run to run; empty if there is none."""
        if self.folder is None or not (self.folder / MEASURED).exists():
            return {}
        document, problems = unseal(read_file(self.folder / MEASURED), MEASURED)
        if document is None or problems:
            raise TraceError(*problems)
        return document

    # -------------------------------------------------------------- sequences

    @property
    def offsets(self) -> NDArray[np.int64]:
        """(S+1,) rows of sequence s are offsets[s]:offsets[s+1]."""
        return self._selection.offsets

    @functools.cached_property
    def sequence_id(self) -> NDArray[np.int64]:
        """(S,) unique in a trace, repeated where a selection repeats; keys the coins."""
        return self.column("sequence_id")

    @functools.cached_property
    def domains(self) -> NDArray[np.str_]:
        """(S,) domain name of each sequence."""
        return self._named("domain", self.manifest.domains)

    @functools.cached_property
    def stop(self) -> NDArray[np.str_]:
        """(S,) why each sequence ended, one of `columns.STOPS`."""
        return self._named("stop", STOPS)

    @functools.cached_property
    def first_token(self) -> NDArray[np.int32]:
        """(S,) the token that prefill makes, which is not a row; -1 where a given path does not say."""
        return self.column("first_token")

    @functools.cached_property
    def prompt_ids(self) -> NDArray[np.str_]:
        """(S,) name of each prompt."""
        names = [self._selection.piece("prompt_id", s).tobytes() for s in range(self.sequences)]
        try:
            return frozen(np.array([name.decode() for name in names], str))
        except UnicodeDecodeError:
            self.validate_values()  # says where
            raise

    @functools.cached_property
    def conversations(self) -> NDArray[np.str_]:
        """(S,) what is one observation for statistics: the prompt's name, of a later turn that of its conversation.

        A text whose prompt begins with the prompt and the answer of the text recorded before it (the sequence_id one
        lower) goes on with that conversation.
        """
        names = self.prompt_ids.tolist()
        place = {int(name): s for s, name in enumerate(self.sequence_id)}
        for s in np.argsort(self.sequence_id, kind="stable").tolist():
            before = place.get(int(self.sequence_id[s]) - 1)
            if before is None:
                continue
            rows = self.token[self.offsets[before] : self.offsets[before + 1]]
            said = np.concatenate([self.prompt_tokens(before), self.first_token[before : before + 1], rows])
            if np.array_equal(self.prompt_tokens(s)[: len(said)], said):
                names[s] = names[before]
        return frozen(np.array(names, str))

    @functools.cached_property
    def home_domains(self) -> NDArray[np.str_]:
        """(S,) domain in which each text's conversation began; that of the text itself unless it is a later turn."""
        later = self.conversations != self.prompt_ids
        first = dict(zip(self.prompt_ids[~later].tolist(), self.domains[~later].tolist(), strict=True))
        pairs = zip(self.conversations.tolist(), self.domains.tolist(), later.tolist(), strict=True)
        return frozen(np.array([first[name] if is_later else own for name, own, is_later in pairs], str))

    def prompt_tokens(self, sequence: int) -> NDArray[np.int32]:
        """Return the token ids of a sequence's prompt, (P,). IndexError outside 0 to S-1."""
        if not 0 <= sequence < self.sequences:
            raise IndexError(f"sequence {sequence}; allowed: 0 to {self.sequences - 1}")
        return self._selection.piece("prompt_token", sequence)

    def _named(self, column: str, names: Sequence[str]) -> NDArray[np.str_]:
        index = self.column(column)
        if index.size and (index.min() < 0 or index.max() >= len(names)):
            self.validate_values()  # says where
        return frozen(np.array(names, str)[index])

    # -------------------------------------------------------------- rows

    @functools.cached_property
    def token(self) -> NDArray[np.int32]:
        """(T,) the path, EOS included."""
        return self.column("token")

    @functools.cached_property
    def alpha(self) -> NDArray[np.float32]:
        """(T, D, N) probability that the path's token, d rows after the round's start, was an accepted draft.

        Flat drafters repeat over depth. A view where all drafters are flat, or all deep, and the rows lie in one piece.
        """
        return self._by_depth("alpha")

    @functools.cached_property
    def gamma(self) -> NDArray[np.float32]:
        """(T, D, N) mean of alpha over the target's law of that token; NaN where the path had left the draft."""
        return self._by_depth("gamma")

    def _by_depth(self, name: str) -> NDArray[np.float32]:
        flat, deep = self.flat_columns, self.deep_columns
        if not len(deep):
            return self.column(name + "_flat")[:, None, :]
        if not len(flat):
            return self.column(name + "_deep")
        values = np.empty((self.rows, self.k, len(flat) + len(deep)), np.float32)
        values[:, :, flat] = self.column(name + "_flat")[:, None, :]
        values[:, :, deep] = self.column(name + "_deep")
        return frozen(values)

    @functools.cached_property
    def proposed(self) -> NDArray[np.int16]:
        """(T, N) drafts that a round starting here proposes; k for flat drafters."""
        return self._for_all("proposed", self.k)

    @functools.cached_property
    def match_length(self) -> NDArray[np.int16]:
        """(T, N) length of a lookup drafter's match, 0 for none and for flat drafters."""
        return self._for_all("match_length", 0)

    def _for_all(self, name: str, flat: int) -> NDArray[np.int16]:
        values = np.full((self.rows, len(self.drafters)), flat, np.int16)
        values[:, self.deep_columns] = self.column(name)
        return frozen(values)

    @functools.cached_property
    def confidence(self) -> NDArray[np.float32]:
        """(T, N) the drafter's own top probability before drafting; NaN where it proposes nothing or nobody knows."""
        return self.column("confidence")

    @functools.cached_property
    def target_logprob(self) -> NDArray[np.float32]:
        """(T,) natural log-probability of the token under the processed target law; NaN where nobody knows."""
        return self.column("target_logprob")

    @functools.cached_property
    def target_entropy(self) -> NDArray[np.float32]:
        """(T,) entropy of the processed target law, nats; NaN where nobody knows."""
        return self.column("target_entropy")

    @functools.cached_property
    def target_top2_margin(self) -> NDArray[np.float32]:
        """(T,) raw logit of the target's first choice minus that of its second; NaN where nobody knows."""
        return self.column("target_top2_margin")

    def column(self, name: str) -> NDArray:
        """Return a column of `hedgelab.storage.columns.COLUMNS`, decoded, for these sequences.

        One entry a row: a view where the rows lie in one piece, else gathered. `logit_row` counts in the rows of this
        trace. TraceError where there is no such column.
        """
        known = [entry.name for entry in expected_columns(self.manifest)]
        if name not in known:
            raise TraceError(f"this trace has no column {name!r}; it has {', '.join(known)}")
        selection, sizes, lead = self._selection, self.manifest.sizes, COLUMNS[name].shape[0]
        if lead == "T":
            return selection.per_row(name, sizes)
        if lead == "S":
            return selection.per_sequence(name)
        if lead == "R":
            return selection.per_record(name, sizes)
        if name == "offsets":
            return selection.offsets
        return selection.ragged(RAGGED[name])[1] if name in RAGGED else selection.ragged(name)[0]

    # -------------------------------------------------------------- for engines

    def parts(self) -> Iterator[Part]:
        """Yield the trace in order, cut where the shard changes; nothing is copied but the indices of sequences."""
        return self._selection.parts(self.sequence_id)

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
        selected = index if self._selected is None else self._selected[index]
        return Trace(self.manifest, self._blocks, self.folder, self._base_sha256, self._selection.take(index), selected)

    def few_prompts(self, count: int) -> Trace:
        """Return the trace of `count` prompts of each domain, all texts of each: a fair cut, the same for every trace.

        Which ones is decided by the sha256 of their ids: recordings order prompts by length. A domain with fewer keeps
        all that it has. A conversation stays whole and counts for the domain of its first turn.

        >>> trace = Trace.from_arrays(token=[1, 2, 3], alpha=[[0.5], [1], [0]], gamma=[[0.5], [1], [0]],
        ...                           offsets=[0, 2, 3], domains=["code", "chat"], drafters=["lookup"], k=4)
        >>> trace.few_prompts(1).sequences
        2
        """
        kept: set[tuple[str, str]] = set()
        pairs = list(zip(self.home_domains.tolist(), self.conversations.tolist(), strict=True))
        for domain in self.manifest.domains:
            names = {name for home, name in pairs if home == domain}
            chosen = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:count]
            kept |= {(domain, name) for name in chosen}
        return self.select(np.array([pair in kept for pair in pairs], bool))

    def among(self, drafters: Sequence[str]) -> Trace:
        """Return the trace of some drafters, in its own order, for every policy to choose among them alone.

        Their columns are copied into memory. TraceError names drafters that there are not.

        >>> trace = Trace.from_arrays(token=[1, 2], alpha=[[0.5, 1], [0, 1]], gamma=[[0.5, 1], [0, 1]], offsets=[0, 2],
        ...                           domains=["code"], drafters=["ngram", "lookup"], k=4)
        >>> trace.among(["lookup"])
        <Trace 'arrays': 1 sequences, 1 drafters, k=4>
        """
        from hedgelab.storage.narrowing import narrowed  # it makes traces

        return narrowed(self, drafters)

    # -------------------------------------------------------------- checks

    def validate_values(self, columns: Iterable[str] | None = None) -> None:
        """Raise a TraceError with every problem of the values, each with its shard, row and drafter; cached.

        Ranges of every column; gamma is NaN only in deep blocks where the path had left the draft; both are 0 where
        nothing was proposed; sequences are not empty, their ids unique; prompts match their hashes. A trace with bandit
        feedback may also have NaN in alpha and gamma: what was not observed. columns : only these, such as
        `ENGINE_COLUMNS`, are read; default all.
        """
        if problems := self._value_problems(columns):
            raise TraceError(*problems)

    def _value_problems(self, columns: Iterable[str] | None = None) -> tuple[str, ...]:
        chosen = None if columns is None else tuple(columns)
        problems = [problem for block in self._blocks for problem in block.problems(chosen)]
        if len(self._blocks) > 1 and (chosen is None or "sequence_id" in chosen):
            ids = np.concatenate([block["sequence_id"] for block in self._blocks])
            names, counts = np.unique(ids, return_counts=True)
            if (counts > 1).any():
                problems.append(f"sequence_id: {names[counts.argmax()]} appears {counts.max()} times; allowed: once")
        return tuple(dict.fromkeys(problems))

    def check(self) -> list[str]:
        """Return everything that is wrong with the whole trace on disk, see `checking.check_trace`, or in memory."""
        from hedgelab.storage.checking import check_trace  # it opens traces

        return list(self._value_problems()) if self.folder is None else check_trace(self.folder)

    # -------------------------------------------------------------- other ways in and out

    def describe(self) -> dict[str, Any]:
        """Return the facts about these sequences and where they come from, as values that JSON can hold.

        rows, sequences, domains and stops are of the selection; cuts and dropped of the whole recording.
        """
        manifest = to_document(self.manifest)
        shards = manifest.pop("shards")
        lengths = np.diff(self.offsets)
        return {
            **{name: value for name, value in manifest.items() if name not in ("domains", "settings")},
            "folder": None if self.folder is None else str(self.folder),
            "sha256": self.sha256,
            "sequences": self.sequences,
            "rows": self.rows,
            "domains": {
                name: {"sequences": int((self.domains == name).sum()), "rows": int(lengths[self.domains == name].sum())}
                for name in manifest["domains"]
            },
            "stops": {name: int((self.stop == name).sum()) for name in STOPS},
            "shards": len(shards),
            "bytes": sum(shard["bytes"] for shard in shards),
            "cuts": sum(shard["cuts"] for shard in shards),
            "dropped": [record for shard in shards for record in shard["dropped"]],
            "measured": self.measured,
        }

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        encodings: Mapping[str, str] | str | None = None,
        rows_per_shard: int | None = None,
        logits: bool = True,
    ) -> Trace:
        """Write these sequences as a trace of its own into an empty or new folder, and return it opened.

        encodings : None keeps those of this trace; "compact" takes for each column the smallest that holds its values
        (fixed16 rounds by up to 7.7e-6); "deflate" packs them further, but a shard is then unpacked, not mapped; or a
        mapping from columns to encodings, the others are kept. rows_per_shard :
        a shard ends with the sequence that reaches it; None writes one. logits : whether recorded logits go along.
        The manifest's settings name the trace that it was cut from. TraceError for a folder that is not empty,
        sequences that repeat, and values that an encoding can't hold.
        """
        from hedgelab.storage.cutting import save_trace  # it opens traces

        return save_trace(self, folder, encodings=encodings, rows_per_shard=rows_per_shard, logits=logits)

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
        from hedgelab.storage.arrays import trace_from_arrays  # it makes traces

        return trace_from_arrays(
            token, alpha, gamma, offsets, domains, drafters, k, feedback, proposed, confidence, sequence_id, depths
        )


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
