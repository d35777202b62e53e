"""What a trace says about itself, in full: typed, checked, sealed by its own hash."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from hedgelab.storage.columns import COLUMNS, ENCODED, MAY_BE_ENCODED, STOPS
from hedgelab.storage.errors import TraceError
from hedgelab.storage.typed_json import JSON, UNREAD, Rule, between, one_of, pattern, read, seal, to_document, unseal

__all__ = [
    "CARD",
    "FEEDBACK",
    "FORMAT_VERSION",
    "LOCK",
    "MANIFEST",
    "MEASURED",
    "PATHS",
    "RULES",
    "Drafter",
    "Dropped",
    "Manifest",
    "Model",
    "Processing",
    "Shard",
    "shard_name",
]

FORMAT_VERSION = 1
ACCEPTED_VERSIONS = (1,)

# what a trace's folder holds beside its shards
MANIFEST = "manifest.json"
MEASURED = "measured.json"  # call costs, times, host: what varies from run to run; not in the trace's hash
CARD = "README.md"  # for readers; optional, not in the hash
LOCK = ".lock"  # held by a writer at work

RULES = ("chain", "one_hot", "tree", "recursive", "independent")  # acceptance rules
PATHS = ("own_sample", "greedy", "given")  # how the target's path came about
FEEDBACK = ("full", "bandit")

Name = Annotated[str, pattern(r".*\S.*", "not blank")]
Sha256 = Annotated[str, pattern("[0-9a-f]{64}", "64 hexadecimal digits")]
Sha256OrBlank = Annotated[str, pattern("([0-9a-f]{64})?", "64 hexadecimal digits, or empty where nobody knows")]
Count = Annotated[int, between(0, math.inf)]


@dataclass(frozen=True)
class Processing:
    """How logits became the law that was sampled from or verified against."""

    temperature: Annotated[float, between(0, math.inf)]  # 0: argmax
    top_k: Count = 0  # 0: off
    top_p: Annotated[float, Rule(lambda value: 0 < value <= 1, "in (0, 1]")] = 1.0


@dataclass(frozen=True)
class Model:
    """A language model: what it is and where it came from."""

    name: Name
    source: str
    revision: str
    sha256: Sha256OrBlank
    dtype: str
    license: str


@dataclass(frozen=True)
class Drafter:
    """A drafter. Depth 1: its alpha depends on the prefix alone; depth k: also on the draft so far."""

    name: Name
    kind: Name
    rule: Annotated[str, one_of(RULES)]  # of which alpha and gamma were computed
    depth: Annotated[int, between(1, math.inf)]
    processing: Processing
    model: Model | None = None
    details: dict[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True)
class Dropped:
    """A record that was not kept, and why."""

    prompt_id: str
    reason: Name


@dataclass(frozen=True)
class Shard:
    """One file of the trace. `cuts` counts the texts that were cut where a loop began."""

    file: str
    rows: Count
    sequences: Count
    sha256: Sha256
    bytes: Annotated[int, between(8, math.inf)]
    cuts: Count
    dropped: tuple[Dropped, ...]


@dataclass(frozen=True)
class Manifest:
    """Everything about a trace that is not an array. The constructor checks nothing; `checked` and `from_json` do."""

    format_version: int
    name: Name
    path: Annotated[str, one_of(PATHS)]
    feedback: Annotated[str, one_of(FEEDBACK)]
    k: Annotated[int, between(1, 32767)]  # depths of the deep blocks; `proposed` counts them in int16
    target: Model
    tokenizer_sha256: Sha256OrBlank
    vocabulary: Annotated[int, between(1, 2**31)]  # token ids are int32
    target_processing: Processing
    drafters: tuple[Drafter, ...]
    domains: tuple[Name, ...]
    encodings: dict[str, str]  # one of columns.ENCODINGS for each of columns.ENCODED; others are stored as they are
    logits: Count  # M of the top-M record, 0: none
    seed: Annotated[int, between(0, 2**56 - 1)]  # what hedgelab.coins accepts
    versions: dict[str, str]
    licenses: dict[str, str]
    settings: dict[str, JSON]  # the collector's configuration, verbatim
    complete: bool
    shards: tuple[Shard, ...]

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    @property
    def sequences(self) -> int:
        """Sequences of all shards."""
        return sum(shard.sequences for shard in self.shards)

    @property
    def flat(self) -> tuple[int, ...]:
        """Indices of the flat drafters (depth 1), in the order of their columns."""
        return tuple(i for i, drafter in enumerate(self.drafters) if drafter.depth == 1)

    @property
    def deep(self) -> tuple[int, ...]:
        """Indices of the deep drafters (depth k > 1), in the order of their columns."""
        return tuple(i for i, drafter in enumerate(self.drafters) if drafter.depth != 1)

    @functools.cached_property
    def sizes(self) -> dict[str, float]:
        """The sizes and limits that `columns.COLUMNS` names, as far as the manifest decides them."""
        return {
            "N": len(self.drafters),
            "N1": len(self.flat),
            "N2": len(self.deep),
            "k": self.k,
            "M": self.logits,
            "V-1": self.vocabulary - 1,
            "domains-1": len(self.domains) - 1,
            "stops-1": len(STOPS) - 1,
            "log V": math.log(self.vocabulary) + 1e-3,
            # a given path may hold tokens of probability 0, and its first token may be unknown
            "least log": -math.inf if self.path == "given" else -1e30,
            "least first": -1 if self.path == "given" else 0,
        }

    def encoding(self, column: str) -> str:
        """Return how shards store a column; "float32" also means "as it is" for columns that are never encoded."""
        return self.encodings.get(column, "float32")

    def checked(self) -> Manifest:
        """Return an equal manifest with exact types (1 becomes 1.0 where a float belongs); TraceError lists faults."""
        return _checked(to_document(self))

    def to_json(self) -> str:
        """Return the text of manifest.json: sorted keys, one space of indent, sealed by its own sha256."""
        return seal(to_document(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Return the manifest of a manifest.json's text; TraceError lists every problem with its path."""
        document, problems = unseal(text.encode() if isinstance(text, str) else text, "manifest.json")
        if document is None:
            raise TraceError(*problems)
        try:
            manifest = _checked(document)
        except TraceError as error:
            raise TraceError(*error.problems, *problems) from None
        if problems:
            raise TraceError(*problems)
        return manifest


def shard_name(index: int) -> str:
    """Return the file name of a shard.

    >>> shard_name(3)
    'shard-00003.safetensors'
    """
    return f"shard-{index:05d}.safetensors"


def _checked(document: dict[str, Any]) -> Manifest:
    version = document.get("format_version")
    if type(version) is not int or version not in ACCEPTED_VERSIONS:
        # another version has other fields: reading on would only report nonsense
        accepted = ", ".join(map(str, ACCEPTED_VERSIONS))
        raise TraceError(f"manifest.format_version: is {version!r}; this hedgelab reads {accepted}")
    problems: list[str] = []
    try:
        manifest = read(Manifest, document, "manifest", problems)
    except RecursionError:
        raise TraceError("manifest: nested too deeply") from None
    problems += _problems_between(manifest)
    if problems:
        raise TraceError(*problems)
    return manifest


def _problems_between(manifest: Manifest) -> Iterator[str]:
    """Yield the faults that no field shows alone. A field that could not be read is UNREAD and breaks no rule."""
    temperature = manifest.target_processing.temperature
    if manifest.path == "greedy" and temperature not in (0, UNREAD):
        yield f"manifest.target_processing.temperature: is {temperature}; a greedy path has 0"
    if manifest.path == "own_sample" and temperature == 0:
        yield "manifest.target_processing.temperature: is 0; such a path is called greedy, not own_sample"
    if _read(manifest.logits, manifest.vocabulary) and manifest.logits > manifest.vocabulary:
        yield f"manifest.logits: is {manifest.logits}; at most the vocabulary, {manifest.vocabulary}"
    for name, entries in (("drafters", manifest.drafters), ("domains", manifest.domains)):
        if entries == ():
            yield f"manifest.{name}: is empty; allowed: at least one"
    yield from _repeated({f"manifest.drafters[{i}].name": entry.name for i, entry in enumerate(manifest.drafters)})
    yield from _repeated({f"manifest.domains[{i}]": name for i, name in enumerate(manifest.domains)})
    for i, drafter in enumerate(manifest.drafters):
        if _read(drafter.depth, manifest.k) and drafter.depth not in (1, manifest.k):
            yield f"manifest.drafters[{i}].depth: is {drafter.depth}; allowed: 1 or k = {manifest.k}"
    if _read(manifest.encodings):
        for name in ENCODED:
            encoding, allowed = manifest.encodings.get(name), COLUMNS[name].encodings
            if encoding not in (*allowed, UNREAD):
                yield f"manifest.encodings.{name}: is {encoding!r}; allowed: one of {', '.join(allowed)}"
        for name, encoding in manifest.encodings.items():
            if name not in MAY_BE_ENCODED:
                yield f"manifest.encodings.{name}: unknown column; allowed: {', '.join(MAY_BE_ENCODED)}"
            elif name not in ENCODED and encoding not in (*COLUMNS[name].encodings, UNREAD):
                yield f"manifest.encodings.{name}: is {encoding!r}; allowed: {', '.join(COLUMNS[name].encodings)}"
    for i, shard in enumerate(manifest.shards):
        # no other name is possible, so no path can lead out of the folder
        if shard.file not in (shard_name(i), UNREAD):
            yield f"manifest.shards[{i}].file: is {shard.file!r}; allowed: {shard_name(i)!r}"
        if _read(shard.rows, shard.sequences):
            if shard.rows < shard.sequences:
                yield f"manifest.shards[{i}].rows: is {shard.rows}, fewer than its {shard.sequences} sequences"
            if shard.rows > 0 == shard.sequences:
                yield f"manifest.shards[{i}].sequences: is 0, but there are {shard.rows} rows"


def _read(*values: Any) -> bool:
    return all(value is not UNREAD for value in values)


def _repeated(names: dict[str, str]) -> Iterator[str]:
    first: dict[str, str] = {}
    for place, name in names.items():
        if name is UNREAD:
            continue
        if name in first:
            yield f"{place}: is {name!r}, which {first[name]} is too"
        first.setdefault(name, place)
