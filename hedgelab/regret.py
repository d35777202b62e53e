"""Regret of a run, and intervals by bootstrap over prompts.

Two quantities that must not be mixed: regret *in rounds* of the decode loop, which is speed (`stopping_time`), and
regret of the *token game*, to which the theorems apply and in which a play is made at every row: static, tracking, and
the sums that second-order bounds are made of.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab._jit import kernel
from hedgelab.decode_replay import Replay
from hedgelab.feedback import loss_of, row_losses

__all__ = [
    "Interval",
    "SecondOrder",
    "TokenGame",
    "bootstrap_counts",
    "mean_interval",
    "ratio_interval",
    "second_order",
    "stopping_time",
    "student_quantile",
    "sum_interval",
    "token_game",
    "tracking",
    "whole_times",
]


class Interval(NamedTuple):
    """An estimate with its 95% interval."""

    estimate: float
    low: float
    high: float


def bootstrap_counts(
    clusters: ArrayLike, *, strata: ArrayLike | None = None, resamples: int = 2000, seed: int = 0
) -> NDArray[np.float64]:
    """Return (resamples, S) how often each of S sequences is drawn when their clusters (prompts) are drawn with
    replacement.

    clusters : (S,) a label per sequence; texts of one prompt go together. strata : (S,) draw within each (domains
    are fixed, not sampled). One table serves every policy, which is what pairs the comparisons.

    >>> bootstrap_counts(["a", "b", "b"], resamples=4).shape
    (4, 3)
    """
    labels = np.asarray(clusters)
    groups = (
        np.zeros(len(labels), np.int64) if strata is None else np.unique(np.asarray(strata), return_inverse=True)[1]
    )
    if labels.ndim != 1 or len(labels) == 0 or groups.shape != labels.shape:
        raise ValueError(f"clusters and strata must be vectors of one length, got {labels.shape} and {groups.shape}")
    rng = np.random.Generator(np.random.PCG64(seed))
    out = np.zeros((resamples, len(labels)))
    for group in range(groups.max() + 1):
        members = np.flatnonzero(groups == group)
        _, inverse = np.unique(labels[members], return_inverse=True)
        count = inverse.max() + 1
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        out[:, members] = drawn[:, inverse]
    return out


def ratio_interval(numerator: ArrayLike, denominator: ArrayLike, counts: NDArray[np.float64]) -> Interval:
    """Return sum(numerator) / sum(denominator) with its percentile interval over the resamples `counts` (B, S).

    >>> ratio_interval([4.0, 4.0], [2.0, 2.0], bootstrap_counts([0, 1]))
    Interval(estimate=2.0, low=2.0, high=2.0)
    """
    above, below = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    draws = (counts @ above) / (counts @ below)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(float(above.sum() / below.sum()), float(low), float(high))


def sum_interval(values: ArrayLike, counts: NDArray[np.float64]) -> Interval:
    """Return sum(values) with its percentile interval over the resamples `counts` (B, S)."""
    terms = np.asarray(values, np.float64)
    low, high = np.quantile(counts @ terms, [0.025, 0.975])
    return Interval(float(terms.sum()), float(low), float(high))


def whole_times(times: ArrayLike, most: int | None = None) -> NDArray[np.int64]:
    """Return `times` (M,) as int64. Raises ValueError unless they are increasing whole numbers in [1, most]."""
    given = np.asarray(times)
    right = given.ndim == 1 and (given.dtype.kind in "iu" or given.size == 0)
    wanted = given.astype(np.int64) if right else np.zeros(1, np.int64)
    if (np.diff(wanted) <= 0).any() or (wanted < 1).any() or (most is not None and (wanted > most).any()):
        limit = "of at least 1" if most is None else f"in [1, {most}]"
        raise ValueError(f"times must be increasing whole numbers {limit}")
    return wanted


@cache
def _gauss_legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return nodes, weights


@cache
def student_quantile(degrees: float, tail: float = 0.025) -> float:
    """Return the 1 - tail quantile of Student's t, by default its 97.5%, with `degrees` of freedom, at least 1.

    tail in (0, 0.5]. From P(0 < t < sqrt(d) tan a) ∝ int_0^a cos^(d-1), by Gauss-Legendre quadrature and bisection.

    >>> round(student_quantile(1), 3), round(student_quantile(9), 4), round(student_quantile(10_000), 3)
    (12.706, 2.2622, 1.96)
    >>> round(student_quantile(23, 0.005), 4)
    2.8073
    """
    nodes, weights = _gauss_legendre()

    def mass(angle: float) -> float:
        return float((np.cos(angle * (nodes + 1) / 2) ** (degrees - 1)) @ weights) * angle / 2

    low, high = 0.0, math.pi / 2
    whole = mass(high)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mass(middle) < (1 - 2 * tail) * whole else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def mean_interval(values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return (mean, low, high) over runs, low and high Student's 95% interval of the mean; NaN for a single run.

    values : (S, ...) one row a run; what is returned has the shape of a row

    >>> [round(float(end), 4) for end in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.4841, 4.4841]
    """
    runs = np.asarray(values, dtype=np.float64)
    mean = runs.mean(axis=0)
    if len(runs) < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = student_quantile(len(runs) - 1) * runs.std(axis=0, ddof=1) / math.sqrt(len(runs))
    return mean, mean - half, mean + half


class TokenGame(NamedTuple):
    """The token game of a run at chosen times (each (M,)): plays so far and static regret.

    plays : number of rows counted; regret : sum of expected losses minus the best drafter's sum, in units of loss
    """

    plays: NDArray[np.int64]
    regret: NDArray[np.float64]


@kernel
def _static_regret(
    alpha_flat,
    gamma_flat,
    alpha_deep,
    gamma_deep,
    begin,
    end,
    k,
    objective,
    estimator,
    flat_columns,
    deep_columns,
    expected_loss,
    times,
    progress,
    totals,
    regret,
):
    """Add up one part; progress = (plays, times passed), totals = (own loss, drafters' losses...)."""
    n = totals.shape[0] - 1
    losses = np.empty(n)
    written = 0
    for s in range(begin.shape[0]):
        for row in range(begin[s], end[s]):
            own = expected_loss[written]
            written += 1
            if np.isnan(own):
                continue
            row_losses(
                alpha_flat,
                gamma_flat,
                alpha_deep,
                gamma_deep,
                row,
                k,
                objective,
                estimator,
                flat_columns,
                deep_columns,
                losses,
            )
            totals[0] += own
            best = np.inf
            for i in range(n):
                totals[1 + i] += losses[i]
                best = min(best, totals[1 + i])
            progress[0] += 1
            while progress[1] < times.shape[0] and times[progress[1]] == progress[0]:
                regret[progress[1]] = totals[0] - best
                progress[1] += 1


def token_game(run: Replay, times: ArrayLike) -> TokenGame:
    """Return the token game's static regret of a run at `times`, increasing numbers of plays; later ones are left out.

    The run must be one game: made with `token_game=True`, and with `carry_over=True` unless the trace is a single
    sequence. Rows whose loss never became known (the last k - 1 of a sequence) are no plays.
    """
    if run.expected_loss is None:
        raise ValueError("this run did not record the token game: replay(..., token_game=True)")
    if run.settings["granularity"] != "token" or run.settings["feedback"] == "bandit":
        raise ValueError("the token game has a play at every row: granularity must be token, and feedback not bandit")
    if run.trace.sequences > 1 and not run.settings["carry_over"]:
        raise ValueError("the learner started afresh for each sequence: one regret curve needs carry_over=True")
    wanted = whole_times(times)
    objective, estimator = loss_of(run.settings["objective"], run.settings["estimator"])
    progress = np.zeros(2, np.int64)
    totals = np.zeros(1 + len(run.trace.drafters))
    regret = np.empty(len(wanted))
    rows = 0
    for part in run.trace.parts():
        here = int((part.end - part.begin).sum())
        _static_regret(
            part.alpha_flat,
            part.gamma_flat,
            part.alpha_deep,
            part.gamma_deep,
            part.begin,
            part.end,
            run.settings["k"],
            objective,
            estimator,
            run.trace.flat_columns,
            run.trace.deep_columns,
            run.expected_loss[rows : rows + here],
            wanted,
            progress,
            totals,
            regret,
        )
        rows += here
    return TokenGame(wanted[: progress[1]], regret[: progress[1]])


def _game_losses(losses: ArrayLike) -> NDArray[np.float64]:
    array = np.ascontiguousarray(losses, dtype=np.float64)
    if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"losses must be finite, of shape (T, N) with T, N >= 1, got shape {array.shape}")
    return array


@kernel
def _tracking_best(losses, best):
    """best[m, i], zeros: the least loss of a sequence that ends at drafter i after at most m switches."""
    drafters = losses.shape[1]
    cheapest = np.zeros(best.shape[0])  # of best[m] before this round
    for t in range(losses.shape[0]):
        for m in range(best.shape[0]):
            cheapest[m] = best[m, 0]
            for i in range(1, drafters):
                cheapest[m] = min(cheapest[m], best[m, i])
        for m in range(best.shape[0] - 1, -1, -1):
            for i in range(drafters):
                before = best[m, i]
                if m > 0 and cheapest[m - 1] < before:
                    before = cheapest[m - 1]
                best[m, i] = before + losses[t, i]


def tracking(losses: ArrayLike, own: ArrayLike, switches: int) -> NDArray[np.float64]:
    r"""Return the regret to the best sequence of drafters with at most m switches, (switches + 1,), m = 0, 1, ...

        R(m) = sum_t own_t - min { sum_t l_t(i_t) : i_t != i_{t-1} for at most m of the t }

    losses : (T, N) finite. own : (T,) expected losses <w_t, l_t> of the run. m = 0 is static regret; R never falls in
    m, and from m = T - 1 on it is regret to the best drafter of each round. Tracking the best expert: Herbster and
    Warmuth 1998. By dynamic programming, O(T N switches). Raises ValueError for other shapes, NaN, or switches < 0.

    >>> tracking([[0, 1], [0, 1], [1, 0], [1, 0]], [0.5, 0.5, 0.5, 0.5], 2).tolist()
    [0.0, 2.0, 2.0]
    """
    table, played = _game_losses(losses), np.asarray(own, dtype=np.float64)
    if played.shape != (len(table),) or not np.isfinite(played).all():
        raise ValueError(f"own must be finite, of shape ({len(table)},), got shape {played.shape}")
    if isinstance(switches, bool) or not isinstance(switches, (int, np.integer)) or switches < 0:
        raise ValueError(f"switches must be a whole number of at least 0, got {switches!r}")
    best = np.zeros((min(int(switches), len(table) - 1) + 1, table.shape[1]))
    _tracking_best(table, best)
    regret = played.sum() - best.min(axis=1)
    return np.concatenate([regret, np.full(switches + 1 - len(regret), regret[-1])])


def stopping_time(means: ArrayLike, counts: ArrayLike) -> float:
    r"""Return the regret in decode rounds of a policy that used drafter i in n_i rounds, by each drafter's mean.

        sum_i (Delta_i / mu*) n_i,        mu* = max_i mu_i,   Delta_i = mu* - mu_i

    means : (N,) mu, mean committed tokens of a round, at least 1. counts : (..., N) rounds; several runs at once give
    (...,). Decoding ends when T tokens are there, a stopping time: the regret in rounds of BanditSpec (arXiv
    2505.15141). Where rounds of drafter i commit independent Y in 1..K+1 of mean mu_i, E rounds(policy) - min_i E
    rounds(i) is this sum at n_i = E n_i, give or take K / mu*. Proof: by Wald's identity sum_i mu_i E n_i = T + E O, O
    in 0..K the tokens that the last round commits past T, so mu* E rounds = T + E O + sum_i Delta_i E n_i; likewise
    T <= mu* min_i E rounds(i) <= T + K. Raises ValueError for other shapes and ranges.

    >>> stopping_time([2.0, 4.0], [10, 30])
    5.0
    """
    mu, n = np.asarray(means, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if mu.ndim != 1 or len(mu) == 0 or not ((mu >= 1) & np.isfinite(mu)).all():
        raise ValueError("means must be (N,) committed tokens per round, each at least 1")
    if n.shape[-1:] != mu.shape or not ((n >= 0) & np.isfinite(n)).all():
        raise ValueError(f"counts must be (..., {len(mu)}) numbers of rounds, got shape {n.shape}")
    regret = n @ ((mu.max() - mu) / mu.max())
    return float(regret) if regret.ndim == 0 else regret


class SecondOrder(NamedTuple):
    """What first- and second-order bounds put in the place of T, see `second_order`."""

    regret: float
    best_loss: float
    variance: float
    squares: NDArray[np.float64]
    absolute: NDArray[np.float64]
    variation: float


def second_order(losses: ArrayLike, probs: ArrayLike) -> SecondOrder:
    r"""Return the sums in first- and second-order bounds of a game. With r_t(i) = <w_t, l_t> - l_t(i):

        regret       max_i sum_t r_t(i)
        best_loss    L* = min_i sum_t l_t(i)
        variance     S = sum_t Var_{i ~ w_t} l_t(i)                 AdaHedge (de Rooij et al. 2014)
        squares      V_i = sum_t r_t(i)^2, (N,)                     Squint (Koolen and van Erven 2015), ML-Prod
        absolute     C_i = sum_t |r_t(i)|, (N,)                     AdaNormalHedge (Luo and Schapire 2015)
        variation    sum_t (max_i - min_i of l_t - l_{t-1})^2, l_0 = 0   optimistic Hedge (Rakhlin and Sridharan 2013)

    losses : (T, N) finite. probs : (T, N) the distributions w_t. Raises ValueError for other shapes, NaN, or rows that
    are no distributions.

    >>> second_order([[1, 0], [0, 0]], [[0.5, 0.5], [0.25, 0.75]])  # doctest: +NORMALIZE_WHITESPACE
    SecondOrder(regret=0.5, best_loss=0.0, variance=0.25, squares=array([0.25, 0.25]), absolute=array([0.5, 0.5]),
                variation=2.0)
    """
    table, w = _game_losses(losses), np.asarray(probs, dtype=np.float64)
    if w.shape != table.shape:
        raise ValueError(f"probs must have the shape of losses, {table.shape}, got {w.shape}")
    if not (w >= 0).all() or np.abs(w.sum(axis=1) - 1).max() > 1e-9:
        raise ValueError("every row of probs must be a distribution")
    r = (w * table).sum(axis=1)[:, None] - table
    steps = np.diff(table, axis=0, prepend=0.0)
    return SecondOrder(
        regret=float(r.sum(axis=0).max()),
        best_loss=float(table.sum(axis=0).min()),
        variance=float((w * r * r).sum()),
        squares=(r * r).sum(axis=0),
        absolute=np.abs(r).sum(axis=0),
        variation=float((np.ptp(steps, axis=1) ** 2).sum()),
    )
