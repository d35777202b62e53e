r"""Results on disk: one file a setting, named by what it depends on, written atomically, never trusted unread.

A result depends on its claim, its setting, the seed, the bytes of the trace that the setting names, and the source: all
of hedgelab with the versions and the CPU that shape its numbers (`hedgelab._jit.source_hash`), the bundled costs, the
claim's module and what that imports of this folder. A file's name is a hash of these, and its metadata say them in
full. Nothing else, a worker's host or the number of processes, changes a byte.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from experiments.claim import Arrays, ClaimError, Setting, trace_of
from hedgelab._jit import source_hash
from hedgelab.storage.costs import BUNDLED
from hedgelab.storage.shards import with_sorted_metadata, write_atomically

__all__ = ["Task", "identity", "load", "module_of", "save", "sources"]

Task = tuple[str, Setting, int]  # claim, setting, seed
TEXT = "|text"  # behind the name of an array that holds the letters of one of text


def module_of(name: str) -> str:
    """Return the module of a claim.

    >>> module_of("scaling")
    'experiments.claims.scaling'
    """
    return f"experiments.claims.{name}"


@functools.cache
def sources(module: str) -> tuple[Path, ...]:
    """Return the files of a module of `experiments` and of all others of that package that it imports."""
    found: dict[str, Path] = {}
    _follow(module, found)
    return tuple(found[name] for name in sorted(found))


def _follow(module: str, found: dict[str, Path]) -> None:
    spec = importlib.util.find_spec(module) if module.split(".")[0] == "experiments" and module not in found else None
    if spec is None or spec.origin is None:
        return
    found[module] = Path(spec.origin)
    for node in ast.walk(ast.parse(found[module].read_bytes())):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in imported:
            if _is_module(name):
                _follow(name, found)


def _is_module(name: str) -> bool:
    try:
        return name.split(".")[0] == "experiments" and importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a name within a module
        return False


@functools.cache
def _source(name: str) -> str:
    digest = hashlib.sha256(source_hash().encode())
    for path in (*sources(module_of(name)), BUNDLED):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def identity(task: Task) -> dict[str, Any]:
    """Return all that a result depends on, as values that JSON can hold."""
    name, setting, seed = task
    known: dict[str, Any] = {"claim": name, "seed": seed, "source": _source(name), "setting": dict(setting)}
    if "trace" in setting:
        trace = trace_of(setting)
        known["trace"] = {"name": trace.manifest.name, "sha256": trace.sha256}
        known["setting"]["trace"] = trace.manifest.name
    return known


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _file(folder: Path, task: Task) -> Path:
    return folder / task[0] / f"{_digest(identity(task))[:20]}.safetensors"


def save(folder: Path, task: Task, arrays: Arrays) -> None:
    """Keep what a task gave. Raises ClaimError for what is no mapping of names to arrays of numbers."""
    name = task[0]
    if not isinstance(arrays, Mapping) or not arrays:
        raise ClaimError(f"claim {name!r}: run must return {{name: array}}, got {type(arrays).__name__}")
    columns: dict[str, np.ndarray] = {}
    for key, values in sorted(arrays.items()):
        column = np.asarray(values)
        if column.dtype.kind == "U":
            key, column = key + TEXT, _codes(column)
        if column.dtype.kind not in "fiub":
            raise ClaimError(f"claim {name!r}: {key!r} is {column.dtype}; results are arrays of numbers or text")
        columns[key] = np.ascontiguousarray(column).reshape(column.shape)  # the first alone turns () into (1,)
    known = {"identity": json.dumps(identity(task), sort_keys=True), "sha256": _content(columns)}
    file = _file(folder, task)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, with_sorted_metadata(safetensors.numpy.save(columns, metadata=known)))


def _codes(text: NDArray[np.str_]) -> NDArray[np.uint32]:
    """Return the letters of an array of text, (..., width)."""
    whole = np.ascontiguousarray(text).astype(text.dtype.newbyteorder("<"))
    return whole.view("<u4").reshape(*text.shape, text.dtype.itemsize // 4)


def _text(codes: NDArray[np.uint32]) -> NDArray[np.str_]:
    return np.ascontiguousarray(codes).view(f"<U{codes.shape[-1]}").reshape(codes.shape[:-1])


def _content(columns: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for key, values in sorted(columns.items()):
        digest.update(f"{key} {values.dtype.str} {values.shape}\n".encode() + values.tobytes())
    return digest.hexdigest()


def load(folder: Path, task: Task) -> Arrays | None:
    """Return what a task gave, None where there is no such file or its bytes are not what was written."""
    file = _file(folder, task)
    try:
        with safetensors.safe_open(file, framework="numpy") as opened:
            known = opened.metadata() or {}
            columns = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError):
        return None
    if known.get("sha256") != _content(columns):
        return None
    return {key.removesuffix(TEXT): _text(values) if key.endswith(TEXT) else values for key, values in columns.items()}
