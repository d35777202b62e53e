"""Writing a trace so that a crash at any moment loses at most the shard in flight."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike

from hedgelab.storage.arrays import complete_columns
from hedgelab.storage.columns import encode
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import LOCK, MANIFEST, MEASURED, Dropped, Manifest, Shard, shard_name
from hedgelab.storage.shards import digest_of, open_shard, read_file, write_atomically
from hedgelab.storage.typed_json import JSON, read, seal, to_document

__all__ = ["TraceWriter"]

_OURS = re.compile(r"(shard-\d{5}\.safetensors|manifest\.json|measured\.json)(\.tmp)?")


class TraceWriter:
    """Writes a trace, shard by shard; use it in a `with` statement, or call `close`.

    folder : made where it does not exist; must be empty unless `resume`. manifest : without shards, not complete.
    resume : continue what is there: the same manifest, else a TraceError that names the fields that differ. Given the
    same shards, an interrupted and resumed recording equals an uninterrupted one byte for byte. Only one writer at a
    time: a second one gets a TraceError.
    """

    def __init__(self, folder: str | os.PathLike[str], manifest: Manifest, *, resume: bool = False) -> None:
        self.folder = Path(folder)
        self.discarded: tuple[str, ...] = ()  # files of an interrupted recording that resuming removed
        self._manifest = manifest.checked()
        if manifest.shards or manifest.complete:
            raise TraceError("manifest.shards, manifest.complete: a writer begins with no shards, not complete")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise TraceError(f"{self.folder}: is no folder") from None
        self._lock: IO[bytes] | None = _lock(self.folder / LOCK)
        try:
            self._seen: set[int] = set()
            self._begin(resume)
        except BaseException:
            self.close()
            raise

    @property
    def done(self) -> int:
        """Number of shards recorded: the next one written gets this index."""
        return len(self._manifest.shards)

    @property
    def complete(self) -> bool:
        """Whether the recording was finished, by this writer or before it resumed."""
        return self._manifest.complete

    def write(self, arrays: Mapping[str, ArrayLike], *, cuts: int, dropped: Sequence[Dropped] = ()) -> None:
        """Record the next shard.

        arrays : every column of hedgelab.storage.columns.COLUMNS (logits only when the manifest has them), not encoded.
        cuts : texts cut where a loop began. dropped : records not kept. TraceError lists every problem of shapes,
        dtypes and values, and then nothing is written.
        """
        self._ready()
        if self._manifest.complete:
            raise TraceError(f"{self.folder}: the trace is complete; nothing can be added")
        name = shard_name(self.done)
        try:
            columns = complete_columns(self._manifest, arrays)
            problems = []
            for column in columns:
                try:
                    columns[column] = encode(columns[column], self._manifest.encoding(column))
                except ValueError as error:
                    problems.append(f"{column}: {error}")
            ids = set(columns["sequence_id"].tolist())
            if ids & self._seen:
                problems.append(f"sequence_id: {min(ids & self._seen)} is in an earlier shard; allowed: once")
            sequences, rows = len(columns["sequence_id"]), len(columns["token"])
            data = b"" if problems else safetensors.numpy.save(columns)
            document = Shard(name, rows, sequences, hashlib.sha256(data).hexdigest(), len(data), cuts, tuple(dropped))
            if not problems:
                shard = read(Shard, to_document(document), "shard", problems)
            if problems:
                raise TraceError(*problems)
        except TraceError as error:
            raise TraceError(*(f"{name}: {problem}" for problem in error.problems)) from None
        write_atomically(self.folder / name, data)
        self._seen |= ids
        self._write_manifest(dataclasses.replace(self._manifest, shards=(*self._manifest.shards, shard)))

    def finish(self, measured: Mapping[str, JSON]) -> None:
        """Mark the trace complete and write `measured` beside it; then close."""
        self._ready()
        if "sha256" in measured:
            raise TraceError("measured.sha256: the name is taken by the file's own hash")
        problems: list[str] = []
        document = read(dict[str, JSON], dict(measured), "measured", problems)
        if problems:
            raise TraceError(*problems)
        # first, so that a complete trace has it
        write_atomically(self.folder / MEASURED, seal(document))
        self._write_manifest(dataclasses.replace(self._manifest, complete=True))
        self.close()

    def close(self) -> None:
        """Let go of the folder; what was written stays, and can be resumed."""
        if self._lock is not None:
            (self.folder / LOCK).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -------------------------------------------------------------- inside

    def _ready(self) -> None:
        if self._lock is None:
            raise TraceError(f"{self.folder}: this writer is closed")

    def _write_manifest(self, manifest: Manifest) -> None:
        write_atomically(self.folder / MANIFEST, manifest.to_json().encode())
        self._manifest = manifest

    def _begin(self, resume: bool) -> None:
        names = sorted(path.name for path in self.folder.iterdir() if path.name != LOCK)
        if names and not resume:
            raise TraceError(f"{self.folder}: is not empty: {_some(names)}; resume it, or choose another folder")
        foreign = [name for name in names if not _OURS.fullmatch(name)]
        if foreign:
            raise TraceError(f"{self.folder}: holds what no trace has: {_some(foreign)}")
        if MANIFEST in names:
            found = Manifest.from_json(read_file(self.folder / MANIFEST))
            _same(found, self._manifest)
            self._manifest = found
            self._keep_sound_shards()
        elif shards := [name for name in names if not name.endswith(".tmp")]:
            raise TraceError(f"{self.folder}: has {_some(shards)}, but no {MANIFEST}")
        kept = {MANIFEST, MEASURED, *(shard.file for shard in self._manifest.shards)}
        self.discarded = tuple(name for name in names if name not in kept)
        if MANIFEST not in names or self._manifest != found:
            self._write_manifest(self._manifest)  # before files go, so that it never names one that is gone
        for name in self.discarded:
            (self.folder / name).unlink(missing_ok=True)  # writing the manifest used up its *.tmp

    def _keep_sound_shards(self) -> None:
        """Forget the recorded shards from the first one on that is not as it was written."""
        for i, shard in enumerate(self._manifest.shards):
            try:
                arrays, _ = open_shard(self.folder, shard, self._manifest)
                sound = digest_of(self.folder / shard.file) == shard.sha256
            except TraceError:
                sound = False
            if not sound:
                self._manifest = dataclasses.replace(self._manifest, shards=self._manifest.shards[:i], complete=False)
                return
            self._seen |= set(np.array(arrays["sequence_id"]).tolist())


def _lock(path: Path) -> IO[bytes]:
    while True:
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise TraceError(f"{path.parent}: another writer is at work there") from None
        # the one before may have removed the name between our opening and our locking
        try:
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()


def _same(found: Manifest, asked: Manifest) -> None:
    problems = []
    for field in dataclasses.fields(Manifest):
        if field.name not in ("shards", "complete"):
            # as text: in JSON 1, 1.0 and true differ
            there, here = (seal({"": to_document(getattr(side, field.name))}) for side in (found, asked))
            if there != here:
                problems.append(
                    f"manifest.{field.name}: the trace there has {getattr(found, field.name)!r}, "
                    f"this recording {getattr(asked, field.name)!r}"
                )
    if problems:
        raise TraceError(*problems)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
