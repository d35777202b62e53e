"""A pool of drafters from nothing: the target writes training texts, heads are trained on them, traces are recorded.

The steps of each of the three stages are independent; each runs in one process with one thread, and each
can be interrupted and resumed. They go through a `concurrent.futures.Executor`: a local process pool unless one is
given. What a pool's folder holds:

    texts/NAME-DOMAIN/    a recording of training texts; states/NAME-DOMAIN/, the target's hidden states in it
    texts.safetensors     all training texts as ids: what heads are trained on and n-grams counted from
    heads/NAME/           a trained head: weights, card, curve
    traces/NAME/          a recording with the pool's drafters
    steps.json            what every finished step has to say, and the seconds of its last run
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch

from hedgelab.processes import as_they_end, local_pool
from hedgelab.storage.manifest import MANIFEST
from hedgelab.storage.shards import write_atomically
from hedgelab.storage.typed_json import JSON, between, read
from traces.checkpoints import CARD
from traces.config import (
    ConfigError,
    Name,
    beside,
    defaults,
    load_config,
    parse_config,
    parse_train_config,
    read_yaml,
)
from traces.prompts import DOMAINS
from traces.states import KeepStates
from traces.targets import PACKAGED, layer_count, located
from traces.texts import Texts

__all__ = ["PoolConfig", "PoolError", "Step", "load_pool_config", "make_pool", "parse_pool_config"]

TEXTS, STATES, HEADS, TRACES, STEPS = "texts", "states", "heads", "traces", "steps.json"


class PoolError(RuntimeError):
    """A pool cannot be finished now; the message says what to do."""


@dataclass(frozen=True)
class PoolConfig:
    """A pool of heads and the texts that they are trained on.

    texts : name -> configuration of a recording, made once for each of `domains`; its seed is moved by the domain's
        place, its name, target, domains and drafters are filled in
    heads : configurations of trainings, without target, texts and states
    traces : configurations of traces to record with the pool, YAML files beside the pool's; paths of their drafters
        begin at the pool, prompt files lie beside the pool's configuration
    temperature : at which heads learn the target's law; workers : processes at a time
    """

    name: Name
    texts: dict[str, JSON]
    heads: tuple[JSON, ...]
    temperature: Annotated[float, between(1e-3, 1e3)]
    traces: tuple[str, ...] = ()
    target: str = PACKAGED
    domains: tuple[str, ...] = DOMAINS
    workers: Annotated[int, between(1, 1024)] = 2
    folder: str = field(default=".")

    def recordings(self) -> dict[str, dict[str, JSON]]:
        """Return the configuration of every recording, by its name."""
        found = {}
        for name, template in self.texts.items():
            for place, domain in enumerate(self.domains):
                found[f"{name}-{domain}"] = {
                    "drafters": [{"name": "lookup", "kind": "lookup"}],  # a trace has at least one; this costs nothing
                    "k": 1,
                    **template,
                    "name": f"{name}-{domain}",
                    "target": self.target,
                    "prompts": {"split": "train", **template.get("prompts", {}), "domains": [domain]},
                    "seed": template.get("seed", 0) + place,
                }
        return found

    def trainings(self) -> dict[str, dict[str, JSON]]:
        """Return the configuration of every training, by its name; paths begin at the pool's own folder."""
        return {
            head["name"]: {
                "target": self.target,
                "temperature": self.temperature,
                **head,
                "texts": [f"{TEXTS}.safetensors"],
                "states": [f"{STATES}/{name}" for name in self.recordings()],
            }
            for head in self.heads
        }

    def taps(self) -> tuple[int, ...]:
        """Return the layers that any head reads."""
        return tuple(sorted({tap for head in self.heads for tap in head.get("taps", ())}))

    def share(self, training: dict[str, JSON]) -> float:
        """Return how many of all domains' texts a head is trained on, about."""
        domains = training.get("domains") or self.domains
        return float(training.get("share", 1.0) * len(domains) / len(self.domains))

    def keep(self, folder: Path) -> KeepStates:
        """Return what a recording of training texts keeps for the heads."""
        return KeepStates(folder, self.taps(), self.temperature)


@dataclass(frozen=True)
class Step:
    """One step. kind : texts, heads or traces. out : its folder. keep : hidden states to keep of training texts.

    folder : of the pool's configuration, where a target may be. source : sha256 of the texts that it learns from.
    last : the target's last layer, which is always kept
    """

    name: str
    kind: str
    document: dict[str, Any]
    out: Path
    folder: Path
    device: str
    dtype: str
    keep: KeepStates | None = None
    source: str = ""
    last: int | None = None

    @property
    def fingerprint(self) -> str:
        """What decides the step's result, as a sha256. The last layer is no part of it: it is kept in any case."""
        return self._fingerprint([] if self.keep is None else [tap for tap in self.keep.taps if tap != self.last])

    @property
    def fingerprints(self) -> set[str]:
        """All that this step may be known by: pools of before counted the last layer where a head asked for it."""
        if self.keep is None or self.last is None:
            return {self.fingerprint}
        return {self.fingerprint, self._fingerprint(sorted({*self.keep.taps, self.last}))}

    def _fingerprint(self, taps: Sequence[int]) -> str:
        kept = None if self.keep is None else [taps, self.keep.temperature]
        facts = [self.kind, self.document, self.device, self.dtype, kept, self.source]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def title(self) -> str:
        """What the step is called in reports."""
        return f"{self.kind}/{self.name}"

    @property
    def finished(self) -> bool:
        """Whether its folder holds a whole head, or a whole recording."""
        if self.kind == HEADS:
            return (self.out / CARD).exists()
        try:
            return bool(json.loads((self.out / MANIFEST).read_text())["complete"])
        except (OSError, ValueError, KeyError):
            return False


def load_pool_config(file: Path) -> PoolConfig:
    """Return a YAML file as a pool's configuration; ConfigError lists all problems, those of its steps included."""
    return parse_pool_config(read_yaml(file), file.parent, str(file))


def parse_pool_config(document: dict[str, Any], folder: Path = Path("."), place: str = "config") -> PoolConfig:
    """Return a document as a pool's configuration; ConfigError lists all problems.

    >>> parse_pool_config({"name": "x", "texts": {}, "heads": [], "temperature": 0.6, "domains": ["law"]})
    Traceback (most recent call last):
    traces.config.ConfigError: config.texts: is empty; allowed: at least one
    config.heads: is empty; allowed: at least one
    config.domains: 'law' is none of python, math, biology, chemistry, medicine, sql, general
    """
    problems: list[str] = []
    whole = {**defaults(PoolConfig), **document, "folder": str(folder)}
    whole.pop("shared", None)  # a place for YAML anchors
    config = read(PoolConfig, whole, place, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    problems += [f"{place}.{name}: is empty; allowed: at least one" for name in ("texts", "heads") if not whole[name]]
    problems += [
        f"{place}.domains: {name!r} is none of {', '.join(DOMAINS)}" for name in config.domains if name not in DOMAINS
    ]
    if len(set(config.domains)) < len(config.domains) or not config.domains:
        problems.append(f"{place}.domains: is empty or names one twice")
    stems = [Path(name).stem for name in config.traces]
    problems += [f"{place}.traces: two are called {stem!r}" for stem in sorted(set(stems)) if stems.count(stem) > 1]
    bad = []
    for name, value in config.texts.items():
        at = f"{place}.texts.{name}"
        if not isinstance(value, dict) or not isinstance(value.get("prompts", {}), dict):
            bad.append(f"{at}: holds no mapping, or one whose prompts are none")
        elif given := sorted({"name", "target", "folder"} & set(value)):
            bad.append(f"{at}: {', '.join(given)} is the pool's to say")
        elif type(value.get("seed", 0)) is not int:
            bad.append(f"{at}.seed: is no whole number")
        elif value.get("prompts", {}).get("split", "train") != "train" or "file" in value.get("prompts", {}):
            bad.append(f"{at}.prompts: training texts answer the built-in training prompts, no other split and no file")
    bad += [
        f"{place}.heads[{i}]: holds no mapping with a name"
        for i, head in enumerate(config.heads)
        if not (isinstance(head, dict) and isinstance(head.get("name"), str))
    ]
    for head in config.heads if not bad else ():
        if given := sorted({"target", "texts", "states", "folder"} & set(head)):
            bad.append(f"{place}.heads.{head['name']}: {', '.join(given)} is the pool's to say")
    if not bad:
        names = [head["name"] for head in config.heads]
        problems += [f"{place}.heads: {name!r} is used twice" for name in sorted(set(names)) if names.count(name) > 1]
        for name, recording in config.recordings().items():
            problems += _problems_of(parse_config, recording, place=f"{place}.texts.{name}")
        for name, training in config.trainings().items():
            problems += _problems_of(parse_train_config, training, place=f"{place}.heads.{name}")
            if training["temperature"] != config.temperature:
                problems.append(f"{place}.heads.{name}.temperature: differs from the pool's")
            unknown = [domain for domain in training.get("domains") or () if domain not in config.domains]
            problems += [f"{place}.heads.{name}.domains: {domain!r} is none of the pool's" for domain in unknown]
    for name in config.traces:
        problems += _problems_of(load_config, folder / name)
    problems += bad
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return config


def make_pool(
    config: PoolConfig,
    out: Path,
    *,
    traces: bool = False,
    resume: bool = False,
    device: str = "cpu",
    dtype: str = "float32",
    executor: Executor | None = None,
    progress: Callable[[Sequence[str], int, int, str], None] = lambda running, done, total, note: None,
) -> dict[str, Any]:
    """Make or finish a pool in the folder `out`; return what steps.json then holds.

    traces : also record the configuration's traces. executor : runs the steps; must see the same files. progress :
    called with (running steps, steps done, steps in all, what the step that just ended has to say). Raises what
    `collect` and `train` raise, after the running steps ended.
    """
    if out.exists() and any(out.iterdir()) and not resume:
        raise ConfigError(f"{out}: is not empty; --resume goes on with an interrupted pool, or choose a new folder")
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(config.folder).resolve()
    at: dict[str, Any] = {"folder": folder, "device": device, "dtype": dtype}
    last = layer_count(located(config.target, folder))
    texts = [
        Step(name, TEXTS, document, out / TEXTS / name, keep=config.keep(out / STATES / name), last=last, **at)
        for name, document in config.recordings().items()
    ]
    heads = [Step(name, HEADS, document, out / HEADS / name, **at) for name, document in config.trainings().items()]
    files = [folder / name for name in config.traces] if traces else []
    recordings = [Step(file.stem, TRACES, load_config(file)[1], out / TRACES / file.stem, **at) for file in files]
    # the longest first, so that no core idles at the end: training goes by domains, then by the head's depth
    heads.sort(key=lambda step: (-config.share(step.document), -step.document.get("depth", 1)))
    report = _Report(out / STEPS, len(texts) + len(heads) + len(recordings), progress)
    with ExitStack() as stack:
        executor = executor or stack.enter_context(local_pool(config.workers))
        try:
            _run(texts, executor, config.workers, report)
            merged = out / f"{TEXTS}.safetensors"
            joined = Texts.join([Texts.load(step.out) for step in texts])
            joined.save(merged)
            heads = [dataclasses.replace(step, source=joined.sha256) for step in heads]
            _run(heads, executor, config.workers, report)
            _run(recordings, executor, config.workers, report)
        except BrokenExecutor as error:
            raise PoolError(
                f"{out}: a worker process was ended from outside (for want of memory?); --resume goes on, and fewer "
                "`workers` need less memory"
            ) from error
    return report.found


def run_step(step: Step) -> dict[str, Any]:
    """Run one step in this process, or the rest of it; return its seconds and what it has to say."""
    from traces.collect import collect
    from traces.train import train

    torch.set_num_threads(1)
    began, used = time.perf_counter(), time.process_time()
    where: dict[str, Any] = {"device": step.device, "dtype": step.dtype, "resume": True}
    pool, document = step.out.parent.parent.resolve(), step.document
    document = {**document, "target": located(document.get("target", PACKAGED), step.folder)}
    if step.kind != HEADS:
        config = beside(parse_config(document, pool), step.folder)
        summary = collect(config, step.document, step.out, states=step.keep, **where)
        note = f"{summary.sequences} texts, {summary.rows} tokens, {summary.cuts} cut at a loop"
    else:
        card = train(parse_train_config(document, pool), step.document, step.out, **where)
        shown = ", ".join(f"{value:.3f}" for value in card.acceptance)
        note = f"{card.tokens_seen} tokens seen, acceptance by depth {shown}"
    seconds = {"cpu_seconds": time.process_time() - used, "seconds": time.perf_counter() - began}
    return {"note": note, **seconds}


class _Report:
    """What steps took, kept on disk."""

    def __init__(self, file: Path, total: int, progress: Callable[[Sequence[str], int, int, str], None]) -> None:
        self._file, self._total, self._progress = file, total, progress
        self._done, self._running = 0, list[str]()
        try:
            self.found: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError):
            self.found = {}  # every step looks at its folder itself

    def has(self, step: Step) -> bool:
        """Return whether a step was finished by an earlier run, and count it if so; ConfigError if it was another."""
        if not (step.title in self.found and step.finished):
            return False
        if self.found[step.title].get("fingerprint") not in step.fingerprints:
            raise ConfigError(f"{step.out}: was made with another configuration or from other texts; use a new folder")
        self._done += 1
        return True

    def add(self, step: Step, result: dict[str, Any]) -> None:
        """Note a step that has just ended."""
        rounded = {name: round(v, 1) if isinstance(v, float) else v for name, v in result.items()}
        self.found[step.title] = {**rounded, "fingerprint": step.fingerprint}
        write_atomically(self._file, json.dumps(self.found, indent=1).encode())
        self._done += 1
        others = [title for title in self._running if title != step.title]
        self.show(others, f"{step.title}: {result['note']} ({result['seconds']:.0f} s)")

    def show(self, running: list[str], note: str = "") -> None:
        """Say how far it is."""
        self._running = running
        self._progress(running, self._done, self._total, note)


def _run(steps: Sequence[Step], executor: Executor, workers: int, report: _Report) -> None:
    waiting = [step for step in steps if not report.has(step)]
    ended = as_they_end(
        waiting,
        lambda step: executor.submit(run_step, step),
        at_once=workers,
        name=lambda step: f"step {step.title}",
        running=lambda steps: report.show([step.title for step in steps]),
    )
    for step, result in ended:
        report.add(step, result)


def _problems_of(parse: Callable[..., Any], *arguments: Any, **named: Any) -> list[str]:
    try:
        parse(*arguments, **named)
    except ConfigError as error:
        return str(error).splitlines()
    return []
