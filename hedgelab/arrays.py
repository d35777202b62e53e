"""Traces from arrays in memory: `Trace.from_arrays`, and the step that it shares with the writer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.blocks import Block
from hedgelab.columns import COLUMNS, ENCODED, STOPS, shape_of
from hedgelab.errors import TraceError
from hedgelab.manifest import FEEDBACK, FORMAT_VERSION, Drafter, Manifest, Model, Processing
from hedgelab.shards import expected_columns, sizes_of
from hedgelab.trace import Trace
from hedgelab.values import value_problems

__all__ = ["as_values", "complete_columns", "trace_from_arrays"]


def as_values(name: str, value: ArrayLike, kinds: str, problems: list[str]) -> NDArray | None:
    """Return `value` as an array whose dtype kind is one of `kinds`; else None, and a problem."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        problems.append(f"{name}: is not an array: {error}")
        return None
    if array.size == 0 and not isinstance(value, np.ndarray):
        array = array.astype(np.int64)  # an empty list has no type of its own
    if array.dtype.kind not in kinds:
        words = "floats" if "f" in kinds else "integers"
        problems.append(f"{name}: holds {array.dtype}; allowed: {words}")
        return None
    return array


def _kinds(name: str) -> str:
    return "fiub" if COLUMNS[name].dtype == "<f4" else "iu"


def complete_columns(
    manifest: Manifest, arrays: Mapping[str, ArrayLike]
) -> tuple[dict[str, NDArray], dict[str, float]]:
    """Return every column of a shard, checked, C-contiguous and in the dtype of its values, and all sizes.

    Values are checked before they are cast: what float32 would round into range is out of range. TraceError lists
    every problem.
    """
    expected = {column.name: column for column in expected_columns(manifest)}
    problems = [f"{name}: unknown; allowed: {', '.join(expected)}" for name in arrays if name not in expected]
    problems += [f"{name}: missing" for name in expected if name not in arrays]
    found = {}
    for name in expected:
        if name in arrays and (array := as_values(name, arrays[name], _kinds(name), problems)) is not None:
            found[name] = array
    sizes = sizes_of(manifest, *(len(found[name]) if name in found else 0 for name in ("sequence_id", "token")))
    sizes |= {
        symbol: len(found[name])
        for symbol, name in (("P", "prompt_token"), ("B", "prompt_id"), ("R", "logit_row"))
        if name in found
    }
    columns = {}
    for name, array in found.items():
        try:
            shape = shape_of(expected[name], sizes)
        except KeyError:
            continue  # its size comes from a column that is missing, which is reported
        if array.shape != shape:
            problems.append(
                f"{name}: shape {array.shape}; allowed: {shape}, which is ({', '.join(expected[name].shape)})"
            )
        else:
            columns[name] = array
    problems += value_problems(manifest, columns, sizes)
    if problems:
        raise TraceError(*problems)
    return {name: cast(name, array) for name, array in columns.items()}, sizes


def cast(name: str, values: NDArray, *, copy: bool | None = None) -> NDArray:
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
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= 32767:
        raise TraceError(f"k: is {k!r}; allowed: an integer from 1 to 32767")  # nothing can be judged without it
    k = int(k)
    if feedback not in FEEDBACK:
        problems.append(f"feedback: is {feedback!r}; allowed: one of {', '.join(FEEDBACK)}")
    names, places = _names("drafters", drafters, problems), _names("domains", domains, problems)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        problems.append(f"drafters: {twice!r} appears {names.count(twice)} times; allowed: once")

    given: dict[str, NDArray] = {}
    for name, value in (("token", token), ("offsets", offsets), ("sequence_id", sequence_id), ("proposed", proposed)):
        if value is not None and (array := as_values(name, value, "iu", problems)) is not None:
            given[name] = array
    for name, value in (("alpha", alpha), ("gamma", gamma), ("confidence", confidence)):
        if value is not None and (array := as_values(name, value, "fiub", problems)) is not None:
            given[name] = array
    if "token" not in given:
        raise TraceError(*problems)  # T is unknown
    rows, n, s = given["token"].size, len(names), len(places)
    allowed: dict[str, tuple[str, list[tuple[int, ...]]]] = {
        "token": ("(T,)", [(rows,)]),
        "offsets": ("(S+1,)", [(s + 1,)]),
        "sequence_id": ("(S,)", [(s,)]),
        "proposed": ("(T, N)", [(rows, n)]),
        "confidence": ("(T, N)", [(rows, n)]),
        "alpha": ("(T, N), (T, 1, N) or (T, k, N)", [(rows, n), (rows, 1, n), (rows, k, n)]),
        "gamma": ("(T, N), (T, 1, N) or (T, k, N)", [(rows, n), (rows, 1, n), (rows, k, n)]),
    }
    for name, (words, shapes) in allowed.items():
        if name in given and given[name].shape not in shapes:
            where = f"T = {rows} tokens, S = {s} domains, N = {n} drafters, k = {k}"
            problems.append(f"{name}: shape {given[name].shape}; allowed: {words} with {where}")
            del given[name]
    if not places:
        problems.append("domains: is empty; allowed: at least one sequence")
    by_depth = {name: _with_depth(given.pop(name)) for name in ("alpha", "gamma") if name in given}
    if len({array.shape for array in by_depth.values()}) > 1:
        problems.append("gamma: has not as many depths as alpha")
    depth = max((array.shape[1] for array in by_depth.values()), default=1)
    depth_of = [depth] * n if depths is None else list(depths)
    if len(depth_of) != n or any(entry not in (1, depth) for entry in depth_of):
        problems.append(f"depths: is {depth_of}; allowed: {n} times 1 or {depth}, the depths of alpha")
        depth_of = [depth] * n

    manifest = _manifest_in_memory(names, depth_of, places, k, feedback, given.get("token"))
    flat, deep = list(manifest.flat), list(manifest.deep)
    columns: dict[str, NDArray] = {
        name: given[name] for name in ("token", "offsets", "sequence_id", "confidence") if name in given
    }
    for name, array in by_depth.items():
        columns[f"{name}_flat"] = array[:, 0, flat] if deep else array[:, 0]
        columns[f"{name}_deep"] = array[:, :, deep] if flat else array
        if deep and flat and not _constant(array[:, :, flat]):
            problems.append(f"{name}: differs over depth for a drafter of depth 1")
    if not deep:
        for name in by_depth:
            columns[f"{name}_deep"] = np.empty((rows, k, 0), np.float32)
    if not flat:
        for name in by_depth:
            columns[f"{name}_flat"] = np.empty((rows, 0), np.float32)
    if "proposed" in given:
        if (given["proposed"][:, flat] != k).any():
            problems.append(f"proposed: a drafter of depth 1 always proposes k = {k}")
        columns["proposed"] = given["proposed"][:, deep]
    else:
        columns["proposed"] = np.full((rows, len(deep)), k, np.int16)
    sizes = {**sizes_of(manifest, s, rows), "P": 0, "B": 0}
    problems += [
        re.sub("^(alpha|gamma)_(flat|deep)", r"\1", problem) for problem in value_problems(manifest, columns, sizes)
    ]
    if problems:
        raise TraceError(*problems)
    domain = {name: i for i, name in enumerate(manifest.domains)}
    columns |= _unknown_columns(s, rows, len(deep), n, columns)
    columns["domain"] = np.array([domain[name] for name in places])
    values = {name: cast(name, array, copy=True) for name, array in columns.items()}
    for array in values.values():
        array.flags.writeable = False
    return Trace(manifest, [Block(manifest, "", values, sizes, s)], None)


def _names(name: str, value: Any, problems: list[str]) -> list[str]:
    if isinstance(value, str):
        problems.append(f"{name}: is the string {value!r}; allowed: a sequence of names")
        return []
    names = list(value)
    for i, entry in enumerate(names):
        if not isinstance(entry, str) or not entry.strip():
            problems.append(f"{name}[{i}]: is {entry!r}; allowed: a name")
    return [str(entry) for entry in names]


def _with_depth(array: NDArray) -> NDArray:
    return array[:, None, :] if array.ndim == 2 else array


def _constant(values: NDArray) -> bool:
    return all(np.array_equal(values[:, d], values[:, 0], equal_nan=True) for d in range(1, values.shape[1]))


def _manifest_in_memory(
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


def _unknown_columns(s: int, rows: int, n2: int, n: int, known: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Return what `from_arrays` may leave out, as the values that mean "not known"."""
    columns: dict[str, NDArray] = {
        "sequence_id": np.arange(s),
        "first_token": np.full(s, -1),
        "stop": np.full(s, STOPS.index("length")),
        "prompt_token": np.empty(0, int),
        "prompt_offsets": np.zeros(s + 1, int),
        "prompt_id": np.empty(0, int),
        "prompt_id_offsets": np.zeros(s + 1, int),
        "prompt_sha256": np.tile(np.frombuffer(hashlib.sha256().digest(), np.uint8), (s, 1)),
        "confidence": np.broadcast_to(np.float32(np.nan), (rows, n)),
        "match_length": np.zeros((rows, n2)),
    }
    columns |= {
        name: np.broadcast_to(np.float32(np.nan), (rows,))
        for name in ("target_logprob", "target_entropy", "target_top2_margin")
    }
    return {name: values for name, values in columns.items() if name not in known}
