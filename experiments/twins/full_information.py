"""Full-information learners in plain numpy."""

from __future__ import annotations

import math

import numpy as np


class Hedge:
    """Anytime or fixed-rate exponential weights."""

    def __init__(self, n: int, learning_rate: float | None = None, scale: float = 2.0):
        self.total, self.seen, self.fixed, self.scale = np.zeros(n), 0, learning_rate, scale

    def play(self, rng):
        """Return the distribution."""
        rate = self.scale * math.sqrt(math.log(len(self.total)) / (self.seen + 1)) if self.fixed is None else self.fixed
        weights = np.exp(-rate * (self.total - self.total.min()))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the losses up."""
        self.total += losses
        self.seen += 1


class NormalHedge:
    """Scale by bisection on c."""

    def __init__(self, n: int):
        self.regret = np.zeros(n)

    def play(self, rng):
        """Return the distribution."""
        n = len(self.regret)
        square = np.maximum(self.regret, 0.0) ** 2
        if square.max() < 1e-200:
            return np.full(n, 1 / n)
        low, high = square.max() / (2 * (1 + math.log(n))), square.max() / 2
        for _ in range(60):
            c = (low + high) / 2
            if np.exp(square / (2 * c)).mean() > math.e:
                low = c
            else:
                high = c
        weights = np.sqrt(square) / c * np.exp(square / (2 * c))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the regrets of what was played."""
        self.regret += probs @ losses - losses


class FollowTheLeader:
    """Uniform over the smallest totals."""

    def __init__(self, n: int):
        self.total = np.zeros(n)

    def play(self, rng):
        """Return the distribution."""
        leads = self.total == self.total.min()
        return leads / leads.sum()

    def observe(self, probs, pick, losses):
        """Add the losses up."""
        self.total += losses


LEARNERS = {"hedge": Hedge, "normalhedge": NormalHedge, "ftl": FollowTheLeader}
