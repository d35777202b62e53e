"""Compact copies ("cuts") of a trace or of some of its sequences."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hedgelab.storage.checking import damage
from hedgelab.storage.columns import COLUMNS, ENCODED, MAY_BE_ENCODED
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Manifest
from hedgelab.storage.recording import TraceWriter
from hedgelab.storage.shards import expected_columns
from hedgelab.storage.values import in_chunks
from hedgelab.trace import Trace, open_trace

__all__ = ["compact_encodings", "save_trace"]


def save_trace(
    trace: Trace,
    folder: str | os.PathLike[str],
    *,
    encodings: Mapping[str, str] | str | None,
    rows_per_shard: int | None,
    logits: bool,
) -> Trace:
    """See `Trace.save`."""
    if isinstance(encodings, str):
        if encodings not in ("compact", "deflate"):
            raise TraceError(
                f'encodings: is {encodings!r}; allowed: "compact", "deflate", or a mapping from columns to encodings'
            )
        encodings = compact_encodings(trace) if encodings == "compact" else dict.fromkeys(MAY_BE_ENCODED, encodings)
    if rows_per_shard is not None and rows_per_shard < 1:
        raise TraceError(f"rows_per_shard: is {rows_per_shard}; allowed: at least 1, or None for one shard")
    if trace.folder is not None and (damaged := damage(trace.folder, trace.manifest)):
        raise TraceError(*damaged)  # a copy would have sound hashes
    ids, counts = np.unique(trace.sequence_id, return_counts=True)
    if (counts > 1).any():
        raise TraceError(f"sequence_id: {ids[counts.argmax()]} is selected {counts.max()} times; allowed: once")
    manifest = dataclasses.replace(
        trace.manifest,
        encodings={**trace.manifest.encodings, **(encodings or {})},
        logits=trace.manifest.logits if logits else 0,
        settings={**trace.manifest.settings, "cut_of": trace.sha256},
        complete=False,
        shards=(),
    )
    dropped = [record for shard in trace.manifest.shards for record in shard.dropped]
    with TraceWriter(folder, manifest) as writer:
        for piece in _pieces(trace, rows_per_shard):
            part = trace.select(piece)
            writer.write(
                _columns(part, manifest), cuts=int((part.stop == "loop").sum()), dropped=() if writer.done else dropped
            )
        writer.finish(trace.measured)
    return open_trace(Path(folder))


def _pieces(trace: Trace, rows_per_shard: int | None) -> Iterator[NDArray[np.int64]]:
    """Yield the sequences of each shard."""
    shard = np.zeros(trace.sequences, np.int64)
    if rows_per_shard is not None:
        filled = 0
        for s, length in enumerate(np.diff(trace.offsets)):
            shard[s] = shard[s - 1] + (filled >= rows_per_shard) if s else 0
            filled = length if filled >= rows_per_shard else filled + length
    for i in range(int(shard.max(initial=-1)) + 1):
        yield np.flatnonzero(shard == i)


def _columns(trace: Trace, manifest: Manifest) -> dict[str, NDArray]:
    return {column.name: trace.column(column.name) for column in expected_columns(manifest)}


def compact_encodings(trace: Trace) -> dict[str, str]:
    """Return the smallest encoding of each column that holds all values of a trace."""
    return {
        name: "bits" if "bits" in COLUMNS[name].encodings and _is_binary(trace, name) else "fixed16" for name in ENCODED
    }


def _is_binary(trace: Trace, name: str) -> bool:
    return all(
        bool(((chunk == 0) | (chunk == 1)).all())
        for part in trace.parts()
        for begin, end in zip(part.begin, part.end, strict=True)
        for _, (chunk,) in in_chunks(getattr(part, name)[begin:end])
    )
