"""Bandits of largest upper confidence bound, in plain numpy."""

from __future__ import annotations

import math

import numpy as np


class Ucb1:
    """Largest mean plus width, unseen drafters first, ties uniform."""

    def __init__(self, n: int):
        self.gain, self.count = np.zeros(n), np.zeros(n)

    def play(self, rng):
        """Return the distribution."""
        if (self.count == 0).any():
            best = self.count == 0
        else:
            # exact ties matter, so the width is rounded as sqrt(2 ln t) * (1 / sqrt(n))
            index = self.gain / self.count + math.sqrt(2 * math.log(max(self.count.sum(), 1.5))) * (
                1 / np.sqrt(self.count)
            )
            best = index == index.max()
        return best / best.sum()

    def observe(self, probs, pick, losses):
        """Update the pick's mean reward."""
        self.count[pick] += 1
        self.gain[pick] += 1 - losses[pick]


LEARNERS = {"ucb1": Ucb1}
