"""Scaling: the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from experiments import growth
from experiments.claim import Answer, Results, answered
from experiments.claims.scaling.asked import BANDIT, CLAIM, CONTROL, FULL, POOLS
from experiments.claims.scaling.curves import FEWEST, FIRST, Curve, Regrets, envelope, fixed
from experiments.intervals import of_mean
from hedgelab.regret import Interval

__all__ = ["THEOREM", "check"]

# the law of each learner's own theorem: EXP3's bound has a further sqrt(ln N)
THEOREM = dict.fromkeys(FULL, "sqrt_log_n") | dict.fromkeys(BANDIT, "sqrt_n") | {"exp3": "sqrt_n_log_n"}
LOGS = ("sqrt_log_n", "log_n", "max_normal")
Curves = Mapping[str, Curve]


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answers; all intervals by bootstrap over seeds, but Student's for means."""
    curves = {name: envelope(results, name) for name in THEOREM}
    full = {name: curves[name].fitted for name in FULL}
    bandit = {name: curves[name].fitted for name in BANDIT}
    ucb, flat, uniform = fixed(results, "ucb1"), fixed(results, "normalhedge"), envelope(results, CONTROL)
    low = int(uniform.share.argmin())
    betas = ", ".join(f"{arrays['beta']:g}" for _, arrays in results.where(kind="envelope", learner="ucb-tuned"))
    cases: dict[str, dict[str, Callable[..., Interval]]] = {
        "exponents": {name: partial(curves[name].fitted.exponent, law) for name, law in THEOREM.items()},
        "full": {name: each.exponent for name, each in full.items()},
        "bandit": {name: each.exponent for name, each in bandit.items()},
        "not_root": {name: partial(each.aic_beyond, "sqrt_n", LOGS) for name, each in full.items()},
        "which_log": {name: partial(each.aic_beyond, "log_n", ("sqrt_log_n",)) for name, each in full.items()},
        "pools": {f"N = {n}": partial(_ratio, curves, n, math.sqrt(math.log(n) / n)) for n in POOLS},
        "fixed_bandit": {"": partial(ucb.among(ucb.learnt).exponent, less=1)},
        "fixed_full": {"": partial(flat.aic_beyond, "sqrt_n", ("log_n",))},
        "lower": {name: curves[name].least for name in BANDIT},
        "fair_coins": {name: each.fair for name, each in curves.items()},
        "control": {"": partial(of_mean, uniform.scores[low] / uniform.trivial[low])},
    }
    notes = {
        "exponents": f"Gaps chosen, and beta of ucb-tuned, on other seeds than scored (beta {betas}, the same at every "
        f"N). Fitted: {_points(curves)}. Exponents of all points from N = {FIRST} on, hollow ones too, each interval "
        f"alone: {_regardless(curves)}.",
        "bandit": f"Share of the trivial regret at the fitted points, on the choosing seeds: {_shares(curves)}.",
        "not_root": f"AIC: {_laws(full)}.",
        "pools": f"Ratios: {_ratios(curves)}; the best of each by regret on the seeds that chose gaps.",
        "fixed_bandit": f"Regret at {_regret(ucb, 0)}.",
        "fixed_full": f"Regret at {_regret(flat, 1)}.",
    }
    return {name: answered(CLAIM, name, cases[name], notes.get(name, "")) for name in CLAIM.questions}


def _best(curves: Curves, names: Iterable[str], n: int) -> str:
    """Return the learner of least worst-case regret at N = n, on the choosing seeds."""
    return min(names, key=lambda name: curves[name].chosen[curves[name].at(n)])


def _ratio(curves: Curves, n: int, scale: float = 1.0, *, comparisons: int = 1) -> Interval:
    """Return `scale` times regret of the best bandit over that of the best learner with full information, at N = n."""
    best = [curves[_best(curves, names, n)] for names in (BANDIT, FULL)]
    pair = Regrets(np.array([n, n]), [curve.scores[curve.at(n)] for curve in best])
    return pair.interval(scale * pair.drawn[:, 0] / pair.drawn[:, 1], comparisons)


def _said(interval: Interval) -> str:
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _points(curves: Curves) -> str:
    used = {name: curve.fitted.drafters for name, curve in curves.items()}
    return "; ".join(f"{name} N = {n[0]}..{n[-1]}" if len(n) else f"{name} none" for name, n in used.items())


def _regardless(curves: Curves) -> str:
    return "; ".join(
        f"{name} {_said(curve.among(curve.drafters >= FIRST).exponent())}" for name, curve in curves.items()
    )


def _shares(curves: Curves) -> str:
    shares = {name: curves[name].share[curves[name].fits] for name in BANDIT}
    return "; ".join(f"{name} {s.min():.2f} to {s.max():.2f}" for name, s in shares.items() if len(s))


def _laws(fitted: Mapping[str, Regrets]) -> str:
    said = []
    for name, each in fitted.items():
        if len(each.drafters) >= FEWEST:
            power, b = growth.power_aic(each.drafters, each.means, each.variances)
            laws = ", ".join(f"{law} {each.aic(law):.0f}" for law in ("sqrt_n", *LOGS))
            said.append(f"{name} {laws}, power {power:.0f} (b = {b:.2f})")
    return "; ".join(said)


def _ratios(curves: Curves) -> str:
    return "; ".join(
        f"N = {n} {_said(_ratio(curves, n, comparisons=CLAIM.questions['pools'].comparisons))} "
        f"({_best(curves, BANDIT, n)} over {_best(curves, FULL, n)})"
        for n in POOLS
    )


def _regret(curve: Curve, digits: int) -> str:
    pairs = zip(curve.drafters, curve.means, strict=True)
    return ", ".join(f"N = {n}: {mean:.{digits}f}" for n, mean in pairs)
