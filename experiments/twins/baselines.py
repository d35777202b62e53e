"""Policies that learn nothing."""

from __future__ import annotations

import numpy as np


class Uniform:
    """1/N each."""

    def __init__(self, n: int):
        self.n = n

    def play(self, rng):
        """Return the distribution."""
        return np.full(self.n, 1 / self.n)

    def observe(self, probs, pick, losses):
        """Learn nothing."""


class Fixed:
    """One drafter for ever."""

    def __init__(self, n: int, drafter: int = 0):
        self.probs = np.eye(n)[drafter]

    def play(self, rng):
        """Return the distribution."""
        return self.probs.copy()

    def observe(self, probs, pick, losses):
        """Learn nothing."""


LEARNERS = {"uniform": Uniform, "fixed": Fixed}
