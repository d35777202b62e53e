"""The columns of one shard, in memory or mapped, and what engines see of them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hedgelab.storage.columns import COLUMNS, decode, shape_of
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Manifest
from hedgelab.storage.values import ragged_problems, value_problems

__all__ = ["Block", "Part"]


@dataclass(frozen=True, eq=False)
class Part:
    """Some sequences of one shard, for engines: arrays of the shard's T' rows, and which rows are meant.

    Every array is read-only, C-contiguous and a view: of the memory map, or of what was decoded once.
    """

    alpha_flat: NDArray[np.float32]  # (T', N1)
    gamma_flat: NDArray[np.float32]  # (T', N1)
    alpha_deep: NDArray[np.float32]  # (T', k, N2)
    gamma_deep: NDArray[np.float32]  # (T', k, N2)
    proposed: NDArray[np.int16]  # (T', N2)
    match_length: NDArray[np.int16]  # (T', N2)
    confidence: NDArray[np.float32]  # (T', N)
    begin: NDArray[np.int64]  # (s,) first row of each sequence
    end: NDArray[np.int64]  # (s,) one past its last row
    sequence_id: NDArray[np.int64]  # (s,) keys the coins
    position: NDArray[np.int64]  # (s,) index of the sequence in the trace or selection


class Block:
    """The columns of one shard, decoded when first asked for."""

    def __init__(
        self, manifest: Manifest, name: str, stored: Mapping[str, NDArray], sizes: Mapping[str, float], sequences: int
    ) -> None:
        self.name = name  # of the file; "" in memory
        self.sequences = sequences
        self.stored = stored
        self._manifest, self._sizes = manifest, sizes
        self._decoded: dict[str, NDArray] = {}
        self._problems: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __getitem__(self, name: str) -> NDArray:
        """Return a column's values, read-only."""
        if name not in self._decoded:
            column, encoding = COLUMNS[name], self._manifest.encoding(name)
            try:
                values = decode(self.stored[name], encoding, shape_of(column, self._sizes), column.dtype)
            except ValueError as error:
                raise TraceError(*self._placed([f"{name}: {error}"])) from None
            self._decoded[name] = values
        return self._decoded[name]

    def problems(self, columns: Iterable[str] | None = None) -> tuple[str, ...]:
        """Return what is wrong with the values of some columns, or of all; found once."""
        names = tuple(self.stored if columns is None else (name for name in columns if name in self.stored))
        if names not in self._problems:
            values: dict[str, NDArray] = {}
            damaged: list[str] = []
            for name in names:
                try:
                    values[name] = self[name]
                except TraceError as error:
                    damaged += error.problems
            found = self._placed(value_problems(self._manifest, values, self._sizes))
            self._problems[names] = (*damaged, *found)
        return self._problems[names]

    @functools.cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The column `offsets`, safe to index rows with: compiled code checks nothing. TraceError where it is not."""
        return self._safe("offsets", len(self["token"]), empty_allowed=False)

    def ragged_offsets(self, name: str) -> NDArray[np.int64]:
        """Return the offsets of `prompt_token` or `prompt_id`, safe to index with."""
        return self._prompt_offsets if name == "prompt_token" else self._prompt_id_offsets

    @functools.cached_property
    def _prompt_offsets(self) -> NDArray[np.int64]:
        return self._safe("prompt_offsets", len(self["prompt_token"]), empty_allowed=True)

    @functools.cached_property
    def _prompt_id_offsets(self) -> NDArray[np.int64]:
        return self._safe("prompt_id_offsets", len(self["prompt_id"]), empty_allowed=True)

    def _safe(self, name: str, total: int, *, empty_allowed: bool) -> NDArray[np.int64]:
        if problems := self._placed(ragged_problems(name, self[name], total, empty_allowed=empty_allowed)):
            raise TraceError(*problems)
        return self[name]

    def _placed(self, problems: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{self.name}: {problem}" if self.name else problem for problem in problems)
