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
import hashlib
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
from traces.decode import AUTOREGRESSIVE, Decoder, Run
from traces.live.policy import Schedule, Setting

__all__ = ["Contender", "contenders", "markdown", "measure", "predicted"]

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "data" / "decode.json"
TRACE = "t06"
FULL = {"normalhedge": ("every", "every=4", "turns=2", "random=2", "likely=2"), "hedge": ("every", "every=4")}
BANDITS = {"UCBSpec": "ucbspec", "EXP3Spec": "exp3spec", "MetaSD (BE)": "metasd", "MetaSD (BD)": "metasd-onpath"}
LENGTHS = (2, 5)  # draft lengths to choose from


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
    part: tuple[int, int] = (0, 1),
    domains: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure, writing `out` after every text; what it holds already is not measured again.

    part : (i, n), of n parts of the prompts the i-th one, for n processes side by side
    """
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
    _tune(decoder, listed, pool, tokens, tuning, found, out, say)
    lengths = chosen_lengths(found)
    seen = set(trace.prompt_ids.tolist())
    jobs = [job for job in jobs_of(decoder.config, decoder.target)[0] if job.prompt.id not in seen]
    order = _interleaved(jobs, prompts)[part[0] :: part[1]]
    rng = np.random.default_rng(0)
    carried = {each.name: _Carried(decoder, each, lengths, router) for each in listed}
    for number, job in enumerate(order):
        for place in rng.permutation(len(listed)).tolist():
            each = listed[place]
            if any(text["prompt"] == job.prompt.id and text["contender"] == each.name for text in found["texts"]):
                continue
            load = os.getloadavg()[0]
            run = carried[each.name].decode(job)
            found["texts"].append(_entry(each, job, run, load, carried[each.name].k))
            write_atomically(out, (json.dumps(found, indent=1) + "\n").encode())
        say(f"{number + 1} of {len(order)} prompts: {job.prompt.id}")
    return found


class _Carried:
    """A contender, with its learner's state where that is carried from text to text."""

    def __init__(self, decoder: Decoder, contender: Contender, lengths: dict[str, int], router: Router) -> None:
        self.k = lengths.get(contender.name, lengths.get("policies", max(LENGTHS)))
        self._decoder, self._contender = decoder, contender
        self._policy: Any = router if contender.policy == "router" else contender.policy
        self._learnt: Any = None

    def decode(self, job: Job) -> Run:
        """Decode one text."""
        # picks of a policy that starts anew with every text are drawn anew, too
        seed = self._decoder.config.seed + (0 if self._contender.carry_over else job.sequence_id)
        setting = self._contender.setting(self.k, seed)
        if self._contender.carry_over and self._learnt is None:
            self._learnt = self._decoder.policy(self._policy, setting)
        return self._decoder.run([job], self._policy, setting, shared=self._learnt)


def _entry(each: Contender, job: Job, run: Run, load: float, k: int) -> dict[str, Any]:
    text = run.texts[0]
    return {
        "contender": each.name, "prompt": job.prompt.id, "domain": job.prompt.domain, "k": k,
        "tokens": len(text.tokens),
        "rounds": len(text.picks), "cpu": run.cpu, "wall": run.wall, "load": round(load, 2),
        "seconds": {name: round(value, 5) for name, value in run.clock.seconds.items()},
    }  # fmt: skip


def _tune(
    decoder: Decoder, listed: Sequence[Contender], pool: Path, tokens: int, domains: Sequence[str],
    found: dict[str, Any], out: Path, say: Callable[[str], None],
) -> None:  # fmt: skip
    """Decode training prompts with every draft length, for each drafter and for the policies' stand-in."""
    config = replace(
        decoder.config, prompts=replace(decoder.config.prompts, split="train", count=1, domains=tuple(domains))
    )
    jobs = jobs_of(config, decoder.target)[0]
    tried = [each for each in listed if each.policy in decoder.names or each.name == "normalhedge, every=4"]
    for job in jobs:
        for each in tried:
            for k in LENGTHS:
                name = each.name if each.policy in decoder.names else "policies"
                if any(
                    (old["prompt"], old["contender"], old["k"]) == (job.prompt.id, name, k) for old in found["tuning"]
                ):
                    continue
                run = decoder.run([job], each.policy, each.setting(k, 0))
                found["tuning"].append(
                    {
                        "contender": name,
                        "prompt": job.prompt.id,
                        "k": k,
                        "tokens": len(run.texts[0].tokens),
                        "cpu": run.cpu,
                    }
                )
                write_atomically(out, (json.dumps(found, indent=1) + "\n").encode())
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
        k = lengths.get(each.name, lengths.get("policies", max(LENGTHS)))
        if each.policy in (AUTOREGRESSIVE, "router"):
            continue
        learner = hl.learner("fixed", drafter=each.policy) if each.policy in shared else each.policy
        schedule = Schedule.parse(each.schedule)
        turns = {"every": 0} if each.policy in shared else {"every": schedule.every, "drafters": schedule.drafters}
        if each.policy not in shared and (each.policy in BANDITS.values() or schedule.skips):
            if schedule.skips:
                continue
            turns = {}
        try:
            bills = [
                hl.cost.bill(hl.replay(few, learner, k=k, carry_over=each.carry_over, replicate=i), costs, **turns)
                for i in range(replicates)
            ]
        except (ValueError, hl.cost.CostsError):
            continue
        guessed[each.name] = float(np.mean([bill.speedup for bill in bills]))
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
        k = "" if each.name == AUTOREGRESSIVE else str(lengths.get(each.name, lengths.get("policies", "")))
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
    parser.add_argument("--part", default="0/1", help="i/n: of n parts of the prompts the i-th one")
    parser.add_argument("--merge", type=Path, action="append", help="instead of measuring, join parts into --out")
    parser.add_argument("--markdown", action="store_true", help="print the tables of --out")
    asked = parser.parse_args(arguments)
    if asked.merge:
        parts = [json.loads(file.read_text()) for file in asked.merge]
        found = parts[0] | {"texts": [text for part in parts for text in part["texts"]]}
        write_atomically(asked.out, (json.dumps(found, indent=1) + "\n").encode())
    elif not asked.markdown:
        begin, (one, of) = time.process_time(), map(int, asked.part.split("/"))
        options = {"prompts": asked.prompts, "tokens": asked.tokens, "names": asked.only, "part": (one, of)}
        measure(asked.pool, asked.out, **options)
        print(f"{time.process_time() - begin:.0f} CPU-seconds, in {asked.out}")
    print(markdown(json.loads(asked.out.read_text())), end="")


if __name__ == "__main__":
    main()
