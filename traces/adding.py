"""Adding drafters to a recorded trace: its texts are read again, the new drafters are scored on them.

The target runs once more over every text, with the recorded tokens in place of drawn ones; what was recorded stays as
it is. The target's law must be the one that was recorded: at every row its probability of the token is held against
the recorded one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import traces.drafters.base as shapes
from hedgelab.storage.checking import damage
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Drafter, Manifest
from hedgelab.storage.recording import TraceWriter
from hedgelab.storage.shards import expected_columns
from hedgelab.trace import Trace, open_trace
from traces.collect import Batch, Clock, CollectError, Job, build_drafters, context_of, versions
from traces.config import Config, ConfigError, parse_config
from traces.prompts import Prompt
from traces.sampling import Dense, OneHot, process
from traces.targets import Target, load_target, located

__all__ = ["add"]

# most that a log-probability may differ from the recorded one, by the target's dtype: sums run in another order
_TOLERANCE = {"float32": 0.01, "bfloat16": 1.0, "float16": 0.2}


def add(
    source: Path,
    drafters: Sequence[dict[str, Any]],
    out: Path,
    *,
    pool: Path = Path("."),
    device: str = "cpu",
    batch: int = 40,
    resume: bool = False,
    progress: Callable[[int, int, int], None] = lambda done, total, rows: None,
) -> Trace:
    """Write to `out` the trace in `source` with further drafters behind its own, and return it.

    drafters : as in a configuration. One that the trace has is not recorded again; it is computed where a new one reads
    its laws, and must then be the one that was recorded. pool : where relative paths begin. batch : texts read
    together, and texts of a shard. progress : called with (texts done, texts in all, rows done).

    Raises TraceError for a source that is damaged, CollectError for one that is not finished or holds no drawn texts
    of this target, and where a text cannot be scored; ConfigError and DrafterError as `collect` does.
    """
    if batch < 1:
        raise ConfigError(f"batch: is {batch}; allowed: at least 1")
    trace = open_trace(source)
    manifest = trace.manifest
    _refuse(trace)
    recorded = {drafter.name: drafter for drafter in manifest.drafters}
    config = _config(manifest, drafters, trace, pool)
    written: dict[str, Any] = manifest.settings.get("config", {})
    spec = str(written.get("target", manifest.target.name))
    target = load_target(located(spec, pool), device, manifest.target.dtype)
    _same_target(manifest, target)
    built = build_drafters(config, target)
    for drafter in built:
        if drafter.name in recorded and drafter.describe() != recorded[drafter.name]:
            raise ConfigError(f"drafters: the trace has another {drafter.name!r}; rename it here, or list that one")
    new = [i for i, drafter in enumerate(built) if drafter.name not in recorded]
    texts = _texts_of(trace)
    fits = context_of(target, built)
    for job, own in texts:
        if len(job.ids) + len(own) > fits:
            raise CollectError(f"{job.prompt.id}: has {len(job.ids) + len(own)} tokens; the drafters read {fits}")
    clock = Clock(device=target.device)
    described = tuple(built[i].describe() for i in new)
    added = {
        "batch": batch,
        "drafters": [entry for entry in drafters if entry["name"] not in recorded],
        "to": trace.sha256,
        "device": torch.device(device).type,
        "versions": versions(),
    }
    before: Any = manifest.settings.get("added", [])
    grown = dataclasses.replace(
        manifest,
        drafters=(*manifest.drafters, *described),
        encodings=_encodings(manifest, described),
        settings={**manifest.settings, "added": [*before, added]},
        complete=False,
        shards=(),
    )
    dropped = [record for shard in manifest.shards for record in shard.dropped]
    with TraceWriter(out, grown, resume=resume) as writer:
        rows = 0
        for index in range(0, len(texts), batch):
            chosen = np.arange(index, min(index + batch, len(texts)))
            part = trace.select(chosen)
            if index // batch >= writer.done and not writer.complete:
                given = _Given([texts[s] for s in chosen], part, target, built, config, clock)
                given.run_all(functools.partial(_say, progress, index, len(texts), rows))
                arrays = _joined(part, grown, given, [built[i].name for i in new], manifest)
                cuts = int((part.stop == "loop").sum())
                writer.write(arrays, cuts=cuts, dropped=() if index else dropped)
            rows += part.rows
            progress(int(chosen[-1]) + 1, len(texts), rows)
        if not writer.complete:
            measured, old = clock.measured(target), dict(trace.measured)
            old.pop("sha256", None)
            writer.finish({**measured, **old, "parts": {**measured["parts"], **old.get("parts", {})}})
    return open_trace(out)


def _say(progress: Callable[[int, int, int], None], done: int, total: int, before: int, rows: int) -> None:
    progress(done, total, before + rows)


def _config(manifest: Manifest, drafters: Sequence[dict[str, Any]], trace: Trace, pool: Path) -> Config:
    """Return the configuration of a recording that would hold these texts and the drafters named."""
    written: Any = manifest.settings.get("config", {})
    document = {
        "name": manifest.name,
        "processing": dataclasses.asdict(manifest.target_processing),
        "drafters": list(drafters),
        "k": manifest.k,
        "max_new_tokens": int(np.diff(trace.offsets).max()) + 1,
        "loop": 0,
        **{name: written[name] for name in ("drafter_processing",) if name in written},
    }
    config = dataclasses.replace(parse_config(document, pool), logits=manifest.logits)
    recorded = {drafter.name for drafter in manifest.drafters}
    new = [entry for entry in config.drafters if entry.name not in recorded]
    if not new:
        listed = ", ".join(entry.name for entry in config.drafters)
        raise ConfigError(f"drafters: the trace has all of {listed} already" if listed else "drafters: none is listed")
    read = {entry.options.get("over") for entry in new}
    return dataclasses.replace(
        config, drafters=tuple(entry for entry in config.drafters if entry in new or entry.name in read)
    )


def _encodings(manifest: Manifest, new: Sequence[Drafter]) -> dict[str, str]:
    """Return the trace's encodings, wider where bits cannot hold what new drafters' alpha and gamma may be."""
    found = dict(manifest.encodings)
    greedy = manifest.target_processing.temperature == 0
    for name, encoding in manifest.encodings.items():
        block, deep = name.partition("_")[::2]
        here = [drafter for drafter in new if (drafter.depth > 1) == (deep == "deep")]
        certain = all(drafter.rule in ("one_hot", "tree") for drafter in here) and (greedy or block == "alpha")
        if encoding == "bits" and here and not certain:
            found[name] = "fixed16"
    return found


def _refuse(trace: Trace) -> None:
    """Raise for a trace to which nothing can be added."""
    manifest = trace.manifest
    if not manifest.complete:
        raise CollectError(f"{manifest.name}: its recording is not finished; `--resume` of its own command goes on")
    if trace.folder is not None and (damaged := damage(trace.folder, manifest)):
        raise TraceError(*damaged)
    trace.validate_values()
    if manifest.path == "given":
        raise CollectError(f"{manifest.name}: its texts were given, not drawn; drafters cannot be added to it")
    if manifest.feedback != "full":
        raise CollectError(f"{manifest.name}: it holds the chosen drafter's feedback alone; nothing can be added to it")
    if manifest.logits and len(trace.column("logit_row")) < trace.rows:
        raise CollectError(f"{manifest.name}: logits were kept of some rows only; drafters cannot be added to it")


def _same_target(manifest: Manifest, target: Target) -> None:
    if target.tokenizer_sha256 != manifest.tokenizer_sha256 or target.info.sha256 != manifest.target.sha256:
        raise CollectError(
            f"the trace was written by {manifest.target.name!r} ({manifest.target.sha256[:12]}), the target here is "
            f"{target.info.name!r} ({target.info.sha256[:12]})"
        )


def _texts_of(trace: Trace) -> list[tuple[Job, list[int]]]:
    """Return each text as a job and its tokens, the first one (which is no row) included."""
    rows, offsets = trace.token.tolist(), trace.offsets
    found = []
    for s, (name, domain) in enumerate(zip(trace.prompt_ids.tolist(), trace.domains.tolist(), strict=True)):
        prompt = Prompt(name, domain, ())
        ids = tuple(trace.prompt_tokens(s).tolist())
        if not ids:
            raise CollectError(f"{name}: the trace does not hold its prompt")
        job = Job(int(trace.sequence_id[s]), prompt, ids)
        found.append((job, [int(trace.first_token[s]), *rows[offsets[s] : offsets[s + 1]]]))
    return found


class _Given(Batch):
    """Texts that are read, not written: every token is given."""

    def __init__(
        self,
        texts: Sequence[tuple[Job, list[int]]],
        part: Trace,
        target: Target,
        drafters: Sequence[shapes.Drafter],
        config: Config,
        clock: Clock,
    ) -> None:
        super().__init__([job for job, _ in texts], target, drafters, config, clock)
        self._given, self._part = [given for _, given in texts], part
        self._logprob = part.target_logprob.tolist()
        self._margin = part.target_top2_margin.tolist()
        self._ids = torch.from_numpy(np.array(part.column("logit_id"), np.int64)) if config.logits else None

    @torch.inference_mode()
    def run_all(self, advance: Callable[[int], None]) -> None:
        """Read all texts; CollectError names one that cannot be scored."""
        self.run(lambda rows, ended: advance(rows))
        for s, fault in self.faulty.items():
            raise CollectError(f"{self.jobs[s].prompt.id}: {fault}")

    def next(self, logits: Tensor, place: int) -> tuple[Dense | OneHot, Tensor]:
        token = torch.tensor([self._given[s][place] for s in self.active], device=logits.device)
        law = process(logits, self.config.processing)
        assert isinstance(law, Dense | OneHot)
        if place and not self.faulty:
            self._compare(law.at(token).log().tolist(), place - 1)
        # an argmax may flip between two equal logits: the text then says which one was taken
        return (OneHot(token) if isinstance(law, OneHot) else law), token

    def _compare(self, logprobs: list[float], t: int) -> None:
        """Hold the target's log-probabilities at row t against the recorded ones."""
        tolerance = _TOLERANCE.get(self._part.manifest.target.dtype, 1.0)
        greedy = self.config.processing.temperature == 0
        for s, value in zip(self.active, logprobs, strict=True):
            row = int(self._part.offsets[s]) + t
            close = abs(value - self._logprob[row]) <= tolerance
            if not close and not (greedy and self._margin[row] <= tolerance):
                raise CollectError(
                    f"{self.jobs[s].prompt.id}: at row {t} the target's log-probability of the token is {value:.4f}, "
                    f"recorded is {self._logprob[row]:.4f}: it is not the target that wrote this trace"
                )

    def likeliest(self, law: Dense | OneHot, logits: Tensor, t: int) -> Tensor:
        assert self._ids is not None
        return self._ids[self._part.offsets[self.active] + t].to(logits.device)

    def ends(self, s: int, token: int) -> bool:
        self.length[s], self.ended[s] = len(self.generated[s]) - 1, str(self._part.stop[s])
        return len(self.generated[s]) == len(self._given[s])


def _joined(
    part: Trace, grown: Manifest, given: _Given, names: Sequence[str], manifest: Manifest
) -> dict[str, np.ndarray]:
    """Return a shard's arrays: those recorded, with the entries of new drafters behind."""
    scored = given.arrays(range(len(given.jobs)), manifest.domains)
    own = [drafter.name for drafter in given.drafters]
    listed = {"N": own, "N1": [own[i] for i in given.scorer.flat], "N2": [own[i] for i in given.scorer.deep]}
    columns = {}
    for column in expected_columns(grown):
        values = np.asarray(part.column(column.name))
        for axis, symbol in enumerate(column.shape):
            if symbol in listed:
                chosen = [listed[symbol].index(name) for name in names if name in listed[symbol]]
                values = np.concatenate([values, np.take(scored[column.name], chosen, axis)], axis)
        columns[column.name] = values
    return columns
