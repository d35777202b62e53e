"""Texts: the token ids of a trace alone, in one small file; what n-gram drafters are counted from.

A training trace holds confidences, acceptances and statistics that counting does not need. `Texts.save` writes prompts
and texts as ids, two bytes each when the vocabulary allows, so that the drafters of the bundled traces can be rebuilt
without generating their training texts again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgelab.storage.shards import with_sorted_metadata, write_atomically

__all__ = ["Texts", "TextsError"]

_FORMAT = "hedgelab texts 1"


class TextsError(ValueError):
    """A file or folder of texts cannot be read; the message says which and why."""


@dataclass(frozen=True)
class Texts:
    """S texts, one after another: prompt ids, then the target's own ids (the first, prefill one included).

    token : (P + G,) int32; offsets : (S + 1,) int64; begin : (S,) int64, where in `token` the target's own ids begin
    domain : (S,) int64 index into `domains`; sha256 : of the trace, or of the file, that they came from
    """

    token: NDArray[np.int32]
    offsets: NDArray[np.int64]
    begin: NDArray[np.int64]
    domain: NDArray[np.int64]
    domains: tuple[str, ...]
    vocabulary: int
    tokenizer_sha256: str
    target: str
    sha256: str

    @classmethod
    def load(cls, path: Path) -> Texts:
        """Return the texts of a trace folder or of a file that `save` wrote."""
        if path.is_dir():
            return cls._of_trace(path)
        if not path.is_file():
            raise TextsError(f"{path}: neither a trace folder nor a file of texts")
        return cls._of_file(path)

    def save(self, file: Path) -> int:
        """Write one safetensors file; return its size in bytes."""
        from safetensors.numpy import save

        if len(self.domains) > 2**16 or (len(self.token) and self.token.min() < 0):
            raise TextsError("a file of texts holds at most 65536 domains, and no unknown tokens")
        narrow = np.uint16 if self.vocabulary <= 2**16 else np.int32
        arrays = {
            "token": self.token.astype(narrow),
            "offsets": self.offsets.astype(np.int32),
            "begin": self.begin.astype(np.int32),
            "domain": self.domain.astype(np.uint16),
        }
        about = {name: getattr(self, name) for name in ("domains", "vocabulary", "tokenizer_sha256", "target")}
        metadata = {"format": _FORMAT, "about": json.dumps({**about, "trace": self.sha256})}
        data = with_sorted_metadata(save(arrays, metadata=metadata))
        write_atomically(file, data)
        return len(data)

    def own(self) -> NDArray[np.bool_]:
        """Return which tokens the target wrote itself."""
        mask = np.zeros(len(self.token), bool)
        for begin, end in zip(self.begin, self.offsets[1:], strict=True):
            mask[begin:end] = True
        return mask

    def select(self, domains: tuple[str, ...]) -> Texts:
        """Return the texts of some domains; TextsError for a domain that is not there."""
        unknown = [name for name in domains if name not in self.domains]
        if unknown:
            raise TextsError(f"no texts of domain {', '.join(unknown)}; there are: {', '.join(self.domains)}")
        chosen = np.flatnonzero(np.isin(self.domain, [self.domains.index(name) for name in domains]))
        if not len(chosen):
            raise TextsError(f"no texts of domain {', '.join(domains)}")
        spans = [self.token[self.offsets[s] : self.offsets[s + 1]] for s in chosen]
        offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
        begin = offsets[:-1] + (self.begin - self.offsets[:-1])[chosen]
        return Texts(
            np.concatenate(spans), offsets, begin, self.domain[chosen], self.domains, self.vocabulary,
            self.tokenizer_sha256, self.target, self.sha256,
        )  # fmt: skip

    @classmethod
    def join(cls, parts: Sequence[Texts]) -> Texts:
        """Return the texts of all parts, one after another; TextsError if they are of different targets."""
        first = parts[0]
        for part in parts:
            if (part.target, part.tokenizer_sha256) != (first.target, first.tokenizer_sha256):
                raise TextsError(f"texts of {part.target!r} and {first.target!r} cannot be joined")
        names = tuple(dict.fromkeys(name for part in parts for name in part.domains))
        sizes = np.concatenate([np.diff(part.offsets) for part in parts])
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        begin = offsets[:-1] + np.concatenate([part.begin - part.offsets[:-1] for part in parts])
        domain = np.concatenate(
            [np.array([names.index(name) for name in part.domains], np.int64)[part.domain] for part in parts]
        )
        sha256 = hashlib.sha256(json.dumps([part.sha256 for part in parts]).encode()).hexdigest()
        return cls(
            np.concatenate([part.token for part in parts]), offsets, begin, domain, names, first.vocabulary,
            first.tokenizer_sha256, first.target, sha256,
        )  # fmt: skip

    @classmethod
    def _of_trace(cls, folder: Path) -> Texts:
        from hedgelab.trace import open_trace

        trace = open_trace(folder)
        pieces, sizes, begins = [], [], []
        for s in range(trace.sequences):
            prompt = np.asarray(trace.prompt_tokens(s))
            rows = np.asarray(trace.token[trace.offsets[s] : trace.offsets[s + 1]])
            pieces += [prompt, np.asarray(trace.first_token[s : s + 1]), rows]
            sizes.append(len(prompt) + 1 + len(rows))
            begins.append(len(prompt))
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        names = trace.manifest.domains
        domain = np.array([names.index(str(name)) for name in trace.domains], np.int64)
        return cls(
            np.concatenate(pieces).astype(np.int32), offsets, offsets[:-1] + np.array(begins), domain, names,
            trace.manifest.vocabulary, trace.manifest.tokenizer_sha256, trace.manifest.target.name, trace.sha256,
        )  # fmt: skip

    @classmethod
    def _of_file(cls, file: Path) -> Texts:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(file, framework="numpy") as store:
                metadata = store.metadata() or {}
                if metadata.get("format") != _FORMAT:
                    raise TextsError(f"{file}: format is {metadata.get('format')!r}; this code reads {_FORMAT!r}")
                about: dict[str, Any] = json.loads(metadata["about"])
                token = store.get_tensor("token").astype(np.int32)
                offsets, begin, domain = (store.get_tensor(n).astype(np.int64) for n in ("offsets", "begin", "domain"))
            texts_of = (
                tuple(about["domains"]),
                int(about["vocabulary"]),
                str(about["tokenizer_sha256"]),
                str(about["target"]),
            )
        except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
            raise TextsError(f"{file}: cannot be read as texts: {error}") from error
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        texts = cls(token, offsets, begin, domain, *texts_of, sha256)
        steady = len(offsets) == len(begin) + 1 == len(domain) + 1 and offsets[0] == 0 and offsets[-1] == len(token)
        inside = steady and bool((offsets[:-1] <= begin).all() and (begin <= offsets[1:]).all())
        inside = inside and (len(domain) == 0 or int(domain.max()) < len(texts.domains))
        known = len(token) == 0 or 0 <= int(token.min()) <= int(token.max()) < texts.vocabulary
        if not (inside and known):
            raise TextsError(f"{file}: offsets, domains or ids are out of range")
        return texts
