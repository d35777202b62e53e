"""Whether the values of columns make sense: ranges, ragged structure, and how columns fit together.

Columns are scanned in chunks that stay in the cache: a block of many gigabytes is never copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hedgelab.storage.columns import COLUMNS, Column
from hedgelab.storage.manifest import Manifest

__all__ = ["in_chunks", "ragged_problems", "value_problems"]

_CHUNK = 1 << 16  # values


def value_problems(manifest: Manifest, columns: Mapping[str, NDArray], sizes: Mapping[str, float]) -> list[str]:
    """Return what is wrong with the values of a shard's columns, each with its place and the number of such values.

    columns : decoded; those that are missing are passed over. sizes : as `shards.sizes_of`, with the free ones.
    """
    scans = [problem for name in columns for problem in _range_problems(manifest, COLUMNS[name], columns, sizes)]
    structure = [problem for rule in _STRUCTURE for problem in rule(columns)]
    return scans + structure + list(_draft_problems(manifest, columns))


@dataclass
class _Finding:
    """The first of the values that break a rule, and how many do."""

    index: tuple[int, ...] = ()
    value: object = None
    count: int = 0

    def add(self, bad: NDArray[np.bool_], values: NDArray, start: int) -> None:
        """Take note of one chunk, whose first entry has index `start`."""
        found = int(np.count_nonzero(bad))
        if found and not self.count:
            first = [int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)]
            self.value = values[tuple(first)]
            self.index = (first[0] + start, *first[1:])
        self.count += found

    def report(self, manifest: Manifest, column: Column, allowed: str) -> Iterator[str]:
        """Yield the problem, if there is one."""
        if self.count:
            more = f" ({self.count} such values)" if self.count > 1 else ""
            yield f"{column.name}: is {self.value} at {_place(manifest, column, self.index)}; allowed: {allowed}{more}"


_WORDS = {"T": "row", "S": "sequence", "S+1": "entry", "k": "depth", "R": "record", "M": "rank"}


def _place(manifest: Manifest, column: Column, index: tuple[int, ...]) -> str:
    drafters = {"N": range(len(manifest.drafters)), "N1": manifest.flat, "N2": manifest.deep}
    words = []
    for symbol, i in zip(column.shape, index, strict=True):
        if symbol in drafters:
            drafter = drafters[symbol][i]
            words.append(f"drafter {drafter} ({manifest.drafters[drafter].name})")
        else:
            words.append(f"{_WORDS.get(symbol, 'index')} {i}")
    return ", ".join(words)


def in_chunks(*arrays: NDArray) -> Iterator[tuple[int, tuple[NDArray, ...]]]:
    """Yield the same rows of several arrays, a chunk at a time, each with the index of its first row."""
    length = len(arrays[0])
    widest = max(array.size for array in arrays)
    step = max(1, _CHUNK * length // max(widest, 1))
    for start in range(0, length if widest else 0, step):
        yield start, tuple(array[start : start + step] for array in arrays)


def _range_problems(
    manifest: Manifest, column: Column, columns: Mapping[str, NDArray], sizes: Mapping[str, float]
) -> Iterator[str]:
    low = sizes[column.low] if isinstance(column.low, str) else column.low
    # a size is unknown where the column that decides it is missing
    high = sizes.get(column.high, np.inf) if isinstance(column.high, str) else column.high
    nan = column.nan
    nan_allowed = nan == "always" or nan in (manifest.path, manifest.feedback) or column.name == "gamma_deep"
    finding = _Finding()
    with np.errstate(invalid="ignore"):
        for start, (chunk,) in in_chunks(columns[column.name]):
            if low <= chunk.min() and chunk.max() <= high:  # false where there is a NaN
                continue
            bad = ~((chunk >= low) & (chunk <= high))
            if nan_allowed:
                bad &= ~np.isnan(chunk)
            elif nan == "deep":
                silent = [i for i, d in enumerate(manifest.drafters) if d.depth != 1 or d.rule in ("one_hot", "tree")]
                bad[:, silent] &= ~np.isnan(chunk[:, silent])
            finding.add(bad, chunk, start)
    where = {"left": " or, where alpha is 0, NaN", "deep": " or, for a drafter that may propose nothing, NaN"}
    words = where.get(nan, " or NaN" if nan_allowed else "")
    yield from finding.report(manifest, column, f"[{_number(low)}, {_number(high)}]{words}")


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _draft_problems(manifest: Manifest, columns: Mapping[str, NDArray]) -> Iterator[str]:
    """Hold alpha, gamma and proposed of the deep drafters against each other."""
    if not {"alpha_deep", "gamma_deep", "proposed"} <= columns.keys():
        return
    alpha, gamma, proposed = (columns[name] for name in ("alpha_deep", "gamma_deep", "proposed"))
    unknown, undefined, alpha_beyond, gamma_beyond = _Finding(), _Finding(), _Finding(), _Finding()
    bandit = manifest.feedback == "bandit"
    offsets = columns.get("offsets")
    if offsets is None or any(ragged_problems("offsets", offsets, len(alpha), empty_allowed=False)):
        offsets = np.arange(
            len(alpha) + 1
        )  # without sequences to go by, only rounds that begin at a row itself are known
    depth = np.arange(alpha.shape[1])
    for start, (a, g) in in_chunks(alpha, gamma):
        row = np.arange(start, start + len(a))
        begun = row[:, None] - depth  # (c, k) row at which the round began
        inside = begun >= offsets[np.searchsorted(offsets, row, side="right") - 1][:, None]
        nan = np.isnan(g)
        if nan.any() and not bandit:
            unknown.add(nan & (a > 0), g, start)
            # a round reads gamma at depth d only while its drafts are accepted: there gamma must be known
            above = alpha[max(start - 1, 0) : start + len(a) - 1] if start else np.concatenate([a[:1], a[:-1]])
            accepted = np.concatenate([np.ones_like(a[:, :1]), above[:, :-1]], axis=1) != 0
            undefined.add(nan & (a == 0) & accepted & inside[:, :, None], g, start)
        beyond = (depth[None, :, None] >= proposed[np.maximum(begun, 0)]) & inside[:, :, None]
        if beyond.any():
            alpha_beyond.add(beyond & (a > 0), a, start)  # other faults of alpha are out of range anyway
            gamma_beyond.add(beyond & ((g > 0) if bandit else (g != 0)), g, start)
    yield from unknown.report(manifest, COLUMNS["gamma_deep"], "NaN only where alpha is 0")
    yield from undefined.report(
        manifest, COLUMNS["gamma_deep"], "NaN only where the path had left the draft (alpha 0 one row and depth before)"
    )
    nothing = "0 at depths where nothing was proposed"
    yield from alpha_beyond.report(manifest, COLUMNS["alpha_deep"], nothing)
    yield from gamma_beyond.report(manifest, COLUMNS["gamma_deep"], nothing)


# ------------------------------------------------------------------ structure


def ragged_problems(name: str, offsets: NDArray, total: int | None, *, empty_allowed: bool) -> Iterator[str]:
    """Yield what keeps `offsets` from cutting `total` entries, if known how many, into pieces."""
    if len(offsets) == 0:
        yield f"{name}: is empty; allowed: one entry more than there are sequences"
        return
    if offsets[0] != 0:
        yield f"{name}: begins with {offsets[0]}; allowed: 0"
    if total is not None and offsets[-1] != total:
        yield f"{name}: ends with {offsets[-1]}; allowed: {total}, the number of entries"
    ordered = offsets[1:] >= offsets[:-1] if empty_allowed else offsets[1:] > offsets[:-1]
    if not ordered.all():
        i = int(ordered.argmin())
        words = "not descending" if empty_allowed else "ascending, no empty sequence"
        yield f"{name}: sequence {i} runs from {offsets[i]} to {offsets[i + 1]}; allowed: {words}"


def _cuts(columns: Mapping[str, NDArray], offsets: str, entries: str, *, empty_allowed: bool) -> Iterator[str]:
    if offsets in columns:
        total = len(columns[entries]) if entries in columns else None
        yield from ragged_problems(offsets, columns[offsets], total, empty_allowed=empty_allowed)


def _rows(columns: Mapping[str, NDArray]) -> Iterator[str]:
    yield from _cuts(columns, "offsets", "token", empty_allowed=False)


def _identity(columns: Mapping[str, NDArray]) -> Iterator[str]:
    if "sequence_id" in columns:
        ids, counts = np.unique(columns["sequence_id"], return_counts=True)
        if (counts > 1).any():
            yield f"sequence_id: {ids[counts.argmax()]} appears {counts.max()} times; allowed: once"


def _prompts(columns: Mapping[str, NDArray]) -> Iterator[str]:
    broken = list(_cuts(columns, "prompt_offsets", "prompt_token", empty_allowed=True))
    yield from broken
    needed = {"prompt_offsets", "prompt_token", "prompt_sha256"}
    if broken or not needed <= columns.keys():
        return
    offsets, tokens = columns["prompt_offsets"], columns["prompt_token"].astype("<i4", copy=False)
    for s, digest in enumerate(columns["prompt_sha256"].astype(np.uint8, copy=False)):
        if hashlib.sha256(tokens[offsets[s] : offsets[s + 1]].tobytes()).digest() != digest.tobytes():
            yield f"prompt_sha256: is not the hash of the prompt's tokens at sequence {s}"


def _prompt_ids(columns: Mapping[str, NDArray]) -> Iterator[str]:
    broken = list(_cuts(columns, "prompt_id_offsets", "prompt_id", empty_allowed=True))
    yield from broken
    if broken or not {"prompt_id_offsets", "prompt_id"} <= columns.keys():
        return
    offsets, text = columns["prompt_id_offsets"], columns["prompt_id"].astype(np.uint8, copy=False)
    for s in range(len(offsets) - 1):
        try:
            text[offsets[s] : offsets[s + 1]].tobytes().decode()
        except UnicodeDecodeError as error:
            yield f"prompt_id: is not UTF-8 at sequence {s}: {error.reason}"


def _logits(columns: Mapping[str, NDArray]) -> Iterator[str]:
    if "logit_row" in columns:
        ascending = columns["logit_row"][1:] > columns["logit_row"][:-1]
        if not ascending.all():
            yield f"logit_row: does not ascend after record {int(ascending.argmin())}"
    if "logit_id" in columns:
        finding = _Finding()
        for start, (chunk,) in in_chunks(columns["logit_id"]):
            ids = np.sort(chunk, axis=1)
            finding.add(ids[:, 1:] == ids[:, :-1], ids, start)
        if finding.count:
            yield f"logit_id: holds {finding.value} twice at record {finding.index[0]}"


_STRUCTURE: tuple[Callable[[Mapping[str, NDArray]], Iterator[str]], ...] = (
    _rows,
    _identity,
    _prompts,
    _prompt_ids,
    _logits,
)
