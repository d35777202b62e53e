"""The decode replay as a researcher would write it in numpy: one obvious loop, no compiled code.

The baseline of the speed benchmark and the twin that the engine's tests compare with; it shares no code with either
engine or learners of `hedgelab`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np


class Hedge:
    """Anytime or fixed-rate exponential weights."""

    def __init__(self, n: int, learning_rate: float | None = None, scale: float = 2.0):
        self.total, self.seen, self.fixed, self.scale = np.zeros(n), 0, learning_rate, scale

    def play(self):
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

    def play(self):
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

    def play(self):
        """Return the distribution."""
        leads = self.total == self.total.min()
        return leads / leads.sum()

    def observe(self, probs, pick, losses):
        """Add the losses up."""
        self.total += losses


class Uniform:
    """1/N each."""

    def __init__(self, n: int):
        self.n = n

    def play(self):
        """Return the distribution."""
        return np.full(self.n, 1 / self.n)

    def observe(self, probs, pick, losses):
        """Learn nothing."""


class Fixed:
    """One drafter for ever."""

    def __init__(self, n: int, drafter: int = 0):
        self.probs = np.eye(n)[drafter]

    def play(self):
        """Return the distribution."""
        return self.probs.copy()

    def observe(self, probs, pick, losses):
        """Learn nothing."""


class Exp3:
    """Exponential weights on importance-weighted losses."""

    def __init__(self, n: int):
        self.total, self.seen = np.zeros(n), 0

    def play(self):
        """Return the distribution."""
        n = len(self.total)
        weights = np.exp(-math.sqrt(math.log(n) / (n * (self.seen + 1))) * (self.total - self.total.min()))
        return weights / weights.sum()

    def observe(self, probs, pick, losses):
        """Add the weighted loss of the pick."""
        self.total[pick] += losses[pick] / probs[pick]
        self.seen += 1


class Ucb1:
    """Largest mean plus width, unseen drafters first, ties uniform."""

    def __init__(self, n: int):
        self.gain, self.count = np.zeros(n), np.zeros(n)

    def play(self):
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


LEARNERS = {
    "hedge": Hedge,
    "normalhedge": NormalHedge,
    "ftl": FollowTheLeader,
    "uniform": Uniform,
    "fixed": Fixed,
    "exp3": Exp3,
    "ucb1": Ucb1,
}
BANDITS = ("exp3", "ucb1")


def row_loss(alpha, gamma, row, k, objective, estimator):
    """Return the losses (N,) of a round that starts at `row`; alpha, gamma (T, D, N)."""
    depth = lambda d: min(d, alpha.shape[1] - 1)  # noqa: E731
    if objective == "acceptance":
        return 1.0 - (gamma if estimator == "gamma" else alpha)[row, 0].astype(float)
    a = np.array([alpha[row + d, depth(d)] for d in range(k)], dtype=float)
    g = np.array([gamma[row + d, depth(d)] for d in range(k)], dtype=float)
    before = np.vstack([np.ones_like(a[:1]), np.cumprod(a, axis=0)[:-1]])
    if estimator == "A":
        terms = np.cumprod(g, axis=0)
    elif estimator == "B":
        terms = np.cumprod(a, axis=0)
    else:
        terms = before * np.where(before > 0, g, 0.0)
    return 1.0 - (1.0 + terms.sum(axis=0)) / (k + 1)


@dataclass
class Run:
    """Rounds of a run, and the token game if every row's loss was revealed."""

    picks: list = field(default_factory=list)
    accepted: list = field(default_factory=list)
    committed: list = field(default_factory=list)
    sequence_rounds: list = field(default_factory=list)
    expected_loss: dict = field(default_factory=dict)
    losses_seen: dict = field(default_factory=dict)


def replay(
    alpha,
    gamma,
    offsets,
    coins,
    make_learner,
    rng,
    *,
    k,
    objective="length",
    estimator="C",
    feedback="delayed",
    granularity="token",
    carry_over=False,
    own_entry_only=False,
):
    """Run a policy over (T, D, N) arrays; the same random numbers as `hedgelab.replay` give the same picks."""
    run, n = Run(), alpha.shape[2]
    learner, seen = make_learner(n), 0
    lag = k if objective == "length" else 1
    for first, last in itertools.pairwise(offsets):
        if not carry_over:
            learner, seen = make_learner(n), 0
        row, waiting, played = first, first, {}
        run.sequence_rounds.append(0)
        while row < last:
            probs = learner.play()
            uniform = rng.random()
            pick = min(int(np.searchsorted(np.cumsum(probs), uniform, side="right")), int(np.flatnonzero(probs)[-1]))
            accepted = 0
            while (
                accepted < k
                and row + accepted < last
                and coins[row + accepted] < alpha[row + accepted, min(accepted, alpha.shape[1] - 1), pick]
            ):
                accepted += 1
            committed = min(accepted + 1, last - row)
            run.picks.append(pick)
            run.accepted.append(accepted)
            run.committed.append(committed)
            run.sequence_rounds[-1] += 1
            for inside in range(row, row + committed):
                played[inside] = (row, probs, pick, seen)
            start, row = row, row + committed
            if feedback == "bandit":
                if committed == accepted + 1 or accepted == k or objective == "acceptance":
                    losses = np.full(n, np.nan)
                    losses[pick] = (
                        1.0 - accepted / k
                        if objective == "length"
                        else row_loss(alpha, gamma, start, k, objective, estimator)[pick]
                    )
                    learner.observe(probs, pick, losses)
                    seen += 1
                continue
            while waiting + lag <= row:
                begun, then_probs, then_pick, then_seen = played[waiting]
                if granularity == "token" or begun == waiting:
                    losses = row_loss(alpha, gamma, waiting, k, objective, estimator)
                    run.expected_loss[waiting] = float(then_probs @ losses)
                    run.losses_seen[waiting] = then_seen
                    if own_entry_only:
                        losses = np.where(np.arange(n) == then_pick, losses, np.nan)
                    learner.observe(then_probs, then_pick, losses)
                    seen += 1
                waiting += 1
    return run
