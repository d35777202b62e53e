"""Claim 1: what the results answer; intervals are bootstrap over prompts within domains."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from experiments.claim import Answer, Results, answered
from experiments.claims.acceptance.asked import CLAIM
from experiments.claims.acceptance.recorded import BINS
from experiments.claims.acceptance.worlds import POLICIES, PUBLISHED
from experiments.intervals import UNTOLD, largest
from experiments.recordings import counted, greedy, members, sampled
from experiments.settings import Arrays
from experiments.texts import Texts
from hedgelab.regret import Interval

__all__ = ["check", "differences", "reliability"]

WEIGHTS = {  # of alpha - gamma, and what is divided by
    "by gamma": ("off_gamma", "gamma"),
    "by the alpha before": ("off_before", "before"),
    "later drafts": ("off_later", "later"),
}


def differences(arrays: Arrays) -> dict[str, Interval]:
    """Return mean alpha - mean gamma of the first draft, by kind."""
    texts = Texts(arrays)
    return {
        kind: texts.ratio(arrays["off"][:, which].sum(axis=1), arrays["rows"] * which.sum())
        for kind, which in members(arrays).items()
    }


def reliability(arrays: Arrays) -> dict[str, list[tuple[float, Interval]]]:
    """Return by kind [(mean gamma, mean alpha)] of the bins of gamma that at least a tenth of the texts have."""
    texts = Texts(arrays)
    draws = texts.draws()
    found: dict[str, list[tuple[float, Interval]]] = {}
    for j, kind in enumerate(members(arrays)):
        found[kind] = []
        for b in range(BINS):
            rows, gamma, alpha = arrays["curve"][:, j, b].T
            if (rows > 0).mean() >= 0.1 and ((draws @ rows) > 0).all():
                found[kind].append((float(gamma.sum() / rows.sum()), texts.ratio(alpha, rows)))
    return found


def _slope(arrays: Arrays, i: int, comparisons: int = 1) -> Interval:
    """Return the least-squares slope of alpha on gamma of drafter i."""
    draws = Texts(arrays).draws(comparisons=comparisons)
    columns = [arrays["rows"], *(arrays[name][:, i] for name in ("gamma", "alpha", "gg", "ga"))]
    n, g, a, gg, ga = draws.sums(np.stack(columns, axis=1)).T
    return draws.interval((ga - g * a / n) / (gg - g * g / n), comparisons)


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answers."""
    return {**_of_positions(results), **_of_replays(results), **_of_texts(results), **_of_records(results)}


def _of_positions(results: Results) -> dict[str, Answer]:
    worlds = [each.arrays for each in results.where(part="worlds")]
    looked = sum(int(each["cases"].sum()) for each in worlds)
    note = f"enumerated: {looked} pairs of a prefix and a depth of a draft after it"
    every = {
        name: [pair for each in worlds for pair in zip(each["kinds"].tolist(), each[name], strict=True)]
        for name in ("probability", "given_output")
    }
    every["probability"] = [(kind, value) for kind, value in every["probability"] if kind in PUBLISHED]
    return {name: Answer(largest(pairs), note) for name, pairs in every.items()}


def _of_replays(results: Results) -> dict[str, Answer]:
    mat = results.one(part="two states").arrays
    answers = {}
    for name, coins in (("replay", "alpha"), ("gamma_coins", "gamma")):
        distances = [
            (f"{each.setting['kinds']}, {policy}", value)
            for each in results.where(part="replay", coins=coins)
            for policy, column in zip(POLICIES, each.arrays["distance"].T, strict=True)
            for value in column
        ]
        note = f"two-state world: MAT {float(mat['real']):.4f}, with coins of {coins} {float(mat[coins]):.4f}"
        answers[name] = Answer(largest(distances), note)
    return answers


def _of_texts(results: Results) -> dict[str, Answer]:
    mean: dict[str, Callable[..., Interval]] = {}
    weighted: dict[str, Callable[..., Interval]] = {}
    slopes: dict[str, Callable[..., Interval]] = {}
    for each in sampled(results):
        arrays, name, texts = each.arrays, each.setting["trace"], Texts(each.arrays)
        for i, drafter in enumerate(arrays["drafters"]):
            mean[f"{name} {drafter}"] = partial(texts.ratio, arrays["off"][:, i], arrays["rows"])
            if each.setting["calibrate"]:
                slopes[f"{name} {drafter}"] = partial(_slope, arrays, i)
        for (kind, which), (weight, columns) in itertools.product(members(arrays).items(), WEIGHTS.items()):
            above, below = (arrays[column][:, which].sum(axis=1) for column in columns)
            if below.sum() > 0:
                weighted[f"{name} {kind} {weight}"] = partial(texts.ratio, above, below)
    prompts = counted(results)
    return {
        name: _told(answered(CLAIM, name, cases), value, prompts)
        for name, cases, value in (("mean", mean, 0.0), ("martingale", weighted, 0.0), ("calibration", slopes, 1.0))
    }


def _told(answer: Answer, value: float, prompts: str) -> Answer:
    """Return the answer with a note of how many of its intervals leave out a value."""
    cases = answer.cases()
    if answer.note:  # nothing to measure
        return answer
    apart = sum(not each.low <= value <= each.high for each in cases.values())
    return Answer(answer.effects, f"{prompts}; {apart} of {len(cases)} intervals leave out {value:g}")


def _of_records(results: Results) -> dict[str, Answer]:
    """Return what holds row by row: of greedy text, and of recorded laws."""
    differences = largest((each.setting["trace"], each.arrays["largest"].max()) for each in greedy(results))
    records = [each.arrays for each in results.where(part="logits")]
    outside = largest(
        (name, value)
        for each in records
        for name, column in zip(each["drafters"], each["outside"].T, strict=True)
        for value in column[~np.isnan(column)]  # where a law was recorded
    )
    width = np.concatenate([np.zeros(0), *(each["width"].ravel() for each in records)])
    width = width[~np.isnan(width)]
    note = "no law of a chain is recorded"
    if len(width):
        note = (
            f"{len(width)} laws of chains; the interval is {np.median(width):.2g} wide in the median, "
            f"{np.quantile(width, 0.95):.2g} at the 95th percentile, {width.max():.2g} at most"
        )
    return {
        "greedy": Answer(differences or UNTOLD, "every row, depth and drafter where gamma is defined"),
        "recorded": Answer(outside or UNTOLD, note),
    }
