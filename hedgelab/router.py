r"""The offline router: from a prompt's tokens to one drafter for its whole text, learnt beforehand on other prompts.

The foil of the online learners: it sees the prompt alone and never what verification reveals. A text is the set of its
prompt's token ids and of pairs of neighbouring ids (traces hold ids, so no tokenizer is needed). Of those that occur in
at least two training prompts but not in all n of them (what a chat template repeats tells nothing),

    x_g = ln((1 + n) / (1 + n_g)) / norm        for each g in the prompt, n_g : training prompts with g
    P(drafter c) = softmax_c(b_c + sum_g W_cg x_g)

and the drafter of largest probability is used, the first of equals. W and b are scikit-learn's multinomial logistic
regression with an L2 penalty (`hedgelab.routing.train`); prediction needs numpy alone.

A router on disk is one safetensors file: the arrays of `Router`, and in its metadata sealed JSON (`About`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from hedgelab.storage.manifest import Name, Sha256, Sha256OrBlank
from hedgelab.storage.shards import read_file, write_atomically
from hedgelab.storage.typed_json import between, read, seal, to_document, unseal
from hedgelab.trace import Trace

__all__ = ["FORMAT_VERSION", "About", "Router", "RouterError", "grams_of", "load_router"]

FORMAT_VERSION = 1
ACCEPTED_VERSIONS = (1,)
_ABOUT = "router"  # the metadata's one key
_ARRAYS = {"grams": "<i8", "scale": "<f4", "weights": "<f4", "bias": "<f4", "trained_on": "|u1"}


class RouterError(ValueError):
    """A router cannot be trained, read, or used on a trace; the message says why."""


@dataclass(frozen=True)
class About:
    """What is known about a router beside its arrays.

    drafters : all that there were to choose from. classes : those of them that were best on a training prompt, in the
    order of the arrays' rows. default : needed the fewest rounds over all training texts
    k : draft length of the labels. penalty : C of the regression, its inverse strength
    """

    format_version: int
    drafters: tuple[Name, ...]
    classes: tuple[Name, ...]
    default: Name
    vocabulary: Annotated[int, between(1, 2**31)]
    tokenizer_sha256: Sha256OrBlank
    k: Annotated[int, between(1, 32767)]
    penalty: Annotated[float, between(0, 1e9)]
    trace: str
    trace_sha256: Sha256
    arrays_sha256: Sha256


def grams_of(ids: NDArray[np.integer], vocabulary: int) -> NDArray[np.int64]:
    """Return the ids of a text and its pairs of neighbours, each once, as ascending numbers.

    Id a is a, the pair (a, b) is V + a V + b, V the vocabulary, at most 2^31.

    >>> grams_of(np.array([1, 2, 1, 2]), 10).tolist()
    [1, 2, 22, 31]
    """
    a = np.asarray(ids, np.int64)
    return np.unique(np.concatenate([a, vocabulary + a[:-1] * vocabulary + a[1:]]))


def prompt_hashes(trace: Trace) -> NDArray[np.uint8]:
    """Return (S, 32) the sha256 of each text's prompt. RouterError for a trace without prompts."""
    if not all(len(trace.prompt_tokens(s)) for s in range(trace.sequences)):
        raise RouterError(f"trace {trace.manifest.name!r} holds texts without a prompt: a router has nothing to read")
    return trace.column("prompt_sha256")


@dataclass(frozen=True, eq=False)
class Router:
    """A trained router. F grams, C classes.

    grams : (F,) int64 ascending, numbers of `grams_of`. scale : (F,) float32, ln((1 + n) / (1 + n_g))
    weights : (C, F) float32. bias : (C,) float32. trained_on : (P, 32) uint8 ascending, sha256 of the training prompts
    """

    about: About
    grams: NDArray[np.int64]
    scale: NDArray[np.float32]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    trained_on: NDArray[np.uint8]

    def __repr__(self) -> str:
        about = self.about
        return f"<Router to {len(about.classes)} of {len(about.drafters)} drafters, trained on {about.trace!r}>"

    def features(self, ids: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the known grams of a prompt, as indices (h,), and their x (h,), of norm 1 unless there are none."""
        return features(grams_of(ids, self.about.vocabulary), self.grams, self.scale)

    def probabilities(self, ids: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return (C,) the probability that each class is the prompt's best drafter."""
        index, x = self.features(ids)
        score = self.bias + self.weights[:, index].astype(np.float64) @ x
        odds = np.exp(score - score.max())
        return odds / odds.sum()

    def fits(self, trace: Trace) -> None:
        """Raise RouterError unless a trace has this router's tokenizer and drafters."""
        manifest, about = trace.manifest, self.about
        if (manifest.tokenizer_sha256, manifest.vocabulary) != (about.tokenizer_sha256, about.vocabulary):
            raise RouterError(
                f"the router was trained on tokens of tokenizer sha256 {about.tokenizer_sha256[:12] or 'unknown'} with "
                f"{about.vocabulary} ids; trace {manifest.name!r} has {manifest.tokenizer_sha256[:12] or 'unknown'} "
                f"with {manifest.vocabulary}"
            )
        missing = [name for name in about.drafters if name not in trace.drafters]
        if missing:
            raise RouterError(
                f"the router chooses among drafters that trace {manifest.name!r} has not: {', '.join(missing)}; "
                f"it has {', '.join(trace.drafters)}"
            )

    def route(self, trace: Trace) -> NDArray[np.int64]:
        """Return (S,) the index, in the trace, of the drafter for each text. RouterError where it does not fit."""
        self.fits(trace)
        prompt_hashes(trace)
        place = [trace.drafters.index(name) for name in self.about.classes]
        best = [int(self.probabilities(trace.prompt_tokens(s)).argmax()) for s in range(trace.sequences)]
        return np.array([place[c] for c in best], np.int64)

    def contexts(self, trace: Trace) -> NDArray[np.float64]:
        """Return (S, N) the route as distributions: the context of `hedgelab.algorithms.router`'s learner."""
        return np.eye(len(trace.drafters))[self.route(trace)]

    def seen(self, trace: Trace) -> NDArray[np.bool_]:
        """Return (S,) whether a text's prompt, or that of another turn of its conversation, was trained on."""
        known = {row.tobytes() for row in self.trained_on}
        own = np.array([row.tobytes() in known for row in trace.column("prompt_sha256")])
        return np.isin(trace.conversations, trace.conversations[own])

    def refuse_seen(self, trace: Trace) -> None:
        """Raise RouterError where a trace holds prompts that this router was trained on."""
        count = int(self.seen(trace).sum())
        if count:
            raise RouterError(
                f"{count} of the {trace.sequences} texts of trace {trace.manifest.name!r} are of prompts that the "
                "router was trained on: what it does there says nothing about other prompts. "
                "`hedgelab router validate` leaves out prompts of one trace in turn"
            )

    # -------------------------------------------------------------- on disk

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the router to one file, atomically; the same router gives the same bytes."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        raw = safetensors.numpy.save(arrays, {_ABOUT: seal(to_document(self.about)).decode()})
        write_atomically(Path(path), raw)


def features(
    found: NDArray[np.int64], grams: NDArray[np.int64], scale: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return where `found` grams lie among `grams`, and their scales divided by their norm; unknown ones are left out.

    >>> features(np.array([1, 4, 9]), np.array([1, 5, 9]), np.array([3, 1, 4], np.float32))
    (array([0, 2]), array([0.6, 0.8]))
    """
    place = np.searchsorted(grams, found)
    known = place < len(grams)
    known[known] = grams[place[known]] == found[known]
    index = place[known]
    x = scale[index].astype(np.float64)
    norm = float(np.sqrt(x @ x))
    return index, x / norm if norm else x


def arrays_hash(arrays: dict[str, NDArray[Any]]) -> str:
    """Return the sha256 of a router's arrays, shapes and bytes."""
    digest = hashlib.sha256()
    for name, dtype in _ARRAYS.items():
        digest.update(f"{name} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name], dtype).tobytes())
    return digest.hexdigest()


def load_router(path: str | os.PathLike[str]) -> Router:
    """Return the router of a file; RouterError says what is wrong with the file."""
    file = Path(path)
    try:
        read_file(file)  # says what cannot be read, or is no file
        with safe_open(file, "np") as opened:
            text = (opened.metadata() or {}).get(_ABOUT)
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
    except (ValueError, OSError, SafetensorError, TypeError, AttributeError) as error:  # the last two: unknown dtypes
        raise RouterError(f"{file}: cannot be read: {error}") from None
    if text is None:
        raise RouterError(f"{file}: is no router: its metadata has no {_ABOUT!r}")
    document, problems = unseal(text.encode(), str(file))
    if document is None:
        raise RouterError("\n".join(problems))
    version = document.get("format_version")
    if type(version) is not int or version not in ACCEPTED_VERSIONS:
        accepted = ", ".join(map(str, ACCEPTED_VERSIONS))
        raise RouterError(f"{file}: format_version: is {version!r}; this hedgelab reads {accepted}")
    about: Any = read(About, document, str(file), problems)
    if not problems:
        problems = [f"{file}: {problem}" for problem in _problems(about, arrays)]
    if problems:
        raise RouterError("\n".join(problems))
    return Router(about, **arrays)


def _problems(about: About, arrays: dict[str, NDArray[Any]]) -> list[str]:
    """Return what is wrong with names and arrays; they cannot be used where there is anything."""
    unknown = [name for name in (*about.classes, about.default) if name not in about.drafters]
    found = [f"{name!r} is none of its drafters {', '.join(about.drafters)}" for name in unknown]
    for words, names in (("drafters", about.drafters), ("classes", about.classes)):
        if not names or len(set(names)) < len(names):
            found.append(f"{words}: must be different names, at least one")
    if set(arrays) != set(_ARRAYS):
        return [*found, f"holds arrays {', '.join(sorted(arrays))}; allowed: {', '.join(sorted(_ARRAYS))}"]
    width, classes = arrays["grams"].size, len(about.classes)
    shapes = {"grams": (width,), "scale": (width,), "weights": (classes, width), "bias": (classes,)}
    shapes["trained_on"] = (arrays["trained_on"].size // 32, 32)
    for name, dtype in _ARRAYS.items():
        if arrays[name].dtype != np.dtype(dtype) or arrays[name].shape != shapes[name]:
            held = f"is {arrays[name].dtype} of shape {arrays[name].shape}"
            found.append(f"{name}: {held}; allowed: {np.dtype(dtype)} of shape {shapes[name]}")
    if found:
        return found
    if arrays_hash(arrays) != about.arrays_sha256:
        found.append("its arrays do not match the hash that was written with them: damaged")
    if not all(np.isfinite(arrays[name]).all() for name in ("scale", "weights", "bias")):
        found.append("scale, weights and bias must be finite")
    if (np.diff(arrays["grams"], prepend=-1) <= 0).any():
        found.append("grams must ascend from at least 0")
    return found
