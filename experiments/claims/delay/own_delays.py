"""BOLD where the delay of a loss is that of the drafter picked, which `hedgelab.play` cannot ask: it takes delays
beforehand."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from experiments.settings import Arrays, Setting

__all__ = ["bold", "run_own_delays"]

Vector = NDArray[np.float64]
Choose = Callable[[int, Vector, np.random.Generator], Vector]


def _heaviest_half(t: int, probs: Vector, rng: np.random.Generator) -> Vector:
    order = np.lexsort((rng.random(len(probs)), -probs))
    losses = np.zeros(len(probs))
    losses[order[: max(1, len(probs) // 2)]] = 1.0
    return losses


def _pool(name: str, rounds: int, n: int) -> Choose:
    """Return the losses of a pool whose first n // 2 drafters are slow."""
    if name == "greedy":
        return _heaviest_half
    slow = np.arange(n) < n // 2

    def choose(t: int, probs: Vector, rng: np.random.Generator) -> Vector:
        if name == "lure":  # slow drafters are good until half of the rounds have passed, then bad
            return np.where(slow, float(t >= rounds // 2), (rng.random(n) < 0.5).astype(np.float64))
        means = np.where(slow, 0.3 if name == "slow best" else 0.7, 0.5)
        return (rng.random(n) < means).astype(np.float64)

    return choose


def bold(choose: Choose, delay_of: NDArray[np.int64], rounds: int, rate: float, seed: int) -> float:
    """Return the regret of BOLD over Hedge with a fixed rate when a round's loss is as late as the drafter picked.

    choose : gives the losses (N,) of a round, its distribution known. delay_of : (N,) rounds
    """
    n = len(delay_of)
    draw, world = (np.random.default_rng([seed, stream]) for stream in (0, 1))
    copies: list[Vector] = []
    idle: list[int] = []
    due: dict[int, list[tuple[int, Vector]]] = {}
    totals, own = np.zeros(n), 0.0
    for t in range(rounds):
        for copy, losses in due.pop(t, []):
            copies[copy] += losses
            heapq.heappush(idle, copy)
        if not idle:
            copies.append(np.zeros(n))
            heapq.heappush(idle, len(copies) - 1)
        copy = heapq.heappop(idle)
        weights = np.exp(-rate * (copies[copy] - copies[copy].min()))
        probs = weights / weights.sum()
        pick = min(int(np.searchsorted(np.cumsum(probs), draw.random())), n - 1)
        losses = choose(t, probs, world)
        own += float(probs @ losses)
        totals += losses
        due.setdefault(t + int(delay_of[pick]) + 1, []).append((copy, losses))
    return own - float(totals.min())


def run_own_delays(setting: Setting, seed: int) -> Arrays:
    """Regret with the picks' own delays and with all losses held back to the longest, (2, seeds), and the guarantee."""
    t, n, slow = setting["rounds"], setting["drafters"], setting["slow"]
    rate = math.sqrt(8 * math.log(n) * (slow + 1) / t)
    own = np.where(np.arange(n) < n // 2, slow, 0)
    choose = _pool(setting["pool"], t, n)
    regret = [
        [bold(choose, late, t, rate, seed + s) for s in range(setting["seeds"])] for late in (own, np.full(n, slow))
    ]
    return {"regret": np.array(regret), "guarantee": np.array(math.sqrt((slow + 1) * t * math.log(n) / 2))}
