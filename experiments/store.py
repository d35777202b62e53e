r"""Results on disk: one file a setting, named by what it depends on, written atomically, never trusted unread.

A result depends on its claim, its setting, the seed, the bytes of the trace that the setting names, and the source: all
of hedgelab with the versions and the CPU that shape its numbers (`hedgelab._jit.source_hash`), the bundled costs, the
claim's module (of a package its `measure.py`), what that imports of this folder, and the versions of the packages that
it `needs`. A file's name is a hash of these,
and its metadata say them in full. Nothing else, a worker's host or the number of processes, changes a byte.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

import hedgelab
from experiments.claim import Answer
from experiments.settings import Arrays, ClaimError, Setting, trace_of
from hedgelab._jit import source_hash
from hedgelab.regret import Interval
from hedgelab.storage.costs import BUNDLED
from hedgelab.storage.shards import with_sorted_metadata, write_atomically
from hedgelab.storage.typed_json import seal, unseal

__all__ = [
    "Task",
    "code",
    "identity",
    "judgement",
    "load",
    "load_answers",
    "measure_of",
    "module_of",
    "needs",
    "save",
    "save_answers",
    "sources",
    "traces",
    "version",
]

Task = tuple[str, Setting, int]  # claim, setting, seed
HEDGELAB = Path(hedgelab.__file__).parent
TEXT = "|text"  # behind the name of an array that holds the letters of one of text


def module_of(name: str) -> str:
    """Return the module of a claim.

    >>> module_of("scaling")
    'experiments.claims.scaling'
    """
    return f"experiments.claims.{name}"


def measure_of(name: str) -> str:
    """Return the module on which a claim's results depend: its `measure.py` if it is a package, else itself."""
    own = module_of(name)
    return f"{own}.measure" if _is_module(f"{own}.measure") else own


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
            own = [*module.split("."), ""] if spec.submodule_search_locations else module.split(".")
            within = own[: -node.level] if node.level else []
            base = ".".join([*within, *([node.module] if node.module else [])])
            imported = [base, *(f"{base}.{alias.name}" for alias in node.names)]
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
def code(name: str) -> str:
    """Return a hash of the files that shape a claim's results: hedgelab, its costs, the claim and what it imports.

    As they were when this was first asked for, which `execute` does before it imports the claim.
    """
    return _digest_of_files((*sorted(HEDGELAB.rglob("*.py")), *sources(measure_of(name)), BUNDLED))


@functools.cache
def judgement(name: str) -> str:
    """Return a hash of the files that shape a claim's answers; as they were when first asked for, as `code`."""
    return _digest_of_files(sources(module_of(name)))


def _digest_of_files(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + _digest_of_file(path))
    return digest.hexdigest()[:16]


@functools.cache
def _digest_of_file(path: Path) -> bytes:
    """Once for each file: a module that one claim has brought in stays as it was when another one asks for it."""
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def _source(name: str) -> str:
    digest = hashlib.sha256(f"{code(name)} {source_hash()}".encode())
    for package in sorted(itertools.chain(*needs(name).values())):
        digest.update(f" {version(package)}".encode())
    return digest.hexdigest()[:16]


def needs(name: str) -> Mapping[str, Sequence[str]]:
    """Return {extra of hedgelab: its packages} that a claim uses beyond what hedgelab itself needs: its NEEDS, if any.

    >>> needs("domains"), needs("delay")
    ({'router': ('scikit-learn', 'scipy')}, {})
    """
    found: Mapping[str, Sequence[str]] = getattr(importlib.import_module(measure_of(name)), "NEEDS", {})
    return found


def version(package: str) -> str:
    """Return the version of a package, empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def identity(task: Task) -> dict[str, Any]:
    """Return all that a result depends on, as values that JSON can hold."""
    name, setting, seed = task
    known: dict[str, Any] = {"claim": name, "seed": seed, "source": _source(name), "setting": dict(setting)}
    for key, trace in traces(task).items():
        known[key] = trace
        known["setting"][key] = trace["name"]
    return known


def traces(task: Task) -> dict[str, dict[str, str]]:
    """Return {key of the setting: name and hash} of the traces that a setting names."""
    found = {}
    for key in ("trace", "train"):  # what is played on, and what a router is trained on if that is another
        if key in task[1]:
            trace = trace_of({"trace": task[1][key]})
            found[key] = {"name": trace.manifest.name, "sha256": trace.sha256}
    return found


def _text_of(task: Task) -> str:
    try:
        return json.dumps(identity(task), sort_keys=True)
    except TypeError as error:
        raise ClaimError(f"claim {task[0]!r}: setting {dict(task[1])}: {error}; settings are plain values") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _file(folder: Path, task: Task) -> Path:
    return folder / task[0] / f"{_digest(_text_of(task))[:20]}.safetensors"


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
        if column.dtype.kind not in "fiub" or column.dtype.itemsize > 8:
            raise ClaimError(f"claim {name!r}: {key!r} is {column.dtype}; results are arrays of numbers or text")
        native = np.ascontiguousarray(column.astype(column.dtype.newbyteorder("=")))
        columns[key] = native.reshape(column.shape)  # contiguous alone turns () into (1,)
    known = {"identity": _text_of(task), "sha256": _content(columns)}
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
    """Return what a task gave, None where there is no such file, or one that is not what was written for this task."""
    file = _file(folder, task)
    try:
        with safetensors.safe_open(file, framework="numpy") as opened:
            known = opened.metadata() or {}
            columns = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError):
        return None
    if known.get("sha256") != _content(columns) or known.get("identity") != _text_of(task):
        return None
    return {key.removesuffix(TEXT): _text(values) if key.endswith(TEXT) else values for key, values in columns.items()}


def _answers_file(folder: Path, tasks: Sequence[Task]) -> Path:
    return folder / tasks[0][0] / f"answers-{_key(tasks)}.json"


def _key(tasks: Sequence[Task]) -> str:
    """Return a hash of what answers depend on; the settings too as they were given, for cases are named by them."""
    given = json.dumps([dict(setting) for _, setting, _ in tasks], sort_keys=True)
    return _digest(" ".join([judgement(tasks[0][0]), given, *map(_text_of, tasks)]))[:20]


def save_answers(folder: Path, tasks: Sequence[Task], answers: Mapping[str, Answer]) -> None:
    """Keep what follows from the results of all of a claim's tasks."""
    plain = {
        key: {"note": answer.note, "cases": {case: list(effect) for case, effect in answer.cases().items()}}
        for key, answer in answers.items()
    }
    sealed = seal({"of": _key(tasks), "answers": json.dumps(plain)})  # as text: a seal has no room for NaN
    write_atomically(_answers_file(folder, tasks), sealed)


def load_answers(folder: Path, tasks: Sequence[Task]) -> dict[str, Answer] | None:
    """Return what `save_answers` kept, None where it kept nothing or the file was damaged."""
    try:
        found, problems = unseal(_answers_file(folder, tasks).read_bytes(), "answers")
    except OSError:
        return None
    if problems or found is None or found.get("of") != _key(tasks):
        return None
    return {
        key: Answer({case: Interval(*ends) for case, ends in each["cases"].items()}, each["note"])
        for key, each in json.loads(found["answers"]).items()
    }
