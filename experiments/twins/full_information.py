"""Full-information learners in plain numpy."""

from __future__ import annotations

import math

import numpy as np


class Hedge:
    """Anytime or fixed-rate exponential weights, or the doubling trick."""

    def __init__(self, n: int, learning_rate: float | None = None, scale: float = 2.0, schedule: int = 0):
        self.total, self.seen, self.fixed, self.scale = np.zeros(n), 0, learning_rate, scale
        self.doubling = schedule == 1 and learning_rate is None

    def play(self, rng):
        """Return the distribution."""
        t, n = self.seen + 1, len(self.total)
        rate = self.scale * math.sqrt(math.log(n) / t) if self.fixed is None else self.fixed
        if self.doubling:
            rate = math.sqrt(8 * math.log(n) / 2 ** math.floor(math.log2(t)))
        weights = np.exp(-rate * (self.total - self.total.min()))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the losses up, afresh from each power of two."""
        self.total += losses
        self.seen += 1
        if self.doubling and math.log2(self.seen + 1).is_integer():
            self.total[:] = 0


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


class NormalHedgeBH:
    """Clock by bisection."""

    def __init__(self, n: int, start: float = 1.0):
        self.regret, self.start = np.zeros(n), start

    def play(self, rng):
        """Return the distribution."""
        n = len(self.regret)
        y = np.maximum(self.regret, 0.0)
        if (y**2).max() < 1e-200:
            return np.full(n, 1 / n)

        def excess(t):
            """Log of the mean potential over the one before any regret."""
            exponents = y**2 / (2 * t)
            return exponents.max() + math.log(np.exp(exponents - exponents.max()).mean()) - math.log(t / self.start) / 2

        low = high = self.start
        while excess(high) > 0:
            high *= 2
        for _ in range(80):
            t = (low + high) / 2
            low, high = (t, high) if excess(t) > 0 else (low, t)
        weights = y * np.exp((y**2 - y.max() ** 2) / (2 * t))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the regrets of what was played."""
        self.regret += probs @ losses - losses


class AdaHedge:
    """Rate from the mixability gaps of what was played."""

    def __init__(self, n: int):
        self.total, self.gap = np.zeros(n), 0.0

    def play(self, rng):
        """Return the distribution."""
        ahead = self.total - self.total.min()
        with np.errstate(over="ignore"):
            weights = np.exp(-math.log(len(ahead)) / self.gap * ahead) if self.gap else (ahead == 0).astype(float)
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the losses and the gap up."""
        played = losses[probs > 0]
        if self.gap and len(losses) > 1:
            rate = math.log(len(losses)) / self.gap
            inner = probs[probs > 0] @ np.expm1(-rate * (played - played.min()))
            mix = played.min() - np.log1p(max(inner, -1 + 1e-16)) / rate
            if rate > 1:
                mix = played.min() - np.log(probs[probs > 0] @ np.exp(-rate * (played - played.min()))) / rate
        else:
            mix = played.min()
        self.gap += max(probs @ losses - mix, 0.0) if np.ptp(losses) else 0.0
        self.total += losses


class AdaNormalHedge:
    """Potential difference, as the paper writes it but for a common factor."""

    def __init__(self, n: int):
        self.regret, self.size = np.zeros(n), np.zeros(n)

    def play(self, rng):
        """Return the distribution."""
        up = np.maximum(self.regret + 1, 0) ** 2 / (3 * (self.size + 1))
        down = np.maximum(self.regret - 1, 0) ** 2 / (3 * (self.size + 1))
        top = up.max()
        weights = np.exp(up - top) - np.exp(down - top) if top > 1e-3 else np.expm1(up) - np.expm1(down)
        if not weights.any():
            return np.full(len(up), 1 / len(up))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the regrets of what was played."""
        self.regret += probs @ losses - losses
        self.size += np.abs(probs @ losses - losses)


class Squint:
    """The integral over learning rates, by quadrature."""

    nodes, masses = np.polynomial.legendre.leggauss(40)
    panels = 32
    eta = ((np.arange(panels)[:, None] + (nodes + 1) / 2) / (2 * panels)).ravel()
    log_mass = np.tile(np.log(masses / (4 * panels)), panels)

    def __init__(self, n: int):
        self.regret, self.square = np.zeros(n), np.zeros(n)

    def play(self, rng):
        """Return the distribution."""
        exponents = np.outer(self.regret, self.eta) - np.outer(self.square, self.eta**2) + self.log_mass
        weights = np.exp(exponents - exponents.max()).sum(axis=1)
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the regrets of what was played, and their squares."""
        self.regret += probs @ losses - losses
        self.square += (probs @ losses - losses) ** 2


class MLProd:
    """The weights themselves, not their logarithms."""

    def __init__(self, n: int):
        self.weights, self.square = np.full(n, 1 / n), np.zeros(n)

    def rates(self):
        """Return the learning rates."""
        return np.minimum(0.5, np.sqrt(math.log(max(len(self.square), 2)) / (1 + self.square)))

    def play(self, rng):
        """Return the distribution."""
        weights = self.rates() * self.weights
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Multiply, then change the rates."""
        regret, before = probs @ losses - losses, self.rates()
        self.square += regret**2
        self.weights = (self.weights * (1 + before * regret)) ** (self.rates() / before)


class OptimisticHedge:
    """The last loss counts twice."""

    def __init__(self, n: int, learning_rate: float | None = None, scale: float = 2.0):
        self.total, self.last, self.variation, self.fixed, self.scale = (
            np.zeros(n),
            np.zeros(n),
            0,
            learning_rate,
            scale,
        )

    def play(self, rng):
        """Return the distribution."""
        total, rate = self.total + self.last, self.fixed
        if rate is None:
            rate = self.scale * math.sqrt(math.log(len(total)) / (4 + self.variation))
        weights = np.exp(-rate * (total - total.min()))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the losses up and remember the last."""
        self.variation += np.ptp(losses - self.last) ** 2
        self.total += losses
        self.last = losses.copy()


class FixedShare:
    """Multiply, then share."""

    def __init__(self, n: int, learning_rate: float | None = None, share: float | None = None, scale: float = 2.0):
        self.probs, self.seen, self.fixed, self.share, self.scale = np.full(n, 1 / n), 0, learning_rate, share, scale

    def play(self, rng):
        """Return the distribution."""
        return self.probs.copy()

    def observe(self, probs, pick, losses):
        """Update at once."""
        self.seen += 1
        n, t = len(losses), self.seen
        rate = self.scale * math.sqrt(math.log(n * t) / t) if self.fixed is None else self.fixed
        share = 1 / (t + 1) if self.share is None else self.share
        weights = self.probs * np.exp(-rate * (losses - losses.min()))
        self.probs = (1 - share) * weights / weights.sum() + share / n


class PerturbedLeader:
    """Gumbel noise on the scaled losses, the largest wins."""

    def __init__(self, n: int, learning_rate: float | None = None, scale: float = 2.0):
        self.total, self.seen, self.fixed, self.scale = np.zeros(n), 0, learning_rate, scale

    def play(self, rng):
        """Return the pick, one-hot."""
        n = len(self.total)
        rate = self.scale * math.sqrt(math.log(n) / (self.seen + 1)) if self.fixed is None else self.fixed
        noise = -np.log(-np.log1p(-rng.random(n)))
        return np.eye(n)[np.argmax(noise - rate * self.total)]

    def observe(self, probs, pick, losses):
        """Add the losses up."""
        self.total += losses
        self.seen += 1


LEARNERS = {
    "hedge": Hedge,
    "normalhedge": NormalHedge,
    "normalhedge-bh": NormalHedgeBH,
    "adahedge": AdaHedge,
    "adanormalhedge": AdaNormalHedge,
    "squint": Squint,
    "ml-prod": MLProd,
    "optimistic-hedge": OptimisticHedge,
    "fixed-share": FixedShare,
    "ftpl": PerturbedLeader,
    "ftl": FollowTheLeader,
}
