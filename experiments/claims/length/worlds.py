"""Token worlds: the moments of the three estimators, enumerated."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.settings import Arrays, Setting
from hedgelab.lengths import ESTIMATORS
from hedgelab.token_worlds import KINDS, TokenWorld, WorldDrafter, accepting_for_ever, random_world, two_state_world

__all__ = ["made_worlds", "random_worlds"]


def _along(
    world: TokenWorld, k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return alpha and gamma (P k, k, N) of a round that begins with each of the P paths, the paths' probabilities
    (P,), and the ends of their rows (P k,). Entry [j, d] of a path is that of its round where j = d, else 0."""
    tokens, chance = world.paths(k)
    values: dict[tuple[int, ...], NDArray[np.float64]] = {}
    both = np.zeros((2, len(tokens), k, k, len(world.drafters)))
    for s, row in enumerate(tokens):
        path = tuple(row.tolist())
        for j in range(k):
            if path[: j + 1] not in values:
                p = world.target(path[:j])
                pairs = [drafter.acceptance(p, path[:j], j, path[j]) for drafter in world.drafters]
                values[path[: j + 1]] = np.array(pairs).T
            both[:, s, j, j] = values[path[: j + 1]]
    alpha, gamma = both.reshape(2, len(tokens) * k, k, len(world.drafters))
    return alpha, gamma, chance, np.repeat(np.arange(1, len(tokens) + 1) * k, k)


def moments(world: TokenWorld, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return exactly, for each drafter and k' = 1 to k: E Y by the sampler (N, k), and means and variances of A, B and
    C (3, N, k); those of A are NaN for drafters whose gamma is not known off the path."""
    alpha, gamma, chance, ends = _along(world, k)
    n = len(world.drafters)
    true = np.array([[world.expected_length(i, m) for m in range(1, k + 1)] for i in range(n)])
    known = ~np.isnan(gamma).any(axis=(0, 1))
    mean, variance = np.full((3, n, k), np.nan), np.full((3, n, k), np.nan)
    for e, name in enumerate(ESTIMATORS):
        which = known if name == "A" else np.ones(n, bool)
        if not which.any():
            continue
        for m in range(1, k + 1):
            lengths = hl.lengths.censored(alpha[:, :, which], gamma[:, :, which], m, ends, estimator=name)[::k]
            mean[e, which, m - 1] = chance @ lengths
            variance[e, which, m - 1] = chance @ lengths**2 - (chance @ lengths) ** 2
    return true, mean, variance


def _moments_of(worlds: Iterable[TokenWorld], k: int) -> Arrays:
    """Return `moments` of worlds: true (worlds, N, k), mean and variance (worlds, 3, N, k)."""
    found = [moments(world, k) for world in worlds]
    return {
        name: np.stack(part) for name, part in zip(("true", "mean", "variance"), zip(*found, strict=True), strict=True)
    }


def random_worlds(setting: Setting, seed: int) -> Arrays:
    """Return `_moments_of` random worlds, and their drafters' kinds (N,)."""
    names = tuple(KINDS)
    worlds = (random_world(1000 * seed + w, names, setting["vocabulary"]) for w in range(setting["worlds"]))
    return {"kinds": np.array(names), **_moments_of(worlds, setting["k"])}


def _gamble() -> TokenWorld:
    """Return a world where A has the largest variance and B none: after the draft that q favours none is accepted."""
    fair, leaning, zero, one = np.array([0.5, 0.5]), np.array([0.75, 0.25]), np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def law(prefix: tuple[int, ...], depth: int) -> NDArray[np.float64]:
        return one if prefix[:1] == (0,) else zero if prefix else leaning

    return TokenWorld("gamble", 2, lambda prefix: zero if prefix else fair, (WorldDrafter("chain", law),))


def made_worlds(setting: Setting, seed: int) -> Arrays:
    """Return `_moments_of` worlds of one drafter, made to tell the estimators apart, and their names (worlds,)."""
    worlds = (accepting_for_ever(), two_state_world(), _gamble())
    return {"names": np.array([world.name for world in worlds]), **_moments_of(worlds, setting["k"])}
