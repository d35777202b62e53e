"""What a round costs: seconds of drafting, verifying, scoring and learning, measured on recorded texts.

    python -m experiments.bench_costs --pool out/pool --add traces/configs/more.yaml --out hedgelab/data/costs.json
    python -m experiments.bench_costs --markdown                       # the tables of a file of costs

CPU seconds at batch 1 and one thread, medians over repeats and texts; see `experiments.round_costs` for what is timed
and `hedgelab.cost` for what becomes of it. Drafters are those of a recording's configuration; what the pool lacks is
left out. Medians of a busy machine are too large, each by another factor: `provisional` in the file says so.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import llvmlite.binding
import numpy as np
import torch

import hedgelab as hl
from experiments.round_costs import FEW, LARGEST, drafter_cost, seconds_of, target_costs, texts_of
from hedgelab.cost import Costs, DrafterCost, LearnerCost, Machine, TargetCost
from hedgelab.cost_table import calls, speedups
from hedgelab.decode_replay import fresh_state
from hedgelab.storage.costs import FORMAT_VERSION
from traces.collect import versions
from traces.config import Config, load_config, options_of, parse_config, read_yaml
from traces.drafters import KINDS, Surroundings
from traces.drafters.base import Drafter, DrafterError, Reading
from traces.targets import Target, load_target, located

__all__ = ["built", "config_of", "learner_costs", "measure"]

ROOT = Path(__file__).parent.parent
_BUSY = 0.5  # load average beside the measurement's own from which the numbers are called provisional
_CALLS = 100  # of a learner's functions in one timing


def built(config: Config, target: Target, k: int, say: Callable[[str], None]) -> dict[str, Drafter]:
    """Return the drafters of a configuration that can be built for drafts of k; `say` hears of the others."""
    at = Surroundings(target, k, Path(config.folder))
    for entry in config.drafters:
        try:
            made = KINDS[entry.kind].make(entry.name, entry.processing, options_of(entry, [], entry.name), at)
        except (DrafterError, OSError, ValueError) as error:
            say(f"left out: {str(error).splitlines()[0]}")
            continue
        at.built[entry.name] = made
    return at.built


def learner_costs(drafters: int, repeats: int) -> dict[str, LearnerCost]:
    """Return the seconds of every registered learner's functions, called from Python, compiled."""
    found, rng = {}, np.random.default_rng(0)
    losses, context, probs = rng.random(drafters), np.empty(0), np.full(drafters, 1 / drafters)
    for name in hl.learners():
        policy = hl.learner(name)
        params, state = fresh_state(policy, drafters, tuple(map(str, range(drafters))))
        play, observe = policy.compiled()
        spent: dict[str, list[float]] = {"play": [], "observe": []}
        for repeat in range(repeats + 1):
            begin = time.process_time()
            for _ in range(_CALLS):
                play(params, state, context, rng, probs)
                np.searchsorted(probs.cumsum(), rng.random(), side="right")
            middle = time.process_time()
            for _ in range(_CALLS):
                observe(params, state, context, probs, 0, losses)
            if repeat:
                spent["play"].append((middle - begin) / _CALLS)
                spent["observe"].append((time.process_time() - middle) / _CALLS)
        found[name] = LearnerCost(seconds_of(spent["play"]), seconds_of(spent["observe"]))
    return found


@torch.inference_mode()
def measure(
    config: Config,
    paths: Sequence[Sequence[int]],
    *,
    prefix: int = 200,
    repeats: int = 7,
    provisional: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Costs:
    """Return the costs of a configuration's target and drafters, on recorded texts.

    paths : tokens of texts, each longer than prefix + k + repeats + 4. repeats : of every call on every text
    provisional : what is wrong with the measurement; None asks the machine's load
    """
    torch.set_num_threads(1)  # threads that wait for a busy core spin, and that counts as CPU time
    load, k = os.getloadavg()[0], config.k
    target = load_target(located(config.target, Path(config.folder)))
    drafters = built(config, target, k, say)
    singles = built(config, target, 1, lambda _: None)
    taps = {tap for drafter in [*drafters.values(), *singles.values()] for tap in drafter.taps}
    texts = texts_of(target, paths, prefix, k + repeats + 3, taps, config.processing)
    sizes = sorted({1, 2, 3, 4, k + 1, 16, 25, 40, LARGEST})
    say(f"target, {len(texts)} texts")
    step, verify, layers = target_costs(target, texts, sizes, repeats, config.processing)
    found: dict[str, DrafterCost] = {}
    for name, drafter in drafters.items():
        read = drafter.over.name if isinstance(drafter, Reading) else name
        begin = time.process_time()
        found[name] = drafter_cost(drafter, singles.get(read), target, texts, layers, k, repeats)
        say(f"{name}: {time.process_time() - begin:.1f} CPU-seconds")
    if provisional is None:
        busy = max(load, os.getloadavg()[0] - 1) > _BUSY
        provisional = f"measured beside other work (load average {load:.1f} before)" if busy else ""
    return Costs(
        format_version=FORMAT_VERSION,
        measured=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=Machine(
            platform.processor() or llvmlite.binding.get_host_cpu_name(),
            os.cpu_count() or 1,
            f"{platform.system()} {platform.machine()}",
            provisional,
        ),
        device="cpu",
        threads=torch.get_num_threads(),
        dtype=target.info.dtype,
        k=k,
        prefix=prefix,
        repeats=repeats * len(texts),
        versions=versions(),
        target=TargetCost(target.info, step, verify),
        drafters=found,
        learners=learner_costs(max(2, len(drafters)), 3 * repeats),
    )


def config_of(file: Path, pool: Path, added: Sequence[Path] = ()) -> Config:
    """Return a recording's configuration with the lists of drafters in other files behind its own."""
    config, document = load_config(file, pool)
    for more in added:
        listed = parse_config({**document, "drafters": read_yaml(more, list)}, pool, str(more))
        names = {drafter.name for drafter in config.drafters}  # a list names again what others of it read
        new = tuple(drafter for drafter in listed.drafters if drafter.name not in names)
        config = replace(config, drafters=(*config.drafters, *new))
    return config


def paths_of(trace: hl.Trace, count: int, length: int) -> list[list[int]]:
    """Return `count` texts of a trace, with their prompts, of more than `length` tokens, of many domains."""
    whole = [
        [*trace.prompt_tokens(s).tolist(), int(trace.first_token[s]), *trace.token[begin:end].tolist()]
        for s, (begin, end) in enumerate(zip(trace.offsets, trace.offsets[1:], strict=False))
    ]
    long = [s for s, text in enumerate(whole) if len(text) > length]
    turn: dict[str, int] = {}
    order = []
    for s in long:
        domain = str(trace.domains[s])
        turn[domain] = turn.get(domain, 0) + 1
        order.append((turn[domain], s))
    chosen = [s for _, s in sorted(order)[:count]]
    if len(chosen) < count:
        raise ValueError(f"{trace.manifest.name}: {len(chosen)} texts of more than {length} tokens, not {count}")
    return [whole[s] for s in chosen]


def markdown(costs: Costs, trace: hl.Trace) -> str:
    """Return the tables of a file of costs, what they are of, and what becomes of them on a trace."""
    target, drafters, learners = calls(costs)
    machine = f"{costs.machine.processor}, {costs.machine.cores} cores, {costs.machine.system}"
    lines = [
        f"Measured {costs.measured} on {machine}: {costs.threads} thread, {costs.dtype}, one text, {costs.prefix} "
        f"tokens read before; medians of {costs.repeats} repeats, fewer of passes over {FEW + 1} tokens and more, with "
        "their 95% intervals.",
    ]
    if costs.machine.provisional:
        lines += ["", f"**Provisional**: {costs.machine.provisional}."]
    chosen = learners._replace(
        rows=[row for row in learners.rows if row[0] in ("normalhedge", "hedge", "ucb1", "uniform")]
    )
    for sheet in (target, drafters, chosen):
        lines += ["", *sheet.markdown()]
    alone = speedups(trace, costs, k=min(5, trace.k, costs.k))
    title = f"Every round with one drafter alone on `{trace.manifest.name}`, {alone.title}"
    lines += ["", *alone._replace(title=title).markdown()]
    return "\n".join(lines)


def main() -> None:
    """Measure, or print the tables of what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--pool", type=Path, default=ROOT / "traces" / "data" / "pool", help="where heads and texts lie"
    )
    parser.add_argument("--config", type=Path, default=ROOT / "traces" / "configs" / "t06.yaml")
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="files with lists of more drafters")
    parser.add_argument("--trace", default="t06", help="a bundled trace, whose texts are read")
    parser.add_argument("--prefix", type=int, default=200)
    parser.add_argument("--texts", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=7, help="of every call on every text")
    parser.add_argument("--only", nargs="*", help="names of drafters")
    parser.add_argument("--provisional", help="what is wrong with the measurement; default: asks the machine's load")
    parser.add_argument("--out", type=Path, help="file to write")
    parser.add_argument("--costs", type=Path, help="file to print, with --markdown; default: hedgelab's own")
    parser.add_argument("--markdown", action="store_true", help="print the tables of a file and measure nothing")
    arguments = parser.parse_args()
    if arguments.markdown:
        print(markdown(Costs.load(arguments.costs), hl.sample_trace(arguments.trace)))
        return
    config = config_of(arguments.config, arguments.pool, arguments.add)
    if arguments.only:
        config = replace(config, drafters=tuple(e for e in config.drafters if e.name in arguments.only))
    trace = hl.sample_trace(arguments.trace)
    paths = paths_of(trace, arguments.texts, arguments.prefix + config.k + arguments.repeats + 3)
    begin = time.process_time()
    costs = measure(
        config, paths, prefix=arguments.prefix, repeats=arguments.repeats, provisional=arguments.provisional,
        say=lambda words: print(words, file=sys.stderr),
    )  # fmt: skip
    print(f"{time.process_time() - begin:.0f} CPU-seconds in all", file=sys.stderr)
    if arguments.out:
        costs.save(arguments.out)
    print(markdown(costs, trace))


if __name__ == "__main__":
    main()
