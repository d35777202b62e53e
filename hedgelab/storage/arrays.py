"""Traces from arrays in memory: `Trace.from_arrays`, and the step that it shares with the writer."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.storage.blocks import Block
from hedgelab.storage.columns import COLUMNS, ENCODED, FREE, STOPS, shape_of
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import FEEDBACK, FORMAT_VERSION, Drafter, Manifest, Model, Processing
from hedgelab.storage.selection import frozen
from hedgelab.storage.shards import expected_columns, sizes_of
from hedgelab.storage.values import value_problems
from hedgelab.trace import Trace

__all__ = ["as_values", "complete_columns", "trace_from_arrays"]


def as_values(name: str, value: ArrayLike, kinds: str, problems: list[str]) -> NDArray | None:
    """Return `value` as an array whose dtype kind is one of `kinds`; else None, and a problem."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # a ragged list, a tensor elsewhere
        problems.append(f"{name}: is not an array: {error}")
        return None
    if array.size == 0 and not isinstance(value, np.ndarray):
        array = array.astype(np.int64)  # an empty list has no type of its own
    if array.dtype.kind not in kinds:
        words = "floats" if "f" in kinds else "integers"
        problems.append(f"{name}: holds {array.dtype}; allowed: {words}")
        return None
    return array


_FLOATS, _INTEGERS = "fiub", "iu"  # kinds of numpy dtypes that may stand for floats, and for integers


def complete_columns(manifest: Manifest, arrays: Mapping[str, ArrayLike]) -> dict[str, NDArray]:
    """Return every column of a shard, checked, C-contiguous and in the dtype of its values.

    Values are checked before they are cast: what float32 would round into range is out of range. TraceError lists
    every problem.
    """
    expected = {column.name: column for column in expected_columns(manifest)}
    problems = [f"{name}: unknown; allowed: {', '.join(expected)}" for name in arrays if name not in expected]
    problems += [f"{name}: missing" for name in expected if name not in arrays]
    found: dict[str, NDArray] = {}
    for name in (name for name in expected if name in arrays):
        kinds = _FLOATS if expected[name].dtype == "<f4" else _INTEGERS
        if (array := as_values(name, arrays[name], kinds, problems)) is not None:
            found[name] = array
    lengths = {name: array.size for name, array in found.items()}
    sizes = sizes_of(manifest, lengths.get("sequence_id", 0), lengths.get("token", 0))
    sizes |= {symbol: lengths.get(name, 0) for symbol, name in FREE.items()}
    deciding = {"S": "sequence_id", "S+1": "sequence_id", "T": "token", "T-1": "token", **FREE}
    sizes = {symbol: size for symbol, size in sizes.items() if deciding.get(symbol) in (None, *lengths)}
    columns = {}
    for name, array in found.items():
        try:
            shape = shape_of(expected[name], sizes)
        except KeyError:
            continue  # a column that decides its size is missing, and reported
        if array.shape == shape:
            columns[name] = array
        else:
            symbols = ", ".join(expected[name].shape)
            problems.append(f"{name}: shape {array.shape}; allowed: {shape}, which is ({symbols})")
    problems += value_problems(manifest, columns, sizes)
    if problems:
        raise TraceError(*problems)
    return {name: _cast(name, array) for name, array in columns.items()}


def _cast(name: str, values: NDArray, *, copy: bool | None = None) -> NDArray:
    """Return values in the column's dtype, C-contiguous."""
    with np.errstate(over="ignore"):  # a margin of 1e300 becomes infinite, which it may be
        return np.array(values, np.dtype(COLUMNS[name].dtype), order="C", copy=copy)


def trace_from_arrays(
    token: ArrayLike,
    alpha: ArrayLike,
    gamma: ArrayLike,
    offsets: ArrayLike,
    domains: Sequence[str],
    drafters: Sequence[str],
    k: int,
    feedback: str,
    proposed: ArrayLike | None,
    confidence: ArrayLike | None,
    sequence_id: ArrayLike | None,
    depths: Sequence[int] | None,
) -> Trace:
    """See `Trace.from_arrays`."""
    problems: list[str] = []
    names, places = _names("drafters", drafters, problems), _names("domains", domains, problems)
    problems += [f"drafters: {name!r} appears {names.count(name)} times; allowed: once" for name in _repeated(names)]
    if feedback not in FEEDBACK:
        problems.append(f"feedback: is {feedback!r}; allowed: one of {', '.join(FEEDBACK)}")
    given: dict[str, NDArray] = {}
    for kinds, values in (
        (_INTEGERS, {"token": token, "offsets": offsets, "sequence_id": sequence_id, "proposed": proposed}),
        (_FLOATS, {"alpha": alpha, "gamma": gamma, "confidence": confidence}),
    ):
        for name, value in values.items():
            if value is not None and (array := as_values(name, value, kinds, problems)) is not None:
                given[name] = array
    if isinstance(k, int | np.integer) and not isinstance(k, bool) and 1 <= k <= 32767:
        k = int(k)
    else:
        problems.append(f"k: is {k!r}; allowed: an integer from 1 to 32767")
        k = next((given[name].shape[1] for name in ("alpha", "gamma") if name in given and given[name].ndim == 3), 1)
    # T is what the first of these says that has a shape to say it
    dimensions = (("token", (1,)), ("alpha", (2, 3)), ("gamma", (2, 3)))
    rows = next((len(given[name]) for name, right in dimensions if name in given and given[name].ndim in right), 0)
    s, n = len(places), len(names)
    given = _of_right_shape(given, rows, s, n, k, problems)
    blocks: dict[str, NDArray] = {}
    for name in ("alpha", "gamma"):
        if name in given:
            array = given.pop(name)
            blocks[name] = array if array.ndim == 3 else array[:, None, :]
    if len({array.shape for array in blocks.values()}) > 1:
        problems.append("gamma: has not as many depths as alpha")
    depth_of = _depths(depths, n, max((array.shape[1] for array in blocks.values()), default=k), problems)

    manifest = _manifest(names, depth_of, places, k, feedback, given.get("token"))
    columns = _split(manifest, blocks, given.pop("proposed", None), rows, problems) | given
    sizes = {**sizes_of(manifest, s, rows), "P": 0, "B": 0}
    found = value_problems(manifest, columns, sizes)
    problems += [re.sub("^(alpha|gamma)_(flat|deep)", r"\1", problem) for problem in found]
    if problems:
        raise TraceError(*problems)
    columns["domain"] = np.array([manifest.domains.index(name) for name in places])
    columns = _unknown(s, rows, n, len(manifest.deep)) | columns
    copies = {name: frozen(_cast(name, array, copy=True)) for name, array in columns.items()}
    return Trace(manifest, [Block(manifest, "", copies, sizes, s)], None)


def _of_right_shape(
    given: dict[str, NDArray], rows: int, s: int, n: int, k: int, problems: list[str]
) -> dict[str, NDArray]:
    block = ("(T, N), (T, 1, N) or (T, k, N)", ((rows, n), (rows, 1, n), (rows, k, n)))
    allowed: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
        "token": ("(T,)", ((rows,),)),
        "offsets": ("(S+1,)", ((s + 1,),)),
        "sequence_id": ("(S,)", ((s,),)),
        "proposed": ("(T, N)", ((rows, n),)),
        "confidence": ("(T, N)", ((rows, n),)),
        "alpha": block,
        "gamma": block,
    }
    right = {}
    for name, array in given.items():
        words, shapes = allowed[name]
        if array.shape in shapes:
            right[name] = array
        else:
            where = f"T = {rows} tokens, S = {s} domains, N = {n} drafters, k = {k}"
            problems.append(f"{name}: shape {array.shape}; allowed: {words} with {where}")
    return right


def _depths(depths: Sequence[int] | None, n: int, deepest: int, problems: list[str]) -> list[int]:
    if depths is None:
        return [deepest] * n
    try:
        found = [int(depth) for depth in depths]
    except (TypeError, ValueError):
        found = []
    if len(found) == n and all(depth in (1, deepest) for depth in found):
        return found
    problems.append(f"depths: is {depths!r}; allowed: N = {n} entries, each 1 or {deepest}, the depths of alpha")
    return [deepest] * n


def _split(
    manifest: Manifest, blocks: dict[str, NDArray], proposed: NDArray | None, rows: int, problems: list[str]
) -> dict[str, NDArray]:
    """Return the flat and deep columns of arrays that hold all drafters."""
    flat, deep = list(manifest.flat), list(manifest.deep)
    columns: dict[str, NDArray] = {}
    for name, array in blocks.items():
        columns[f"{name}_flat"] = array[:, 0, flat]
        columns[f"{name}_deep"] = array[:, :, deep] if deep else np.empty((rows, manifest.k, 0), np.float32)
        if any(not np.array_equal(array[:, d, flat], array[:, 0, flat], equal_nan=True) for d in range(array.shape[1])):
            problems.append(f"{name}: differs over depth for a drafter of depth 1")
    if proposed is None:
        proposed = np.full((rows, len(manifest.drafters)), manifest.k, np.int16)
    elif (proposed[:, flat] != manifest.k).any():
        problems.append(f"proposed: a drafter of depth 1 always proposes k = {manifest.k}")
    return columns | {"proposed": proposed[:, deep]}


def _names(name: str, value: Any, problems: list[str]) -> list[str]:
    try:
        names = [] if isinstance(value, str) else list(value)
    except TypeError:
        names = []
    if not names:
        problems.append(f"{name}: is {value!r}; allowed: a sequence of names, at least one")
    for i, entry in enumerate(names):
        if not isinstance(entry, str) or not entry.strip():
            problems.append(f"{name}[{i}]: is {entry!r}; allowed: a name")
    return [str(entry) for entry in names]


def _repeated(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _manifest(
    drafters: list[str], depths: list[int], domains: list[str], k: int, feedback: str, token: NDArray | None
) -> Manifest:
    """Return the manifest of arrays of which nothing else is known."""
    unknown = Model("unknown", "", "", "", "", "")
    law = Processing(1.0)
    return Manifest(
        format_version=FORMAT_VERSION,
        name="arrays",
        path="given",
        feedback=feedback,
        k=k,
        target=unknown,
        tokenizer_sha256="",
        vocabulary=min(int(token.max()), 2**31 - 1) + 1 if token is not None and token.size else 1,
        target_processing=law,
        drafters=tuple(
            Drafter(name, "given", "chain", depth, law) for name, depth in zip(drafters, depths, strict=True)
        ),
        domains=tuple(dict.fromkeys(domains)),
        encodings=dict.fromkeys(ENCODED, "float32"),
        logits=0,
        seed=0,
        versions={},
        licenses={},
        settings={},
        complete=True,
        shards=(),
    )


def _unknown(s: int, rows: int, n: int, n2: int) -> dict[str, NDArray]:
    """Return what `from_arrays` may leave out, as the values that mean "not known"."""
    nothing = np.broadcast_to(np.float32(np.nan), (rows, n))
    names = [str(i).encode() for i in range(s)]  # each its own prompt
    return {
        "sequence_id": np.arange(s),
        "first_token": np.full(s, -1),
        "stop": np.full(s, STOPS.index("length")),
        "prompt_token": np.empty(0, np.int32),
        "prompt_offsets": np.zeros(s + 1, np.int64),
        "prompt_id": np.frombuffer(b"".join(names), np.uint8),
        "prompt_id_offsets": np.cumsum([0, *map(len, names)]),
        "prompt_sha256": np.tile(np.frombuffer(hashlib.sha256().digest(), np.uint8), (s, 1)),
        "confidence": nothing,
        "match_length": np.zeros((rows, n2), np.int16),
        **dict.fromkeys(("target_logprob", "target_entropy", "target_top2_margin"), nothing[:, 0]),
    }
