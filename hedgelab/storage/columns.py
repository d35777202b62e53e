"""What a shard holds: one table of columns, used by the writer, the reader and every check; and the encodings.

Sizes are symbols: S sequences, T rows, N drafters, N1 of them flat (one value a row), N2 deep (one a row and depth),
k depths, M recorded logits; P prompt tokens, B bytes of prompt ids and R rows with logits are free: each shard has
its own. `Manifest.sizes` binds the rest.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "ENCODED",
    "ENCODINGS",
    "FREE",
    "RAGGED",
    "STOPS",
    "Column",
    "decode",
    "encode",
    "shape_of",
    "stored_as",
]

STOPS = ("eos", "length", "loop", "context")  # why a sequence ended; the column `stop` indexes it
ENCODINGS = ("float32", "fixed16", "bits", "deflate")
FREE = {"P": "prompt_token", "B": "prompt_id", "R": "logit_row"}  # free size -> the column that defines it
RAGGED = {"prompt_offsets": "prompt_token", "prompt_id_offsets": "prompt_id"}  # offsets -> what they cut
ROUNDING = 1e-5  # log-probabilities and masses of float32 softmaxes may overshoot their limit by this much


@dataclass(frozen=True)
class Column:
    """One array of a shard: its shape in symbols, the type of its values, and the values allowed."""

    name: str
    shape: tuple[str, ...]
    dtype: str  # of the values; what is stored may be encoded
    low: float | str = -math.inf  # a str is looked up in Manifest.sizes
    high: float | str = math.inf
    nan: str = "never"  # or "always", or the manifest's path or feedback that allows it, or "left": where alpha is 0
    encodings: tuple[str, ...] = ()  # those the manifest may choose from; none: stored as it is
    logits: bool = False  # present only when the manifest says that logits were recorded


_ROW, _PAIR, _RAGGED = ("T",), ("T", "N2"), ("S+1",)
_FLAT, _DEEP = ("T", "N1"), ("T", "k", "N2")

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("token", _ROW, "<i4", 0, "V-1"),
        Column("offsets", _RAGGED, "<i8"),
        Column("sequence_id", ("S",), "<i8", 0, 2**63 - 1),
        Column("domain", ("S",), "<i4", 0, "domains-1"),
        Column("prompt_sha256", ("S", "32"), "|u1", 0, 255),
        Column("prompt_token", ("P",), "<i4", 0, "V-1"),
        Column("prompt_offsets", _RAGGED, "<i8"),
        Column("prompt_id", ("B",), "|u1", 0, 255),
        Column("prompt_id_offsets", _RAGGED, "<i8"),
        Column("first_token", ("S",), "<i4", "least first", "V-1"),
        Column("stop", ("S",), "|u1", 0, "stops-1"),
        Column("target_logprob", _ROW, "<f4", "least log", ROUNDING, nan="given"),
        Column("target_entropy", _ROW, "<f4", -ROUNDING, "log V", nan="given"),
        Column("target_top2_margin", _ROW, "<f4", 0, nan="given"),
        Column("confidence", ("T", "N"), "<f4", 0, 1, nan="always", encodings=("float32", "fixed16", "deflate")),
        Column("alpha_flat", _FLAT, "<f4", 0, 1, nan="bandit", encodings=ENCODINGS),
        Column("gamma_flat", _FLAT, "<f4", 0, 1, nan="bandit", encodings=ENCODINGS),
        Column("alpha_deep", _DEEP, "<f4", 0, 1, nan="bandit", encodings=ENCODINGS),
        Column("gamma_deep", _DEEP, "<f4", 0, 1, nan="left", encodings=ENCODINGS),
        Column("proposed", _PAIR, "<i2", 0, "k", encodings=("deflate",)),
        Column("match_length", _PAIR, "<i2", 0, 2**15 - 1, encodings=("deflate",)),
        Column("logit_row", ("R",), "<i8", 0, "T-1", logits=True),
        Column("logit_id", ("R", "M"), "<i4", 0, "V-1", logits=True),
        Column("logit_p", ("R", "M"), "<f4", high=ROUNDING, logits=True),
        # a deep drafter that proposes nothing has no q
        Column("logit_q", ("R", "N", "M"), "<f4", high=ROUNDING, nan="deep", logits=True),
        Column("tail_p", ("R",), "<f4", -ROUNDING, 1 + ROUNDING, logits=True),
        Column("tail_q", ("R", "N"), "<f4", -ROUNDING, 1 + ROUNDING, nan="deep", logits=True),
    )
}
ENCODED = tuple(column.name for column in COLUMNS.values() if "float32" in column.encodings)
MAY_BE_ENCODED = tuple(column.name for column in COLUMNS.values() if column.encodings)  # others by default as they are


def shape_of(column: Column, sizes: Mapping[str, float]) -> tuple[int, ...]:
    """Return the shape of a column's values; KeyError where a free size is not known.

    >>> shape_of(COLUMNS["alpha_deep"], {"T": 7, "k": 5, "N2": 2})
    (7, 5, 2)
    """
    return tuple(32 if symbol == "32" else int(sizes[symbol]) for symbol in column.shape)


def stored_as(column: Column, encoding: str, shape: tuple[int, ...]) -> tuple[np.dtype, tuple[int, ...] | None]:
    """Return dtype and shape of what a shard stores for values of this shape; None: one dimension of any length.

    >>> stored_as(COLUMNS["alpha_flat"], "bits", (3, 7))
    (dtype('uint8'), (3,))
    """
    if encoding == "fixed16":
        return np.dtype("<u2"), shape
    if encoding == "bits":
        return np.dtype("|u1"), ((math.prod(shape) + 7) // 8,)
    if encoding == "deflate":
        return np.dtype("|u1"), None
    return np.dtype(column.dtype), shape


_STEPS, _NAN = 65534, 65535  # an even number of steps: 0, 1/2 and 1 are exact
_BLOCK = 4096  # rows that are inflated at a time


def encode(values: NDArray, encoding: str) -> NDArray:
    """Return `values`, float32 or, to deflate, int16, as a shard stores them; ValueError where the encoding can't.

    fixed16: uint16, round(value * 65534), 65535 for NaN; 0 and 1 are exact, other errors at most 7.7e-6.
    bits: numpy.packbits over the flattened values, which must all be 0 or 1.
    deflate: zlib over the fixed16 codes, or int16 values, one drafter after the other, low bytes before high ones. The
    smallest; it has to be unpacked as a whole before it can be read.

    >>> encode(np.array([0, 1, np.nan], np.float32), "fixed16")
    array([    0, 65534, 65535], dtype=uint16)
    """
    if encoding == "deflate":
        codes = encode(values, "fixed16") if values.dtype.kind == "f" else values.astype("<i2")
        planes = np.moveaxis(codes, -1, 0).reshape(-1).view(np.uint8).reshape(-1, 2).T
        return np.frombuffer(zlib.compress(planes.tobytes(), 9), np.uint8)
    if encoding == "fixed16":
        nan = np.isnan(values)
        bad = ~(nan | ((values >= 0) & (values <= 1)))
        allowed = "a value in [0, 1] or NaN"
    elif encoding == "bits":
        bad = (values != 0) & (values != 1)
        allowed = "0 or 1"
    elif encoding == "float32":
        return values
    else:
        raise ValueError(f"encoding {encoding!r} is none of {', '.join(ENCODINGS)}")
    if bad.any():
        index = np.unravel_index(int(bad.argmax()), bad.shape)
        place = ", ".join(str(int(i)) for i in index)
        raise ValueError(f"encoding {encoding} holds {allowed}, not {values[index]} at [{place}]")
    if encoding == "bits":
        return np.packbits(values.reshape(-1) != 0)
    codes = np.rint(np.where(nan, 0, values).astype(np.float64) * _STEPS).astype(np.uint16)
    codes[nan] = _NAN
    return codes


def decode(stored: NDArray, encoding: str, shape: tuple[int, ...], dtype: str = "<f4") -> NDArray:
    """Return the values of a stored array: the array itself, or values of this shape and dtype when it was encoded.

    ValueError where deflated bytes are damaged, or hold another number of values.

    >>> decode(encode(np.array([1, 0, 1], np.float32), "bits"), "bits", (3,))
    array([1., 0., 1.], dtype=float32)
    """
    if encoding == "fixed16":
        values = _fixed16_values()[stored]
    elif encoding == "deflate":
        codes = _inflated(stored, shape)
        values = codes.view("<i2").astype(dtype) if np.dtype(dtype).kind == "i" else _fixed16_values()[codes]
    elif encoding == "bits":
        values = np.unpackbits(stored, count=math.prod(shape)).astype(np.float32).reshape(shape)
    else:
        return stored
    values.flags.writeable = False
    return values


def _inflated(stored: NDArray, shape: tuple[int, ...]) -> NDArray[np.uint16]:
    size = 2 * math.prod(shape)
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(stored.tobytes(), size + 1)  # never more, whatever the bytes say
    except zlib.error as error:
        raise ValueError(f"cannot be inflated: {error}") from None
    if len(data) != size or not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"does not inflate to {size} bytes")
    drafters, rows = shape[-1], math.prod(shape[:-1])
    low, high = np.frombuffer(data, np.uint8).reshape(2, drafters, rows)
    codes = np.empty((rows, drafters), "<u2")
    for begin in range(0, rows, _BLOCK):  # transposed as a whole they would leave the cache at every step
        here = slice(begin, begin + _BLOCK)
        codes[here] = (low[:, here] + (high[:, here].astype("<u2") << 8)).T
    return codes.reshape(shape)


@functools.cache
def _fixed16_values() -> NDArray[np.float32]:
    values = (np.arange(_NAN + 1) / _STEPS).astype(np.float32)
    values[_NAN] = np.nan
    return values
