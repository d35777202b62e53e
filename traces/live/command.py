"""`python -m traces decode`: stream texts, then say what decoding them took."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from hedgelab.contract import Learner
from hedgelab.references import learner_of
from hedgelab.router import Router, load_router
from traces.collect import Job, jobs_of
from traces.config import Config, ConfigError, load_config, parse_config
from traces.decode import AUTOREGRESSIVE, Decoder
from traces.live.batch import Heard
from traces.live.recording import Recorder
from traces.live.results import CLOSE, Run
from traces.live.schedule import Setting
from traces.targets import Target

__all__ = ["Streamer", "config_of", "policy_of", "print_run", "prompts_of", "run"]


def config_of(
    file: Path,
    pool: Path,
    *,
    k: int | None = None,
    temperature: float | None = None,
    max_new_tokens: int | None = None,
    seed: int | None = None,
    prompts: dict[str, Any] | None = None,
) -> tuple[Config, dict[str, Any]]:
    """Return a configuration with what was asked for instead, and its document. Raises ConfigError."""
    _, document = load_config(file, pool)
    asked = {"max_new_tokens": max_new_tokens, "k": k, "seed": seed, "prompts": prompts}
    document = document | {name: value for name, value in asked.items() if value is not None}
    if temperature is not None:
        document["processing"] = {**document.get("processing", {}), "temperature": temperature}
        if "drafter_processing" in document and temperature == 0:
            document["drafter_processing"] = {"temperature": 0}
    return parse_config(document, pool), document


def policy_of(name: str, config: Config, parameters: Sequence[str], router: Path | None) -> str | Learner | Router:
    """Return the policy that a name means: a drafter's, a learner's, "router" or "autoregressive"."""
    if (name == "router") != (router is not None):
        raise ConfigError("--policy router and --router FILE go together")
    if router is not None:
        return load_router(router)
    if name == AUTOREGRESSIVE or name in [entry.name for entry in config.drafters]:
        if parameters:
            raise ConfigError(f"--set: {name} has no parameters")
        return name
    return learner_of(name, parameters)


class Streamer:
    """Prints texts as they grow, one after another; what is not yet a whole character waits.

    Of texts that grow at the same time the first one is shown, the others wait for its end.
    """

    def __init__(self, target: Target, write: Callable[[str], Any]) -> None:
        self._target, self._write = target, write
        self._texts: dict[int, tuple[list[int], str]] = {}  # by sequence, in order: tokens, and why it ended
        self._shown = 0  # characters of the first one

    def __call__(self, job: Job, tokens: list[int], stop: str) -> None:
        """Take a text's new tokens, and why it ended, "" for not yet."""
        before, _ = self._texts.get(job.sequence_id, ([], ""))
        new = [token for token in tokens if token not in self._target.eos]
        self._texts[job.sequence_id] = [*before, *new], stop
        while self._texts:
            first = next(iter(self._texts))
            written, ended = self._texts[first]
            text = self._target.tokenizer.decode(written)
            whole = len(text) if ended else len(text.rstrip("\ufffd"))
            self._write(text[self._shown : whole])
            self._shown = max(self._shown, whole)
            if not ended:
                break
            self._write("\n")
            del self._texts[first]
            self._shown = 0


def run(
    decoder: Decoder,
    jobs: Sequence[Job],
    policy: str | Learner | Router,
    setting: Setting,
    *,
    batch: int,
    record: Path | None,
    document: dict[str, Any],
    device: str,
    heard: Heard,
) -> Run:
    """Decode, and record if a folder is given."""
    if record is not None and policy == AUTOREGRESSIVE:
        raise ConfigError("--record writes drafters' scores, which --policy autoregressive has none of")
    if record is None:
        return decoder.run(jobs, policy, setting, batch=batch, heard=heard)
    with Recorder(record, decoder, jobs, document, device) as recorder:
        found = decoder.run(jobs, policy, setting, batch=batch, keep=True, heard=heard, ended=recorder.write)
        recorder.finish(found)
    return found


def prompts_of(decoder: Decoder, said: Sequence[str]) -> list[Job]:
    """Return jobs for prompts given, or for those that the configuration names, domains taking turns."""
    if said:
        return decoder.jobs(said)
    jobs, domains = jobs_of(decoder.config, decoder.target)
    by_domain = [[job for job in jobs if job.prompt.domain == name] for name in domains]
    turns = max(map(len, by_domain), default=0)
    return [each[turn] for turn in range(turns) for each in by_domain if turn < len(each)]


def print_run(run: Run, temperature: float, console: Console | None = None) -> None:
    """Print what a run amounts to: speed, picks over time, seconds by part."""
    console = console or Console(file=sys.stderr, highlight=False)
    texts, log = run.texts, run.log if run.rounds else None
    console.print(
        f"[bold]{run.policy}[/bold]: {len(texts)} texts, {run.rows} tokens behind the first ones in {run.rounds} "
        f"rounds; MAT {run.mat:.3f}; {run.tokens_per_second:.1f} tokens/s ({run.wall:.1f} s, {run.cpu:.1f} CPU-s)"
    )
    if log is not None and run.policy != AUTOREGRESSIVE and log.proposed.sum():
        rate = log.accepted.sum() / log.proposed.sum()
        console.print(f"accepted {log.accepted.sum()} of {log.proposed.sum()} proposed depths ({rate:.3f})")
    _print_seconds(run, console)
    if run.policy != AUTOREGRESSIVE:
        _print_picks(run, console)
    if temperature == 0:
        console.print(
            f"{run.close_calls} rows have two largest logits within {CLOSE:g}: there, passes of other shapes may round "
            "to another text"
        )
    for name, why in run.refused.items():
        console.print(f"not decoded {name}: {why}")
    for text in texts:
        for name, why in text.dropped.items():
            console.print(f"dropped {name}: {why}")


def _print_seconds(run: Run, console: Console) -> None:
    table = Table("part", "seconds", "share", "calls", "ms a call", box=None, pad_edge=False)
    spent = run.clock.seconds
    for name in ("prefill", "target", "draft", "evaluate", "learn"):
        if name in spent:
            calls = run.clock.calls[name]
            share = spent[name] / run.wall if run.wall else 0.0
            table.add_row(name, f"{spent[name]:.2f}", f"{share:.0%}", str(calls), f"{1000 * spent[name] / calls:.2f}")
    console.print(table)


def _print_picks(run: Run, console: Console, parts: int = 4) -> None:
    """Print which drafter drafted, over the course of the texts: each text's rounds in so many equal parts."""
    counts = np.zeros((len(run.drafters), parts), np.int64)
    for text in run.texts:
        part = np.arange(len(text.picks)) * parts // max(1, len(text.picks))
        for pick, where in zip(text.picks.tolist(), part.tolist(), strict=True):
            if pick >= 0:
                counts[pick, where] += 1
    total = counts.sum(0)
    heads = [f"{100 * i // parts}-{100 * (i + 1) // parts}%" for i in range(parts)]
    table = Table("picks by part of the text", *heads, "all", box=None, pad_edge=False)
    for i in np.argsort(-counts.sum(1), kind="stable").tolist():
        if counts[i].any():
            shares = [f"{counts[i, j] / total[j]:.0%}" if total[j] else "" for j in range(parts)]
            table.add_row(run.drafters[i], *shares, f"{counts[i].sum() / total.sum():.0%}")
    console.print(table)
