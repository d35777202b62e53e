"""Claim 2: what the results answer; intervals on text are bootstrap over prompts within domains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Answer, Result, Results, answered
from experiments.claims.length.asked import CLAIM
from experiments.claims.length.choices import levels, of_learner, picks, rankings
from experiments.claims.length.exponents import of_growth
from experiments.claims.length.spreads import ratios, shares
from experiments.intervals import exact, largest
from experiments.recordings import counted, greedy, members, sampled
from experiments.settings import Arrays
from experiments.texts import Texts
from hedgelab.lengths import ESTIMATORS
from hedgelab.regret import Interval

__all__ = ["biases", "check"]


def biases(arrays: Arrays, of: str, k: int) -> dict[str, Callable[..., Interval]]:
    """Return by kind the mean over rows of estimator `of` minus B, over the drafters that have both."""
    gap = arrays["mean"][ESTIMATORS.index(of), :, :, k - 1] - arrays["mean"][1, :, :, k - 1]  # (S, N)
    texts, known = Texts(arrays), ~np.isnan(gap).any(axis=0)
    return {
        kind: partial(texts.ratio, gap[:, which & known].sum(axis=1), arrays["rows"] * (which & known).sum())
        for kind, which in members(arrays).items()
        if (which & known).any()
    }


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answers."""
    return {**_of_texts(results), "exact": _of_errors(results), "growth": of_growth(results)}


def _worlds(results: Results) -> list[Result]:
    return [*results.where(part="worlds"), *results.where(part="made worlds")]


def _biases_in_worlds(results: Results) -> dict[str, Interval]:
    """Return A's bias by world and k, from 2 on; of random worlds the one of largest size."""
    found: dict[str, NDArray[np.float64]] = {}
    for setting, arrays in _worlds(results):
        error = arrays["mean"][:, 0] - arrays["true"]  # (worlds, N, k)
        if setting["part"] == "made worlds":
            found |= dict(zip(arrays["names"], error[:, 0], strict=True))
        else:
            each = error.reshape(-1, error.shape[-1])
            worst = np.nanargmax(np.abs(each), axis=0)
            found[f"random worlds of {setting['vocabulary']} tokens"] = each[worst, np.arange(each.shape[-1])]
    return {f"{name}, k = {k}": exact(row[k - 1]) for name, row in found.items() for k in range(2, len(row) + 1)}


def _of_errors(results: Results) -> Answer:
    """Return the largest errors of B and C in worlds, of A at k = 1, and all differences on greedy text."""

    def errors() -> Iterator[tuple[str, float]]:
        for _, arrays in _worlds(results):
            error = np.abs(arrays["mean"] - arrays["true"][:, None])  # (worlds, 3, N, k)
            yield from (("B", error[:, 1].max()), ("C", error[:, 2].max()), ("A, k = 1", np.nanmax(error[:, 0, :, 0])))
        for setting, arrays in greedy(results):
            gap = np.abs(arrays["mean"] - arrays["mean"][1])
            yield f"{setting['trace']}, A and C against B", np.nanmax(gap)

    return Answer(largest(errors()), "enumerated, and all rows of greedy text")


def _least_in_worlds(results: Results) -> str:
    """Return in words how often each estimator has the least variance in worlds, over drafters and k from 2 on."""
    found = [each.arrays["variance"][..., 1:].transpose(0, 2, 3, 1).reshape(-1, 3) for each in _worlds(results)]
    rows = np.concatenate(found)
    rows = rows[np.ptp(rows, axis=1) > 1e-12]  # none of NaN
    least = np.bincount(rows.argmin(axis=1), minlength=3)
    return "least variance in worlds: " + ", ".join(f"{name} {n}" for name, n in zip(ESTIMATORS, least, strict=True))


def _complete(arrays: Arrays) -> str:
    """Return in words the mean of C - B over whole windows alone, of the kind where it is farthest from 0."""
    k = arrays["focus"] - 1
    gap = (arrays["first"][2, :, :, k] - arrays["first"][1, :, :, k]).sum(axis=0) / arrays["whole"][:, k].sum()
    return f"{max((gap[which].mean() for which in members(arrays).values()), key=abs):+.3f}"


def _effects(arrays: Arrays, learners: Results) -> dict[str, dict[str, Callable[..., Interval]]]:
    """Return by question what a trace's result, and its learners', answer."""
    k, most = int(arrays["focus"]), arrays["mean"].shape[-1]
    by_k = {m: biases(arrays, "A", m) for m in range(1, most + 1)}
    selection = picks(arrays)
    for each in learners:
        selection |= of_learner(each)
    return {
        "plug_in": by_k[k],
        "small": {f"{kind}, k = {m}": bias for m in range(2, most + 1) for kind, bias in by_k[m].items()},
        "same_mean": biases(arrays, "C", k),
        "variance_A": ratios(arrays, "A", "B") | ratios(arrays, "A", "C"),
        "variance_C": ratios(arrays, "C", "B"),
        "selection": selection,
        "rankings": rankings(arrays),
    }


def _of_texts(results: Results) -> dict[str, Answer]:
    """Return the answers of sampled text; to the headline also of worlds."""
    texts = {str(each.setting["trace"]): each.arrays for each in sampled(results)}

    def said(what: Callable[[Arrays], str], between: str = "; ") -> str:
        return between.join(f"{name}: {what(arrays)}" for name, arrays in texts.items())

    prompts, ks = counted(results), said(lambda arrays: f"k = {arrays['focus']}", ", ")
    notes = {
        "plug_in": f"worlds exactly; text by A - B, {prompts}, {ks}",
        "small": prompts,
        "same_mean": f"{prompts}; over whole windows alone C - B is at most {said(_complete, ', ')}",
        "variance_A": f"{ks}; {said(shares)}; {_least_in_worlds(results)}",
        "variance_C": f"{ks}; {prompts}",
        "selection": f"{ks}; picked on half of the prompts, scored on the others; nothing is tuned",
        "rankings": f"{ks}; pairs found on half of the prompts, measured on the others; {said(levels)}",
    }
    cases: dict[str, dict[str, Callable[..., Interval]]] = {question: {} for question in notes}
    for name, arrays in texts.items():
        for question, effects in _effects(arrays, results.where(part="learner", trace=name)).items():
            cases[question] |= {f"{name} {case}": effect for case, effect in effects.items()}
    answers = {each: answered(CLAIM, each, cases[each], note if texts else "") for each, note in notes.items()}
    worlds = _biases_in_worlds(results)
    on_text = answers["plug_in"].cases() if cases["plug_in"] else {}
    return {**answers, "plug_in": Answer({**worlds, **on_text}, notes["plug_in"])}
