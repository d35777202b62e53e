r"""Claim 4: how regret grows with the number of drafters, full information against bandit feedback.

*The envelope.* A learner's regret at N drafters is that of the world which is worst for it at that N: losses 0 or 1 of
mean 1/2, one drafter better by a gap, the gap from one grid for all N and learners. The gap is chosen on some seeds
(those of "choosing") and the regret measured on others. Regret is pseudo-regret, gap times the rounds in which another
drafter than the best was picked: no share of it is luck of the comparator.

*The share.* A learner that learns nothing has regret gap T (1 - 1/N); worst over the gaps it looks like a law in N. So
the regret is also shown as a share of that, and no law is fitted to points whose share exceeds `SHARE`, nor to those
whose worst gap is an end of the grid: the envelope is not attained there.

*The fit.* sqrt(ln N) itself has local exponent 1 / (2 ln N), below 1/4 from N = 8 on: exponents are those of N >= 8.

*After the first full run* gaps are chosen on 12, 8 and 4 seeds up to N = 64, 256 and beyond, where 3 to 5 had often
missed the worst; and the share that decides what is fitted is that of the choosing seeds, not of those fitted.

*Fixed gap.* One gap for all N: UCB1's bound is then in proportion to N - 1, full information's to ln N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments import growth
from experiments.claim import Answer, Arrays, Claim, Question, Results, Setting, above, below, inside
from experiments.intervals import of_mean, percentile, resample
from hedgelab.regret import Interval

__all__ = ["BANDIT", "CLAIM", "FIRST", "FULL", "QUICK", "SETTINGS", "SHARE", "Envelope", "check", "run"]

FULL = ("hedge-fixed", "hedge", "normalhedge", "adahedge", "squint")
BANDIT = ("exp3", "tsallis-inf", "moss", "ucb1", "ucb-tuned", "thompson-beta")
CONTROL = "uniform"
BETAS = (0.1, 0.25, 0.5, 1.0)  # of ucb-tuned, the least worst regret on seeds of its own
GRID = tuple(0.5 ** (1 + j / 2) for j in range(13))  # 0.5 to 0.0078, below 1 / sqrt(T)
SHARE = 0.75  # of the regret of learning nothing; points above are not fitted
FIRST = 8  # least N of a fit
FEWEST = 4  # points of a fit
DRAWS = 4000
POOLS = (7, 21, 47)  # one target's pool and all drafters in the paper; ours
# the law of each learner's own theorem: EXP3's bound has a further sqrt(ln N)
THEOREM = dict.fromkeys(FULL, "sqrt_log_n") | dict.fromkeys(BANDIT, "sqrt_n") | {"exp3": "sqrt_n_log_n"}
FIXED_FULL, FIXED_BANDIT = ("normalhedge", "hedge"), ("ucb1", "moss")

CLAIM = Claim(
    sentence="With full information regret grows with log N (as sqrt(ln N)), bandits pay sqrt(N).",
    source=(
        "arXiv 2510.20064; sqrt(T ln N / 2): Cesa-Bianchi & Lugosi 2006, Thm 2.2; sqrt(N T) / 20 and "
        "2 sqrt(T N ln N): Bubeck & Cesa-Bianchi 2012, Thms 3.1, 3.4"
    ),
    questions={
        "exponents": Question(
            "The exponent of worst-case regret in N is that of the learner's theorem to within 0.14: sqrt(ln N) with "
            "full information, sqrt(N) for bandits (EXP3: sqrt(N ln N)).",
            inside(-0.14, 0.14),
            "exponent less that of the theorem",
            len(FULL + BANDIT),
        ),
        "full": Question(
            "With full information the exponent is below 1/4, every learner's.", below(0.25), "exponent", len(FULL)
        ),
        "bandit": Question(
            "For bandits the exponent is near 1/2, every learner's.", inside(0.36, 0.64), "exponent", len(BANDIT)
        ),
        "not_root": Question(
            "With full information a logarithmic law describes the regret better than sqrt(N) does, by its AIC.",
            above(0.0),
            "AIC of sqrt(N) less the best of sqrt(ln N), ln N, m_N",
            len(FULL),
        ),
        "which_log": Question(
            "Of the two logarithmic laws sqrt(ln N) describes it better than ln N does.",
            above(0.0),
            "AIC of ln N less that of sqrt(ln N)",
            len(FULL),
        ),
        "pools": Question(
            "At 7, 21 and 47 drafters the best bandit pays at least sqrt(N / ln N) times what the best learner with "
            "full information pays.",
            above(1.0),
            "ratio of regrets / sqrt(N / ln N)",
            len(POOLS),
        ),
        "fixed_bandit": Question(
            "At a fixed gap of 0.2 UCB1's regret is in proportion to N - 1.", inside(0.8, 1.2), "exponent of N - 1"
        ),
        "fixed_full": Question(
            "At that gap ln N describes NormalHedge's regret better than sqrt(N) does.",
            above(0.0),
            "AIC of sqrt(N) less that of ln N",
        ),
        "lower": Question(
            "No bandit's worst case is below the lower bound sqrt(N T) / 20, where the grid holds its own gap.",
            above(1.0),
            "regret / bound at the N where it is least",
            len(BANDIT),
        ),
        "fair_coins": Question(
            "On fair coins all learners pay the same, (sqrt(T) / 2) m_N in the limit: the measuring is right.",
            inside(0.9, 1.1),
            "regret / its exact expectation",
            len(FULL + BANDIT),
        ),
        "control": Question(
            "A learner that learns nothing is recognised: at every N its share of the trivial regret is above the "
            "limit of fits.",
            above(SHARE),
            "least share",
        ),
    },
)


def _envelope(
    learner: str, drafters: Sequence[int], T: int, choosing: int, scoring: int, coins: int, step: int = 1
) -> Setting:
    return {
        "kind": "envelope",
        "learner": learner,
        "drafters": list(drafters),
        "T": T,
        "gaps": list(GRID[::step]),
        "choosing": choosing,
        "scoring": scoring,
        "coins": coins,
    }


def _fixed(learner: str, drafters: Sequence[int], T: int, seeds: int) -> Setting:
    return {
        "kind": "fixed",
        "learner": learner,
        "drafters": list(drafters),
        "T": T,
        "gap": 0.2,
        "choosing": 8,
        "scoring": seeds,
    }


def _settings() -> Iterator[Setting]:
    small, T = (2, 4, 7, 8, 16, 21, 32, 47, 64), 10_000
    for name in (*FULL, *BANDIT):
        if name == "ucb-tuned":  # one task, as it has one beta
            yield _envelope(name, (*small, 128, 256, 1024), T, 12, 40, 16)
            continue
        dear = name in ("squint", "thompson-beta")  # 5 times the price of others at large N
        yield _envelope(name, small, T, 12, 64, 16)
        for n in (128, 256):
            yield _envelope(name, (n,), T, 8, 32 if dear else 48, 16)
        if not dear:
            yield _envelope(name, (1024,), T, 4, 20, 0)
        if name in FULL and not dear:
            yield _envelope(name, (4096,), T, 4, 16, 0)
    yield _envelope(CONTROL, (*small, 128, 256), T, 12, 16, 0)
    for name in FIXED_BANDIT:
        yield _fixed(name, (2, 4, 8, 16, 32, 64), 20_000, 24)
    for name in FIXED_FULL:
        yield _fixed(name, (2, 4, 8, 16, 32, 64, 128, 256, 1024), 20_000, 24)


def _quick() -> Iterator[Setting]:
    for name in (*FULL, *BANDIT, CONTROL):
        yield _envelope(name, (7, 8, 12, 16, 21, 47), 2000, 2, 8, 4, 2)
    for name in (*FIXED_BANDIT, *FIXED_FULL):
        yield _fixed(name, (2, 4, 8, 16), 4000, 8)


SETTINGS: Sequence[Setting] = tuple(_settings())
QUICK: Sequence[Setting] = tuple(_quick())

# stages have seeds of their own: constants, gaps, scores, fair coins
_TUNE, _CHOOSE, _SCORE, _COINS = range(4)


def _seed(seed: int, stage: int, index: int) -> int:
    return (seed * 4 + stage) * 10_000 + index


def policy(name: str, T: int, n: int, beta: float = 0.5) -> hl.Learner:
    """Return the learner of that name for T rounds and n drafters; what it may know of T is in its name or theorem."""
    if name == "hedge-fixed":
        return hl.learner("hedge", learning_rate=math.sqrt(8 * math.log(n) / T))
    if name == "moss":
        return hl.learner("moss", horizon=T)
    return hl.learner("ucb-tuned", beta=beta) if name == "ucb-tuned" else hl.learner(name)


def pseudo_regret(learner: hl.Learner, T: int, n: int, gap: float, seed: int) -> float:
    """Return gap times the number of rounds whose pick was not the best drafter."""
    world = hl.worlds.gap(T, n, gap)
    assert world.mean_losses is not None  # a world of this kind has means
    best = int(world.mean_losses(seed, 0, 1)[0].argmin())
    picks = hl.play(world, learner, seed=seed, times=[T]).picks
    return gap * float(np.count_nonzero(picks != best))


def _table(learner: hl.Learner, T: int, n: int, gaps: Sequence[float], seeds: Sequence[int]) -> NDArray[np.float64]:
    return np.array([[pseudo_regret(learner, T, n, gap, s) for s in seeds] for gap in gaps])


def _tuned_beta(T: int, drafters: Sequence[int], gaps: Sequence[float], seeds: Sequence[int]) -> float:
    """Return the beta, one for all N, whose worst regret has the least geometric mean over N up to 64."""
    means = []
    for beta in BETAS:
        worst = [
            _table(policy("ucb-tuned", T, n, beta), T, n, gaps, seeds).mean(axis=1).max() for n in drafters if n <= 64
        ]
        means.append(np.log(worst).mean())
    return BETAS[int(np.argmin(means))]


def run(setting: Setting, seed: int) -> Arrays:
    """Play one learner at some N.

    Returns, of kind "envelope", for each N: choose_N (G, seeds) pseudo-regret at each gap on the choosing seeds; gap_N,
    the worst of them, an index; score_N (seeds,) that gap's on the scoring seeds; coins_N (seeds,) regret on fair
    coins. Of ucb-tuned also its beta. Of kind "fixed", choose_N (1, seeds) and score_N (seeds,).
    """
    name, T = setting["learner"], setting["T"]
    found: dict[str, NDArray[Any]] = {}
    beta, gaps = 0.5, setting.get("gaps", ())
    if name == "ucb-tuned":
        beta = _tuned_beta(
            T, setting["drafters"], gaps[::2], [_seed(seed, _TUNE, i) for i in range(setting["choosing"])]
        )
        found["beta"] = np.array(beta)
    for n in setting["drafters"]:
        choosing = [_seed(seed, _CHOOSE, i) for i in range(setting["choosing"])]
        scoring = [_seed(seed, _SCORE, i) for i in range(setting["scoring"])]
        if setting["kind"] == "fixed":
            found[f"choose_{n}"] = _table(policy(name, T, n), T, n, [setting["gap"]], choosing)
            found[f"score_{n}"] = _table(policy(name, T, n), T, n, [setting["gap"]], scoring)[0]
            continue
        learner = policy(name, T, n, beta)
        choose = _table(learner, T, n, gaps, choosing)
        worst = int(choose.mean(axis=1).argmax())
        found[f"choose_{n}"] = choose
        found[f"gap_{n}"] = np.array(worst)
        found[f"score_{n}"] = _table(learner, T, n, [gaps[worst]], scoring)[0]
        coins = hl.worlds.fair_coins(T, n)
        seeds = [_seed(seed, _COINS, i) for i in range(setting["coins"])]
        found[f"coins_{n}"] = np.array([hl.play(coins, learner, seed=s, times=[T]).regret for s in seeds])
    return found


# ------------------------------------------------------------------ aggregation


class Envelope(NamedTuple):
    """A learner's regret at each N, in order of N.

    drafters : (P,). scores : P arrays (seeds,). gap, share, chosen : (P,) worst gap; mean regret at that gap on the
    choosing seeds, as a share of the trivial one and as it is. fitted : (P,) may a law be fitted to it; at_end :
    whether the worst gap is an end of the grid. coins : P arrays (seeds,), regret on fair coins. least_gap : the grid's
    """

    drafters: NDArray[np.int64]
    scores: list[NDArray[np.float64]]
    gap: NDArray[np.float64]
    share: NDArray[np.float64]
    chosen: NDArray[np.float64]
    fitted: NDArray[np.bool_]
    at_end: NDArray[np.bool_]
    coins: list[NDArray[np.float64]]
    T: int
    least_gap: float

    @property
    def means(self) -> NDArray[np.float64]:
        """(P,) mean regret."""
        return np.array([score.mean() for score in self.scores])

    @property
    def variances(self) -> NDArray[np.float64]:
        """(P,) squared standard errors of the means."""
        return np.array([score.var(ddof=1) / len(score) for score in self.scores])


def envelope(results: Results, learner: str) -> Envelope:
    """Return a learner's envelope, from all settings that have a part of it."""
    rows = []
    for setting, arrays in results.where(kind="envelope", learner=learner):
        gaps, T = setting["gaps"], setting["T"]
        for n in setting["drafters"]:
            index, score = int(arrays[f"gap_{n}"]), arrays[f"score_{n}"]
            chosen = arrays[f"choose_{n}"].mean(axis=1)[index]
            share = chosen / (gaps[index] * T * (1 - 1 / n))
            at_end = index in (0, len(gaps) - 1)
            usable = share <= SHARE and not at_end and n >= FIRST
            rows.append((n, score, gaps[index], share, chosen, usable, at_end, arrays[f"coins_{n}"]))
    rows.sort(key=lambda row: row[0])
    n, scores, gap, share, chosen, fit, end, coins = (list(column) for column in zip(*rows, strict=True))
    vectors = (np.array(gap), np.array(share), np.array(chosen), np.array(fit), np.array(end))
    return Envelope(np.array(n), scores, *vectors, coins, T, min(gaps))


def fixed(results: Results, learner: str) -> tuple[NDArray[np.int64], list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return (N (P,), P arrays of regrets (seeds,), shares of the trivial regret on the choosing seeds (P,)) at the
    fixed gap."""
    setting, arrays = results.one(kind="fixed", learner=learner)
    drafters = np.array(setting["drafters"])
    scores = [arrays[f"score_{n}"] for n in drafters]
    trivial = setting["gap"] * setting["T"] * (1 - 1 / drafters)
    return drafters, scores, np.array([arrays[f"choose_{n}"].mean() for n in drafters]) / trivial


def resampled(scores: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], int]:
    """Return (DRAWS, P) means of resampled seeds, at each N on their own, for N have different losses; and degrees of
    freedom, those of the N with the fewest seeds: a lower bound of Satterthwaite's (1946)."""
    drawn = [resample(np.arange(len(s)), resamples=DRAWS, seed=p) @ s / len(s) for p, s in enumerate(scores)]
    return np.stack(drawn, axis=1), min(len(s) for s in scores) - 1


NOTHING = Interval(math.nan, math.nan, math.nan)


def exponent(x: NDArray[Any], scores: Sequence[NDArray[np.float64]], law: str = "", comparisons: int = 1) -> Interval:
    """Return b of regret = a x^b, less that of a law on the same points and weights; NaN below FEWEST points."""
    if len(x) < FEWEST:
        return NOTHING
    means = np.array([score.mean() for score in scores])
    weights = means**2 / np.array([max(score.var(ddof=1), 1e-12) / len(score) for score in scores])
    own = float(growth.slope(x, growth.law(law, x), weights)) if law else 0.0
    estimate = float(growth.slope(x, means, weights))
    drawn, degrees = resampled(scores)
    return percentile(estimate - own, growth.slope(x, drawn, weights) - own, comparisons, degrees=degrees)


def aic_beyond(
    worse: str, others: Sequence[str], x: NDArray[Any], scores: Sequence[NDArray[np.float64]], comparisons: int = 1
) -> Interval:
    """Return AIC of a law less the least of others; NaN of fewer than FEWEST points."""
    if len(x) < FEWEST:
        return NOTHING
    means = np.array([score.mean() for score in scores])
    variances = np.array([max(score.var(ddof=1), 1e-12) / len(score) for score in scores])

    def beyond(values: NDArray[np.float64]) -> NDArray[np.float64]:
        best = np.min([growth.aic(growth.law(name, x), values, variances) for name in others], axis=0)
        return growth.aic(growth.law(worse, x), values, variances) - best

    drawn, degrees = resampled(scores)
    return percentile(float(beyond(means)), beyond(drawn), comparisons, degrees=degrees)


def fitted(found: Envelope) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Return N and regrets of the points that a law may be fitted to."""
    return found.drafters[found.fitted], [s for s, use in zip(found.scores, found.fitted, strict=True) if use]


def ratio(envelopes: Mapping[str, Envelope], n: int, comparisons: int = 1) -> tuple[Interval, str, str]:
    """Return (regret of the best bandit over that of the best full-information learner, their names) at N = n.

    Both are the best by their worst-case regret on the choosing seeds.
    """
    at = {name: int(np.flatnonzero(found.drafters == n)[0]) for name, found in envelopes.items()}
    best = [min(names, key=lambda name: envelopes[name].chosen[at[name]]) for names in (BANDIT, FULL)]
    above_, below_ = (envelopes[name].scores[at[name]] for name in best)
    drawn, degrees = resampled([above_, below_])
    whole, ratios = above_.mean() / below_.mean(), drawn[:, 0] / drawn[:, 1]
    return percentile(whole, ratios, comparisons, degrees=degrees), best[0], best[1]


def _least(found: Envelope, comparisons: int) -> Interval:
    """Return the regret over sqrt(N T) / 20 where that is least, among N whose gap sqrt(N / T) / 4 the grid reaches."""
    bound = np.array([hl.bounds.lower_bandit(found.T, int(n)) for n in found.drafters])
    reached = np.sqrt(found.drafters / found.T) / 4 >= found.least_gap
    least = int(np.argmin(np.where(reached, found.means / bound, np.inf)))
    return of_mean(found.scores[least] / bound[least], comparisons)


def _coins(found: Envelope, comparisons: int) -> Interval:
    """Return regret on fair coins over its expectation, mean over seeds and N."""
    ratios = [
        coins / hl.bounds.fair_coins_exact(found.T, int(n))
        for n, coins in zip(found.drafters, found.coins, strict=True)
        if len(coins)
    ]
    return of_mean(np.concatenate(ratios), comparisons)


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(*(end * factor for end in interval))


def _regardless(found: Envelope) -> str:
    """Return in words the exponent of all points from FIRST on, fitted or not, with its own 95% interval."""
    use = found.drafters >= FIRST
    interval = exponent(found.drafters[use], [s for s, each in zip(found.scores, use, strict=True) if each])
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _points(envelopes: Mapping[str, Envelope]) -> str:
    used = {name: fitted(found)[0] for name, found in envelopes.items()}
    return "; ".join(f"{name} N = {n[0]}..{n[-1]}" if len(n) else f"{name} none" for name, n in used.items())


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answers; all intervals by bootstrap over seeds, but Student's for means."""
    envelopes = {name: envelope(results, name) for name in (*FULL, *BANDIT)}
    questions = CLAIM.questions
    full = {name: fitted(envelopes[name]) for name in FULL}
    bandit = {name: fitted(envelopes[name]) for name in BANDIT}
    logs = ("sqrt_log_n", "log_n", "max_normal")

    def width(name: str) -> int:
        return questions[name].comparisons

    tuned = ", ".join(f"{found.arrays['beta']:g}" for found in results.where(kind="envelope", learner="ucb-tuned"))
    laws = []
    for name, (n, _) in full.items():
        if len(n) >= FEWEST:
            mean, error = (
                envelopes[name].means[envelopes[name].fitted],
                envelopes[name].variances[envelopes[name].fitted],
            )
            each = {key: float(growth.aic(growth.law(key, n), mean, error)) for key in ("sqrt_n", *logs)}
            each["power"], b = growth.power_aic(n, mean, error)
            laws.append(f"{name} " + ", ".join(f"{key} {value:.0f}" for key, value in each.items()) + f" (b = {b:.2f})")
    ratios = {n: ratio(envelopes, n, width("pools")) for n in POOLS}
    ucb_n, ucb, ucb_share = fixed(results, "ucb1")
    flat_n, flat, _ = fixed(results, "normalhedge")
    learnt = ucb_share <= SHARE
    uniform = envelope(results, CONTROL)
    low = int(uniform.share.argmin())
    trivial = uniform.gap[low] * uniform.T * (1 - 1 / uniform.drafters[low])
    return {
        "exponents": Answer(
            {name: exponent(*(full | bandit)[name], THEOREM[name], width("exponents")) for name in THEOREM},
            f"Gaps chosen, and beta of ucb-tuned, on other seeds than scored (beta {tuned}, the same at every N). "
            f"Fitted: {_points(envelopes)}. Exponents of all points from N = {FIRST} on, hollow ones too, each "
            "interval alone: " + "; ".join(f"{name} {_regardless(found)}" for name, found in envelopes.items()) + ".",
        ),
        "full": Answer({name: exponent(*full[name], "", width("full")) for name in FULL}),
        "bandit": Answer(
            {name: exponent(*bandit[name], "", width("bandit")) for name in BANDIT},
            "Share of the trivial regret at the fitted points, on the choosing seeds: "
            + "; ".join(
                f"{name} {s.min():.2f} to {s.max():.2f}"
                for name in BANDIT
                if len(s := envelopes[name].share[envelopes[name].fitted])
            )
            + ".",
        ),
        "not_root": Answer(
            {name: aic_beyond("sqrt_n", logs, *full[name], width("not_root")) for name in FULL},
            "AIC: " + "; ".join(laws) + ".",
        ),
        "which_log": Answer(
            {name: aic_beyond("log_n", ("sqrt_log_n",), *full[name], width("which_log")) for name in FULL}
        ),
        "pools": Answer(
            {f"N = {n}": _scaled(found[0], math.sqrt(math.log(n) / n)) for n, found in ratios.items()},
            "Ratios: "
            + "; ".join(
                f"N = {n} {found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}] ({bandit_} over {full_})"
                for n, (found, bandit_, full_) in ratios.items()
            )
            + "; the best of each by regret on the seeds that chose gaps.",
        ),
        "fixed_bandit": Answer(
            exponent(ucb_n[learnt] - 1, [s for s, use in zip(ucb, learnt, strict=True) if use]),
            "Regret at " + ", ".join(f"N = {n}: {s.mean():.0f}" for n, s in zip(ucb_n, ucb, strict=True)) + ".",
        ),
        "fixed_full": Answer(
            aic_beyond("sqrt_n", ("log_n",), flat_n, flat),
            "Regret at " + ", ".join(f"N = {n}: {s.mean():.1f}" for n, s in zip(flat_n, flat, strict=True)) + ".",
        ),
        "lower": Answer({name: _least(envelopes[name], width("lower")) for name in BANDIT}),
        "fair_coins": Answer({name: _coins(envelopes[name], width("fair_coins")) for name in THEOREM}),
        "control": Answer(of_mean(uniform.scores[low] / trivial)),
    }
