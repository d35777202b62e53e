"""Wall clock of live decoding: policies, single drafters and plain decoding, on the same prompts in one run.

    python -m experiments.bench_decode --out out/decode.json          # all contenders; goes on where it was interrupted
    python -m experiments.bench_decode --markdown                     # the tables of the bundled measurement

One thread, float32, batch 1. Draft lengths are chosen on training prompts before anything is scored: each single
drafter's own, one for all policies (NormalHedge's). Then every held-out prompt is decoded by every contender, in an
order that is shuffled anew for each prompt, so that what slows the machine for a while slows no contender alone.
Seconds are CPU seconds of the process, prompts' passes included. Intervals are bootstrap over prompts, paired: speed-up
is tokens per second over those of autoregressive decoding on the same prompts, by plain steps without any machinery.

Prompts are held-out ones that no bundled trace holds, so the router and the cost model have not seen them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hedgelab as hl
from hedgelab.regret import Interval, bootstrap_counts, ratio_interval
from hedgelab.router import Router
from hedgelab.routing import train
from hedgelab.storage.shards import write_atomically
from traces.collect import Job, jobs_of, versions
from traces.config import Config, parse_config, read_yaml
from traces.decode import AUTOREGRESSIVE, Decoder
from traces.live.policy import Policy
from traces.live.results import Run
from traces.live.schedule import Schedule, Setting

__all__ = ["Contender", "contenders", "markdown", "measure", "predicted"]

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "data" / "decode.json"
TRACE = "t06"
FULL = {"normalhedge": ("every", "every=4", "turns=2", "random=2", "likely=2"), "hedge": ("every", "every=4")}
BANDITS = {"UCBSpec": "ucbspec", "EXP3Spec": "exp3spec", "MetaSD (BE)": "metasd", "MetaSD (BD)": "metasd-onpath"}
LENGTHS = (2, 5)  # draft lengths to choose from
STAND_IN = "normalhedge, every=4"  # whose best draft length all policies take


@dataclass(frozen=True)
class Contender:
    """policy : a drafter, a learner, router or autoregressive. carry_over : one learner state for all texts."""

    name: str
    policy: str
    schedule: str = "every"
    carry_over: bool = False

    def setting(self, k: int, seed: int) -> Setting:
        """Return the setting of its policy."""
        return Setting(k, seed=seed, schedule=Schedule.parse(self.schedule), carry_over=self.carry_over)


def contenders(drafters: Sequence[str]) -> list[Contender]:
    """Return all contenders over a pool."""
    found = [Contender(AUTOREGRESSIVE, AUTOREGRESSIVE), *(Contender(name, name) for name in drafters)]
    found += [Contender("router", "router"), *(Contender(name, learner) for name, learner in BANDITS.items())]
    for learner, schedules in FULL.items():
        found += [Contender(f"{learner}, {schedule}", learner, schedule) for schedule in schedules]
    return [*found, Contender("normalhedge, every=4, carried over", "normalhedge", "every=4", True)]


def _decoder(pool: Path, tokens: int, k: int, prompts: dict[str, Any]) -> Decoder:
    document = dict(read_yaml(ROOT / "traces/configs/live.yaml"))
    document |= {"max_new_tokens": tokens, "k": k, "prompts": prompts}
    config: Config = parse_config(document, pool)
    return Decoder.open(config)


def measure(
    pool: Path,
    out: Path,
    *,
    prompts: int = 2,
    tokens: int = 40,
    tuning: Sequence[str] = ("python", "sql"),
    names: Sequence[str] | None = None,
    domains: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure, writing `out` after every text; what it holds already is not measured again."""
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"tuning": [], "texts": []}
    heldout = {"split": "heldout", "count": 0, "domains": list(domains)}
    decoder = _decoder(pool, tokens, max(LENGTHS), heldout)
    listed = [each for each in contenders(decoder.names) if names is None or each.name in names]
    trace = hl.sample_trace(TRACE)
    router = _router(trace, decoder.names)
    found["about"] = {
        "k": list(LENGTHS), "tokens": tokens, "temperature": decoder.config.processing.temperature, "dtype": "float32",
        "threads": 1, "drafters": list(decoder.names), "versions": versions(), "machine": platform.machine(),
    }  # fmt: skip
    _tune(decoder, listed, tuning, found, out, say)
    lengths = chosen_lengths(found)
    seen = set(trace.prompt_ids.tolist())
    jobs = [job for job in jobs_of(decoder.config, decoder.target)[0] if job.prompt.id not in seen]
    order = _interleaved(jobs, prompts)
    rng = np.random.default_rng(0)
    running = [_Running(decoder, each, lengths, router) for each in listed]
    done = {(text["prompt"], text["contender"]) for text in found["texts"]}
    for number, job in enumerate(order):
        for place in rng.permutation(len(running)).tolist():
            each, load = running[place], os.getloadavg()[0]
            if (job.prompt.id, each.contender.name) not in done:
                found["texts"].append(_entry(each, job, each.decode(job, order[:number]), load))
                _write(found, out)
        say(f"{number + 1} of {len(order)} prompts: {job.prompt.id}")
    return found


class _Running:
    """A contender, with its learner's state where that is carried from text to text."""

    def __init__(self, decoder: Decoder, contender: Contender, lengths: dict[str, int], router: Router) -> None:
        self.contender, self.k = contender, _length(contender, lengths)
        self._decoder = decoder
        self._policy: str | Router = router if contender.policy == "router" else contender.policy
        self._learnt: Policy | None = None

    def decode(self, job: Job, earlier: Sequence[Job]) -> Run:
        """Decode a text, behind earlier ones. One that carries over decodes those first, if an earlier process did."""
        if not self.contender.carry_over:
            # picks of a policy that starts anew with every text are drawn anew, too
            return self._decoder.run([job], self._policy, self.contender.setting(self.k, job.sequence_id))
        setting = self.contender.setting(self.k, 0)
        if self._learnt is None:
            assert isinstance(self._policy, str)
            self._learnt = self._decoder.policy(self._policy, setting)
            self._decoder.run(earlier, self._policy, setting, shared=self._learnt)
        return self._decoder.run([job], self._policy, setting, shared=self._learnt)


def _length(contender: Contender, lengths: dict[str, int]) -> int:
    return lengths.get(contender.name, lengths.get("policies", max(LENGTHS)))


def _write(found: dict[str, Any], out: Path) -> None:
    write_atomically(out, (json.dumps(found, indent=1) + "\n").encode())


def _entry(each: _Running, job: Job, run: Run, load: float) -> dict[str, Any]:
    text = run.texts[0]
    return {
        "contender": each.contender.name, "prompt": job.prompt.id, "domain": job.prompt.domain, "k": each.k,
        "tokens": len(text.tokens),
        "rounds": len(text.picks), "cpu": run.cpu, "wall": run.wall, "load": round(load, 2),
        "seconds": {name: round(value, 5) for name, value in run.clock.seconds.items()},
    }  # fmt: skip


def _tune(
    decoder: Decoder, listed: Sequence[Contender], domains: Sequence[str], found: dict[str, Any], out: Path,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """Decode training prompts with every draft length, for each drafter and for the policies' stand-in."""
    source = replace(decoder.config.prompts, split="train", count=1, domains=tuple(domains))
    tried = {each.name: each for each in listed if each.policy in decoder.names}
    tried["policies"] = next(each for each in contenders(decoder.names) if each.name == STAND_IN)
    done = {(old["prompt"], old["contender"], old["k"]) for old in found["tuning"]}
    for job in jobs_of(replace(decoder.config, prompts=source), decoder.target)[0]:
        for (name, each), k in itertools.product(tried.items(), LENGTHS):
            if (job.prompt.id, name, k) not in done:
                run = decoder.run([job], each.policy, each.setting(k, 0))
                tokens = len(run.texts[0].tokens)
                found["tuning"].append(
                    {"contender": name, "prompt": job.prompt.id, "k": k, "tokens": tokens, "cpu": run.cpu}
                )
                _write(found, out)
        say(f"draft lengths on {job.prompt.id}")


def chosen_lengths(found: dict[str, Any]) -> dict[str, int]:
    """Return the draft length that was fastest on the tuning prompts, by contender; "policies" for all policies."""
    best: dict[str, int] = {}
    for name in dict.fromkeys(each["contender"] for each in found["tuning"]):
        speeds = {}
        for k in dict.fromkeys(each["k"] for each in found["tuning"] if each["contender"] == name):
            own = [each for each in found["tuning"] if each["contender"] == name and each["k"] == k]
            speeds[k] = sum(each["tokens"] for each in own) / sum(each["cpu"] for each in own)
        best[name] = max(speeds, key=lambda k: speeds[k])
    return best


def _router(trace: hl.Trace, drafters: Sequence[str]) -> Router:
    """Return a router trained on the bundled trace, among the drafters that it and the pool share."""
    shared = [name for name in trace.drafters if name in drafters]
    return train(trace.among(shared))


def _interleaved(jobs: Sequence[Job], count: int) -> list[Job]:
    """Return `count` jobs of each domain, the same whatever their order, domains taking turns: the mixed stream."""
    names = list(dict.fromkeys(job.prompt.domain for job in jobs))
    ordered = sorted(jobs, key=lambda job: hashlib.sha256(job.prompt.id.encode()).digest())
    by = {name: [job for job in ordered if job.prompt.domain == name] for name in names}
    return [by[name][i] for i in range(count) for name in names if i < len(by[name])]


# ------------------------------------------------------------------ what comes of it


def speed(found: dict[str, Any], name: str, domain: str | None = None) -> tuple[Interval, Interval, float] | None:
    """Return tokens a CPU second, that over plain decoding's on the same prompts, and MAT; None where not measured."""
    texts = {text["prompt"]: text for text in found["texts"] if text["contender"] == name}
    plain = {text["prompt"]: text for text in found["texts"] if text["contender"] == AUTOREGRESSIVE}
    both = [prompt for prompt in texts if prompt in plain and domain in (None, texts[prompt]["domain"])]
    if not both:
        return None
    own, other = [texts[prompt] for prompt in both], [plain[prompt] for prompt in both]
    counts = bootstrap_counts(both)  # not within domains, of which there may be one prompt each
    tokens, seconds = np.array([t["tokens"] for t in own]), np.array([t["cpu"] for t in own])
    rate = ratio_interval(tokens, seconds, counts)
    base_tokens, base = np.array([t["tokens"] for t in other]), np.array([t["cpu"] for t in other])
    draws = (counts @ tokens) / (counts @ seconds) / ((counts @ base_tokens) / (counts @ base))
    low, high = np.quantile(draws, [0.025, 0.975])
    estimate = rate.estimate / (base_tokens.sum() / base.sum())
    rounds = sum(text["rounds"] for text in own)
    return rate, Interval(float(estimate), float(low), float(high)), float((tokens.sum() - len(own)) / rounds)


def predicted(found: dict[str, Any], replicates: int = 2) -> dict[str, float]:
    """Return contender -> the speed-up that `hedgelab.cost` predicts from the bundled trace, where it can."""
    trace, costs = hl.sample_trace(TRACE), hl.Costs.load()
    shared = [name for name in trace.drafters if name in found["about"]["drafters"]]
    few, lengths = trace.among(shared), chosen_lengths(found)
    guessed: dict[str, float] = {}
    for each in contenders(found["about"]["drafters"]):
        schedule, alone = Schedule.parse(each.schedule), each.policy in found["about"]["drafters"]
        if each.policy in (AUTOREGRESSIVE, "router") or schedule.skips or (alone and each.policy not in shared):
            continue
        learner = hl.learner("fixed", drafter=each.policy) if alone else hl.learner(each.policy)
        # who learns from every drafter scores the others on its schedule, others never do
        turns = {"every": schedule.every, "drafters": schedule.drafters} if learner.feedback == "full" else {"every": 0}
        runs = [
            hl.replay(few, learner, k=_length(each, lengths), carry_over=each.carry_over, replicate=i)
            for i in range(replicates)
        ]
        with contextlib.suppress(hl.cost.CostsError):  # of drafters that have not been measured
            guessed[each.name] = float(np.mean([hl.cost.bill(run, costs, **turns).speedup for run in runs]))
    return guessed


def markdown(found: dict[str, Any]) -> str:
    """Return the tables of a measurement."""
    about, lengths = found["about"], chosen_lengths(found)
    domains = list(dict.fromkeys(text["domain"] for text in found["texts"]))
    guessed = predicted(found)
    lines = [
        "| contender | k | MAT | tokens/s | speed-up | predicted | error |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows = []
    for each in contenders(about["drafters"]):
        seen = speed(found, each.name)
        if seen is not None:
            rows.append((seen[1].estimate, each, seen))
    for _, each, (rate, gain, mat) in sorted(rows, key=lambda row: -row[0]):
        k = "" if each.name == AUTOREGRESSIVE else str(_length(each, lengths))
        guess = guessed.get(each.name)
        said = ["", ""] if guess is None else [f"{guess:.2f}", f"{guess / gain.estimate - 1:+.0%}"]
        lines.append(
            f"| {each.name} | {k} | {mat:.2f} | {rate.estimate:.2f} [{rate.low:.2f}, {rate.high:.2f}] "
            f"| {gain.estimate:.2f} [{gain.low:.2f}, {gain.high:.2f}] | {said[0]} | {said[1]} |"
        )
    lines += ["", "| speed-up by domain | " + " | ".join(domains) + " |", "| --- |" + " ---: |" * len(domains)]
    for _, each, _ in sorted(rows, key=lambda row: -row[0]):
        cells = []
        for domain in domains:
            here = speed(found, each.name, domain)
            cells.append("" if here is None else f"{here[1].estimate:.2f}")
        lines.append(f"| {each.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pool", type=Path, default=ROOT / "traces/data/pool")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--prompts", type=int, default=2, help="held-out prompts a domain")
    parser.add_argument("--tokens", type=int, default=40, help="most tokens of a text")
    parser.add_argument("--only", action="append", help="a contender; repeat for more")
    parser.add_argument("--markdown", action="store_true", help="print the tables of --out")
    asked = parser.parse_args(arguments)
    if not asked.markdown:
        begin = time.process_time()
        measure(asked.pool, asked.out, prompts=asked.prompts, tokens=asked.tokens, names=asked.only)
        print(f"{time.process_time() - begin:.0f} CPU-seconds, in {asked.out}")
    print(markdown(json.loads(asked.out.read_text())), end="")


if __name__ == "__main__":
    main()
