"""Bandits of largest upper confidence bound and the published drafter selectors, one arm at a time with plain floats.

Exact ties matter: indices of equal mean and count must come out equal here where they do in the learner, and unequal
elsewhere. `Ucb1` therefore rounds its width as the learner does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction

import numpy as np

from experiments.twins.bandits import Exp3


class Index(ABC):
    """Unseen drafters first, then the largest `index(arm)`, ties uniform."""

    def __init__(self, n: int):
        self.n, self.gain = n, [0.0] * n
        self.rewards: list[list[float]] = [[] for _ in range(n)]

    @property
    def seen(self):
        """Losses seen."""
        return sum(map(len, self.rewards))

    def mean(self, arm):
        """Return the mean reward, summed in the order of the losses."""
        return self.gain[arm] / len(self.rewards[arm])

    @abstractmethod
    def index(self, arm):
        """Return the upper confidence bound of a seen arm."""

    def play(self, rng):
        """Return the distribution."""
        values = [self.index(arm) if rewards else math.inf for arm, rewards in enumerate(self.rewards)]
        best = np.array([value == max(values) for value in values])
        return best / best.sum()

    def observe(self, probs, pick, losses):
        """Remember the pick's reward."""
        self.rewards[pick].append(1 - losses[pick])
        self.gain[pick] += 1 - losses[pick]


class Ucb1:
    """Largest mean plus width, unseen drafters first, ties uniform."""

    def __init__(self, n: int, beta: float = 1.0):
        self.gain, self.count, self.beta = np.zeros(n), np.zeros(n), beta

    def play(self, rng):
        """Return the distribution."""
        if (self.count == 0).any():
            best = self.count == 0
        else:
            # exact ties matter, so the width is rounded as sqrt(2 ln t) * (1 / sqrt(n))
            index = self.gain / self.count + self.beta * math.sqrt(2 * math.log(max(self.count.sum(), 1.5))) * (
                1 / np.sqrt(self.count)
            )
            best = index == index.max()
        return best / best.sum()

    def observe(self, probs, pick, losses):
        """Update the pick's mean reward."""
        self.count[pick] += 1
        self.gain[pick] += 1 - losses[pick]


class UcbTuned(Ucb1):
    """UCB1 with its width times beta."""

    def __init__(self, n: int, beta: float = 0.5):
        super().__init__(n, beta)


class UcbV(Index):
    """Exact variance of the remembered rewards."""

    def __init__(self, n: int, zeta: float = 1.2, c: float = 1.0):
        super().__init__(n)
        self.zeta, self.c = zeta, c

    def index(self, arm):
        """Return mean + sqrt(2 V E / n) + 3 c E / n."""
        rewards = [Fraction(reward) for reward in self.rewards[arm]]
        s = len(rewards)
        variance = sum(reward * reward for reward in rewards) / s - (sum(rewards) / s) ** 2
        exploration = self.zeta * math.log(self.seen + 1)
        return self.mean(arm) + math.sqrt(2 * float(variance) * exploration / s) + 3 * self.c * exploration / s


class KlUcb:
    """Bisection for ln((1 - mean) / (1 - q)) on all arms at once."""

    def __init__(self, n: int, c: float = 0.0):
        self.loss, self.count, self.c = np.zeros(n), np.zeros(n), c

    def play(self, rng):
        """Return the distribution."""
        if (self.count == 0).any():
            best = self.count == 0
            return best / best.sum()
        t = self.count.sum() + 1
        level = math.log(t) + self.c * max(0.0, math.log(math.log(t)))
        mean = self.loss / self.count  # q and the mean as losses: 1 - q = mean e^-z
        low, high = np.zeros_like(mean), np.full_like(mean, 708.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(60):
                z = (low + high) / 2
                rest = (1 - mean) * (np.log1p(-mean) - np.log1p(-mean * np.exp(-z)))
                allowed = self.count * (mean * z + np.where(mean < 1, rest, 0.0)) <= level
                low, high = np.where(allowed, z, low), np.where(allowed, high, z)
        loss = np.where(low > 707.9, 0.0, mean * np.exp(-low))
        best = loss == loss.min()
        return best / best.sum()

    def observe(self, probs, pick, losses):
        """Update the pick's mean loss."""
        self.count[pick] += 1
        self.loss[pick] += losses[pick]


class Moss(Index):
    """MOSS with its horizon, anytime without."""

    def __init__(self, n: int, horizon: float | None = None, alpha: float = 1.35):
        super().__init__(n)
        self.horizon, self.alpha = horizon, alpha

    def index(self, arm):
        """Return mean + sqrt(factor max(0, ln(T / (N n))) / n)."""
        s = len(self.rewards[arm])
        horizon, factor = (self.seen + 1, (1 + self.alpha) / 2) if self.horizon is None else (self.horizon, 1)
        return self.mean(arm) + math.sqrt(factor * max(0, math.log(horizon / (self.n * s))) / s)


class UcbSpec(Index):
    """UCBSpec in tokens, as published: Y = 1 + K (1 - loss)."""

    K = 5

    def __init__(self, n: int, delta: float = 0.5):
        super().__init__(n)
        self.delta = delta

    def index(self, arm):
        """Return mean of Y + (K/2) sqrt((1 + s) / s^2 (1 + 2 ln(N t^2 sqrt(1 + s) / delta)))."""
        s = len(self.rewards[arm])
        logarithm = math.log(self.n * self.seen**2 * math.sqrt(1 + s) / self.delta)
        return 1 + self.K * self.mean(arm) + self.K / 2 * math.sqrt((1 + s) / s**2 * (1 + 2 * logarithm))


class Exp3Spec(Exp3):
    """EXP3 on (K + 1 - Y) / (K w), Y tokens of a round."""

    K = 5

    def observe(self, probs, pick, losses):
        """Add the weighted share of tokens not committed."""
        tokens = 1 + self.K * (1 - losses[pick])
        self.total[pick] += (self.K + 1 - tokens) / (self.K * probs[pick])
        self.seen += 1


class BanditSpecRelease(Index):
    """A bonus of all calls, in exact arithmetic: the same for every arm, so the means decide."""

    def index(self, arm):
        """Return mean + sqrt(6 ln t / sum of calls), exact apart from the bonus."""
        bonus = Fraction(math.sqrt(6 * math.log(self.seen + 1) / self.seen))
        return Fraction(self.mean(arm)) + bonus


LEARNERS = {
    "ucb1": Ucb1,
    "ucb-tuned": UcbTuned,
    "ucb-v": UcbV,
    "kl-ucb": KlUcb,
    "moss": Moss,
    "ucbspec": UcbSpec,
    "exp3spec": Exp3Spec,
    "banditspec-release": BanditSpecRelease,
    "metasd": Ucb1,
    "metasd-onpath": Ucb1,
}
