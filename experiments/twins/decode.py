"""The decode replay as a researcher would write it in numpy: one obvious loop, no compiled code."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np


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
    block_reward=False,
    copies=1,
):
    """Run a policy over (T, D, N) arrays; the same random numbers as `hedgelab.replay` give the same picks."""
    run, n = Run(), alpha.shape[2]
    learners, seen = [make_learner(n) for _ in range(copies)], [0] * copies
    lag = k if objective == "length" else 1
    for first, last in itertools.pairwise(offsets):
        if not carry_over:
            learners, seen = [make_learner(n) for _ in range(copies)], [0] * copies
        row, waiting, played = first, first, {}
        run.sequence_rounds.append(0)
        while row < last:
            copy = (row - first) % copies
            probs = learners[copy].play(rng)
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
                of = (inside - first) % copies  # with copies, each row of the round has a play of its own
                law = probs if of == copy else learners[of].play(rng)
                played[inside] = (row, law, pick, seen[of])
            start, row = row, row + committed
            if feedback == "bandit":
                if committed == accepted + 1 or accepted == k or objective == "acceptance":
                    losses = np.full(n, np.nan)
                    if objective == "length" and block_reward:
                        tried = [d for d in range(min(k, accepted + 1)) if start + d < last]
                        losses[pick] = 1.0 - np.mean(
                            [float(gamma[start + d, min(d, alpha.shape[1] - 1), pick]) for d in tried]
                        )
                    elif objective == "length":
                        losses[pick] = 1.0 - accepted / k
                    else:
                        losses[pick] = row_loss(alpha, gamma, start, k, objective, estimator)[pick]
                    learners[0].observe(probs, pick, losses)
                    seen[0] += 1
                continue
            if feedback == "censored":
                if committed == accepted + 1 or accepted == k:
                    for begin in range(start, row if granularity == "token" else start + 1):
                        limit = min(k, row - begin)
                        shorter = row_loss(alpha, gamma, begin, limit, objective, estimator)
                        losses = 1.0 - (1.0 - shorter) * (limit + 1) / (k + 1)
                        if own_entry_only:
                            losses = np.where(np.arange(n) == pick, losses, np.nan)
                        learners[0].observe(probs, pick, losses)
                        seen[0] += 1
                continue
            while waiting + lag <= row:
                begun, then_probs, then_pick, then_seen = played[waiting]
                if granularity == "token" or begun == waiting:
                    losses = row_loss(alpha, gamma, waiting, k, objective, estimator)
                    run.expected_loss[waiting] = float(then_probs @ losses)
                    run.losses_seen[waiting] = then_seen
                    if own_entry_only:
                        losses = np.where(np.arange(n) == then_pick, losses, np.nan)
                    of = (waiting - first) % copies
                    learners[of].observe(then_probs, then_pick, losses)
                    seen[of] += 1
                waiting += 1
    return run
