"""Bandits that estimate losses, sample a posterior or eliminate, in plain numpy."""

from __future__ import annotations

import math

import numpy as np


class Exp3:
    """Exponential weights on importance-weighted losses."""

    def __init__(self, n: int):
        self.total, self.seen = np.zeros(n), 0

    def play(self, rng):
        """Return the distribution."""
        n = len(self.total)
        weights = np.exp(-math.sqrt(math.log(n) / (n * (self.seen + 1))) * (self.total - self.total.min()))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the weighted loss of the pick."""
        self.total[pick] += losses[pick] / probs[pick]
        self.seen += 1


LEARNERS = {"exp3": Exp3}
