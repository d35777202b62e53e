"""Decode runs in results: regret of their token game and tokens per round, with what the bootstrap makes of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Result, Results
from experiments.claims.no_regret.asked import POOLS
from experiments.claims.no_regret.measure import PROTOCOLS
from experiments.texts import Texts

__all__ = ["Decoded", "decoded", "pools", "there"]

Matrix = NDArray[np.float64]


class Decoded:
    """One pool's and objective's decoding. Statistics are (1 + B, ...): on the texts, then in each of B resamples.

    draws : of the texts. rounds, own_loss : (protocols, policies, S). drafter_loss, fixed : (S, N), fixed in rounds.
    tokens, plays : (S,)
    """

    def __init__(self, result: Result) -> None:
        arrays = result.arrays
        self.k = int(result.setting["k"])
        self.rounds, self.own_loss = arrays["rounds"], arrays["own_loss"]
        self.drafter_loss, self.fixed = arrays["drafter_loss"], arrays["fixed_rounds"]
        self.tokens, self.plays = arrays["tokens"], arrays["plays"]
        self.names = arrays["names"].tolist()
        self.draws = Texts(arrays).draws()

    def regret(self, protocol: str) -> Matrix:
        """Return token-game regret per play of each policy, (1 + B, policies).

        query : to each query's own best drafter. stream : to the best drafter over all, which each resample chooses
        """
        own, sums = self.own_loss[PROTOCOLS.index(protocol)].T, self.draws.sums
        if protocol == "query":
            total = sums(own - self.drafter_loss.min(axis=1, keepdims=True))
        else:
            total = sums(own) - sums(self.drafter_loss).min(axis=1, keepdims=True)
        return total / sums(self.plays)[:, None]

    def mat(self, protocol: str) -> Matrix:
        """Return MAT of each policy, (1 + B, policies)."""
        return self._mat(self.rounds[PROTOCOLS.index(protocol)].T)

    def fixed_mat(self) -> Matrix:
        """Return MAT of each drafter alone, (1 + B, N)."""
        return self._mat(self.fixed)

    def best_mat(self, protocol: str) -> Matrix:
        """Return MAT of the best fixed drafter, of each query or over all, (1 + B, 1)."""
        if protocol == "query":
            return self._mat(self.fixed.min(axis=1, keepdims=True))
        return self.fixed_mat().max(axis=1, keepdims=True)

    def _mat(self, rounds: Matrix) -> Matrix:
        return self.draws.sums(self.tokens)[:, None] / self.draws.sums(rounds)

    def best(self) -> str:
        """Return who has the largest MAT alone, and in how many resamples too, in words."""
        mat = self.fixed_mat()
        winner = mat.argmax(axis=1)
        again = (winner[1:] == winner[0]).mean()
        name, count = self.names[winner[0]], len(self.names)
        return f"{name} of {count} (MAT {mat[0, winner[0]]:.2f}; the best in {again:.0%} of resamples)"

    def tokens_promised(self, protocol: str) -> float:
        """Return (k + 1) sqrt(ln N / (2T)): in tokens, T plays of the mean query or of all."""
        plays = self.plays.mean() if protocol == "query" else self.plays.sum()
        return (self.k + 1) * math.sqrt(math.log(len(self.names)) / (2 * plays))

    def excess_rounds(self, protocol: str) -> Matrix:
        """Return rounds above the best fixed drafter's, as a share of them, (1 + B, policies)."""
        return self.best_mat(protocol) / self.mat(protocol) - 1


def there(result: Result) -> bool:
    """Return whether the trace had the pool that was asked for."""
    return "absent" not in result.arrays


def pools(results: Results) -> list[str]:
    """Return the pools that the trace has, all drafters first."""
    return [pool for pool in POOLS if any(map(there, results.where(kind="decode", pool=pool)))]


def decoded(results: Results, objective: str, pool: str) -> Decoded:
    """Return the decoding among a pool with losses of an objective."""
    return Decoded(results.one(kind="decode", objective=objective, pool=pool))
