"""What results say about late losses: exponents of the delay, shares of bounds, and MAT by kind of feedback."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Answer, Result, Results, answered
from experiments.claims.delay.asked import CLAIM, CONSTANT, TUNED
from experiments.claims.delay.measure import LATE, MODES, SEARCHED
from experiments.growth import slope
from experiments.intervals import exact, jackknife, of_mean
from experiments.texts import POOLED, Texts
from hedgelab.regret import Interval

__all__ = ["check", "difference", "growth", "late_regret"]

Matrix = NDArray[np.float64]
Cases = dict[str, Callable[..., Interval]]


def growth(results: Results, world: str, policy: str) -> tuple[NDArray[np.int64], list[Interval], Matrix]:
    """Return (1 + d, mean regret with its interval over seeds, mean bound), one entry a delay."""
    arrays = results.one(kind="world", world=world, policy=policy).arrays
    return arrays["delays"] + 1, [of_mean(row) for row in arrays["regret"]], arrays["bound"].mean(axis=1)


def late_regret(results: Results, k: int, learner: str, how: str) -> Interval:
    """Return regret of the token game within a query, in tokens per play, with its interval over prompts."""
    arrays = results.one(kind="token game", k=k).arrays
    regret = arrays["regret"][SEARCHED.index(learner), LATE.index(how)] * (k + 1)
    return Texts(arrays).ratio(regret, arrays["plays"])


def difference(result: Result, mode: str, other: str, group: str = POOLED, comparisons: int = 1) -> Interval:
    """Return MAT of a mode of feedback minus that of another, paired over prompts, in one domain or over all."""
    arrays, rounds = result.arrays, _by_mode(result, "rounds")
    return Texts(arrays).difference(arrays["tokens"], rounds[mode], rounds[other], group, comparisons)


def _by_mode(result: Result, name: str) -> dict[str, Matrix]:
    return dict(zip(MODES, result.arrays[name], strict=True))


def _exponent(result: Result, comparisons: int) -> Interval:
    """Return the exponent of mean regret against 1 + d, with Student's interval over seeds (jackknife)."""
    late, regret = result.arrays["delays"] + 1, result.arrays["regret"]
    return jackknife(lambda runs: float(slope(late, runs.mean(axis=0), np.ones(len(late)))), regret.T, comparisons)


def _growth(results: Results) -> Answer:
    made_for_delay = [each for each in results.where(kind="world") if each.setting["policy"] in TUNED]
    return answered(
        CLAIM,
        "growth",
        {
            f"{each.setting['policy']}: {each.setting['world']}": functools.partial(_exponent, each)
            for each in made_for_delay
        },
        "rates by formula from T, N and the delays; with a constant delay padding is BOLD. Where regret without delay "
        "is far below the bound, 1 + d copies that learn each on their own may cost 1 + d times as much, and still "
        "keep the guarantee",
    )


def _adversary(results: Results) -> Answer:
    found = {policy: results.one(kind="world", world="block", policy=policy) for policy in CONSTANT}
    return answered(CLAIM, "adversary", {policy: functools.partial(_exponent, each) for policy, each in found.items()})


def _bounds(results: Results) -> Answer:
    cases: dict[str, Interval] = {}
    for result in [*results.where(kind="world"), *results.where(kind="example")]:
        setting, share = result.setting, result.arrays["regret"] / result.arrays["bound"]
        if not np.isnan(result.arrays["bound"]).all():  # a policy has bounds in all runs or in none
            where = f"{setting['world']}, N = {setting['drafters']}, T = {setting['rounds']}"
            cases[f"{setting['policy']}: {where}"] = exact(float(share.max()))
    return Answer(cases, "largest over delays and seeds; NormalHedge has no bound under delay")


def _rate(results: Results) -> Answer:
    regret = results.one(kind="example", policy="hedge tuned without delay").arrays["regret"][0]
    bound = results.one(kind="example", policy="stale hedge").arrays["bound"][0]
    note = f"mean regret {regret.mean():.0f}, bound {bound.mean():.0f}, the adversary of blocks"
    return answered(CLAIM, "rate", {"": functools.partial(of_mean, regret / bound)}, note)


def _weights(results: Results) -> Answer:
    own = results.one(kind="world", world="block", policy="normalhedge, own weights")
    return answered(CLAIM, "weights", {"": functools.partial(_exponent, own)}, "the adversary of blocks")


def _decode(results: Results) -> Answer:
    """The exponent e: regret is (1 + mean delay)^e times that without delay."""
    cases: Cases = {}
    factors = []
    for result in results.where(kind="token game"):
        arrays, k = result.arrays, result.setting["k"]
        draws = Texts(arrays).draws()
        plays = draws.sums(arrays["plays"])
        for i, name in enumerate(SEARCHED):
            total = draws.sums(arrays["regret"][i].T)  # (1 + B, late)
            factor = total[:, LATE.index("queue")] / total[:, LATE.index("none")]
            delay = draws.sums(arrays["delay"][i] * arrays["plays"]) / plays
            cases[f"{name}, k = {k}"] = functools.partial(draws.interval, np.log(factor) / np.log1p(delay))
            factors.append(f"{name}, k = {k}: {factor[0]:.2f} at mean delay {delay[0]:.1f}, longest {2 * k - 1}")
    return answered(
        CLAIM,
        "decode",
        cases,
        "regret to each query's own best drafter, length loss; delays of the learner's own decode run. Times the "
        "regret without delay: " + "; ".join(factors),
    )


def _bold(results: Results) -> Answer:
    """BOLD's largest share of its guarantee by pool and by k, and how it compares with padding."""
    cases: dict[str, Interval] = {}
    beside = []
    for result in results.where(kind="own delays"):
        name, (own, padded) = result.setting["pool"], result.arrays["regret"]
        cases[name] = exact(own.max() / result.arrays["guarantee"])
        beside.append(f"{name} {own.mean():.0f} against {padded.mean():.0f}")
    for result in results.where(kind="token game"):
        name, (own, padded) = f"real text, k = {result.setting['k']}", result.arrays["tuned"]
        cases[name] = exact((own / result.arrays["guarantee"]).max())
        beside.append(f"{name}: {own.sum():.0f} against {padded.sum():.0f}")
    return Answer(
        cases,
        "mean regret of BOLD against padding: "
        + "; ".join(beside)
        + ". On real text the delays are those of the learner's run without BOLD; in the pools its own",
    )


def _padding(results: Results) -> Answer:
    """1 - MAT padded / MAT delayed: the rounds are alike in number, as the tokens are one."""
    cases: Cases = {}
    for result in results.where(kind="feedback"):
        draws, rounds = Texts(result.arrays).draws(), _by_mode(result, "rounds")
        lost = 1 - draws.sums(rounds["delayed"]) / draws.sums(rounds["padded"])
        cases[result.setting["learner"]] = functools.partial(draws.interval, lost)
    return answered(CLAIM, "padding", cases, "2k copies of the learner take turns")


def _partial(results: Results) -> Answer:
    cases: Cases = {}
    moved = []
    for result in results.where(kind="feedback"):
        name, picks = result.setting["learner"], _by_mode(result, "picks")
        for mode in ("censored", "round starts"):
            cases[f"{name}: {mode}"] = functools.partial(difference, result, "delayed", mode)
            other = 0.5 * np.abs(picks[mode] - picks["delayed"]).sum()
            moved.append(f"{name}, {mode} {100 * other:.0f}%")
    note = "rounds drafted by another drafter, in distribution over all rounds: " + "; ".join(moved)
    return answered(CLAIM, "partial", cases, note)


def check(results: Results) -> dict[str, Answer]:
    """Return the answer to each question."""
    return {
        "growth": _growth(results),
        "adversary": _adversary(results),
        "bounds": _bounds(results),
        "rate": _rate(results),
        "weights": _weights(results),
        "decode": _decode(results),
        "bold": _bold(results),
        "padding": _padding(results),
        "partial": _partial(results),
    }
