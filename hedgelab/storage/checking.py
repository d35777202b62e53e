"""Everything that can be wrong with a trace on disk, down to single bytes."""

from __future__ import annotations

import os
from pathlib import Path

from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import CARD, LOCK, MANIFEST, MEASURED, Manifest
from hedgelab.storage.shards import digest_of, read_file
from hedgelab.storage.typed_json import unseal
from hedgelab.trace import Trace, open_blocks

__all__ = ["check_trace", "damage"]


def check_trace(path: str | os.PathLike[str]) -> list[str]:
    """Return every problem of the trace in a folder, each with its file and place; an empty list for a sound one.

    What `open_trace` and `Trace.validate_values` find, and: shards whose bytes do not match the manifest's sha256,
    *.tmp files that an interruption left, files that belong to no trace, a damaged measured.json, a recording that is
    not complete. Bad data never raises.

    >>> check_trace("/no/such/folder")
    ['/no/such/folder: no such folder']
    """
    folder = Path(path)
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        return [f"{folder}: no such folder"]
    except (OSError, ValueError) as error:
        return [f"{folder}: can't be read: {error}"]
    problems: list[str] = []
    try:
        manifest = Manifest.from_json(read_file(folder / MANIFEST))
    except TraceError as error:
        # without it nobody can say which bytes belong in the shards
        return [*error.problems, *_measured_problems(folder, names)]
    blocks, unopened = open_blocks(folder, manifest)
    problems += unopened
    problems += damage(folder, manifest)
    try:
        Trace(manifest, blocks, folder, "").validate_values()
    except TraceError as error:
        problems += error.problems
    belonging = {MANIFEST, MEASURED, CARD, LOCK, *(shard.file for shard in manifest.shards)}
    for name in names:
        if name.endswith(".tmp"):
            problems.append(f"{name}: left by an interrupted recording")
        elif name not in belonging:
            problems.append(f"{name}: is not in the manifest")
    problems += _measured_problems(folder, names)
    if not manifest.complete:
        problems.append(f"manifest.complete: is false: the recording was not finished, {len(manifest.shards)} shards")
    return list(dict.fromkeys(problems))


def damage(folder: Path, manifest: Manifest) -> list[str]:
    """Return the shards whose bytes are not those that were written."""
    problems: list[str] = []
    for shard in manifest.shards:
        try:
            if digest_of(folder / shard.file) != shard.sha256:
                problems.append(
                    f"{shard.file}: its bytes do not match the sha256 in the manifest: damaged, or replaced"
                )
        except TraceError as error:
            problems += error.problems
    return problems


def _measured_problems(folder: Path, names: list[str]) -> list[str]:
    if MEASURED not in names:
        return []
    try:
        return unseal(read_file(folder / MEASURED), MEASURED)[1]
    except TraceError as error:
        return list(error.problems)
