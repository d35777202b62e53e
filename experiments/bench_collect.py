"""What recording costs over the bare forward passes it needs.

Both sides run the same batch of held-out prompts in turn, a step each: the collector's whole row (forward passes, laws,
draws, alpha and gamma of every drafter, bookkeeping) against the target's step and each drafter's own forward pass and
nothing else. CPU seconds of the process; run with `python -m experiments.bench_collect [CONFIG.yaml] [--steps N]`.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from traces.collect import Clock, _Batch, build_drafters, jobs_of
from traces.config import load_config
from traces.drafters.base import DeepDrafter, DeepLaws, Drafter, FlatDrafter, Prefix, pad_left
from traces.kv import Stepper
from traces.targets import load_target

__all__ = ["measure"]

_CONFIG = Path(__file__).parent.parent / "traces" / "configs" / "t06.yaml"


class _Bare:
    """Forward passes only, over the texts that the collector writes."""

    def __init__(self, batch: _Batch, drafters: list[Drafter]) -> None:
        self.batch, self.drafters = batch, drafters
        taps = {tap for drafter in drafters for tap in drafter.taps}
        self.stepper = Stepper(batch.target.model, any(d.needs_hidden for d in drafters), taps)
        prompts = pad_left([job.ids for job in batch.jobs])
        self.stepper.begin(prompts, batch.tokens.shape[1])
        for drafter in drafters:
            drafter.begin(prompts, batch.tokens.shape[1], self.stepper.prompt_states)

    def step(self, tokens: torch.Tensor) -> None:
        self.stepper.step(tokens[:, -1])
        prefix = Prefix(tokens, self.stepper.hidden)
        for drafter in self.drafters:
            if isinstance(drafter, FlatDrafter | DeepLaws):
                drafter.logits(prefix)
            elif isinstance(drafter, DeepDrafter):
                drafter.propose(prefix)


class _Endless(_Batch):
    """A batch whose texts never end, so that both sides keep the same rows."""

    def _ends(self, s: int, token: int) -> bool:
        return False


@torch.inference_mode()
def measure(config_file: Path = _CONFIG, steps: int = 64, domain: str = "biology") -> dict[str, float]:
    """Return CPU seconds per step of both sides, their ratio, wall seconds per step and the peak of resident memory."""
    torch.set_num_threads(1)  # threads that wait for a busy core spin, and that counts as CPU time
    config, _ = load_config(config_file)
    config = replace(config, prompts=replace(config.prompts, domains=(domain,)), max_new_tokens=steps + 2)
    target = load_target(config.target)
    jobs, _ = jobs_of(config, target)
    batch = _Endless(jobs[: config.batch], target, build_drafters(config, target), config, Clock())
    batch.begin()
    bare = _Bare(batch, build_drafters(config, target))
    spent: dict[str, list[float]] = {"collect": [], "bare": [], "wall": []}
    for t in range(steps):
        tokens = batch.tokens[:, : batch.filled].clone()
        order = ("bare", "collect") if t % 2 else ("collect", "bare")  # neither side always meets a warm cache
        for side in order:
            cpu, wall = time.process_time(), time.perf_counter()
            if side == "collect":
                batch.row(t)
                spent["wall"].append(time.perf_counter() - wall)
            else:
                bare.step(tokens)
            spent[side].append(time.process_time() - cpu)
    warm = {name: values[4:] for name, values in spent.items()}
    ratios = [a / b for a, b in zip(warm["collect"], warm["bare"], strict=True)]
    return {
        "collect_cpu_s": statistics.fmean(warm["collect"]),
        "bare_cpu_s": statistics.fmean(warm["bare"]),
        "ratio": sum(warm["collect"]) / sum(warm["bare"]),
        "ratio_median": statistics.median(ratios),
        "collect_wall_s": statistics.fmean(warm["wall"]),
        "texts": len(jobs[: config.batch]),
        "drafters": len(config.drafters),
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,  # both sides together
    }


def main() -> None:
    """Print the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="?", type=Path, default=_CONFIG)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--domain", default="biology")
    arguments = parser.parse_args()
    for name, value in measure(arguments.config, arguments.steps, arguments.domain).items():
        print(f"{name:16s} {value:.4g}")


if __name__ == "__main__":
    main()
