"""Hidden states that a target had while it wrote its texts, kept on disk: heads train on them without a second pass.

A folder holds one safetensors file a shard of the recording, written when the shard is. Per text, all its tokens but
the last (which nothing follows):

    state.l   (N, H) float32, what layer l wrote; the last layer's has passed the final norm
    total     (M,) float32, log sum exp of the target's logits / temperature, from the prompt's last token on
    text      (S, 32) uint8, sha256 of each text's ids (int64, little-endian); offsets, total_offsets: (S + 1,) int64

States of one text differ in the last bits between a pass over the whole text and the steps that wrote it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hedgelab.storage.shards import with_sorted_metadata, write_atomically
from traces.targets import Target

__all__ = ["KeepStates", "StateWriter", "States", "StatesError", "text_hash"]

_FORMAT = "hedgelab states 1"
_NAME = "states-{:05d}.safetensors"


class StatesError(ValueError):
    """Kept states are missing, damaged, or of another target; the message names the folder."""


@dataclass(frozen=True)
class KeepStates:
    """What a recording shall keep for training: layers `taps` (the last is kept anyway), and `total` at `temperature`.

    taps : numbered as in `traces.heads`
    """

    folder: Path
    taps: tuple[int, ...]
    temperature: float


def text_hash(ids: NDArray[np.int64]) -> bytes:
    """Return the sha256 of a text's ids, prompt included."""
    return hashlib.sha256(np.ascontiguousarray(ids, "<i8").tobytes()).digest()


class StateWriter:
    """The states of one shard while its texts are written."""

    def __init__(self, keep: KeepStates, target: Target, shard: int) -> None:
        self._keep, self._target, self._shard = keep, target, shard
        self.taps = layers_of(target, keep.taps)
        self._steps: list[list[Tensor]] = []  # of each row: states (B, H) of every tap, then totals (B,)
        self._active: list[Tensor] = []

    def begin(self, prompts: Tensor, states: Mapping[int, Tensor], logits: Tensor) -> None:
        """Keep what is known of prompts (B, P), left-padded with -1, states (B, P, H) and logits (B, V) behind them."""
        self._real = prompts >= 0
        self._first = [states[tap].float().cpu() for tap in self.taps]
        self._total = self._totals(logits)

    def row(self, active: Sequence[int], states: Sequence[Tensor], logits: Tensor) -> None:
        """Keep a step's states, one (B, H) a layer, and logits (B, V), of the texts `active`."""
        self._active.append(torch.tensor(active))
        self._steps.append([*(states[tap].float().cpu() for tap in self.taps), self._totals(logits)])

    def write(self, texts: Mapping[int, NDArray[np.int64]]) -> None:
        """Write the shard's file; texts : place in the batch -> ids of the whole text, for those that are kept."""
        where: dict[int, list[tuple[int, int]]] = {s: [] for s in texts}
        for t, active in enumerate(self._active):
            for row, s in enumerate(active.tolist()):
                if s in where:
                    where[s].append((t, row))
        states: list[list[Tensor]] = [[] for _ in self.taps]
        totals, lengths = [], []
        for s, ids in texts.items():
            own = where[s][: len(ids) - 1 - int(self._real[s].sum())]
            lengths.append((len(ids) - 1, len(own) + 1))
            for column in range(len(self.taps)):
                states[column].append(self._first[column][s][self._real[s]])
                states[column] += [self._steps[t][column][row][None] for t, row in own]
            totals.append(torch.stack([self._total[s], *(self._steps[t][-1][row] for t, row in own)]))
        width = self._first[0].shape[-1]
        tensors = {
            f"state.{tap}": torch.cat([*column, torch.empty(0, width)])
            for tap, column in zip(self.taps, states, strict=True)
        }
        tensors["total"] = torch.cat([*totals, torch.empty(0)])
        digests = b"".join(map(text_hash, texts.values()))
        tensors["text"] = torch.from_numpy(np.frombuffer(digests, np.uint8).reshape(-1, 32).copy())
        for i, name in enumerate(("offsets", "total_offsets")):
            sizes = [length[i] for length in lengths]
            tensors[name] = torch.tensor(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
        about = json.dumps(_about(self._target, self._keep.temperature))
        self._keep.folder.mkdir(parents=True, exist_ok=True)
        file = self._keep.folder / _NAME.format(self._shard)
        write_atomically(file, with_sorted_metadata(save(tensors, metadata={"format": _FORMAT, "about": about})))

    def _totals(self, logits: Tensor) -> Tensor:
        return (logits.float() / self._keep.temperature).logsumexp(-1).cpu()


class States:
    """Kept states of one target at one temperature, by text.

    Raises StatesError for a folder without them, of another target, dtype or temperature, or without a layer of `taps`.
    """

    def __init__(self, folders: Sequence[Path], target: Target, taps: Sequence[int], temperature: float) -> None:
        self.taps, self._folders = layers_of(target, taps), tuple(folders)
        self._stores: list[Any] = []
        self._where: dict[bytes, tuple[int, int, int, int, int]] = {}
        for folder in folders:
            files = sorted(folder.glob(_NAME.replace("{:05d}", "*")))
            if not files:
                raise StatesError(f"{folder}: holds no kept states; they are made anew with the recording of the texts")
            for file in files:
                self._open(file, _about(target, temperature))

    def __contains__(self, ids: NDArray[np.int64]) -> bool:
        return text_hash(ids) in self._where

    def read(self, ids: NDArray[np.int64]) -> tuple[list[Tensor], Tensor]:
        """Return (states, one (L - 1, H) for each of `taps`; totals (G,)) of a text of L ids, G of them its own.

        StatesError if nothing was kept of it.
        """
        place = self._where.get(text_hash(ids))
        if place is None:
            raise StatesError(
                f"{', '.join(map(str, self._folders))}: no states of a training text were kept there; remove the "
                "recording of the texts together with its states to have both made anew"
            )
        store, begin, end, first, last = place
        opened = self._stores[store]
        states = [opened.get_slice(f"state.{tap}")[begin:end] for tap in self.taps]
        return states, opened.get_slice("total")[first:last]

    def _open(self, file: Path, wanted: dict[str, Any]) -> None:
        try:
            store = safe_open(file, framework="pt")
            metadata = store.metadata() or {}
            about = json.loads(metadata.get("about", "{}"))
            names = set(store.keys())
            texts, offsets, totals = (store.get_tensor(n) for n in ("text", "offsets", "total_offsets"))
        except (OSError, SafetensorError, ValueError) as error:
            raise StatesError(f"{file}: cannot be read as kept states: {error}") from error
        if metadata.get("format") != _FORMAT:
            raise StatesError(f"{file}: format is {metadata.get('format')!r}; this code reads {_FORMAT!r}")
        for name, value in wanted.items():
            if about.get(name) != value:
                raise StatesError(f"{file}: {name} of the kept states is {about.get(name)!r}, here it is {value!r}")
        if missing := [tap for tap in self.taps if f"state.{tap}" not in names]:
            raise StatesError(f"{file}: no states of layers {missing} were kept")
        for s, digest in enumerate(texts.numpy()):
            spans = (*offsets[s : s + 2].tolist(), *totals[s : s + 2].tolist())
            self._where[digest.tobytes()] = (len(self._stores), *spans)
        self._stores.append(store)


def layers_of(target: Target, taps: Sequence[int]) -> list[int]:
    """Return the layers kept for `taps`, in order, the target's last one at the end."""
    last = int(target.model.config.get_text_config().num_hidden_layers)
    return [*dict.fromkeys(tap for tap in taps if tap != last), last]


def _about(target: Target, temperature: float) -> dict[str, Any]:
    return {
        "target_sha256": target.info.sha256,
        "target_config_sha256": target.config_sha256,
        "dtype": target.info.dtype,
        "temperature": temperature,
    }
