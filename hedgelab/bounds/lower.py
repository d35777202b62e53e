r"""Lower bounds: what no learner can beat, and on which losses."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from hedgelab.bounds.conditions import as_vector, inside, require, vector, whole
from hedgelab.bounds.table import theorem

__all__ = [
    "bandit_instance",
    "fair_coins",
    "fair_coins_exact",
    "lai_robbins",
    "lower_bandit",
    "lower_full",
    "mean_max_normal",
]


@theorem("asymptotic", "lower", "Cesa-Bianchi and Lugosi 2006, Theorem 3.7")
def lower_full(T: int, N: int) -> float:
    """Return sqrt(T ln N / 2), the least worst-case regret under full information as T and then N grow.

    In expectation, on independent fair coins; at finite T and N `fair_coins_exact` is what they cost, and it is less.

    >>> fair_coins(512, 7) < lower_full(512, 7)
    True
    """
    require(whole("T", T), whole("N", N))
    return math.sqrt(T * math.log(N) / 2)


def mean_max_normal(N: int) -> float:
    r"""Return m_N, the mean of the largest of N independent standard normal variables; error below 1e-10.

        m_N = int_0^inf 1 - Phi(x)^N - Phi(-x)^N dx

    by the trapezoidal rule on the whole line, which for an analytic integrand that decays this fast converges
    exponentially in the step: m_N = int x d(Phi^N) there.

    >>> round(mean_max_normal(2) * math.sqrt(math.pi), 10)
    1.0
    """
    require(whole("N", N))
    step = 1 / 64  # halving it changes nothing beyond 1e-12 up to N = 1e6
    x = np.arange(-10, 10, step)
    lower = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x])
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return float((x * N * density * lower ** (N - 1)).sum() * step)


@theorem("asymptotic", "lower", "the limit of `fair_coins_exact`; Cesa-Bianchi and Lugosi 2006, section 3.7")
def fair_coins(T: int, N: int) -> float:
    """Return (sqrt T / 2) m_N, the expected regret of every learner on fair coins, as T grows.

    Losses are 0 or 1 with probability 1/2, independent over rounds and drafters: every learner expects T/2, and the
    best drafter's total is T/2 less sqrt(T)/2 times the largest of N nearly normal variables. `fair_coins_exact` has
    no limit in it; from T = 100 on and up to N = 64 they agree within 1%. So it tests the measuring, and separates
    no learners.

    >>> round(fair_coins(10_000, 2), 3)
    28.209
    """
    require(whole("T", T), whole("N", N))
    return math.sqrt(T) / 2 * mean_max_normal(N)


@theorem("proved here", "lower", "the law of the least of N binomial variables")
def fair_coins_exact(T: int, N: int) -> float:
    """Return the expected regret of every learner on fair coins: T/2 less the mean of the least of N Binomial(T, 1/2).

    Losses are 0 or 1 with probability 1/2, independent over rounds and drafters: given the past the next loss of
    whatever is played has mean 1/2.

    >>> fair_coins_exact(1, 2), fair_coins_exact(2, 2)
    (0.25, 0.375)
    """
    require(whole("T", T), whole("N", N))
    k = np.arange(T + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, T + 1)))])
    mass = np.exp(log_factorial[T] - log_factorial - log_factorial[T - k] - T * math.log(2))
    above = np.minimum(1 - np.cumsum(mass)[:-1], 1.0)  # P(one total > k), k = 0 .. T - 1
    return float(T / 2 - (np.maximum(above, 0.0) ** N).sum())


@theorem("read in source", "lower", "Bubeck and Cesa-Bianchi 2012, Theorem 3.4")
def lower_bandit(T: int, N: int) -> float:
    """Return sqrt(N T) / 20: for every bandit learner some stochastic losses cost as much pseudo-regret; T >= N >= 2.

    The losses are `bandit_instance`'s, gap about sqrt(N / T) / 4, the good drafter in the place where the learner is
    worst.

    >>> round(lower_bandit(512, 7), 2)
    2.99
    """
    require(whole("N", N, 2), whole("T", T))
    require(whole("T", T, int(N)))
    return math.sqrt(N * T) / 20


@theorem("proved here", "lower", "Pinsker's inequality; after Auer, Cesa-Bianchi, Freund and Schapire 2002")
def bandit_instance(T: int, N: int, gap: float) -> float:
    r"""Return what any bandit learner loses on average when one drafter in N, placed at random, is better by `gap`.

        e T (1 - 1/N - (1/2) sqrt(-(T/N) ln(1 - 4 e^2)))

    gap : e in [0, 1/2). Losses are 0 or 1: mean 1/2 - e for the good drafter, 1/2 for the others. The worst place
    costs at least the average. May be negative; with e = (1 - 1/N)/2 sqrt(N/T) it is about (1 - 1/N)^2/4 sqrt(N T).

    Proof. Compare with all means 1/2, under which i is played n_i times in expectation. The learner's observations
    differ in relative entropy by n_i kl(1/2, 1/2 - e) = -n_i ln(1 - 4 e^2) / 2, so by Pinsker the expected plays of
    i rise by at most T sqrt of a quarter of -n_i ln(1 - 4 e^2). Average over i, with sum n_i = T and the root
    concave.

    >>> round(bandit_instance(10_000, 2, 0.25 * math.sqrt(2 / 10_000)) / lower_bandit(10_000, 2), 3)
    1.25
    """
    require(whole("T", T), whole("N", N), inside("gap", gap, 0.0, math.nextafter(0.5, 0.0)))
    return gap * T * (1 - 1 / N - math.sqrt(-(T / N) * math.log1p(-4 * gap * gap)) / 2)


@theorem("asymptotic", "lower", "Lai and Robbins 1985; Bubeck and Cesa-Bianchi 2012, Theorem 2.2")
def lai_robbins(T: int, means: ArrayLike) -> float:
    r"""Return sum_i Delta_i ln T / kl(mu_i, mu*), what learners that are good on every instance lose at least.

    means : (N,) mean rewards in (0, 1), rewards 0 or 1. A limit as T grows, not a bound at any one T.

    >>> round(lai_robbins(20_000, [0.5, 0.3]), 1)
    24.1
    """
    require(whole("T", T), vector("means", means, math.nextafter(0, 1), math.nextafter(1, 0)))
    mean = as_vector(means)
    assert mean is not None  # `require` saw to it
    best = mean.max()
    worse = mean[mean < best]
    kl = worse * np.log(worse / best) + (1 - worse) * np.log((1 - worse) / (1 - best))
    return float(((best - worse) * math.log(T) / kl).sum())
