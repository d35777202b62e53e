"""Shard files: safetensors headers read strictly, columns as views of a memory map, files written atomically."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import stat
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hedgelab.storage.columns import COLUMNS, FREE, Column, shape_of, stored_as
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Manifest, Shard
from hedgelab.storage.typed_json import load_strict

__all__ = [
    "digest_of",
    "expected_columns",
    "open_shard",
    "parse_header",
    "read_file",
    "sizes_of",
    "with_sorted_metadata",
    "write_atomically",
]

_DTYPES = {"F32": "<f4", "I64": "<i8", "I32": "<i4", "I16": "<i2", "U16": "<u2", "U8": "|u1"}
_MAX_HEADER = 100_000_000  # as in the safetensors library


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies in its file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int


def parse_header(raw: bytes, size: int) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file of `size` bytes whose first bytes, the whole header at least, are `raw`.

    TraceError lists every problem. Tensors must fill the rest of the file without gap or overlap, each aligned to its
    items, and there is no metadata: bytes that belong to nothing could change without notice.
    """
    if size < 8:
        raise TraceError(f"has {size} bytes; a safetensors file begins with 8 bytes of header length")
    length = int.from_bytes(raw[:8], "little")
    if length > min(size - 8, _MAX_HEADER):
        raise TraceError(f"header length {length} exceeds what the file of {size} bytes can hold")
    try:
        header = load_strict(bytes(raw[8 : 8 + length]))
    except ValueError as error:
        raise TraceError(f"header is not valid JSON: {error}") from None
    if not isinstance(header, dict):
        raise TraceError("header is not a JSON object")
    start = 8 + length
    problems: list[str] = []
    tensors: dict[str, Tensor] = {}
    spans: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        found = _tensor(entry, start)
        if isinstance(found, str):
            problems.append(f"tensor {name!r}: {found}")
            continue
        tensors[name] = found
        spans.append((found.begin, found.begin + math.prod(found.shape) * found.dtype.itemsize, name))
    if not problems:  # one unreadable entry would show up as a gap
        position = start
        for begin, end, name in sorted(spans):
            if begin != position:
                problems.append(f"tensor {name!r}: begins at byte {begin}, where the one before ends at {position}")
            position = end
        if position != size:
            problems.append(f"tensors end at byte {position}, but the file has {size}: cut short, or extended")
    if problems:
        raise TraceError(*problems)
    return tensors


def _tensor(entry: object, start: int) -> Tensor | str:
    """Return a header entry as a Tensor, or what is wrong with it."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return "is not an object of dtype, shape and data_offsets"
    dtype_name, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype_name, str) or dtype_name not in _DTYPES:
        return f"dtype {dtype_name!r} is none of {', '.join(_DTYPES)}"
    if not _naturals(shape):
        return f"shape {shape!r} is not a list of sizes"
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return f"data_offsets {offsets!r} are not two ascending positions"
    dtype = np.dtype(_DTYPES[dtype_name])
    size = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != size:
        return f"data_offsets {offsets!r} span {offsets[1] - offsets[0]} bytes, its shape {shape!r} needs {size}"
    if (start + offsets[0]) % dtype.itemsize:
        return f"begins at byte {start + offsets[0]}, which is not aligned to {dtype.itemsize}"
    return Tensor(dtype, tuple(shape), start + offsets[0])


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(entry) is int and entry >= 0 for entry in value)


def expected_columns(manifest: Manifest) -> list[Column]:
    """Return the columns that every shard of a trace must have."""
    return [column for column in COLUMNS.values() if manifest.logits or not column.logits]


def open_shard(folder: Path, shard: Shard, manifest: Manifest) -> tuple[dict[str, NDArray], dict[str, float]]:
    """Return the stored columns as read-only views of one memory map, and all sizes; columns are not read.

    TraceError lists every problem with size, header, names, dtypes and shapes, each with the file's name. The file must
    not shrink while the map lives: the operating system would end the process.
    """
    try:
        with _open_regular(folder / shard.file) as file:
            size = os.fstat(file.fileno()).st_size
            if size != shard.bytes:
                raise TraceError(f"has {size} bytes, the manifest says {shard.bytes}")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        tensors = parse_header(data[: 8 + min(int.from_bytes(data[:8], "little"), _MAX_HEADER)], size)
        sizes, problems = _match(tensors, shard, manifest)
        if problems:
            raise TraceError(*problems)
    except TraceError as error:
        raise TraceError(*(f"{shard.file}: {problem}" for problem in error.problems)) from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{shard.file}: {_why(error)}") from None
    arrays = {
        name: np.ndarray(tensor.shape, tensor.dtype, buffer=data, offset=tensor.begin)
        for name, tensor in tensors.items()
    }
    return arrays, sizes


def _match(tensors: dict[str, Tensor], shard: Shard, manifest: Manifest) -> tuple[dict[str, float], list[str]]:
    """Hold the tensors of a header against the table of columns."""
    sizes = sizes_of(manifest, shard.sequences, shard.rows)
    for symbol, name in FREE.items():
        if name in tensors and len(tensors[name].shape) == 1:
            sizes[symbol] = tensors[name].shape[0]
    expected = expected_columns(manifest)
    names = {column.name for column in expected}
    problems = [f"tensor {name!r}: unknown" for name in tensors if name not in names]
    for column in expected:
        if column.name not in tensors:
            problems.append(f"tensor {column.name!r}: missing")
            continue
        tensor = tensors[column.name]
        try:
            shape = shape_of(column, sizes)
        except KeyError:
            if column.name in FREE.values():
                problems.append(f"tensor {column.name!r}: has {len(tensor.shape)} dimensions; allowed: 1")
            continue  # the column that decides this size is at fault and reported
        dtype, stored_shape = stored_as(column, manifest.encoding(column.name), shape)
        if tensor.dtype != dtype:
            problems.append(f"tensor {column.name!r}: is {tensor.dtype}; the manifest asks for {dtype}")
        if stored_shape is None:
            if len(tensor.shape) != 1:
                problems.append(f"tensor {column.name!r}: has {len(tensor.shape)} dimensions; allowed: 1")
        elif tensor.shape != stored_shape:
            problems.append(f"tensor {column.name!r}: has shape {tensor.shape}; the manifest asks for {stored_shape}")
    return sizes, problems


def sizes_of(manifest: Manifest, sequences: int, rows: int) -> dict[str, float]:
    """Return the sizes of a shard but for the free ones."""
    return {**manifest.sizes, "S": sequences, "S+1": sequences + 1, "T": rows, "T-1": rows - 1}


# ------------------------------------------------------------------ files


def _open_regular(path: Path) -> BufferedReader:
    # a pipe would block for ever, so look before opening
    if not stat.S_ISREG(path.stat().st_mode):
        raise TraceError("is not a regular file")
    return path.open("rb")


def read_file(path: Path) -> bytes:
    """Return a file's bytes; TraceError where it can't be read."""
    try:
        with _open_regular(path) as file:
            return file.read()
    except TraceError as error:
        raise TraceError(f"{path.name}: {error}") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{path.name}: {_why(error)}") from None


def digest_of(path: Path) -> str:
    """Return the sha256 of a file's bytes; TraceError where it can't be read."""
    try:
        with _open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except TraceError as error:
        raise TraceError(f"{path.name}: {error}") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{path.name}: {_why(error)}") from None


def _why(error: Exception) -> str:
    return "is missing" if isinstance(error, FileNotFoundError) else f"can't be read: {error}"


def with_sorted_metadata(data: bytes) -> bytes:
    """Return a safetensors file's content with its metadata in order: the library writes them in any order."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a crash at any moment leaves the old content or the new, never a part.

    A crash may leave `path` + ".tmp" behind.
    """
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name itself
    finally:
        os.close(folder)
