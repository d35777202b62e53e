"""Pool size: the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Answer, Results, answered
from experiments.claims.pool_size.asked import CLAIM, SPECS
from experiments.claims.pool_size.measure import ENLARGED, PAPER, POLICIES
from experiments.claims.pool_size.pools import (
    BEST,
    FIT_FROM,
    FREE,
    Pools,
    copied,
    enlarged,
    priced_pools,
    real_pools,
    streams,
    traces,
)
from experiments.intervals import UNTOLD, of_mean
from hedgelab.regret import Interval

__all__ = ["check"]

NH = "normalhedge"
Effect = Callable[..., Interval]


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answers; bootstrap over prompts and orders, Student's over streams."""
    found = {name: real_pools(results, name) for name in traces(results, "real")}
    real = {name: pools for name, (pools, _) in found.items()}
    priced = {name: priced_pools(results, name) for name in traces(results, "speed")}
    made, carried, copies = enlarged(results), streams(results), copied(results)
    cases = _real(real) | _enlarged(made, carried[NH])
    cases["duplicates"] = {policy: partial(copies.change, policy, less="uniform") for policy in SPECS}
    cases["speed"] = {name: _untold if pools is None else partial(pools.change, NH) for name, pools in priced.items()}
    gains = (f"{policy} {copies.change(policy).estimate:+.3f}" for policy in ENLARGED)
    notes = {
        "rises": ". ".join(
            f"{name}: {_said(pools, (*POLICIES, 'ucb-tuned', BEST))} (beta {betas}, chosen on the other half of "
            "prompts)"
            for name, (pools, betas) in found.items()
        )
        + ".",
        "regret": ". ".join(
            f"Exponents of regret from N = {FIT_FROM} on, {name}: {_exponents(pools)}" for name, pools in real.items()
        )
        + " (nan where regret is not positive). uniform learns nothing: its regret grows as the best improves.",
        "weak": _said_weak(made, carried),
        "weak_bandits": "Texts afresh.",
        "duplicates": f"Gains themselves: {'; '.join(gains)}.",
        "speed": _said_speed({name: pools for name, pools in priced.items() if pools is not None}),
    }
    return {name: answered(CLAIM, name, cases[name], notes.get(name, "")) for name in CLAIM.questions}


def _real(real: Mapping[str, Pools]) -> dict[str, dict[str, Effect]]:
    both = {f"{name}, {policy}": (pools, policy) for name, pools in real.items() for policy in SPECS}
    return {
        "rises": {name: partial(pools.change, NH) for name, pools in real.items()},
        "bandits": {case: partial(pools.change, policy) for case, (pools, policy) in both.items()},
        "steps": {
            f"{name}, {pools.sizes[j - 1]} to {pools.sizes[j]}": partial(pools.step, NH, j)
            for name, pools in real.items()
            for j in range(1, len(pools.sizes))
        },
        "lead": {case: partial(pools.change, NH, less=policy) for case, (pools, policy) in both.items()},
        "regret": {case: partial(pools.beyond, policy, less=NH) for case, (pools, policy) in both.items()},
    }


def _enlarged(made: Pools, carried: NDArray[np.float64]) -> dict[str, dict[str, Effect]]:
    """carried : (batches, P) NormalHedge's MAT of streams."""
    places = {int(made.sizes[j]): j for j in (1, -1)}
    return {
        "weak": {
            **{f"texts afresh, N = {n}": partial(made.change, NH, n) for n in places},
            **{f"streams, N = {n}": partial(of_mean, carried[:, j] - carried[:, 0]) for n, j in places.items()},
        },
        "weak_bandits": {
            f"{policy}, N = {n}": partial(made.change, NH, n, less=policy) for policy in SPECS for n in places
        },
    }


def _untold(comparisons: int) -> Interval:
    return UNTOLD


def _said(pools: Pools, policies: Iterable[str]) -> str:
    places = sorted({pools.at(PAPER), len(pools.sizes) - 1})
    return "; ".join(
        f"{policy} " + ", ".join(f"{pools.mat(policy)[0, j]:.2f} at N = {pools.sizes[j]}" for j in places)
        for policy in policies
    )


def _exponents(pools: Pools) -> str:
    return "; ".join(f"{policy} {pools.exponent(policy):.2f}" for policy in (*POLICIES, "ucb-tuned"))


def _said_weak(made: Pools, carried: Mapping[str, NDArray[np.float64]]) -> str:
    def said(mats: Mapping[str, NDArray[np.float64]]) -> str:
        return "; ".join(f"{policy} " + ", ".join(f"{mat:.2f}" for mat in each) for policy, each in mats.items())

    afresh = {policy: made.mat(policy)[0] for policy in (*ENLARGED, BEST)}
    means = {policy: mats.mean(axis=0) for policy, mats in carried.items()}
    sizes = ", ".join(str(n) for n in made.sizes)
    return f"{said(afresh)} at N = {sizes}, texts afresh; streams: {said(means)}."


def _said_speed(priced: Mapping[str, Pools]) -> str:
    said = []
    for name, pools in priced.items():
        own = pools.mat(NH)[0]
        said.append(
            f"{name}: {_said(pools, (NH, FREE, 'ucbspec', BEST))}; NormalHedge is fastest at N = "
            f"{pools.sizes[own.argmax()]} ({own.max():.2f})"
        )
    return ". ".join(said) + "." if said else "No cost is known."
