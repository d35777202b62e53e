"""What recording costs over the bare forward passes it needs.

Three sides run the same batch of held-out prompts in turn, a step each, on the same texts:

collect     the collector's whole row: forward passes, laws, draws, alpha and gamma of every drafter, bookkeeping
bare        the target's step and each drafter's own forward pass, as the drafter makes it, and nothing else
products    the target's step and, of each drafter, the matrix products of its forward pass alone: no norms, masks,
            caches or Python. n-grams and lookup, which have none, cost nothing here. The strictest denominator

The collector first writes some rows alone; the peak of resident memory is read then. CPU seconds of the process; run
with `python -m experiments.bench_collect [CONFIG.yaml] [--steps N] [--alone N] [--domain NAME]`.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from traces.collect import Batch, Clock, build_drafters, jobs_of
from traces.config import load_config
from traces.drafters.base import ByLayer, DeepDrafter, DeepLaws, Drafter, FlatDrafter, Prefix
from traces.drafters.exit import EarlyExit
from traces.drafters.head import TrainedHead
from traces.drafters.lookup import Lookup
from traces.drafters.ngram import NGram
from traces.drafters.truncated import Truncated
from traces.heads import Head
from traces.kv import Stepper
from traces.targets import Target, load_target

__all__ = ["measure"]

_CONFIG = Path(__file__).parent.parent / "traces" / "configs" / "ready.yaml"


class _Bare:
    """Forward passes only, over the texts (B, L) that the collector writes, which so far hold `read` tokens."""

    def __init__(self, batch: Batch, drafters: list[Drafter], read: int) -> None:
        self.drafters = drafters
        taps = {tap for drafter in drafters for tap in drafter.taps}
        self.stepper = Stepper(batch.target.model, any(d.needs_hidden for d in drafters), taps)
        self.stepper.begin(batch.tokens[:, :read], batch.tokens.shape[1])
        for drafter in drafters:
            drafter.begin(batch.tokens[:, :read], batch.tokens.shape[1], self.stepper.prompt_states)
        self.before: ByLayer = {tap: self.stepper.prompt_states[tap][:, -1] for tap in taps}

    def step(self, tokens: Tensor) -> None:
        self.stepper.step(tokens[:, -1])
        prefix = Prefix(tokens, self.stepper.hidden, self.before)
        self.before = self.stepper.hidden
        for drafter in self.drafters:
            if isinstance(drafter, FlatDrafter | DeepLaws):
                drafter.logits(prefix)
            elif isinstance(drafter, DeepDrafter):
                drafter.propose(prefix)


class _Products:
    """The target's step and the matrix products of all drafters, on numbers that mean nothing."""

    def __init__(self, batch: Batch, drafters: list[Drafter], read: int) -> None:
        self.stepper = Stepper(batch.target.model)
        self.stepper.begin(batch.tokens[:, :read], batch.tokens.shape[1])
        self.parts = [_products_of(drafter, batch.target, *batch.tokens.shape) for drafter in drafters]

    def step(self, tokens: Tensor) -> None:
        self.stepper.step(tokens[:, -1])
        for part in self.parts:
            part(tokens.shape[1])


def _products_of(drafter: Drafter, target: Target, texts: int, capacity: int) -> Callable[[int], None]:
    """Return what runs the products of one step of a drafter, given the tokens read so far."""
    if isinstance(drafter, TrainedHead | Truncated):
        depths = drafter.k if isinstance(drafter, TrainedHead) else 1
        return _products_of_head(drafter._head, target, texts, depths, capacity)
    if isinstance(drafter, EarlyExit):
        output, state = target.model.get_output_embeddings(), torch.randn(texts, drafter._head.in_features)
        return lambda length: output(state)
    if isinstance(drafter, NGram | Lookup):
        return lambda length: None
    raise ValueError(f"drafter {drafter.name!r}: no products are known of kind {drafter.kind!r}")


def _products_of_head(head: Head, target: Target, texts: int, depths: int, capacity: int) -> Callable[[int], None]:
    """Every linear part on one row a text and depth (`fuse`: a text), and attention without a mask."""
    config = target.model.config.get_text_config()
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    linears = {name: part for name, part in head.named_modules() if isinstance(part, nn.Linear)}
    inputs = {
        name: torch.randn(texts * (1 if name == "fuse" else depths), part.in_features) for name, part in linears.items()
    }
    query = torch.randn(texts, groups, heads // groups * depths, size)
    key, value = torch.randn(2, texts, groups, capacity, size)
    outputs = torch.randn(texts * depths, head.rows.shape[1])

    def run(length: int) -> None:
        for name, part in linears.items():
            part(inputs[name])
        (query @ key[:, :, :length].transpose(2, 3)) @ value[:, :, :length]
        F.linear(outputs, head.rows)

    return run


class _Endless(Batch):
    """A batch whose texts never end, so that all sides keep the same rows."""

    def ends(self, s: int, token: int) -> bool:
        return False


@torch.inference_mode()
def measure(config_file: Path = _CONFIG, steps: int = 64, alone: int = 4, domain: str = "biology") -> dict[str, float]:
    """Return CPU seconds per step of all sides, their ratios, tokens per second and the peak of resident memory.

    alone : rows that the collector writes before the other sides exist; memory is that of the recording so far, with
    its model, and time is measured from there on
    """
    torch.set_num_threads(1)  # threads that wait for a busy core spin, and that counts as CPU time
    config, _ = load_config(config_file)
    config = replace(config, prompts=replace(config.prompts, domains=(domain,)), max_new_tokens=alone + steps + 2)
    target = load_target(config.target)
    jobs, _ = jobs_of(config, target)
    batch = _Endless(jobs[: config.batch], target, build_drafters(config, target), config, Clock())
    batch.begin()
    for t in range(alone):
        batch.row(t)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    read = batch.filled - 1  # the latest token is read by the next step
    others: dict[str, _Bare | _Products] = {
        "bare": _Bare(batch, build_drafters(config, target), read),
        "products": _Products(batch, build_drafters(config, target), read),
    }
    spent: dict[str, list[float]] = {"collect": [], "bare": [], "products": [], "wall": []}
    for t in range(steps):
        tokens = batch.tokens[:, : batch.filled].clone()
        order = ["collect", *others]
        for side in order[t % 3 :] + order[: t % 3]:  # no side always meets a warm cache
            cpu, wall = time.process_time(), time.perf_counter()
            if side == "collect":
                batch.row(alone + t)
                spent["wall"].append(time.perf_counter() - wall)
            else:
                others[side].step(tokens)
            spent[side].append(time.process_time() - cpu)
    warm = {name: values[4:] for name, values in spent.items()}
    found = {f"{name}_cpu_s": statistics.fmean(warm[name]) for name in ("collect", *others)}
    for name in others:
        found[f"ratio_{name}"] = sum(warm["collect"]) / sum(warm[name])
        each = [a / b for a, b in zip(warm["collect"], warm[name], strict=True)]
        found[f"median_{name}"] = statistics.median(each)
    return {
        **found,
        "collect_wall_s": statistics.fmean(warm["wall"]),
        "tokens_per_cpu_s": len(batch.jobs) / found["collect_cpu_s"],
        "texts": len(batch.jobs),
        "tokens_read": batch.filled,
        "drafters": len(config.drafters),
        "peak_memory_gb": peak,
    }


def main() -> None:
    """Print the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="?", type=Path, default=_CONFIG)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--alone", type=int, default=4)
    parser.add_argument("--domain", default="biology")
    arguments = parser.parse_args()
    for name, value in measure(arguments.config, arguments.steps, arguments.alone, arguments.domain).items():
        print(f"{name:16s} {value:.4g}")


if __name__ == "__main__":
    main()
