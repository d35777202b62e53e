"""A trace as if only some of its drafters had been recorded."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hedgelab.storage.blocks import Block
from hedgelab.storage.columns import COLUMNS, ENCODED
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Manifest
from hedgelab.storage.selection import Selection, frozen
from hedgelab.trace import Trace

__all__ = ["narrowed"]


def narrowed(trace: Trace, drafters: Sequence[str]) -> Trace:
    """See `Trace.among`."""
    wanted = [drafters] if isinstance(drafters, str) else list(drafters)
    unknown = [name for name in wanted if name not in trace.drafters]
    if unknown or not wanted:
        what = f"no drafter {', '.join(map(repr, unknown))}" if unknown else "no drafter is named"
        raise TraceError(f"among: {what}; there are {', '.join(trace.drafters)}")
    old = trace.manifest
    kept = [i for i, name in enumerate(trace.drafters) if name in wanted]
    manifest = dataclasses.replace(
        old, drafters=tuple(old.drafters[i] for i in kept), encodings=dict.fromkeys(ENCODED, "float32")
    )
    columns = {
        "N": np.array(kept),
        "N1": np.flatnonzero(np.isin(old.flat, kept)),
        "N2": np.flatnonzero(np.isin(old.deep, kept)),
    }
    blocks = [_narrow(block, manifest, columns) for block in trace._blocks]
    base = trace._base_sha256
    if base is not None:
        names = (drafter.name for drafter in manifest.drafters)
        base = hashlib.sha256("\n".join([base, *names]).encode()).hexdigest()
    selection = Selection(blocks, trace._selection.block, trace._selection.local)
    return Trace(manifest, blocks, None, base, selection, trace._selected)


def _narrow(block: Block, manifest: Manifest, columns: dict[str, NDArray[np.int64]]) -> Block:
    """Return a block with the values, not encoded, of some drafters' columns; the others are shared."""
    stored = {}
    for name in block.stored:
        values = block[name]
        for axis, symbol in enumerate(COLUMNS[name].shape):
            if symbol in columns:
                values = frozen(np.ascontiguousarray(values.take(columns[symbol], axis)))
        stored[name] = values
    return Block(manifest, block.name, stored, {**block._sizes, **manifest.sizes}, block.sequences)
