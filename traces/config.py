"""Configurations of the collector and of the trainer: typed, from YAML, with every problem reported at once."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml

from hedgelab.storage.columns import COLUMNS, ENCODED, MAY_BE_ENCODED
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import JSON, UNREAD, Rule, between, one_of, pattern, read, to_document
from traces import heads
from traces.checkpoints import STORED
from traces.drafters import KINDS
from traces.prompts import DOMAINS, FORMATS, SPLITS, SWITCHING
from traces.targets import PACKAGED

__all__ = [
    "Config",
    "ConfigError",
    "DrafterEntry",
    "Name",
    "PromptSource",
    "TrainConfig",
    "beside",
    "defaults",
    "load_config",
    "load_train_config",
    "parse_config",
    "parse_train_config",
    "read_yaml",
]

Name = Annotated[
    str, pattern(r"(?!\.+$)[A-Za-z0-9._-]{1,64}", "1 to 64 letters, digits, dots, dashes, underscores, not dots alone")
]


class ConfigError(ValueError):
    """A configuration cannot be used; the message lists every problem, one a line, each with its place."""


@dataclass(frozen=True)
class PromptSource:
    """Which prompts: built-in ones (`split`, `domains`, `count`), or those of a `file`.

    domains : () for all; of a conversation both turns' domains must be among them. count : prompts per domain, of
    split `switching` conversations in all; 0 for all there are. samples : texts per prompt.
    count_of, samples_of : the same for single domains, a conversation's being that of its first turn
    """

    split: Annotated[str, one_of((*SPLITS, SWITCHING))] = "heldout"
    domains: tuple[str, ...] = ()
    count: Annotated[int, between(0, 10**6)] = 0
    samples: Annotated[int, between(1, 1000)] = 1
    count_of: dict[str, Annotated[int, between(0, 10**6)]] = field(default_factory=dict)
    samples_of: dict[str, Annotated[int, between(1, 1000)]] = field(default_factory=dict)
    file: str | None = None
    format: Annotated[str, one_of(FORMATS)] | None = None


@dataclass(frozen=True)
class DrafterEntry:
    """One drafter. `options` are those of its kind."""

    name: Name
    kind: Annotated[str, one_of(tuple(KINDS))]
    processing: Processing
    options: JSON = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """Everything that decides what a recording holds.

    max_new_tokens : of a text, the first one (which is no row) and EOS counted; of a conversation each answer is a text
    loop : a text ends with the first n-gram of this length that it repeats; 0: never
    batch : prompts per shard. Their texts are generated together, so a shard depends on no other; of conversations
        first all first answers, then all second ones
    """

    name: Name
    drafters: tuple[DrafterEntry, ...]
    processing: Processing
    target: str = PACKAGED
    prompts: PromptSource = field(default_factory=PromptSource)
    max_new_tokens: Annotated[int, between(2, 2**20)] = 192
    k: Annotated[int, between(1, 64)] = 8
    batch: Annotated[int, between(1, 4096)] = 24
    seed: Annotated[int, between(0, 2**56 - 1)] = 0
    loop: Annotated[int, Rule(lambda n: n == 0 or n >= 2, "0, or at least 2")] = 12
    logits: Annotated[int, between(0, 2**20)] = 0
    encodings: dict[str, str] = field(default_factory=dict)
    drafter_processing: Processing = field(default_factory=lambda: Processing(1.0))
    folder: str = "."  # where relative paths begin

    def encoding(self) -> dict[str, str]:
        """Return the encoding of every column that has one."""
        return {**dict.fromkeys(ENCODED, "float32"), **self.encodings}


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a trained head is, beside the target.

    texts : files of texts or trace folders, written by the target. domains : which of them, () for all.
    heldout, share : of each domain's prompts, the share kept for measuring, and of the others the share trained on;
        which ones is decided by the prompts' hashes, so that all heads leave out the same and shares are nested
    width : most ids of the vocabulary: the most frequent ones of all the texts, whatever the domains
    temperature : of the target's law that is learnt and of the head's own
    depth, decay : steps of the unroll (medusa: heads), and the weight of each one's loss over that of the one before
    last_token : whether medusa heads see the token that a round begins behind; published ones do not
    batch : texts a step. warmup : steps of linear warm-up, before a cosine to 0. clip : largest norm of a gradient
    steps, passes, cpu_seconds : length of the training, one of them. passes : over the training texts. CPU-seconds are
        those of the steps alone, without the target's passes; they become a number of steps once, at the rate of the
        warm-up
    save_every : steps between two states that `--resume` can go on from
    memory : GiB of the target's hidden states that are kept; others are computed again whenever their texts come up
    states : folders of hidden states kept while the texts were recorded (`traces.states`); then none are computed
    stored : precision of the stored weights: float32, float16, or int8 with a scale a row
    """

    name: Name
    kind: Annotated[str, one_of(heads.KINDS)]
    taps: tuple[Annotated[int, between(0, 1000)], ...]
    texts: tuple[str, ...]
    temperature: Annotated[float, between(1e-3, 1e3)]
    target: str = PACKAGED
    domains: tuple[str, ...] = ()
    heldout: Annotated[float, between(0, 0.5)] = 0.05
    share: Annotated[float, Rule(lambda value: 0 < value <= 1, "in (0, 1]")] = 1.0
    width: Annotated[int, between(1, 2**20)] = 4096
    depth: Annotated[int, between(1, 16)] = 1
    last_token: bool = True
    decay: Annotated[float, between(0, 1)] = 0.85
    batch: Annotated[int, between(1, 4096)] = 8
    learning_rate: Annotated[float, between(0, 1)] = 1e-3
    weight_decay: Annotated[float, between(0, 1)] = 0.01
    warmup: Annotated[int, between(1, 10**6)] = 20
    clip: Annotated[float, Rule(lambda value: value > 0, "above 0")] = 1.0
    steps: Annotated[int, between(1, 10**7)] | None = None
    passes: Annotated[float, Rule(lambda value: 0 < value <= 1e6, "in (0, 1e6]")] | None = None
    cpu_seconds: Annotated[float, Rule(lambda value: value > 0, "above 0")] | None = None
    save_every: Annotated[int, between(1, 10**6)] = 50
    memory: Annotated[float, between(0, 1024)] = 2.0
    states: tuple[str, ...] = ()
    stored: Annotated[str, one_of(STORED)] = "float32"
    seed: Annotated[int, between(0, 2**31)] = 0
    folder: str = "."


def load_config(file: Path, folder: Path | None = None) -> tuple[Config, dict[str, Any]]:
    """Return a YAML file as (typed configuration, the document as written); ConfigError lists all problems.

    `drafters` may name a YAML file beside this one, with the list; a file of prompts lies beside it, too. folder :
    where other relative paths begin, the file's own unless given
    """
    document = read_yaml(file)
    if isinstance(document.get("drafters"), str):
        document = {**document, "drafters": read_yaml(file.parent / document["drafters"], list)}
    return beside(parse_config(document, folder or file.parent, str(file)), file.parent), document


def beside(config: Config, folder: Path) -> Config:
    """Return a configuration whose file of prompts is looked for in `folder`."""
    if config.prompts.file is None:
        return config
    file = str(folder.resolve() / config.prompts.file)
    return dataclasses.replace(config, prompts=dataclasses.replace(config.prompts, file=file))


def load_train_config(file: Path) -> tuple[TrainConfig, dict[str, Any]]:
    """Return a YAML file as (typed configuration, the document as written); ConfigError lists all problems."""
    document = read_yaml(file)
    return parse_train_config(document, file.parent, str(file)), document


def read_yaml(file: Path, kind: type = dict) -> Any:
    """Return the mapping, or the list, that a YAML file holds; ConfigError if it holds none."""
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {error}") from error
    if not isinstance(document, kind):
        raise ConfigError(f"{file}: holds no {'mapping' if kind is dict else kind.__name__}")
    return document


def parse_config(document: dict[str, Any], folder: Path = Path("."), place: str = "config") -> Config:
    """Return a document as a typed configuration; ConfigError lists all problems.

    A drafter without `processing` takes `drafter_processing`; other missing fields take their defaults.

    >>> parse_config({"name": "x", "drafters": [], "processing": {"temperature": -1}, "kk": 3})
    Traceback (most recent call last):
    traces.config.ConfigError: config.kk: unknown field
    config.processing.temperature: is -1; allowed: at least 0
    """
    whole = {**defaults(Config), **document, "folder": str(folder)}
    for name, kind in (("processing", Processing), ("drafter_processing", Processing), ("prompts", PromptSource)):
        whole[name] = _filled(kind, whole.get(name, UNREAD))
    if isinstance(document.get("drafters"), list):
        whole["drafters"] = [_drafter(entry, whole["drafter_processing"]) for entry in document["drafters"]]
    whole = {name: value for name, value in whole.items() if value is not UNREAD}
    problems: list[str] = []
    config = read(Config, whole, place, problems)
    problems += _problems(config, place)
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def parse_train_config(document: dict[str, Any], folder: Path = Path("."), place: str = "config") -> TrainConfig:
    """Return a document as a typed configuration of a training; ConfigError lists all problems.

    >>> given = {"name": "x", "texts": ["train"], "temperature": 1.0}
    >>> parse_train_config({**given, "kind": "truncated", "taps": [15], "depth": 3})
    Traceback (most recent call last):
    traces.config.ConfigError: config.depth: is 3; a truncated head has 1
    config: one of steps, passes and cpu_seconds says how long to train; 0 given
    """
    problems: list[str] = []
    whole = {**defaults(TrainConfig), **document, "folder": str(folder)}
    config = read(TrainConfig, whole, place, problems)
    if config.kind == "truncated" and config.depth not in (1, UNREAD):
        problems.append(f"{place}.depth: is {config.depth}; a truncated head has 1")
    if config.kind in ("eagle", "truncated") and config.last_token is False:
        problems.append(f"{place}.last_token: is false; only medusa heads can do without that token")
    for name in ("taps", "texts"):
        if getattr(config, name) == ():
            problems.append(f"{place}.{name}: is empty; allowed: at least one")
    given = sum(value is not None for value in (config.steps, config.passes, config.cpu_seconds))
    if given != 1:
        problems.append(f"{place}: one of steps, passes and cpu_seconds says how long to train; {given} given")
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def options_of(entry: DrafterEntry, problems: list[str], place: str) -> Any:
    """Return a drafter's options in the type of its kind; what does not fit goes to `problems`."""
    kind = KINDS[entry.kind].options
    return read(kind, _filled(kind, entry.options), place, problems)


def defaults(kind: Any) -> dict[str, Any]:
    """Return a dataclass' defaults as a document."""
    found = {}
    for item in dataclasses.fields(kind):
        if item.default is not dataclasses.MISSING:
            found[item.name] = to_document(item.default)
        elif item.default_factory is not dataclasses.MISSING:
            found[item.name] = to_document(item.default_factory())
    return found


def _filled(kind: type, value: Any) -> Any:
    return {**defaults(kind), **value} if isinstance(value, dict) else value


def _drafter(entry: Any, processing: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    kind = entry.get("kind")
    if isinstance(kind, str) and kind in KINDS and KINDS[kind].drafter.certain:  # whatever the others' processing is
        processing = {"temperature": 0.0}
    filled = {**defaults(DrafterEntry), "processing": processing, **entry}
    return {**filled, "processing": _filled(Processing, filled["processing"])}


def _problems(config: Config, place: str) -> list[str]:
    """Return the faults that no field shows alone."""
    found: list[str] = []
    names: set[str] = set()
    for i, entry in enumerate(config.drafters):
        if entry.name is not UNREAD and entry.name in names:
            found.append(f"{place}.drafters[{i}].name: {entry.name!r} is used twice")
        names.add(entry.name)
        if entry.kind is not UNREAD and entry.options is not UNREAD:
            options_of(entry, found, f"{place}.drafters[{i}].options")
        found += _coldness(entry.processing, f"{place}.drafters[{i}].processing")
    found += _coldness(config.processing, f"{place}.processing")
    source = config.prompts
    if source.file is None and source.domains is not UNREAD:
        found += [
            f"{place}.prompts.domains: {name!r} is none of {', '.join(DOMAINS)}"
            for name in source.domains
            if name is not UNREAD and name not in DOMAINS
        ]
        if source.split == SWITCHING and len(set(source.domains)) == 1:
            found.append(f"{place}.prompts.domains: is {source.domains[0]!r} alone; {SWITCHING} needs two or more")
        if source.split == SWITCHING and source.count_of:
            found.append(f"{place}.prompts.count_of: is given; the count of {SWITCHING} is one over all domains")
    if config.encodings is not UNREAD:
        for name, encoding in config.encodings.items():
            allowed = COLUMNS[name].encodings if name in MAY_BE_ENCODED else ()
            if not allowed:
                found.append(f"{place}.encodings.{name}: unknown column; allowed: {', '.join(MAY_BE_ENCODED)}")
            elif encoding is not UNREAD and encoding not in allowed:
                found.append(f"{place}.encodings.{name}: is {encoding!r}; allowed: {', '.join(allowed)}")
    return found


def _coldness(processing: Processing, place: str) -> list[str]:
    temperature = processing.temperature
    if temperature is UNREAD or temperature == 0 or 1e-3 <= temperature < math.inf:
        return []
    # float32 logits divided by less would overflow
    return [f"{place}.temperature: is {temperature}; allowed: 0 (argmax), or at least 0.001"]
