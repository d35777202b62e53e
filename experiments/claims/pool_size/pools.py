"""Pool size: what policies cost on pools, and how that changes with their size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments import growth
from experiments.claim import Results
from experiments.claims.pool_size.measure import BETAS, ENLARGED, PAPER, POLICIES, PRICED
from experiments.intervals import Draws, resample
from experiments.settings import ClaimError
from experiments.texts import Texts
from hedgelab.regret import Interval

__all__ = [
    "BEST",
    "FIT_FROM",
    "FREE",
    "INFORMED",
    "Pools",
    "copied",
    "enlarged",
    "priced_pools",
    "real_pools",
    "streams",
    "traces",
    "tuned",
]

BEST, INFORMED, FREE = "best fixed drafter", "informed switching", "normalhedge, scoring free"
FIT_FROM = 5  # least N of an exponent


@dataclass(frozen=True)
class Pools:
    """M orders of P sizes, S texts.

    sizes : (P,). cost : {policy: (M, P, S)} rounds, or seconds. gain : (S,) tokens, or seconds of plain decoding.
    prompts, orders : resamples of the texts and of the orders, B of each
    """

    sizes: NDArray[np.int64]
    cost: Mapping[str, NDArray[np.float64]]
    gain: NDArray[np.float64]
    prompts: Draws
    orders: Draws
    _spent: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def spent(self, policy: str) -> NDArray[np.float64]:
        """(1 + B, P) cost of all texts, averaged over the orders; then of the drawn texts over the drawn orders."""
        if policy not in self._spent:
            orders, sizes, texts = self.cost[policy].shape
            each = self.prompts.sums(self.cost[policy].reshape(-1, texts).T).reshape(-1, orders, sizes)
            weights = np.vstack([np.ones(orders), self.orders.weights])
            self._spent[policy] = np.einsum("bm,bmp->bp", weights, each) / orders
        return self._spent[policy]

    def mat(self, policy: str) -> NDArray[np.float64]:
        """(1 + B, P) MAT, or speed-up, of all, then of those drawn."""
        return np.asarray(self.prompts.sums(self.gain)[:, None] / self.spent(policy))

    def interval(self, statistic: ArrayLike, comparisons: int = 1) -> Interval:
        """Return the interval of a statistic (1 + B,), with the degrees of freedom of texts or orders, the fewer."""
        return min(self.prompts, self.orders, key=lambda draws: draws.degrees).interval(statistic, comparisons)

    def intervals(self, policy: str) -> list[Interval]:
        """Return MAT, or speed-up, at each size."""
        return [self.interval(values) for values in self.mat(policy).T]

    def at(self, size: int) -> int:
        """Return the place of the size nearest to `size`."""
        return int(np.abs(self.sizes - size).argmin())

    def step(self, policy: str, place: int, comparisons: int = 1) -> Interval:
        """Return MAT at the size of that place less that at the size before."""
        mat = self.mat(policy)
        return self.interval(mat[:, place] - mat[:, place - 1], comparisons)

    def change(self, policy: str, size: int | None = None, *, less: str = "", comparisons: int = 1) -> Interval:
        """Return MAT, or speed-up, at a size, the last if not said, less that at seven; less the same of another."""
        mat = self.mat(policy) - self.mat(less) if less else self.mat(policy)
        return self.interval(self._grown(mat, size), comparisons)

    def beyond(self, policy: str, less: str, comparisons: int = 1) -> Interval:
        """Return by how many rounds a text regret grows from seven drafters to the last size, less that of another.

        The best fixed drafter's rounds drop out of the difference.
        """
        beyond = (self.spent(policy) - self.spent(less)) / len(self.gain)
        return self.interval(self._grown(beyond), comparisons)

    def _grown(self, values: NDArray[np.float64], size: int | None = None) -> NDArray[np.float64]:
        """Return values at a size less those at seven; NaN where there are not so many drafters, or no more."""
        seven, there = self.at(PAPER), len(self.sizes) - 1 if size is None else self.at(size)
        if self.sizes[seven] != PAPER or there == seven:
            return np.full(len(values), np.nan)
        return np.asarray(values[:, there] - values[:, seven])

    def regret(self, policy: str) -> NDArray[np.float64]:
        """(P,) rounds beyond those of the pool's best fixed drafter."""
        return self.spent(policy)[0] - self.spent(BEST)[0]

    def exponent(self, policy: str) -> float:
        """Return the exponent of regret in N from FIT_FROM on, all points alike; NaN for regret <= 0."""
        use = self.sizes >= FIT_FROM
        return float(growth.slope(self.sizes[use], self.regret(policy)[use], np.ones(use.sum())))


def traces(results: Results, kind: str) -> list[str]:
    """Return the names of the traces that a kind of setting was run on."""
    return list(dict.fromkeys(result.setting["trace"] for result in results.where(kind=kind)))


def real_pools(results: Results, trace: str) -> tuple[Pools, str]:
    """Return rounds on a trace's pools, and the betas of ucb-tuned. Raises ClaimError where pools were not the same."""
    parts = results.where(kind="real", trace=trace)
    arrays = parts[0].arrays
    played = np.concatenate([part.arrays["pools"] for part in parts], axis=1)
    if (played != played[:1]).any():
        p, m, j = (int(i) for i in np.argwhere(played != played[:1])[0])
        names = (*POLICIES, *(f"ucb-tuned {beta:g}" for beta in BETAS))
        raise ClaimError(f"{names[p]} and {names[0]} met different pools: order {m}, size {arrays['sizes'][j]}")
    texts, rounds = Texts(arrays), _joined(parts, "rounds", 1)
    cost = dict(zip(POLICIES, rounds, strict=False))
    cost["ucb-tuned"], betas = tuned(rounds[len(POLICIES) :], texts.halves())
    cost[BEST], cost[INFORMED] = _joined(parts, "best", 0), _joined(parts, "informed", 0)
    return _pools(texts, arrays["sizes"], cost, arrays["tokens"]), betas


def priced_pools(results: Results, trace: str) -> Pools | None:
    """Return seconds on a trace's pools; None where no cost is known."""
    parts = results.where(kind="speed", trace=trace)
    arrays = parts[0].arrays
    if not len(arrays["sizes"]):
        return None
    cost = dict(zip((*PRICED, FREE), _joined(parts, "seconds", 1), strict=True))
    cost[BEST] = _joined(parts, "fixed", 0)
    return _pools(Texts(arrays), arrays["sizes"], cost, arrays["plain"])


def copied(results: Results) -> Pools:
    """Return rounds without and with copies of the best drafter, as many as there are drafters."""
    parts = results.where(kind="duplicates")
    rounds = _joined(parts, "rounds", 2)
    cost = {policy: rounds[:, p].swapaxes(0, 1) for p, policy in enumerate(ENLARGED)}
    arrays = parts[0].arrays
    return _pools(Texts(arrays), np.array([PAPER, 2 * PAPER]), cost, arrays["tokens"])


def enlarged(results: Results) -> Pools:
    """Return rounds on enlarged pools, texts afresh, of all batches; their drafters have one order."""
    parts = results.where(kind="enlarged")
    afresh = _joined(parts, "rounds", 3)[0]
    cost = dict(zip((*ENLARGED, BEST), (rounds[None] for rounds in (*afresh, _joined(parts, "best", 1))), strict=True))
    texts = Texts(
        {name: np.concatenate([part.arrays[name] for part in parts]) for name in ("prompts", "homes", "domains")}
    )
    tokens = _joined(parts, "tokens", 0)
    prompts = texts.draws()
    return Pools(parts[0].arrays["sizes"], cost, tokens, prompts, Draws(np.ones((len(prompts.weights), 1)), math.inf))


def streams(results: Results) -> dict[str, NDArray[np.float64]]:
    """Return {policy: (batches, P)} MAT on enlarged pools, the state carried through a batch's texts."""
    mats = [
        arrays["tokens"].sum() / arrays["rounds"][1].sum(axis=-1, dtype=np.float64)
        for _, arrays in results.where(kind="enlarged")
    ]
    return dict(zip(ENLARGED, np.stack(mats, axis=1), strict=True))


def tuned(rounds: NDArray[np.float64], halves: Iterable[NDArray[np.bool_]]) -> tuple[NDArray[np.float64], str]:
    """Return rounds (M, P, S) with the beta that needs the fewest on the other half of prompts at that size.

    rounds : (betas, M, P, S). halves : (S,) each
    """
    out = np.empty(rounds.shape[1:])
    used = set()
    for mine in halves:
        total = rounds[..., ~mine].sum(axis=(1, 3))  # (betas, P)
        for j, b in enumerate(total.argmin(axis=0)):
            out[:, j, mine] = rounds[b][:, j, mine]
            used.add(BETAS[b])
    return out, ", ".join(f"{beta:g}" for beta in sorted(used))


def _pools(
    texts: Texts, sizes: NDArray[np.int64], cost: Mapping[str, NDArray[np.float64]], gain: NDArray[np.float64]
) -> Pools:
    prompts, orders = texts.draws(), len(next(iter(cost.values())))
    return Pools(sizes, cost, gain, prompts, resample(np.arange(orders), resamples=len(prompts.weights), seed=1))


def _joined(results: Results, name: str, axis: int) -> NDArray[np.float64]:
    return np.concatenate([result.arrays[name] for result in results], axis=axis).astype(np.float64)
