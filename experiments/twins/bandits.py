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


class Exp3IX:
    """Exponential weights on losses weighted by probability plus gamma."""

    def __init__(self, n: int, horizon: int | None = None):
        self.total, self.seen, self.horizon = np.zeros(n), 0, horizon

    def eta(self):
        """Return the rate of this round."""
        n = len(self.total)
        return np.sqrt(2 * np.log(n) / n / self.horizon) if self.horizon else np.sqrt(np.log(n) / n / (self.seen + 1))

    def play(self, rng):
        """Return the distribution."""
        weights = np.exp(-self.eta() * (self.total - self.total.min()))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the weighted loss of the pick."""
        self.total[pick] += losses[pick] / (probs[pick] + self.eta() / 2)
        self.seen += 1


class Exp3P:
    """Exponential weights on optimistic rewards, with uniform exploration."""

    def __init__(self, n: int, horizon: int | None = None, delta: float | None = None):
        self.gain, self.seen, self.horizon, self.delta = np.zeros(n), 0, horizon, delta

    def play(self, rng):
        """Return the distribution."""
        n, rounds = len(self.gain), self.horizon or self.seen + 1
        weights = np.exp(0.95 * np.sqrt(np.log(n) / (rounds * n)) * (self.gain - self.gain.max()))
        gamma = min(1.0, 1.05 * np.sqrt(n * np.log(n) / rounds))
        return (1 - gamma) * weights / weights.sum() + gamma / n

    def observe(self, probs, pick, losses):
        """Add the estimated rewards."""
        n, rounds = len(self.gain), self.horizon or self.seen + 1
        beta = np.sqrt(np.log(n if self.delta is None else n / self.delta) / (rounds * n))
        reward = np.where(np.arange(n) == pick, 1 - losses[pick], 0.0)
        self.gain += (reward + beta) / probs
        self.seen += 1


class TsallisInf:
    """The normalisation by bisection."""

    def __init__(self, n: int, reduced_variance: int = 0):
        self.total, self.seen, self.reduced = np.zeros(n), 0, reduced_variance

    def eta(self):
        """Return the rate of this round."""
        return (4 if self.reduced else 2) / math.sqrt(self.seen + 1)

    def play(self, rng):
        """Return the distribution."""
        above, eta = self.total - self.total.min(), self.eta()
        low, high = 1 / eta, 4 * math.sqrt(len(above)) / eta  # of min - x
        for _ in range(60):
            middle = (low + high) / 2
            weights = 4 / (eta * (above + middle)) ** 2
            if weights.sum() > 1:
                low = middle
            else:
                high = middle
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the estimated losses."""
        baseline = np.where(probs >= self.eta() ** 2, 0.5, 0.0) if self.reduced else np.zeros(len(probs))
        picked = np.arange(len(probs)) == pick
        self.total += np.where(picked, (losses[pick] - baseline) / probs, 0.0) + baseline
        self.seen += 1


class ThompsonBeta:
    """Largest of one sample per Beta posterior."""

    def __init__(self, n: int):
        self.a, self.b = np.ones(n), np.ones(n)

    def play(self, rng):
        """Return the distribution."""
        return np.eye(len(self.a))[np.argmax(rng.beta(self.a, self.b))]

    def observe(self, probs, pick, losses):
        """Count reward and loss."""
        self.a[pick] += 1 - losses[pick]
        self.b[pick] += losses[pick]


class ThompsonGauss:
    """Largest of one sample per normal posterior."""

    def __init__(self, n: int):
        self.rewards: list[list[float]] = [[0.0] for _ in range(n)]  # the prior is one reward of zero

    def play(self, rng):
        """Return the distribution."""
        means = np.array([np.mean(rewards) for rewards in self.rewards])
        counts = np.array([len(rewards) for rewards in self.rewards])
        samples = means + rng.standard_normal(len(means)) / np.sqrt(counts)
        return np.eye(len(means))[np.argmax(samples)]

    def observe(self, probs, pick, losses):
        """Keep the reward."""
        self.rewards[pick].append(1 - losses[pick])


class ExploreThenCommit:
    """Every reward kept; the leaders fixed once all have enough."""

    def __init__(self, n: int, rounds: int | None = None, horizon: int | None = None):
        self.rewards: list[list[float]] = [[] for _ in range(n)]
        self.committed: np.ndarray | None = None
        self.rounds = rounds or 32
        if horizon and not rounds:
            self.rounds = max(1, math.ceil(math.cbrt((horizon / n) ** 2 * math.log(horizon))))

    def play(self, rng):
        """Return the distribution."""
        if self.committed is not None:
            return self.committed
        counts = np.array([len(rewards) for rewards in self.rewards])
        return (counts == counts.min()) / (counts == counts.min()).sum()

    def observe(self, probs, pick, losses):
        """Keep the reward, or nothing after committing."""
        if self.committed is None:
            self.rewards[pick].append(1 - losses[pick])
            if min(len(rewards) for rewards in self.rewards) >= self.rounds:
                means = np.array([sum(rewards) / len(rewards) for rewards in self.rewards])
                self.committed = (means == means.max()) / (means == means.max()).sum()


class SuccessiveElimination:
    """Intervals of the active arms from scratch after every reward."""

    def __init__(self, n: int, delta: float = 0.05):
        self.rewards: dict[int, list[float]] = {arm: [] for arm in range(n)}
        self.n, self.delta = n, delta

    def play(self, rng):
        """Return the distribution."""
        fewest = min(len(rewards) for rewards in self.rewards.values())
        probs = np.array([float(len(self.rewards.get(arm, range(fewest + 1))) == fewest) for arm in range(self.n)])
        return probs / probs.sum()

    def observe(self, probs, pick, losses):
        """Keep the reward, drop arms."""
        if pick not in self.rewards:
            return
        self.rewards[pick].append(1 - losses[pick])
        intervals = {}
        for arm, rewards in self.rewards.items():
            count = len(rewards)
            if count:
                failure = 3 * self.delta / (np.pi**2 * self.n * count**2)  # each side, Hoeffding
                intervals[arm] = (np.mean(rewards), np.sqrt(-np.log(failure) / 2 / count))
        bound = max(mean - width for mean, width in intervals.values())
        for arm, (mean, width) in intervals.items():
            if mean + width < bound:
                del self.rewards[arm]


LEARNERS = {
    "exp3": Exp3,
    "exp3-ix": Exp3IX,
    "exp3-p": Exp3P,
    "tsallis-inf": TsallisInf,
    "thompson-beta": ThompsonBeta,
    "thompson-gauss": ThompsonGauss,
    "explore-then-commit": ExploreThenCommit,
    "successive-elimination": SuccessiveElimination,
}
