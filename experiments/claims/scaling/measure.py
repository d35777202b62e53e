"""Scaling: one learner's games at several numbers of drafters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.settings import Arrays, Setting

__all__ = ["policy", "run"]

BETAS = (0.1, 0.25, 0.5, 1.0)  # of ucb-tuned, the least worst regret on seeds of its own
_TUNE, _CHOOSE, _SCORE, _COINS = range(4)  # each stage has seeds of its own


def _seeds(seed: int, stage: int, count: int) -> list[int]:
    return [(seed * 4 + stage) * 10_000 + i for i in range(count)]


def policy(name: str, T: int, n: int, beta: float | None = None) -> hl.Learner:
    """Return the learner of that name for T rounds and n drafters; what it may know of T is in its name or theorem."""
    if name == "hedge-fixed":
        return hl.learner("hedge", learning_rate=math.sqrt(8 * math.log(n) / T))
    if name == "moss":
        return hl.learner("moss", horizon=T)
    return hl.learner(name) if beta is None else hl.learner(name, beta=beta)


def _pseudo_regret(learner: hl.Learner, T: int, n: int, gap: float, seed: int) -> float:
    """Return gap times the number of rounds whose pick was not the best drafter."""
    world = hl.worlds.gap(T, n, gap)
    assert world.mean_losses is not None  # a world of this kind has means
    best = int(world.mean_losses(seed, 0, 1)[0].argmin())
    picks = hl.play(world, learner, seed=seed, times=[T]).picks
    return gap * float(np.count_nonzero(picks != best))


def _table(learner: hl.Learner, T: int, n: int, gaps: Sequence[float], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return (gaps, seeds) pseudo-regret."""
    return np.array([[_pseudo_regret(learner, T, n, gap, s) for s in seeds] for gap in gaps])


def _tuned_beta(name: str, T: int, drafters: Sequence[int], gaps: Sequence[float], seeds: Sequence[int]) -> float:
    """Return the beta, one for all N, whose worst regret has the least geometric mean over N up to 64."""
    means = []
    for beta in BETAS:
        worst = [_table(policy(name, T, n, beta), T, n, gaps, seeds).mean(axis=1).max() for n in drafters if n <= 64]
        means.append(np.log(worst).mean())
    return BETAS[int(np.argmin(means))]


def run(setting: Setting, seed: int) -> Arrays:
    """Play one learner at some N.

    Returns for each N: choose_N (gaps, seeds) pseudo-regret at each gap on the choosing seeds; gap_N, the worst of
    them, an index; score_N (seeds,) that gap's on the scoring seeds; coins_N (seeds,) regret on fair coins. Of
    ucb-tuned also its beta.
    """
    name, T, gaps = setting["learner"], setting["T"], setting["gaps"]
    choosing = _seeds(seed, _CHOOSE, setting["choosing"])
    scoring = _seeds(seed, _SCORE, setting["scoring"])
    tossing = _seeds(seed, _COINS, setting["coins"])
    found: dict[str, NDArray[Any]] = {}
    beta = None
    if name == "ucb-tuned":
        beta = _tuned_beta(name, T, setting["drafters"], gaps[::2], _seeds(seed, _TUNE, setting["choosing"]))
        found["beta"] = np.array(beta)
    for n in setting["drafters"]:
        learner, coins = policy(name, T, n, beta), hl.worlds.fair_coins(T, n)
        choose = _table(learner, T, n, gaps, choosing)
        worst = int(choose.mean(axis=1).argmax())
        found[f"choose_{n}"] = choose
        found[f"gap_{n}"] = np.array(worst)
        found[f"score_{n}"] = _table(learner, T, n, [gaps[worst]], scoring)[0]
        found[f"coins_{n}"] = np.array([hl.play(coins, learner, seed=s, times=[T]).regret for s in tossing])
    return found
