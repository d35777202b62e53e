"""What results say about learners' regret: exponents, shares of bounds, and MAT beside the token game."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.claim import Answer, Result, Results, answered
from experiments.claims.no_regret.asked import CLAIM, OBJECTIVES
from experiments.claims.no_regret.decoding import decoded, pools, there
from experiments.claims.no_regret.measure import LEARNERS, POLICIES, PROTOCOLS
from experiments.growth import slope
from experiments.intervals import UNTOLD, exact, jackknife, of_mean, of_ratio, of_resamples
from experiments.settings import Setting
from experiments.texts import Texts
from hedgelab.regret import Interval

__all__ = ["check", "exponent", "regrets", "spread", "unit"]

Matrix = NDArray[np.float64]
Cases = dict[str, Callable[..., Interval]]


def unit(rounds: ArrayLike, drafters: int) -> Matrix:
    """Return sqrt(T ln N / 2), by which regrets are measured."""
    return np.sqrt(np.asarray(rounds) * math.log(drafters) / 2)


def regrets(results: Results, **setting: str) -> Mapping[str, Result]:
    """Return {policy: result} of streams or long worlds with these settings."""
    return {result.setting["learner"]: result for result in results.where(**setting)}


def spread(result: Result) -> list[Interval]:
    """Return mean regret per token at each time with its 95% interval: over resampled prompts, or over seeds."""
    of = of_resamples if result.setting["kind"] == "stream" else of_mean
    return [of(column) for column in (result.arrays["regret"] / result.arrays["times"]).T]


def _streams(results: Results) -> list[Result]:
    return [result for result in results.where(kind="stream") if there(result)]


def _learning(games: list[Result]) -> dict[str, Result]:
    """Return {case: game} of the learners."""
    return {_case(game.setting): game for game in games if game.setting["learner"] in LEARNERS}


def _case(setting: Setting) -> str:
    return f"{setting['learner']}: {_name(setting)}"


def _name(setting: Setting) -> str:
    if setting["kind"] == "stream":
        return f"stream, {setting['objective']}, {setting['pool']}"
    return f"{setting['world']}, N = {setting['drafters']}"


def exponent(times: NDArray[np.int64], regret: Matrix) -> float:
    """Return the exponent of regret per token against T over the last two decades, NaN with fewer than 5 points at
    which regret is one loss or more: the others say nothing of a rate."""
    kept = (times >= times[-1] / 100) & (regret >= 1.0)
    return float(slope(times[kept], regret[kept], np.ones(kept.sum()))) - 1.0 if kept.sum() >= 5 else math.nan


def _exponents(result: Result) -> Matrix:
    return np.array([exponent(result.arrays["times"], row) for row in result.arrays["regret"]])


def _fit(result: Result, comparisons: int = 1) -> Interval:
    """Return the exponent with its interval: over resampled prompts for streams, over seeds for worlds. UNTOLD where it
    is saturated: no fit in more than half of the streams; those without one are left out."""
    if result.setting["kind"] == "stream":
        each = _exponents(result)
        fitted = each[~np.isnan(each)]
        return _over_prompts(result, fitted, comparisons) if 2 * len(fitted) >= len(each) else UNTOLD
    times = result.arrays["times"]
    return jackknife(lambda runs: exponent(times, runs.mean(axis=0)), result.arrays["regret"], comparisons)


def _over_prompts(stream: Result, values: Matrix, comparisons: int = 1) -> Interval:
    """Return the interval of values of streams, each of its own resample of the prompts."""
    return of_resamples(values, comparisons) if Texts(stream.arrays).spread else UNTOLD


def _saturated(result: Result) -> str:
    """Return from when on mean regret is below one loss, and in how many runs there is no fit; empty if in none."""
    times, regret = result.arrays["times"], result.arrays["regret"]
    without = int(np.isnan(_exponents(result)).sum())
    if not without:
        return ""
    above = np.flatnonzero(regret.mean(axis=0) >= 1.0)
    first = int(above[-1]) + 1 if len(above) else 0
    since = f", in the mean after T = {times[first]}" if first < len(times) else ""
    return f"{_case(result.setting)}, {without} of {len(regret)} runs{since}"


def _leaders(streams: list[Result]) -> str:
    """Return who had the smallest loss in how many of the streams, which are the same for all policies."""
    found = {}
    for game in streams:
        names, times = np.unique(game.arrays["best"], return_counts=True)
        words = ", ".join(f"{names[i]} {times[i]}" for i in np.argsort(-times, kind="stable"))
        found[_name(game.setting)] = f"{_name(game.setting)}: {words} of {times.sum()}"
    return "; ".join(found.values())


def _rate(results: Results) -> Answer:
    streams = _streams(results)
    games = [*streams, *results.where(kind="long", world="gap")]
    learning = _learning(games)
    fitted = {case: game for case, game in learning.items() if not math.isnan(_fit(game).estimate)}
    idle = {_name(game.setting): _fit(game).estimate for game in games if game.setting["learner"] == "uniform"}
    return answered(
        CLAIM,
        "rate",
        {case: functools.partial(_fit, game) for case, game in fitted.items()},
        "no delay; defaults, nothing tuned; prompts repeat in a stream. Uniform: "
        + "; ".join(f"{rate:.2f} on {name}" for name, rate in idle.items() if not math.isnan(rate))
        + ". Saturated, regret below one loss, so without a fit: "
        + ("; ".join(filter(None, map(_saturated, learning.values()))) or "none")
        + "; a case with most runs so is left out. Streams in which a drafter is the best fixed one, by the stream's "
        "loss: " + _leaders(streams),
    )


def _small(results: Results) -> Answer:
    cases: Cases = {}
    for case, game in _learning(_streams(results)).items():
        end = unit(game.setting["tokens"], int(game.arrays["drafters"]))
        cases[case] = functools.partial(_over_prompts, game, game.arrays["regret"][:, -1] / end)
    return answered(CLAIM, "small", cases, "mean over streams of prompts drawn again and again, no delay")


def _bounded(results: Results) -> Answer:
    """Largest regret of each learner in each world as a share of the same run's bound."""
    shares: dict[str, float] = {}
    for result in results.where(kind="world"):
        ratio = (result.arrays["regret"] / result.arrays["bound"]).max(axis=(1, 2))
        shares |= {f"{name}: {_name(result.setting)}": value for name, value in zip(LEARNERS, ratio, strict=True)}
    for case, game in _learning([*_streams(results), *results.where(kind="long")]).items():
        long = ", long" if game.setting["kind"] == "long" else ""
        shares[case + long] = (game.arrays["regret"][:, -1] / game.arrays["bound"]).max()
    return Answer(
        {case: exact(value) for case, value in shares.items()},
        "largest over runs, and over a hundredth, a tenth and all of the rounds; NormalHedge's bound is vacuous here, "
        "its share says little",
    )


def _coins(results: Results) -> Answer:
    arrays = results.one(kind="coins").arrays
    flips = zip(POLICIES, arrays["regret"] / arrays["exact"], strict=True)
    return answered(CLAIM, "coins", {name: functools.partial(of_mean, row) for name, row in flips})


def _normalhedge(results: Results) -> Answer:
    cases: Cases = {}
    for result in results.where(kind="world"):
        regret = result.arrays["regret"][LEARNERS.index("normalhedge"), :, -1]
        end = unit(result.setting["rounds"], result.setting["drafters"])
        cases[_name(result.setting)] = functools.partial(of_mean, regret / end)
    return answered(CLAIM, "normalhedge", cases, "adversaries see the plays")


def _query(results: Results) -> Answer:
    cases: Cases = {}
    for pool, objective in itertools.product(pools(results), OBJECTIVES):
        data = decoded(results, objective, pool)
        regret = data.own_loss[PROTOCOLS.index("query")] - data.drafter_loss.min(axis=1)  # (policies, S)
        idle = regret[POLICIES.index("uniform")]
        for name, own in zip(LEARNERS, regret, strict=False):
            cases[f"{name}, {objective}, {pool}"] = functools.partial(of_ratio, own, idle, data.draws)
    note = "regret to each query's own best drafter, with the decode loop's delays"
    return answered(CLAIM, "query", cases, note)


def _best(results: Results) -> str:
    return "; ".join(f"{pool}: {decoded(results, 'length', pool).best()}" for pool in pools(results))


def _rounds(results: Results) -> Answer:
    cases: Cases = {}
    for pool, protocol in itertools.product(pools(results), PROTOCOLS):
        data = decoded(results, "length", pool)
        lacking = (data.best_mat(protocol) - data.mat(protocol)) / data.tokens_promised(protocol)
        for i, name in enumerate(LEARNERS):
            cases[f"{name}, {protocol}, {pool}"] = functools.partial(data.draws.interval, lacking[:, i])
    return answered(
        CLAIM,
        "rounds",
        cases,
        "length loss; query: to each query's own best drafter; stream: each prompt once, in random order, to the best "
        "drafter over all; both drafters chosen in hindsight on the same texts. The best over all: " + _best(results),
    )


def _order(results: Results) -> Answer:
    """Pairs among the learners and follow the leader: uniform would agree with everything."""
    count = POLICIES.index("ftl") + 1
    first, second = np.triu_indices(count, 1)
    cases: Cases = {}
    for pool, objective, protocol in itertools.product(pools(results), OBJECTIVES, PROTOCOLS):
        data = decoded(results, objective, pool)
        regret, mat = data.regret(protocol), data.mat(protocol)
        alike = np.sign(regret[:, first] - regret[:, second]) == np.sign(mat[:, second] - mat[:, first])
        cases[f"{protocol}, {objective}, {pool}"] = functools.partial(data.draws.interval, alike.mean(axis=1))
    return answered(CLAIM, "order", cases, "five learners and follow the leader, in the same runs")


def _acceptance(results: Results) -> Answer:
    cases: Cases = {}
    for pool in pools(results):
        by_length, by_acceptance = (decoded(results, objective, pool) for objective in OBJECTIVES)
        mats, interval = by_length.fixed_mat(), by_length.draws.interval
        winner = by_acceptance.draws.sums(by_acceptance.drafter_loss).argmin(axis=1)
        lost = mats[np.arange(len(mats)), winner] - mats.max(axis=1)
        cases[f"best drafter, {pool}"] = functools.partial(interval, lost)
        difference = by_acceptance.mat("query") - by_length.mat("query")
        for i, name in enumerate(LEARNERS):
            cases[f"{name}, {pool}"] = functools.partial(interval, difference[:, i])
    note = "learners started afresh for each query. The drafter of the fewest rounds in each pool: "
    return answered(CLAIM, "acceptance", cases, note + _best(results))


def check(results: Results) -> dict[str, Answer]:
    """Return the answer to each question."""
    return {
        "rate": _rate(results),
        "small": _small(results),
        "bounded": _bounded(results),
        "coins": _coins(results),
        "normalhedge": _normalhedge(results),
        "query": _query(results),
        "rounds": _rounds(results),
        "order": _order(results),
        "acceptance": _acceptance(results),
    }
