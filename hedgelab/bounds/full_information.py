r"""Upper bounds for full-information learners.

Most proofs here share one step. Write M_t = -(1/eta) ln(mean_i exp(-eta L_t(i))), the mix loss with all losses up to
t. It falls in eta, and M_T <= min_i L_T(i) + ln N / eta. So with rates that never rise the increments of M, each at
its round's rate, sum to at most min_i L_T(i) + ln N / eta_T (de Rooij et al. 2014, Lemmas 1 and 2). What is left is
how far a learner's loss exceeds the increment: at most eta B^2 / 8 for exponential weights and losses in an interval
of width B, by Hoeffding's lemma.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.bounds.conditions import Condition, ConditionError, inside, positive, require, vector, whole
from hedgelab.bounds.table import theorem

__all__ = [
    "adahedge",
    "adanormalhedge",
    "fixed_share",
    "fixed_share_anytime",
    "ftl",
    "ftpl",
    "ftpl_path",
    "hedge",
    "hedge_anytime",
    "hedge_doubling",
    "hedge_path",
    "ml_prod",
    "normalhedge",
    "optimistic_anytime",
    "optimistic_hedge",
    "optimistic_path",
    "squint",
]


@theorem("proved here", "pathwise", "`hedge_path`; without delay also Cesa-Bianchi and Lugosi 2006, Theorem 2.2")
def hedge(T: int, N: int, *, delay: int = 0, loss_range: float = 1.0) -> float:
    """Return Hedge's bound with the fixed rate tuned to T, for losses in an interval of width B = `loss_range`.

    Without delay: B sqrt(T ln N / 2), rate sqrt(8 ln N / T) / B, on every sequence (Cesa-Bianchi and Lugosi 2006,
    Theorem 2.2). When a loss may be missing for `delay` further plays, with D the sum over plays of the losses
    missing, at most sum_t min(t, delay), and rate sqrt(8 ln N / (T + 2D)) / B: B sqrt((T + 2D) ln N / 2), see
    `hedge_path`. The bound holds for that rate, not for the one tuned to T alone.

    >>> round(hedge(512, 7), 1)
    22.3
    """
    require(whole("T", T), whole("N", N), whole("delay", delay, 0), positive("loss_range", loss_range, 1.0))
    late = min(T, delay)
    missing = late * (late - 1) // 2 + (T - late) * delay
    return loss_range * math.sqrt((T + 2 * missing) * math.log(N) / 2)


@theorem("proved here", "pathwise", "`hedge_path`; the constant also in de Rooij et al. 2014, section 2")
def hedge_anytime(T: int, N: int, *, delay: int = 0, loss_range: float = 1.0, scale: float = 2.0) -> float:
    """Return the bound of Hedge with rate scale * sqrt(ln N / t), t - 1 losses seen; T need not be known beforehand.

    Without delay at most (1/scale + scale/4) sqrt(T ln N) for losses in [0, 1]. With delay: an upper bound on
    `hedge_path` at T for every pattern in which at most `delay` losses are ever missing.

    >>> hedge_anytime(1000, 8) <= math.sqrt(1000 * math.log(8))
    True
    """
    require(
        whole("T", T),
        whole("N", N),
        whole("delay", delay, 0),
        positive("loss_range", loss_range, 1.0),
        positive("scale", scale),
    )
    if N == 1:
        return 0.0
    play = np.arange(T)
    missing = np.minimum(play, delay)  # every term of the sum is largest when as much as can be is missing ...
    rates = scale * np.sqrt(math.log(N) / (play - missing + 1.0))
    lowest = scale * math.sqrt(math.log(N) / T)  # ... and the first term when nothing is
    return float(math.log(N) / lowest + loss_range**2 * (rates * (1 + 2 * missing)).sum() / 8)


@theorem("proved here", "pathwise", "the step shared by this module, and a bound on the price of stale weights")
def hedge_path(rates: ArrayLike, missing: ArrayLike, N: int, *, loss_range: float = 1.0) -> NDArray[np.float64]:
    r"""Return the bound on R_t after each play, (T,), of exponential weights under delay.

    rates : (T,) positive, not increasing; missing : (T,) losses of earlier plays not yet seen at each play

        R_t <= ln N / eta_t + B^2 sum_{s <= t} eta_s (1 + 2 d_s) / 8

    Pathwise, for every pattern of delays. Proof: weights with *all* earlier losses have regret at most ln N / eta_t
    + B^2 sum eta_s / 8 (the mixability gap is at most eta B^2 / 8 by Hoeffding's lemma, and mix losses with falling
    rates sum to at most min L + ln N / eta_t; de Rooij et al. 2014, Lemmas 1 and 2). The weights played lack d_s
    loss vectors; moving the log-weights by eta M with M of range d B changes <w, l> at the rate eta Cov_w(M, l), at
    most eta d B^2 / 4. Derived here, checked on adversaries.

    >>> hedge_path([0.5, 0.5], [0, 0], 2).round(4).tolist()
    [1.4488, 1.5113]
    """
    eta, late = _path(rates, missing, "missing")
    require(whole("N", N), positive("loss_range", loss_range, 1.0))
    return math.log(N) / eta + loss_range**2 * np.cumsum(eta * (1 + 2 * late)) / 8


def _path(rates: ArrayLike, other: ArrayLike, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rates that never rise and a vector of as many numbers that are not negative."""
    eta, values = np.asarray(rates, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if eta.ndim != 1 or eta.shape != values.shape or len(eta) == 0:
        raise ConditionError(f"rates and {name} must be two vectors of one length, got {eta.shape} and {values.shape}")
    problems = []
    if not ((eta > 0) & np.isfinite(eta)).all() or (np.diff(eta) > 0).any():
        problems.append("rates must be positive, finite and never rise")
    if not ((values >= 0) & np.isfinite(values)).all():
        problems.append(f"{name} must be finite and not negative")
    if problems:
        raise ConditionError(*problems)
    return eta, values


@theorem("proved here", "pathwise", "`hedge` in each epoch; also Cesa-Bianchi and Lugosi 2006, section 2.3")
def hedge_doubling(T: int, N: int) -> float:
    r"""Return the bound of Hedge restarted at rounds 1, 2, 4, 8, ..., each epoch with its own length's rate.

        sqrt 2 / (sqrt 2 - 1) * sqrt(T ln N / 2)

    Proof: epoch m has 2^m rounds and regret at most sqrt(2^m ln N / 2), also when it is cut short. With the last one
    begun, T >= 2^m, and sum_{j <= m} 2^{j/2} < sqrt 2 / (sqrt 2 - 1) sqrt(2^m). Regrets against each epoch's own best
    add up to at least the regret.

    >>> round(hedge_doubling(512, 7) / hedge(512, 7), 3)
    3.414
    """
    require(whole("T", T), whole("N", N))
    return math.sqrt(2) / (math.sqrt(2) - 1) * hedge(T, N)


@theorem("proved here", "pathwise", "the step shared by this module; for the learner Rakhlin and Sridharan 2013")
def optimistic_path(rates: ArrayLike, ranges: ArrayLike, N: int) -> NDArray[np.float64]:
    r"""Return the bound on R_t after each play, (T,), of optimistic Hedge w_t ∝ exp(-eta_t (L_{t-1} + m_t)).

    rates : (T,) positive, not increasing; ranges : (T,) the width max - min of l_t - m_t, m_t the guess of l_t

        R_t <= ln N / eta_t + sum_{s <= t} eta_s d_s^2 / 8

    Proof. Let v ∝ exp(-eta L_{t-1}), so w ∝ v exp(-eta m). The mix loss grows by -(1/eta) ln E_v exp(-eta l), and
    E_v exp(-eta l) = E_w exp(-eta (l - m)) E_v exp(-eta m). By Hoeffding's lemma <w, l - m> exceeds the first
    factor's share by at most eta d^2 / 8, and <w, m> + (1/eta) ln E_v exp(-eta m) = -KL(w || v) / eta <= 0.

    >>> optimistic_path([0.5, 0.5], [1.0, 0.0], 2).round(4).tolist()
    [1.4488, 1.4488]
    """
    eta, d = _path(rates, ranges, "ranges")
    require(whole("N", N))
    return math.log(N) / eta + np.cumsum(eta * d * d) / 8


@theorem("proved here", "pathwise", "`optimistic_path`")
def optimistic_hedge(T: int, N: int, *, variation: float | None = None) -> float:
    """Return optimistic Hedge's bound sqrt(V ln N / 2) with the fixed rate sqrt(8 ln N / V).

    variation : V, the sum of squared widths max - min of l_t - m_t, e.g. with m_t = l_{t-1}; at most 4T, the default

    Losses that hardly move from one round to the next cost next to nothing; in the worst case it is twice Hedge's.

    >>> optimistic_hedge(512, 7) / hedge(512, 7)
    2.0
    """
    require(whole("T", T), whole("N", N))
    total = 4.0 * T if variation is None else variation
    require(inside("variation", total, 0.0, 4.0 * T))
    return math.sqrt(total * math.log(N) / 2)


@theorem("proved here", "pathwise", "`optimistic_path`")
def optimistic_anytime(T: int, N: int, *, variation: float | None = None, scale: float = 2.0) -> float:
    """Return optimistic Hedge's bound (1/c + c/4) sqrt((4 + V) ln N), rates c sqrt(ln N / (4 + V_{t-1})), c = `scale`.

    variation : V, the sum of squared widths max - min of l_t - m_t; at most 4T, the default

    Neither T nor V need be known beforehand.

    Proof: widths are at most 2, so 4 + V_{t-1} >= V_t and sum d_t^2 / sqrt(4 + V_{t-1}) <= 2 sqrt V.

    >>> round(optimistic_anytime(512, 7, variation=0.0), 2)
    2.79
    """
    require(whole("T", T), whole("N", N), positive("scale", scale))
    total = 4.0 * T if variation is None else variation
    require(inside("variation", total, 0.0, 4.0 * T))
    return (1 / scale + scale / 4) * math.sqrt((4 + total) * math.log(N))


@theorem("proved here", "pathwise", "after de Rooij, van Erven, Grünwald and Koolen 2014")
def adahedge(T: int, N: int, *, variance: float | None = None) -> float:
    r"""Return AdaHedge's second-order bound 2 sqrt(S ln N) + (4/3) ln N + 2.

    variance : S, the sum over rounds of the variance of l_t(i) with i ~ w_t; at most T/4, the default

    Proof. delta_t, the mixability gap, is at most 1, and delta/eta <= v/2 + delta/3: for eta >= 3 trivially, below by
    Bernstein's bound delta <= v (e^eta - 1 - eta)/eta <= v eta / (2 (1 - eta/3)). As eta_t = ln N / Delta_{t-1},
    Delta_T^2 = sum (2 delta_t ln N / eta_t + delta_t^2) <= S ln N + ((2/3) ln N + 1) Delta_T, so
    Delta_T <= sqrt(S ln N) + (2/3) ln N + 1; and R_T <= ln N / eta_T + Delta_T <= 2 Delta_T.

    >>> round(adahedge(512, 7), 1), round(adahedge(512, 7, variance=0.0), 1)
    (36.2, 4.6)
    """
    require(whole("T", T), whole("N", N))
    total = T / 4 if variance is None else variance
    require(inside("variance", total, 0.0, T / 4 * (1 + 1e-9)))
    if N == 1:
        return 0.0
    return 2 * math.sqrt(total * math.log(N)) + 4 / 3 * math.log(N) + 2


@theorem("recalled, unconfirmed constant", "pathwise", "Chaudhuri, Freund and Hsu 2009, Theorem 1")
def normalhedge(T: int, N: int, *, quantile: float | None = None, b: float | None = None) -> float:
    r"""Return NormalHedge's bound to the best `quantile` of the drafters.

        sqrt((1 + ln(1/eps)) (3 (1 + 50 b) T + (16 ln^2 N / b) (10.2 / b^2 + ln N)))

    quantile : eps in [1/N, 1], 1/N being the best drafter, the default; b : in (0, 1/2], none: the best

    Vacuous at the horizons of a decoder: at N = 7, T = 512 it is 353, where sqrt(T ln N / 2) is 22. Plot it, but
    judge NormalHedge by its measured ratio to sqrt(T ln N). No bound is proved under delay.

    >>> round(normalhedge(512, 7))
    353
    """
    require(whole("T", T), whole("N", N))
    eps = 1 / N if quantile is None else quantile
    require(inside("quantile", eps, 1 / N, 1.0), *([] if b is None else [positive("b", b, 0.5)]))
    if N == 1:
        return 0.0
    log_n = math.log(N)

    def square(b: float) -> float:
        return 3 * (1 + 50 * b) * T + 16 * log_n**2 / b * (10.2 / (b * b) + log_n)

    least = square(_least(square, 1e-6, 0.5) if b is None else b)
    return math.sqrt((1 + math.log(1 / eps)) * least)


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a convex function on [low, high] is least, by golden-section search."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(100):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if function(left) <= function(right):
            high = right
        else:
            low = left
    return (low + high) / 2


@theorem("recalled, unconfirmed constant", "pathwise", "Luo and Schapire 2015, Theorem 1")
def adanormalhedge(T: int, N: int, *, totals: ArrayLike | None = None) -> float:
    r"""Return AdaNormalHedge's bound, uniform prior.

        sqrt(3 C (ln N + ln B + ln(1 + ln N))),        B = 1 + (3/2) mean_i(1 + ln(1 + C_i))

    totals : (N,) C_i, the sum over rounds of |<w_t, l_t> - l_t(i)|; none: T each. C is the largest of them, so the
        bound is to every drafter, the best among them

    The chain sum_i Phi(R_i, C_i) / N <= B with Phi = exp([R]_+^2 / (3C)) gives sqrt(3 C (ln N + ln B)) for one
    drafter at once; the last term pays for mixtures of drafters. The lemma below the chain, Phi(R + r, C + |r|) <=
    Phi(R, C) + w(R, C) r + 3|r| / (2 (C + 1)), is confirmed on a grid by the tests, not proved here.

    >>> round(adanormalhedge(512, 7), 1)
    91.9
    """
    require(whole("T", T), whole("N", N))
    if totals is not None:
        require(vector("totals", totals, 0.0, T * (1 + 1e-9), N))
    sums = np.full(N, float(T)) if totals is None else np.asarray(totals, dtype=np.float64)
    if N == 1:
        return 0.0
    log_b = math.log(1 + 1.5 * float(np.mean(1 + np.log1p(sums))))
    return math.sqrt(3 * sums.max() * (math.log(N) + log_b + math.log(1 + math.log(N))))


@theorem("proved here", "pathwise", "the potential of Koolen and van Erven 2015, inverted numerically")
def squint(T: int, N: int, *, squares: float | None = None) -> float:
    r"""Return Squint's bound, prior d eta / eta on [0, 1/2]: the largest R with I(R, V) <= (N - 1) J.

        I(R, V) = int_0^{1/2} (e^{eta R - eta^2 V} - 1) / eta d eta,        J = -I(-T, T)

    squares : V, the sum over rounds of (<w_t, l_t> - l_t(i))^2 for the best drafter i; at most T, the default

    Proof. The weights make sum_i I(R_i, V_i) never rise, as e^{x - x^2} <= 1 + x for x >= -1/2, and it starts at 0;
    the other N - 1 terms are at least -J each, as R >= -T and V <= T. I grows in R. It is below
    their Theorem 4 as recalled, unconfirmed: sqrt(2V) (1 + sqrt(2C)) + 5C + 4 with C = ln N + ln(1/2 + ln(T + 1)).

    >>> round(squint(512, 7), 1), round(squint(512, 7, squares=0.0), 1)
    (85.6, 9.9)
    """
    require(whole("T", T), whole("N", N))
    total = float(T) if squares is None else squares
    require(inside("squares", total, 0.0, T * (1 + 1e-9)))
    if N == 1:
        return 0.0
    most = -(N - 1) * _squint_integral(-T, T)
    low, high = 0.0, float(T)  # R <= T anyway
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if _squint_integral(middle, total) <= most:
            low = middle
        else:
            high = middle
    return high


@cache
def _legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.polynomial.legendre.leggauss(8)


def _squint_integral(R: float, V: float) -> float:
    """Return I(R, V) by Gauss-Legendre panels in s, eta = e^{-s}/2, where the integrand is smooth."""
    nodes, weights = _legendre()
    end = math.log(max(abs(R), V, 1.0)) + 30.0  # beyond, the integrand is R eta, its integral below 1e-13
    eta = 0.5 * np.exp(-(np.arange(0.0, end, 0.25)[:, None] + 0.125 * (1 + nodes)))
    return float((np.expm1(np.minimum(eta * R - eta * eta * V, 600.0)) @ weights).sum() * 0.125)


@theorem("proved here", "pathwise", "the learner: Gaillard, Stoltz and van Erven 2014, with another bound, Corollary 4")
def ml_prod(T: int, N: int, *, squares: float | None = None) -> float:
    r"""Return the bound of Adapt-ML-Prod, uniform prior, rate min(1/2, sqrt(ln N / (1 + sum r^2))) for each drafter.

        2 sqrt(V ln N) + 2 ln N + max(2, sqrt((1 + V) / ln N)) ln(1 + (N/2) ln(1 + T))

    squares : V, the sum over rounds of (<w_t, l_t> - l_t(i))^2 for the best drafter i; at most T, the default

    Proof. W_{t+1} = (W_t (1 + eta_t r_t))^(eta_{t+1}/eta_t), so ln W / eta grows by ln(1 + eta r) / eta >= r - eta r^2,
    and R <= sum eta r^2 + ln N / eta_1 + ln W_{T+1} / eta_{T+1}. As 1 + V_{t-1} >= V_t, sum eta r^2 <= 2 sqrt(V ln N).
    As sum_i eta W r = 0 and x^a <= x + 1 - a for a <= 1, sum_i W is at most 1 plus N times ln(eta_1 / eta_{T+1}), which
    is at most ln(1 + T) / 2. The paper's Corollary 4, as recalled, unconfirmed, is larger: C sqrt((1 + V) / ln N) + 2C
    with C = 3 ln N + ln(1 + (N / 2e) (1 + ln(T + 1))).

    >>> round(ml_prod(512, 7), 1)
    117.8
    """
    require(whole("T", T), whole("N", N))
    total = float(T) if squares is None else squares
    require(inside("squares", total, 0.0, T * (1 + 1e-9)))
    if N == 1:
        return 0.0
    log_n = math.log(N)
    powers = max(2.0, math.sqrt((1 + total) / log_n)) * math.log(1 + N / 2 * math.log(1 + T))
    return 2 * math.sqrt(total * log_n) + 2 * log_n + powers


@theorem("proved here", "pathwise", "Hedge over sequences of drafters; Herbster and Warmuth 1998")
def fixed_share(
    T: int, N: int, switches: int, *, share: float | None = None, learning_rate: float | None = None
) -> float:
    r"""Return Fixed-Share's bound on tracking regret, to the best sequence with at most `switches` = m changes.

        D / eta + eta T / 8,        D = (m + 1) ln N + m ln(1/a) + (T - 1 - m) ln(1/(1 - a))

    share : a, the weight shared out equally over all N after each loss; none: m / (T - 1)
    learning_rate : eta; none: the best, sqrt(8 D / T), where the bound is sqrt(T D / 2)

    Proof: Fixed-Share is Hedge over sequences of drafters whose prior is a Markov chain that stays with probability
    1 - a + a/N and moves to each other drafter with a/N, so D >= ln(1/prior) of a sequence of m moves; one of fewer
    moves has a larger prior, as a stay is never less likely than a move.

    >>> round(fixed_share(1000, 7, 0) / hedge(1000, 7), 6), round(fixed_share(1000, 7, 9), 1)
    (1.0, 188.2)
    """
    rate = 1.0 if learning_rate is None else learning_rate
    require(whole("T", T), whole("N", N), positive("learning_rate", rate))
    require(whole("switches", switches, 0, T - 1))
    a = (switches / (T - 1) if T > 1 else 0.0) if share is None else share
    require(inside("share", a, 0.0, 1.0))
    if N == 1:
        return 0.0
    stays = T - 1 - switches
    if (a == 0.0 and switches) or (a == 1.0 and stays):
        return math.inf  # the prior of every such sequence is 0
    d = (switches + 1) * math.log(N) - (switches * math.log(a) if switches else 0.0)
    d -= stays * math.log1p(-a) if stays else 0.0
    eta = math.sqrt(8 * d / T) if learning_rate is None else learning_rate
    return d / eta + eta * T / 8


@theorem("proved here", "pathwise", "Hoeffding's lemma, summed by parts")
def fixed_share_anytime(T: int, N: int, switches: int, *, scale: float = 2.0) -> float:
    r"""Return Fixed-Share's bound on tracking regret with shares 1/(t + 1) and rates eta_t = c sqrt(ln(N t) / t).

        (m + 1) ln(N T) / eta_T + sum_{t < T} ln((t + 1)/t) / eta_t + sum_{t <= T} eta_t / 8

    switches : m, changes of the best sequence; neither it nor T need be known; scale : c

    Proof. With v the weights after the loss, <w, l> - l(i) <= (ln v(i) - ln w(i)) / eta_t + eta_t / 8 by Hoeffding's
    lemma. While the sequence stays with i, ln v(i) <= ln w_{t+1}(i) + ln((t + 1)/t); where it leaves, ln v(i) <= 0.
    Weights are at least 1/(N t) and rates never rise: what is left of the logarithms is at most ln(N T) / eta_T a
    segment.

    >>> round(fixed_share_anytime(1000, 7, 9), 1)
    522.8
    """
    require(whole("T", T), whole("N", N), positive("scale", scale))
    require(whole("switches", switches, 0, T - 1))
    if N == 1:
        return 0.0
    t = np.arange(1, T + 1)
    eta = scale * np.sqrt(np.log(N * t) / t)
    stays = (np.log1p(1 / t[:-1]) / eta[:-1]).sum()
    return float((switches + 1) * math.log(N * T) / eta[-1] + stays + eta.sum() / 8)


@theorem("proved here", "pathwise", "be the leader; also de Rooij et al. 2014, section 2")
def ftl(T: int, N: int, *, changes: int | None = None) -> float:
    """Return follow-the-leader's bound, uniform over leaders: the number of rounds that change the set of leaders.

    changes : that number; at most T, the default, and no bound below T/2 holds for every sequence (two drafters whose
        losses alternate)

    Proof: in a round that leaves the set of leaders as it was, all leaders have one loss, the least total grows by
    it, and so does the learner's. In any other round the loss exceeds the growth by at most 1.

    >>> ftl(512, 7, changes=3)
    3.0
    """
    require(whole("T", T), whole("N", N))
    count = T if changes is None else changes
    require(whole("changes", count, 0, T))
    return 0.0 if N == 1 else float(count)


Noise = Literal["exponential", "gumbel"]


def _noise(noise: str) -> Condition:
    return Condition("noise", noise, "'exponential' or 'gumbel'", noise in ("exponential", "gumbel"))


def _above_one(N: int) -> float:
    """Return the mean of the largest of N standard exponential variables, minus 1: 1/2 + ... + 1/N."""
    return float((1 / np.arange(2, N + 1)).sum())


@theorem("proved here", "pathwise", "be the leader, memoryless noise; after Kalai and Vempala 2005")
def ftpl_path(rates: ArrayLike, N: int, *, noise: Noise = "exponential") -> NDArray[np.float64]:
    r"""Return the bound on R_t after each play, (T,), of following the perturbed leader argmin_i L(i) - q(i) / eta_t.

    rates : (T,) positive, not increasing; q is drawn afresh each round; w_t is the law of the pick given the losses

    Gumbel noise: w_t is Hedge's, so `hedge_path`. Standard exponential noise, with h = 1/2 + ... + 1/N <= ln N:

        R_t <= h / eta_t + sum_{s <= t} eta_s

    Proof: one more loss in [0, 1] moves the threshold that q(i) must pass by at most eta, so w_t(i) is at most e^eta
    times the probability of picking i with l_t known, and w_t loses at most eta more. With l_t known and one q for
    all rounds, be-the-leader gives at most L(j) - q(j)/eta_T + max_i q(i)/eta_T for each j; E q(j) = 1, E max q = 1
    + h.

    >>> ftpl_path([0.5, 0.5], 2).tolist()
    [1.5, 2.0]
    """
    eta, zeros = _path(rates, np.zeros(np.shape(rates)), "rates")
    require(whole("N", N), _noise(noise))
    if N == 1:
        return zeros
    return hedge_path(eta, zeros, N) if noise == "gumbel" else _above_one(N) / eta + np.cumsum(eta)


@theorem("proved here", "pathwise", "`ftpl_path`")
def ftpl(T: int, N: int, *, noise: Noise = "exponential") -> float:
    """Return the bound of following the perturbed leader with the fixed rate tuned to T; losses of the pick's law.

    Exponential noise: 2 sqrt(T h) <= 2 sqrt(T ln N), h = 1/2 + ... + 1/N, rate sqrt(h / T). Gumbel noise: Hedge's.

    >>> ftpl(512, 7, noise="gumbel") == hedge(512, 7)
    True
    """
    require(whole("T", T), whole("N", N), _noise(noise))
    return hedge(T, N) if noise == "gumbel" else 2 * math.sqrt(T * _above_one(N))
