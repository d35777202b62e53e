r"""Upper bounds for learners that see the loss of their pick alone.

Pseudo-regret is max_i E[sum_t l_t(I_t) - l_t(i)]. `gaps` are Delta_i = best mean reward - mean reward of i, (N,) with
a 0 for the best; rewards are 1 - loss. Stochastic bounds need losses that are independent over rounds with one mean
for each drafter: acceptances of one text rarely are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from hedgelab.bounds.conditions import gaps_of, positive, probability, require, vector, whole
from hedgelab.bounds.lower import lai_robbins
from hedgelab.bounds.table import theorem

__all__ = [
    "exp3",
    "exp3_anytime",
    "exp3_ix",
    "exp3_p",
    "exp3spec",
    "explore_then_commit",
    "explore_then_commit_minimax",
    "kl_ucb",
    "moss",
    "successive_elimination",
    "thompson_bayes",
    "thompson_beta",
    "thompson_gauss",
    "tsallis_inf",
    "ucb1",
    "ucb1_minimax",
    "ucb_tuned",
    "ucb_v",
    "ucbspec",
]


@theorem("read in source", "pseudo-regret", "Bubeck and Cesa-Bianchi 2012, Theorem 3.1")
def exp3(T: int, N: int, *, learning_rate: float | None = None) -> float:
    """Return EXP3's bound ln N / eta + eta N T / 2.

    learning_rate : eta; none: sqrt(2 ln N / (T N)), where the bound is sqrt(2 T N ln N)

    >>> round(exp3(512, 7), 1)
    118.1
    """
    require(whole("T", T), whole("N", N))
    if learning_rate is None:
        return math.sqrt(2 * T * N * math.log(N))
    require(positive("learning_rate", learning_rate))
    return 0.0 if N == 1 else math.log(N) / learning_rate + learning_rate * N * T / 2


@theorem("read in source", "pseudo-regret", "Bubeck and Cesa-Bianchi 2012, Theorem 3.1")
def exp3_anytime(T: int, N: int) -> float:
    """Return EXP3's bound 2 sqrt(T N ln N) with the rates sqrt(ln N / (t N)).

    >>> round(exp3_anytime(512, 7) / exp3(512, 7), 4)
    1.4142
    """
    require(whole("T", T), whole("N", N))
    return 2 * math.sqrt(T * N * math.log(N))


@theorem("proved here", "high probability", "Neu 2015, Lemma 1; his Theorem 1 as recalled is no smaller")
def exp3_ix(T: int, N: int, *, delta: float = 0.05, anytime: bool = False) -> float:
    r"""Return EXP3-IX's bound, with probability 1 - delta, on the realised regret; adversaries may be adaptive.

        2 sqrt(2 T N ln N) + (sqrt(T N / (2 ln N)) + 1) ln(2/delta),        eta = 2 gamma = sqrt(2 ln N / (T N))
        4 sqrt(T N ln N) + (sqrt(T N / ln N) + 1) ln(2/delta),              eta_t = 2 gamma_t = sqrt(ln N / (t N))

    Proof. As b lhat <= ln(1 + b l 1[I = i]/w) for b = 2 gamma, sum_t sum_i a_t(i) (lhat_t(i) - l_t(i)) <= ln(1/delta)
    with probability 1 - delta for any fixed 0 <= a_t(i) <= 2 gamma_t (Neu's Lemma 1). Use it with a = 2 gamma_T on
    each single drafter, and with a_t = eta_t on the sum of all, delta/2 each: lhat exceeds l by at most
    ln(2N/delta)/eta_T for the best drafter, and sum eta_t sum_i lhat_t(i) is at most N sum eta_t + ln(2/delta).
    Exponential weights have sum <w, lhat> - lhat(j) <= ln N / eta_T + sum eta_t/2 sum_i lhat_t(i), and l_t(I_t) =
    <w, lhat> + gamma_t sum_i lhat_t(i).

    >>> round(exp3_ix(512, 7), 1)
    351.8
    """
    require(whole("T", T), whole("N", N), probability("delta", delta))
    if N == 1:
        return 0.0
    log_n, tail = math.log(N), math.log(2 / delta)
    if anytime:
        return 4 * math.sqrt(T * N * log_n) + (math.sqrt(T * N / log_n) + 1) * tail
    return 2 * math.sqrt(2 * T * N * log_n) + (math.sqrt(T * N / (2 * log_n)) + 1) * tail


@theorem("read as quoted", "high probability", "Bubeck and Cesa-Bianchi 2012, Theorems 3.2 (3.10, 3.11) and 3.3 (3.17)")
def exp3_p(T: int, N: int, *, delta: float | None = None, tuned: bool = True) -> float:
    r"""Return EXP3.P's bound on the realised regret; adversaries may be adaptive.

        delta, tuned      5.15 sqrt(T N ln(N/delta)) with probability 1 - delta, beta = sqrt(ln(N/delta) / (T N))
        delta, not tuned  5.15 sqrt(T N ln N) + sqrt(T N / ln N) ln(1/delta), for every delta, beta = sqrt(ln N / (T N))
        no delta          5.15 sqrt(T N ln N) + sqrt(T N / ln N) in expectation, that beta

    both with eta = 0.95 sqrt(ln N / (T N)) and gamma = 1.05 sqrt(N ln N / T). The horizon must be known.

    >>> round(exp3_p(512, 7), 1)
    473.0
    """
    require(whole("T", T), whole("N", N), *([] if delta is None else [probability("delta", delta)]))
    if N == 1:
        return 0.0
    if delta is not None and tuned:
        return 5.15 * math.sqrt(T * N * math.log(N / delta))
    tail = 1.0 if delta is None else math.log(1 / delta)
    return 5.15 * math.sqrt(T * N * math.log(N)) + math.sqrt(T * N / math.log(N)) * tail


@theorem("read in source", "pseudo-regret", "Zimmert and Seldin 2021, Theorem 1")
def tsallis_inf(T: int, N: int, *, reduced_variance: bool = False) -> float:
    """Return Tsallis-INF's bound for adversarial losses: 4 sqrt(N T) + 1, rates 2 / sqrt t.

    reduced_variance : with its estimates and rates 4 / sqrt t, 2 sqrt(N T) + 14 N ln T + 16 (the paper prints
        10 N ln T, its proof gives 14)

    >>> round(tsallis_inf(512, 7), 1)
    240.5
    """
    require(whole("T", T), whole("N", N))
    if reduced_variance:
        return 2 * math.sqrt(N * T) + 14 * N * math.log(T) + 16
    return 4 * math.sqrt(N * T) + 1


@theorem("read as quoted", "stochastic", "Auer, Cesa-Bianchi and Fischer 2002, Theorem 1")
def ucb1(T: int, gaps: ArrayLike) -> float:
    """Return UCB1's bound: the sum over gaps of 8 ln T / gap, and (1 + pi^2/3) times the sum of gaps.

    gaps : (N,) in [0, 1], the best drafter's 0

    >>> round(ucb1(20000, [0.0, 0.2]), 1)
    397.0
    """
    require(whole("T", T), gaps_of("gaps", gaps))
    gap = _positive(gaps)
    return float((8 * math.log(T) / gap).sum() + (1 + math.pi**2 / 3) * gap.sum())


@theorem("proved here", "stochastic", "`ucb1`, gaps below and above 2 sqrt(2 N ln T / T) apart")
def ucb1_minimax(T: int, N: int) -> float:
    """Return UCB1's bound for every set of gaps: 4 sqrt(2 N T ln T) + (1 + pi^2/3) N.

    Proof: drafters with gaps up to d cost at most d T together, the others 8 ln T / d each and (1 + pi^2/3) at most,
    by `ucb1`; take d = sqrt(8 N ln T / T).

    >>> round(ucb1_minimax(20000, 2))
    3569
    """
    require(whole("T", T), whole("N", N))
    return 0.0 if N == 1 else 4 * math.sqrt(2 * N * T * math.log(T)) + (1 + math.pi**2 / 3) * N


@theorem("read as quoted", "stochastic", "Bubeck and Cesa-Bianchi 2012, (2.4), alpha = 4 beta^2")
def ucb_tuned(T: int, gaps: ArrayLike, *, beta: float) -> float:
    r"""Return the bound of UCB with the index mean + beta sqrt(2 ln t / n).

        sum over gaps of 8 beta^2 ln T / gap + 2 beta^2 / (2 beta^2 - 1) + 1

    gaps : (N,) in [0, 1], the best drafter's 0; beta : above 1/sqrt 2. The theorem's t counts the round that is about
        to be played, the learner's the losses seen: one less, which moves the sum behind the last term by one step, by
        at most 1 a drafter, added here

    Below 1/sqrt 2 this proof fails, though such indices often do better: no bound is known to hold.

    >>> round(ucb_tuned(20000, [0.0, 0.2], beta=1.0), 1)
    399.1
    """
    right = gaps_of("gaps", gaps)
    beta_condition = positive("beta", beta)._replace(
        what="above 1/sqrt 2", right=bool(positive("beta", beta).right and 2 * beta * beta > 1)
    )
    require(whole("T", T), right, beta_condition)
    gap = _positive(gaps)
    square = beta * beta
    return float((8 * square * math.log(T) / gap).sum() + len(gap) * (1 + 2 * square / (2 * square - 1)))


@theorem("recalled, unconfirmed constant", "stochastic", "Audibert, Munos and Szepesvari 2009, Theorem 4")
def ucb_v(T: int, gaps: ArrayLike, variances: ArrayLike) -> float:
    """Return UCB-V's bound 10 sum (variance / gap + 2) ln T, exploration 1.2 ln t and c = 1.

    gaps : (N,) in [0, 1], the best drafter's 0; variances : (N,) of the rewards, in [0, 1/4]

    >>> round(ucb_v(20000, [0.0, 0.2], [0.25, 0.25]), 1)
    321.9
    """
    require(whole("T", T), gaps_of("gaps", gaps))
    gap = np.asarray(gaps, dtype=np.float64)
    require(vector("variances", variances, 0.0, 0.25, len(gap)))
    variance = np.asarray(variances, dtype=np.float64)[gap > 0]
    return float(10 * math.log(T) * (variance / gap[gap > 0] + 2).sum())


@theorem("asymptotic", "stochastic", "Garivier and Cappé 2011, Theorem 1: the limit of regret / ln T")
def kl_ucb(T: int, means: ArrayLike) -> float:
    """Return the leading term of KL-UCB's regret, `lai_robbins`: right as T grows, no bound at any one T.

    means : (N,) mean rewards in (0, 1)

    >>> kl_ucb(20000, [0.5, 0.3]) == lai_robbins(20000, [0.5, 0.3])
    True
    """
    return lai_robbins(T, means)


@theorem("asymptotic", "stochastic", "Kaufmann, Korda and Munos 2012; Agrawal and Goyal 2013, Theorem 1")
def thompson_beta(T: int, means: ArrayLike) -> float:
    """Return the leading term of Thompson sampling's regret with Beta priors, `lai_robbins`: no bound at any one T.

    means : (N,) mean rewards in (0, 1), rewards 0 or 1

    >>> round(thompson_beta(20000, [0.5, 0.3]), 1)
    24.1
    """
    return lai_robbins(T, means)


@theorem("order only", "stochastic", "Agrawal and Goyal 2013, Theorem 3: O(sqrt(N T ln N)), no constant")
def thompson_gauss(T: int, N: int) -> float:
    """Return sqrt(N T ln N), the order of the regret of Thompson sampling with Gaussian priors: no bound.

    >>> round(thompson_gauss(512, 7), 1)
    83.5
    """
    require(whole("T", T), whole("N", N))
    return math.sqrt(N * T * math.log(N))


@theorem("recalled, unconfirmed constant", "Bayesian", "Russo and Van Roy 2016; entropy at most ln N")
def thompson_bayes(T: int, N: int) -> float:
    """Return Thompson sampling's Bayesian regret bound sqrt(N T ln N / 2).

    The regret is averaged over means drawn from the learner's own prior: uniform means, 0/1 rewards and Beta(1, 1).

    >>> round(thompson_bayes(512, 7), 1)
    59.1
    """
    require(whole("T", T), whole("N", N))
    return math.sqrt(N * T * math.log(N) / 2)


@theorem("read as quoted", "stochastic", "Lattimore and Szepesvari 2020, Theorem 9.1, at half its scale")
def moss(T: int, N: int, *, gaps: ArrayLike | None = None) -> float:
    r"""Return MOSS's bound 19.5 sqrt(N T) + sum of gaps, index mean + sqrt(max(0, ln(T / (N n))) / n), T known.

    gaps : (N,) in [0, 1], the best drafter's 0; none: N - 1 for their sum

    The theorem is 39 sqrt(N T) + sum of gaps for 1-subgaussian rewards and the index mean + sqrt(4 max(0, ln(T / (N
    n))) / n). Rewards in [0, 1] are 1/2-subgaussian: doubled, they are its case, so half of 39 remains. Audibert and
    Bubeck 2009 have 49 sqrt(N T) (recalled) for the same index.

    >>> round(moss(512, 7), 1)
    1173.4
    """
    require(whole("T", T), whole("N", N))
    if gaps is not None:
        require(gaps_of("gaps", gaps), vector("gaps", gaps, 0.0, 1.0, N))
    if N == 1:
        return 0.0
    total = N - 1.0 if gaps is None else float(np.asarray(gaps, dtype=np.float64).sum())
    return 19.5 * math.sqrt(N * T) + total


@theorem("proved here", "stochastic", "Hoeffding's inequality; Lattimore and Szepesvari 2020, Theorem 6.1")
def explore_then_commit(T: int, gaps: ArrayLike, explore: int) -> float:
    r"""Return the bound of playing each drafter `explore` = m times and then the one of largest mean.

        m sum_i Delta_i + (T - m N) sum_i Delta_i exp(-m Delta_i^2)

    gaps : (N,) in [0, 1], the best drafter's 0; explore : 1 to T / N

    Proof: i is committed to only if its mean of m is not below the best drafter's, a sum of 2m terms in intervals of
    width 1/m that exceeds its expectation by Delta_i. (The theorem, for 1-subgaussian rewards, has m Delta^2 / 4.)

    >>> round(explore_then_commit(20000, [0.0, 0.2], 200), 1)
    41.3
    """
    require(whole("T", T), gaps_of("gaps", gaps))
    gap = np.asarray(gaps, dtype=np.float64)
    require(whole("explore", explore, 1, T // len(gap)))
    return float(explore * gap.sum() + (T - explore * len(gap)) * (gap * np.exp(-explore * gap * gap)).sum())


@theorem("proved here", "stochastic", "`explore_then_commit`; the rate is in Slivkins 2019")
def explore_then_commit_minimax(T: int, N: int) -> float:
    r"""Return the bound, for all gaps, of exploring m = ceil((T/N)^{2/3} (ln T)^{1/3}) times each.

        2 T^{2/3} (N ln T)^{1/3} + 2N

    T : at least 2, known beforehand

    Proof: exploring costs m N at most. Let z = sqrt(ln T / m). Gaps up to z cost T z afterwards, the larger ones
    together at most T N z exp(-m z^2) = N z, and N z <= N unless the bound is above T anyway.

    >>> round(explore_then_commit_minimax(20000, 2))
    3991
    """
    require(whole("T", T, 2), whole("N", N))
    return 0.0 if N == 1 else 2 * T ** (2 / 3) * (N * math.log(T)) ** (1 / 3) + 2 * N


@theorem("proved here", "high probability", "Hoeffding's inequality; the scheme of Even-Dar, Mannor and Mansour 2006")
def successive_elimination(T: int, gaps: ArrayLike, *, delta: float = 0.05) -> float:
    r"""Return the bound of playing the drafters left evenly and dropping those that are surely worse.

        sum_i Delta_i min(T, min{n : 4 r(n) < Delta_i}),        r(n) = sqrt(ln(pi^2 N n^2 / (3 delta)) / (2n))

    gaps : (N,) in [0, 1], the best drafter's 0; i is dropped when mean(i) + r lies below some mean(j) - r

    With probability 1 - delta, on the sum of the gaps played; adding delta T bounds its expectation. Proof: a mean of
    n is off by more than r(n) with probability at most 2 exp(-2 n r^2) = 6 delta / (pi^2 N n^2), in all delta over
    drafters and n. If none is, the best is never dropped, and i is dropped by n plays each once 4 r(n) < Delta_i.

    >>> round(successive_elimination(20000, [0.0, 0.2]), 1)
    865.0
    """
    require(whole("T", T), gaps_of("gaps", gaps), probability("delta", delta))
    gap = _positive(gaps)
    n = np.arange(1, T + 1)
    radius = np.sqrt(np.log(math.pi**2 * np.size(gaps) * n.astype(np.float64) ** 2 / (3 * delta)) / (2 * n))
    return float(sum(g * (n[4 * radius < g][:1].sum() or T) for g in gap))


def _positive(gaps: ArrayLike) -> np.ndarray:
    gap = np.asarray(gaps, dtype=np.float64)
    return gap[gap > 0]


@theorem("proved here", "stopping time", "Abbasi-Yadkori, Pal and Szepesvari 2011, Theorem 1, and Wald's identity")
def ucbspec(T: int, means: ArrayLike, K: int, *, delta: float = 0.5) -> float:
    r"""Return UCBSpec's bound on E rounds(learner) - min_i E rounds(i) when T tokens are to be committed.

        (K + sum_i Delta_i E n_i) / mu*,        E n_i <= m_i + 1 + delta sum_{t >= N} t^{-2}

    means : (N,) mean tokens a round, in [1, K + 1], the same whatever came before; K : draft length. m_i is the
        largest n with 2 cr(n) >= Delta_i, cr(n) = (K/2) sqrt((1 + n)/n^2 (1 + 2 ln(N T^2 sqrt(1 + n) / delta)))

    BanditSpec (Hou et al. 2025), Theorem 4.3, states O(sum_i K^2 ln T / (mu* Delta_i)) without constants. Proof:
    lengths lie in an interval of width K, so they are K/2-subgaussian given the past, and the self-normalised bound
    keeps all means within their radius at time t with probability 1 - delta/t^2; then i is picked only if 2 cr(n_i)
    >= Delta_i. Rounds are at most T. Expected committed tokens are mu* E rounds - sum Delta_i E n_i and at most T +
    K, the last round overshooting by K; the best drafter needs at least T / mu* rounds.

    >>> round(ucbspec(20000, [3.0, 2.0], 7))
    839
    """
    require(whole("T", T), whole("K", K), probability("delta", delta))
    require(vector("means", means, 1.0, K + 1.0))
    mean = np.asarray(means, dtype=np.float64)
    best, n_arms = float(mean.max()), len(mean)
    if n_arms == 1:
        return 0.0

    def radius(n: int) -> float:
        return K / 2 * math.sqrt((1 + n) / n**2 * (1 + 2 * math.log(n_arms * T**2 * math.sqrt(1 + n) / delta)))

    failures = delta * (math.pi**2 / 6 - sum(1 / t**2 for t in range(1, n_arms)))
    cost = float(K)
    for gap in best - mean[mean < best]:
        few, many = 0, 1  # 2 radius(few) >= gap > 2 radius(many), the radius at 0 being infinite
        while many < T and 2 * radius(many) >= gap:
            few, many = many, 2 * many
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (middle, many) if 2 * radius(middle) >= gap else (few, middle)
        cost += gap * min(few + 1 + failures, T)
    return float(cost / best)


@theorem("read as quoted", "stopping time", "Hou et al. 2025 (BanditSpec), Theorem 5.3")
def exp3spec(T: int, N: int, K: int, *, best_rounds: int | None = None) -> float:
    r"""Return EXP3Spec's bound on E rounds(learner) - min_i rounds(i) when T tokens are to be committed.

        2K min(sqrt(T N ln N), 2 K N ln N + sqrt(best_rounds N ln N))

    K : draft length; best_rounds : of the best fixed drafter, none: the first term. The theorem assumes lengths fixed
    beforehand for every drafter and round, and a learner that is almost surely slower than the best drafter. The
    text at hand had lost its root signs; they are put back where 2 K times EXP3's anytime bound has them.

    >>> round(exp3spec(20000, 7, 7))
    7307
    """
    require(whole("T", T), whole("N", N), whole("K", K))
    worst = math.sqrt(T * N * math.log(N))
    if best_rounds is not None:
        require(whole("best_rounds", best_rounds, 1, T))
        worst = min(worst, 2 * K * N * math.log(N) + math.sqrt(best_rounds * N * math.log(N)))
    return 2 * K * worst
