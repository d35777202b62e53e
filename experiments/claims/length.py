r"""Claim 2: the expected committed length of a round, estimated from one verified path.

Three estimators (`hedgelab.lengths`): A plugs gammas in, as published; B multiplies realised alphas; C replaces the
last factor of each of B's terms by its mean. On token worlds their moments are enumerated. On recorded text B's mean
stands for the truth, which nobody knows: mean (A - B) estimates A's bias, pairwise, row by row.

Rounds from a text's last rows have fewer drafts left than k. Means count them with the drafts that there are, for all
estimators alike: the terms of B - C are then a martingale that stops where the text does, and its mean is 0. Leaving
them out would choose rows by what came after them. Variances are of whole windows, those that learners are fed.

*After the first full run* question growth lost its cases weighted by EXP3Spec's play, linear in N by arithmetic
whatever the play, and its exponent is that of N beside a constant.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments import growth
from experiments.claim import (
    Answer,
    Arrays,
    Claim,
    Question,
    Result,
    Results,
    Setting,
    below,
    exactly,
    inside,
    trace_of,
)
from experiments.intervals import (
    FEWEST,
    Draws,
    exact,
    of_difference_of_ratios,
    of_mean,
    of_ratio,
    percentile,
    resample,
)
from hedgelab.regret import Interval
from hedgelab.token_worlds import KINDS, TokenWorld, WorldDrafter, accepting_for_ever, random_world, two_state_world

__all__ = [
    "CLAIM",
    "ESTIMATORS",
    "QUICK",
    "SETTINGS",
    "biases",
    "check",
    "deviations",
    "estimates",
    "focus",
    "growths",
    "run",
    "table",
]

ESTIMATORS = ("A", "B", "C")
DRAFTS = 5  # draft length of questions about a single one; the trace's own where that is shorter
TOLERANCE = 0.05  # tokens a round: 2% of a usual MAT
RESAMPLES = 24_000  # 200 for each of 120 comparisons
NOTHING = Interval(math.nan, math.nan, math.nan)  # where no trace has a case
LEARNERS = ("hedge", "normalhedge")  # their anytime forms: nothing is tuned
LARGE = 8  # drafters from which on the growth in their number is fitted

_KINDS, _DRAFTERS, _DOMAINS = 11, 47, 7  # of the bundled traces, two of them sampled: comparisons announced
_KINDS_A, _DRAFTERS_A = 7, 30  # of them with gamma off the path

CLAIM = Claim(
    sentence="The expected committed length of a round is estimated without bias from one verified path.",
    source="Not-a-Bandit, arXiv 2510.20064, stated of the plug-in estimator, here A",
    questions={
        "plug_in": Question(
            "The plug-in estimator A has no bias: on enumerated worlds, and on sampled text against B.",
            exactly(0.0, 1e-9),
            "tokens a round",
            comparisons=2 * _KINDS_A,
        ),
        "small": Question(
            "On sampled text A is off by at most 0.05 tokens, for each kind of drafter and k = 2 to 6.",
            exactly(0.0, TOLERANCE),
            "tokens a round",
            comparisons=2 * 5 * _KINDS_A,
        ),
        "exact": Question(
            "B and C have no bias on any world; nor has A for k = 1, or under a greedy target, where all three agree.",
            exactly(0.0, 1e-12),
            "tokens a round, largest difference",
        ),
        "same_mean": Question(
            "On sampled text B and C have the same mean, for each kind of drafter.",
            exactly(0.0, TOLERANCE),
            "tokens a round",
            comparisons=2 * _KINDS,
        ),
        "variance_A": Question(
            "A has a smaller variance than B and than C, for each drafter.",
            below(1.0),
            "ratio of variances over the rows of a domain",
            comparisons=4 * _DRAFTERS_A,
        ),
        "variance_C": Question(
            "C has a smaller variance than B, for each drafter.",
            below(1.0),
            "ratio of variances over the rows of a domain",
            comparisons=2 * _DRAFTERS,
        ),
        "selection": Question(
            "It makes no difference for selection: the drafter that A picks in a domain is as good as the one that B "
            "picks, and Hedge and NormalHedge commit as many tokens a round with A or B as with C.",
            exactly(0.0, TOLERANCE),
            "tokens a round",
            comparisons=2 * (2 * len(LEARNERS) + _DOMAINS),
        ),
        "rankings": Question(
            "A drafter of larger mean length over all tokens has no smaller MAT: no pair of drafters contradicts it.",
            below(0.0),
            "tokens a round by which the most suspect pair does",
            comparisons=2 * (_DOMAINS + 1),
        ),
        "growth": Question(
            "The variance of a bandit's importance-weighted loss under uniform play grows linearly with the number of "
            "drafters N, up to a constant: it is a + b N^c with c = 1.",
            inside(0.9, 1.1),
            f"c, from N = {LARGE} on",
            comparisons=3,
        ),
    },
)

_POOLS = (2, 8, 16, 32, 64, 128, 256, 512, 1024)
SETTINGS: Sequence[Setting] = (
    {"part": "worlds", "vocabulary": 2, "worlds": 40, "k": 6},
    {"part": "worlds", "vocabulary": 3, "worlds": 12, "k": 5},
    {"part": "made worlds", "k": 6},
    *({"part": "trace", "trace": name, "prompts": None} for name in ("t06", "t10", "greedy")),
    *(
        {"part": "learner", "trace": name, "prompts": None, "learner": learner, "replicates": 16}
        for name in ("t06", "t10")
        for learner in LEARNERS
    ),
    *({"part": "subpools", "trace": name, "prompts": None, "draws": 8} for name in ("t06", "t10")),
    *({"part": "pool", "drafters": n, "draws": 8, "rows": 2048} for n in _POOLS),
)
QUICK: Sequence[Setting] = (
    {"part": "worlds", "vocabulary": 2, "worlds": 2, "k": 4},
    {"part": "made worlds", "k": 4},
    *({"part": "trace", "trace": name, "prompts": 4} for name in ("t06", "t10", "greedy")),
    *(
        {"part": "learner", "trace": name, "prompts": 4, "learner": learner, "replicates": 2}
        for name in ("t06", "t10")
        for learner in LEARNERS
    ),
    *({"part": "subpools", "trace": name, "prompts": 4, "draws": 6} for name in ("t06", "t10")),
    *({"part": "pool", "drafters": n, "draws": 6, "rows": 512} for n in (2, 8, 32, 128)),
)


def estimates(
    estimator: str, alpha: NDArray[np.float64], gamma: NDArray[np.float64], k: int, ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return (T, N) estimates from each row, with the drafts up to ends[t] at most; see `hedgelab.lengths.censored`."""
    return hl.lengths.censored(alpha, gamma, k, ends, estimator=estimator)


# ------------------------------------------------------------------ worlds


def _along(
    world: TokenWorld, k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return alpha and gamma (P k, k, N) of a round that begins with each of the P paths, the paths' probabilities
    (P,), and the ends of their rows (P k,). Entry [j, d] of a path is that of its round where j = d, else 0."""
    tokens, chance = world.paths(k)
    values: dict[tuple[int, ...], NDArray[np.float64]] = {}
    for path in (tuple(int(token) for token in row) for row in tokens):
        for j in range(k):
            if path[: j + 1] not in values:
                p = world.target(path[:j])
                pairs = [drafter.acceptance(p, path[:j], j, path[j]) for drafter in world.drafters]
                values[path[: j + 1]] = np.array(pairs).T
    both = np.zeros((2, len(tokens), k, k, len(world.drafters)))
    for s, row in enumerate(tokens):
        for j in range(k):
            both[:, s, j, j] = values[tuple(int(token) for token in row[: j + 1])]
    alpha, gamma = both.reshape(2, len(tokens) * k, k, len(world.drafters))
    return alpha, gamma, chance, np.repeat(np.arange(1, len(tokens) + 1) * k, k)


def moments(world: TokenWorld, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return exactly, for each drafter and k' = 1 to k: E Y by the sampler (N, k), and means and variances of A, B and
    C (3, N, k); those of A are NaN for drafters whose gamma is not known off the path."""
    alpha, gamma, chance, ends = _along(world, k)
    n = len(world.drafters)
    true = np.array([[world.expected_length(i, m) for m in range(1, k + 1)] for i in range(n)])
    known = ~np.isnan(gamma).any(axis=(0, 1))
    mean, variance = np.full((3, n, k), np.nan), np.full((3, n, k), np.nan)
    for e, name in enumerate(ESTIMATORS):
        which = known if name == "A" else np.ones(n, bool)
        if not which.any():
            continue
        for m in range(1, k + 1):
            lengths = estimates(name, alpha[:, :, which], gamma[:, :, which], m, ends)[::k]
            mean[e, which, m - 1] = chance @ lengths
            variance[e, which, m - 1] = chance @ lengths**2 - (chance @ lengths) ** 2
    return true, mean, variance


def _worlds(setting: Setting, seed: int) -> Arrays:
    """Return `moments` of random worlds: true (worlds, N, k), mean and variance (worlds, 3, N, k)."""
    names = tuple(KINDS)
    found = [
        moments(random_world(1000 * seed + w, names, setting["vocabulary"]), setting["k"])
        for w in range(setting["worlds"])
    ]
    true, mean, variance = (np.stack(part) for part in zip(*found, strict=True))
    return {"kinds": np.array(names), "true": true, "mean": mean, "variance": variance}


def _gamble() -> TokenWorld:
    """Return a world where A has the largest variance and B none: after the draft that q favours none is accepted."""
    fair, leaning, zero, one = np.array([0.5, 0.5]), np.array([0.75, 0.25]), np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def law(prefix: tuple[int, ...], depth: int) -> NDArray[np.float64]:
        return one if prefix[:1] == (0,) else zero if prefix else leaning

    return TokenWorld("gamble", 2, lambda prefix: zero if prefix else fair, (WorldDrafter("chain", law),))


def _made_worlds(setting: Setting, seed: int) -> Arrays:
    """Return `moments` of worlds made to tell the estimators apart, as of random worlds."""
    worlds = (accepting_for_ever(), two_state_world(), _gamble())
    true, mean, variance = (np.stack(part) for part in zip(*(moments(w, setting["k"]) for w in worlds), strict=True))
    return {"names": np.array([w.name for w in worlds]), "true": true, "mean": mean, "variance": variance}


# ------------------------------------------------------------------ recorded text


def _cut(setting: Setting) -> hl.Trace:
    trace = trace_of(setting)
    return trace if setting["prompts"] is None else trace.few_prompts(setting["prompts"])


def _known_gamma(trace: hl.Trace) -> NDArray[np.bool_]:
    """Return (N,) whether a drafter's gamma is defined everywhere, which A needs."""
    known = np.ones(len(trace.drafters), bool)
    for part in trace.parts():
        for begin, end in zip(part.begin, part.end, strict=True):
            known[trace.deep_columns] &= ~np.isnan(part.gamma_deep[begin:end]).any(axis=(0, 1))
    return known


def focus(most: int) -> int:
    """Return the draft length of questions about a single one, where `most` was recorded."""
    return min(DRAFTS, most)


def _trace(setting: Setting, seed: int) -> Arrays:
    """Return sums over each text's rows for k' = 1 to k, A's NaN where gamma is not known off the path.

    rows, whole : (S,), (S, k) rows, and those with k' drafts before the end. mean : (3, S, N, k) sums of A, B and C
    over rows; first, second : (3, S, N, k) sums of them and of their squares over whole windows. rounds : (S, N, k)
    expected rounds of each drafter alone
    """
    trace = _cut(setting)
    k, n, first = trace.k, len(trace.drafters), trace.offsets[:-1]
    alpha, gamma = trace.alpha.astype(np.float64), trace.gamma.astype(np.float64)
    ends = np.repeat(trace.offsets[1:], np.diff(trace.offsets))
    left = ends - np.arange(trace.rows)
    known = _known_gamma(trace)
    sums = np.full((3, 3, trace.sequences, n, k), np.nan)
    for e, name in enumerate(ESTIMATORS):
        which = np.flatnonzero(known) if name == "A" else np.arange(n)
        if not len(which):
            continue
        a, g = alpha[:, :, which], gamma[:, :, which]
        for m in range(1, k + 1):
            lengths = estimates(name, a, g, m, ends)
            whole = np.where((left >= m)[:, None], lengths, 0.0)
            for j, values in enumerate((lengths, whole, whole**2)):
                sums[j, e, :, which, m - 1] = np.add.reduceat(values, first, axis=0).T
    lengths_of = np.diff(trace.offsets)[:, None]
    rounds = [hl.oracles.expected_fixed_rounds(trace, k=m).rounds for m in range(1, k + 1)]
    return {
        "drafters": np.array(trace.drafters),
        "kinds": np.array([drafter.kind for drafter in trace.manifest.drafters]),
        "domains": trace.home_domains,
        "prompts": trace.conversations,
        "sampled": np.array(trace.manifest.path == "own_sample" and trace.manifest.target_processing.temperature > 0),
        "greedy": np.array(trace.manifest.target_processing.temperature == 0),
        "rows": np.diff(trace.offsets).astype(np.float64),
        "whole": np.maximum(lengths_of - np.arange(k), 0).astype(np.float64),
        "mean": sums[0],
        "first": sums[1],
        "second": sums[2],
        "rounds": np.stack(rounds, axis=-1),
    }


def _learner(setting: Setting, seed: int) -> Arrays:
    """Return (3, S) rounds of each text with losses of A, B and C, mean over replicates of coins and picks."""
    trace = _cut(setting)
    trace = trace.among([name for name, known in zip(trace.drafters, _known_gamma(trace), strict=True) if known])
    k = focus(trace.k)
    rounds = np.zeros((len(ESTIMATORS), trace.sequences))
    for e, estimator in enumerate(ESTIMATORS):
        for replicate in range(setting["replicates"]):
            game = hl.replay(
                trace,
                setting["learner"],
                k=k,
                objective="length",
                estimator=estimator,
                seed=seed,
                replicate=replicate,
            )
            rounds[e] += game.sequence_rounds / setting["replicates"]
    return {
        "rounds": rounds,
        "tokens": np.diff(trace.offsets).astype(np.float64),
        "domains": trace.home_domains,
        "prompts": trace.conversations,
    }


# ------------------------------------------------------------------ growth with the number of drafters


def _windows(trace: hl.Trace, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return of each whole window and drafter, (R, N): E[Z | path], E[Z^2 | path] and a Z drawn with the row's coins,
    Z = k + 1 - Y the tokens that a round does not commit."""
    rng = np.random.default_rng(0)
    alpha = trace.alpha
    starts = np.concatenate(
        [np.arange(b, max(b, e - k + 1)) for b, e in zip(trace.offsets[:-1], trace.offsets[1:], strict=True)]
    )
    coins = rng.random(trace.rows)
    reach, alive = np.ones((len(starts), len(trace.drafters))), np.ones((len(starts), len(trace.drafters)), bool)
    mean, square, drawn = reach.copy(), reach.copy(), reach.copy()  # of Y: sums of P(Y > m) and (2 m + 1) P(Y > m)
    for d in range(k):
        accept = alpha[starts + d, d if alpha.shape[1] > 1 else 0].astype(np.float64)
        reach *= accept
        mean += reach
        square += (2 * d + 3) * reach
        alive &= coins[starts + d][:, None] < accept
        drawn += alive
    most = k + 1
    return most - mean, most * most - 2 * most * mean + square, most - drawn


def _variances(
    mean: NDArray[np.float64], square: NDArray[np.float64], drawn: NDArray[np.float64], k: int, seed: int
) -> list[float]:
    """Return variances over rows, tokens squared, of estimates of one drafter's loss, averaged over the N drafters:

    full information (B); importance weighting Z 1[I = i] / w(i) with w uniform; and with the w of EXP3Spec playing
    these rows, drafters counted by w and not alike: so they are in the sum that bounds its regret, and w that come to
    nothing would else decide alone. mean, square, drawn : (R, N) of `_windows`. Exact over picks and coins given the
    path and w.
    """
    n = mean.shape[1]
    centre = mean.mean(axis=0) ** 2
    full = (mean**2).mean(axis=0) - centre
    uniform = n * square.mean(axis=0) - centre
    probs = hl.play(drawn / k, "exp3spec", seed=seed, record=True).probs
    assert probs is not None
    weighted = (square - probs * centre).sum(axis=1).mean()
    return [float(full.mean()), float(uniform.mean()), float(weighted)]


VARIANCES = ("full", "uniform", "own")


def _subpools(setting: Setting, seed: int) -> Arrays:
    """Return (draws, sizes) variances over random sub-pools of a trace's drafters; those of a draw are nested."""
    trace = _cut(setting)
    n, k = len(trace.drafters), focus(trace.k)
    sizes = [size for size in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if size < n] + [n]
    parts = _windows(trace, k)
    found = np.empty((setting["draws"], len(sizes), len(VARIANCES)))
    for draw in range(setting["draws"]):
        order = np.random.default_rng([seed, draw]).permutation(n)
        for j, size in enumerate(sizes):
            mean, square, drawn = (part[:, order[:size]] for part in parts)
            found[draw, j] = _variances(mean, square, drawn, k, draw)
    return {"sizes": np.array(sizes), **{name: found[:, :, v] for v, name in enumerate(VARIANCES)}}


def _pool(setting: Setting, seed: int) -> Arrays:
    """Return (draws, 1) variances in synthetic pools: mean acceptances drawn from [0.2, 0.8]."""
    n, k = setting["drafters"], DRAFTS
    found = np.empty((setting["draws"], len(VARIANCES)))
    for draw in range(setting["draws"]):
        means = np.random.default_rng([seed, draw, n]).uniform(0.2, 0.8, (1, n))
        trace = hl.worlds.pool(means, setting["rows"] // 8, sequences=8, k=k, seed=1000 * seed + draw)
        found[draw] = _variances(*_windows(trace, k), k, draw)
    return {"sizes": np.array([n]), **{name: found[:, v, None] for v, name in enumerate(VARIANCES)}}


_PARTS: Mapping[str, Callable[[Setting, int], Arrays]] = {
    "worlds": _worlds,
    "made worlds": _made_worlds,
    "trace": _trace,
    "learner": _learner,
    "subpools": _subpools,
    "pool": _pool,
}


def run(setting: Setting, seed: int) -> Arrays:
    """Return what the setting's part gives, see there; seed chooses random worlds, sub-pools, pools and coins."""
    return _PARTS[setting["part"]](setting, seed)


# ------------------------------------------------------------------ aggregation


def table(result: Result, here: NDArray[np.bool_] | slice = slice(None), comparisons: int = 1) -> Draws:
    """Return resamples of a result's texts, or of those here: prompts within domains."""
    prompts, domains = result.arrays["prompts"][here], result.arrays["domains"][here]
    return resample(prompts, domains, resamples=max(RESAMPLES, FEWEST * comparisons))


def sampled(results: Results) -> list[Result]:
    """Return the results of traces whose target was sampled."""
    return [result for result in results.where(part="trace") if result.arrays["sampled"]]


def biases(result: Result, of: str, k: int, counts: Draws, comparisons: int = 1) -> dict[str, Interval]:
    """Return by kind the mean over rows of estimator `of` minus B, over the drafters that have both."""
    arrays = result.arrays
    gap = arrays["mean"][ESTIMATORS.index(of), :, :, k - 1] - arrays["mean"][1, :, :, k - 1]  # (S, N)
    found = {}
    for kind in dict.fromkeys(arrays["kinds"].tolist()):
        which = (arrays["kinds"] == kind) & ~np.isnan(gap).any(axis=0)
        if which.any():
            found[kind] = of_ratio(gap[:, which].sum(axis=1), arrays["rows"] * which.sum(), counts, comparisons)
    return found


def _variance(result: Result, k: int, counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (3, resamples, N) variances over whole windows, around each domain's own mean."""
    arrays = result.arrays
    names = np.unique(arrays["domains"])
    out = np.zeros((3, len(counts), len(arrays["drafters"])))
    total = counts @ arrays["whole"][:, k - 1]
    for domain in names:
        here = np.flatnonzero(arrays["domains"] == domain)
        drawn = counts[:, here]
        rows = np.maximum(drawn @ arrays["whole"][here, k - 1], 1.0)[:, None]
        for e in range(3):
            sums = [drawn @ arrays[name][e, here, :, k - 1] for name in ("first", "second")]
            out[e] += sums[1] - sums[0] ** 2 / rows
    return out / total[None, :, None]


def deviations(result: Result, counts: Draws) -> dict[str, dict[str, Interval]]:
    """Return {estimator: {drafter: standard deviation}} at the focus, tokens."""
    k = focus(result.arrays["mean"].shape[-1])
    point = np.sqrt(_variance(result, k, np.ones_like(counts.weights[:1])))[:, 0]
    draws = np.sqrt(_variance(result, k, counts.weights))
    return {
        name: {
            str(drafter): percentile(float(point[e, i]), draws[e, :, i], degrees=counts.degrees)
            for i, drafter in enumerate(result.arrays["drafters"])
            if not np.isnan(point[e, i])
        }
        for e, name in enumerate(ESTIMATORS)
    }


def _halves(arrays: Arrays) -> NDArray[np.bool_]:
    """Return (S,) every second prompt of each domain."""
    first = np.zeros(len(arrays["prompts"]), bool)
    for domain in np.unique(arrays["domains"]):
        here = arrays["domains"] == domain
        chosen = list(dict.fromkeys(arrays["prompts"][here].tolist()))[::2]
        first |= here & np.isin(arrays["prompts"], chosen)
    return first


def _picks(result: Result, comparisons: int) -> dict[str, Interval]:
    """Return by domain the mean B of the drafter that A picks minus that of the one that B picks, each on the other
    half of the prompts than that on which it was picked."""
    arrays = result.arrays
    k = focus(arrays["mean"].shape[-1])
    sums = arrays["mean"][:, :, :, k - 1]  # (3, S, N)
    first = _halves(arrays)
    found = {}
    for domain in dict.fromkeys(arrays["domains"].tolist()):
        here = arrays["domains"] == domain
        gap = np.zeros(len(here))
        for half in (first, ~first):
            if not (here & half).any():
                continue
            by = [sums[e, here & half].sum(axis=0) for e in range(2)]
            by[1] = np.where(np.isnan(by[0]), np.nan, by[1])  # among the drafters that A knows
            a, b = (int(np.nanargmax(each)) for each in by)
            other = here & ~half
            gap[other] = sums[1, other, a] - sums[1, other, b]
        found[domain] = of_ratio(gap[here], arrays["rows"][here], table(result, here, comparisons), comparisons)
    return found


def _suspect(result: Result, here: NDArray[np.bool_], counts: Draws) -> tuple[int, int]:
    """Return the pair (i, j) for which it is least unlikely, in standard errors, that i has the larger mean B and j
    the larger MAT."""
    lengths, rates, drawn = _both(result, here, counts)
    scores = []
    for point, draws, sign in ((lengths, drawn[0], 1.0), (rates, drawn[1], -1.0)):
        covariance = np.cov(draws.T)
        spread = np.sqrt(np.maximum(np.diag(covariance)[:, None] + np.diag(covariance)[None] - 2 * covariance, 1e-12))
        scores.append(sign * (point[:, None] - point[None]) / spread)
    worst = np.minimum(*scores)
    np.fill_diagonal(worst, -np.inf)
    i, j = np.unravel_index(int(worst.argmax()), worst.shape)
    return int(i), int(j)


def _both(
    result: Result, here: NDArray[np.bool_], counts: Draws
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return mean B over rows (N,), MAT (N,), and both over resamples of them (B, N), of the texts here."""
    arrays = result.arrays
    k = focus(arrays["mean"].shape[-1])
    rows, sums, rounds = arrays["rows"][here], arrays["mean"][1, here, :, k - 1], arrays["rounds"][here, :, k - 1]
    total = (counts @ rows)[:, None]
    return (
        sums.sum(axis=0) / rows.sum(),
        rows.sum() / rounds.sum(axis=0),
        ((counts @ sums) / total, total / (counts @ rounds)),
    )


def _rankings(result: Result, comparisons: int) -> dict[str, Interval]:
    """Return by domain, and over all, min(B_i - B_j, MAT_j - MAT_i) of the most suspect pair: above 0 where the two
    contradict each other. The pair is found on half of the prompts and measured on the others; both differences must
    lie above 0, so the interval's ends are the smaller of theirs (an intersection-union test)."""
    arrays = result.arrays
    first = _halves(arrays)
    found = {}
    everywhere = np.ones(len(first), bool)
    for scope in (*dict.fromkeys(arrays["domains"].tolist()), "all domains"):
        here = everywhere if scope == "all domains" else arrays["domains"] == scope
        if not (here & ~first).any():
            found[scope] = NOTHING
            continue
        i, j = _suspect(result, here & first, table(result, here & first))
        counts = table(result, here & ~first, comparisons)
        lengths, rates, drawn = _both(result, here & ~first, counts)
        pair = [
            percentile(float(point[a] - point[b]), draws[:, a] - draws[:, b], comparisons, degrees=counts.degrees)
            for point, draws, a, b in ((lengths, drawn[0], i, j), (rates, drawn[1], j, i))
        ]
        case = f"{scope}: {arrays['drafters'][i]}, {arrays['drafters'][j]}"
        found[case] = Interval(*(min(ends) for ends in zip(*pair, strict=True)))
    return found


def growths(results: Results) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return {case: (sizes (M,), variances (draws, M))} for traces' sub-pools and the synthetic pools."""
    found: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    for name in VARIANCES:
        for each in results.where(part="subpools"):
            found[f"{each.setting['trace']}, {name}"] = each.arrays["sizes"], each.arrays[name]
        pools = results.where(part="pool")
        if len(pools):
            sizes = np.concatenate([each.arrays["sizes"] for each in pools])
            found[f"pools, {name}"] = sizes, np.concatenate([each.arrays[name] for each in pools], axis=1)
    return found


def _slopes(sizes: NDArray[np.int64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (draws,) the slope of log variance on log N, from N = LARGE on; NaN where a variance is not positive."""
    use = sizes >= LARGE
    return growth.slope(sizes[use], variances[:, use], np.ones(use.sum()))


def _exponents(sizes: NDArray[np.int64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (draws,) c of variance = a + b N^c, by least squares of relative errors, from N = LARGE on; c in [0.2, 3]
    to within 0.001. A line's own intercept taken off would pass N^1.5 for linear."""
    n, each = sizes[sizes >= LARGE].astype(np.float64), variances[:, sizes >= LARGE]
    grid = np.linspace(0.2, 3, 2801)
    shapes = n ** grid[:, None]
    flat = 1 / each
    best = np.empty(len(each))
    for draw, constant in enumerate(flat):
        rows = np.stack([np.broadcast_to(constant, shapes.shape), shapes * constant], axis=-1)  # (grid, M, 2)
        found = np.linalg.pinv(rows) @ np.ones((len(n), 1))
        best[draw] = grid[((rows @ found - 1) ** 2).sum(axis=(1, 2)).argmin()]
    return best


def _growth(results: Results, comparisons: int) -> Answer:
    cases: dict[str, Interval] = {}
    flat, bare = [], []
    for name, (sizes, variances) in growths(results).items():
        source, kind = name.rsplit(", ", 1)
        if (sizes >= LARGE).sum() < 3:
            continue
        if kind == "full":
            flat.append(f"{source} {_slopes(sizes, variances).mean():.3f}")
        elif kind == "uniform":
            cases[source] = of_mean(_exponents(sizes, variances), comparisons)
            bare.append(f"{source} {_slopes(sizes, variances).mean():.3f}")
    return Answer(
        cases or NOTHING,
        "Student's intervals are over draws of pools, nested sub-pools of one trace's drafters or synthetic pools, and "
        "not over prompts: every draw has the same text. The variance is N E Z^2 - (E Z)^2, affine in N by arithmetic "
        "where E Z^2 is that of any pool; exponents without the intercept: "
        f"{', '.join(bare)}; of the variance of B, full information: {', '.join(flat)}",
    )


def _of_worlds(results: Results) -> tuple[dict[str, Interval], dict[str, Interval], str]:
    """Return A's bias of largest size by world and k, the largest errors of B and C and of A at k = 1, and a note."""
    bias: dict[str, Interval] = {}
    errors: dict[str, float] = {}
    smallest = dict.fromkeys(ESTIMATORS, 0)
    for each in [*results.where(part="worlds"), *results.where(part="made worlds")]:
        true, mean, variance = (each.arrays[name] for name in ("true", "mean", "variance"))
        error = mean - true[:, None]  # (worlds, 3, N, k)
        for e, name in enumerate(ESTIMATORS[1:], 1):
            errors[name] = max(errors.get(name, 0.0), float(np.abs(error[:, e]).max()))
        errors["A, k = 1"] = max(errors.get("A, k = 1", 0.0), float(np.nanmax(np.abs(error[:, 0, :, 0]))))
        for m in range(1, error.shape[-1]):
            if each.setting["part"] == "worlds":
                here = error[:, 0, :, m].ravel()
                worst = float(here[np.nanargmax(np.abs(here))])
                bias[f"random worlds of {each.setting['vocabulary']} tokens, k = {m + 1}"] = exact(worst)
                continue
            for name, value in zip(each.arrays["names"], error[:, 0, 0, m], strict=True):
                bias[f"{name}, k = {m + 1}"] = exact(float(value))
        whole = variance[:, :, :, 1:].transpose(0, 2, 3, 1).reshape(-1, 3)
        for row in whole[~np.isnan(whole).any(axis=1)]:
            if row.max() - row.min() > 1e-12:
                smallest[ESTIMATORS[int(row.argmin())]] += 1
    words = ", ".join(f"{name} {count}" for name, count in smallest.items())
    return bias, {name: exact(value) for name, value in errors.items()}, f"least variance in worlds: {words}"


def _shares(result: Result) -> str:
    """Return in words how often each estimator has the least variance, over drafters, domains and k from 2 on."""
    arrays = result.arrays
    least = np.zeros(3, np.int64)
    c_below = total = 0
    for domain in np.unique(arrays["domains"]):
        one = (arrays["domains"] == domain).astype(np.float64)[None]
        for k in range(2, arrays["mean"].shape[-1] + 1):
            a, b, c = _variance(result, k, one)[:, 0]
            c_below += int((c < b).sum())
            total += len(b)
            known = ~np.isnan(a)
            least += np.bincount(np.stack([a, b, c])[:, known].argmin(axis=0), minlength=3)
    cells = ", ".join(f"{name} {count}" for name, count in zip(ESTIMATORS, least, strict=True))
    return (
        f"{result.setting['trace']}: least variance {cells} of {least.sum()} cells; C below B in {c_below} of {total}"
    )


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answers; intervals on text are bootstrap over prompts within domains."""
    texts = sampled(results)
    worlds, errors, variance_note = _of_worlds(results)
    for each in results.where(part="trace"):
        if each.arrays["greedy"]:
            mean = each.arrays["mean"]
            gap = np.abs(mean - mean[1])[[0, 2]]
            errors[f"{each.setting['trace']}, A and C against B"] = exact(float(np.nanmax(gap)))
    longest = [each.arrays["mean"].shape[-1] for each in texts]
    asked = CLAIM.questions

    def together(name: str, count: int) -> int:
        return max(asked[name].comparisons, count)

    def named(each: Result, found: Mapping[str, Interval]) -> dict[str, Interval]:
        return {f"{each.setting['trace']} {case}": interval for case, interval in found.items()}

    cases: dict[str, dict[str, Interval]] = defaultdict(dict)
    traces = len(texts)
    whole = []
    for each, most in zip(texts, longest, strict=True):
        k = focus(most)
        kinds, n, domains = (len(np.unique(each.arrays[name])) for name in ("kinds", "drafters", "domains"))
        drawn = table(each, comparisons=2 * traces * max(n, domains + 2 * len(LEARNERS), kinds * (most - 1)))
        cases["plug_in"] |= named(each, biases(each, "A", k, drawn, together("plug_in", traces * kinds)))
        for m in range(2, most + 1):
            found = biases(each, "A", m, drawn, together("small", traces * kinds * (most - 1)))
            cases["small"] |= {f"{case}, k = {m}": interval for case, interval in named(each, found).items()}
        cases["same_mean"] |= named(each, biases(each, "C", k, drawn, together("same_mean", traces * kinds)))
        whole.append(f"{each.setting['trace']} {_complete(each, k):+.3f}")
        point = _variance(each, k, np.ones_like(drawn.weights[:1]))[:, 0]
        spread = _variance(each, k, drawn.weights)
        for name, top, bottom, count in (
            ("variance_A", 0, 1, 2 * traces * n),
            ("variance_A", 0, 2, 2 * traces * n),
            ("variance_C", 2, 1, traces * n),
        ):
            for i, drafter in enumerate(each.arrays["drafters"]):
                if not np.isnan(point[top, i]):
                    share = percentile(
                        float(point[top, i] / point[bottom, i]),
                        spread[top, :, i] / spread[bottom, :, i],
                        asked[name].comparisons if n <= _DRAFTERS else count,
                        degrees=drawn.degrees,
                    )
                    cases[name][f"{each.setting['trace']} {drafter} {ESTIMATORS[top]}/{ESTIMATORS[bottom]}"] = share
        joint = together("selection", traces * (2 * len(LEARNERS) + domains))
        cases["selection"] |= named(each, _picks(each, joint))
        for one in results.where(part="learner", trace=each.setting["trace"]):
            cases["selection"] |= named(each, _learners(one, drawn, joint))
        cases["rankings"] |= named(each, _rankings(each, together("rankings", traces * (domains + 1))))
    shares = "; ".join(_shares(each) for each in texts)
    prompts = ", ".join(f"{each.setting['trace']}: {len(set(each.arrays['prompts']))} prompts" for each in texts)
    levels = "; ".join(_levels(each) for each in texts)
    ks = ", ".join(f"{each.setting['trace']}: k = {focus(most)}" for each, most in zip(texts, longest, strict=True))
    return {
        "plug_in": Answer(worlds | cases["plug_in"], f"worlds exactly; text by A - B, {prompts}, {ks}"),
        "small": Answer(cases["small"] or NOTHING, prompts),
        "exact": Answer(errors, "enumerated, and all rows of greedy text"),
        "same_mean": Answer(
            cases["same_mean"] or NOTHING, f"{prompts}; over whole windows alone C - B is at most {', '.join(whole)}"
        ),
        "variance_A": Answer(cases["variance_A"] or NOTHING, f"{ks}; {shares}; {variance_note}"),
        "variance_C": Answer(cases["variance_C"] or NOTHING, f"{ks}; {prompts}"),
        "selection": Answer(
            cases["selection"] or NOTHING,
            f"{ks}; picked on half of the prompts, scored on the others; nothing is tuned",
        ),
        "rankings": Answer(
            cases["rankings"] or NOTHING, f"{ks}; pairs found on half of the prompts, measured on the others; {levels}"
        ),
        "growth": _growth(results, asked["growth"].comparisons),
    }


def _complete(result: Result, k: int) -> float:
    """Return the mean of C - B over whole windows alone, of the kind where it is farthest from 0."""
    arrays = result.arrays
    gap = (arrays["first"][2, :, :, k - 1] - arrays["first"][1, :, :, k - 1]).sum(axis=0)
    gap = gap / arrays["whole"][:, k - 1].sum()
    means = [gap[arrays["kinds"] == kind].mean() for kind in np.unique(arrays["kinds"])]
    return float(max(means, key=abs))


def _levels(result: Result) -> str:
    """Return in words by how much the mean of B over all rows exceeds walked MAT."""
    everywhere = np.ones(len(result.arrays["rows"]), bool)
    lengths, rates, _ = _both(result, everywhere, Draws(np.ones((1, len(everywhere))), 0))
    gap = lengths - rates
    low, high = int(gap.argmin()), int(gap.argmax())
    names = result.arrays["drafters"]
    return (
        f"{result.setting['trace']}: mean B minus MAT from {gap[low]:+.3f} ({names[low]}) to {gap[high]:+.3f} "
        f"({names[high]}), correlation of the two over drafters {np.corrcoef(lengths, rates)[0, 1]:.4f}"
    )


def _learners(result: Result, counts: Draws, comparisons: int) -> dict[str, Interval]:
    """Return MAT of a learner with A, and with B, minus its MAT with C."""
    arrays = result.arrays
    return {
        f"{result.setting['learner']}, {name} - C": of_difference_of_ratios(
            arrays["tokens"], arrays["rounds"][e], arrays["rounds"][2], counts, comparisons
        )
        for e, name in enumerate(ESTIMATORS[:2])
    }
