"""Rounds of every policy of claim 8, text by text, and where texts were sent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claims.out_of_distribution.splices import LEARNERS, on_splices
from experiments.labels import labels
from experiments.rounds import has_pool, members, narrowed, played
from experiments.settings import Arrays, Setting, trace_of
from hedgelab import routing

__all__ = ["NEEDS", "run", "stream"]

NEEDS = {"router": ("scikit-learn", "scipy")}


def run(setting: Setting, seed: int) -> Arrays:
    """Return what `_routes`, `on_splices` or `_streams` gives; "absent" alone where the trace has no such pool."""
    trace, name = trace_of(setting), str(setting["pool"])
    if not has_pool(trace, name):
        return {"absent": np.array(name)}
    pool = narrowed(trace, members(trace, name))
    same: dict[str, Any] = {"k": int(setting["k"]), "replicates": int(setting["replicates"]), "seed": seed}
    if setting["what"] == "routes":
        return _routes(pool, str(setting["by"]), setting.get("train"), **same)
    if setting["what"] == "splices":
        return on_splices(pool, int(setting["pieces"]), **same)
    return _streams(pool, int(setting["block"]), **same)


def _routes(pool: hl.Trace, by: str, train: str | None, *, k: int, replicates: int, seed: int) -> Arrays:
    """Return rounds (S,) of each policy, and where texts were sent.

    route, best : (S,) drafter sent to, and the prompt's best. reachable : (S,) the best of those that the text's router
    can send to; -1 where that is not known. train : another trace that the router is trained on; its prompts must be
    others
    """
    same: dict[str, Any] = {"k": k, "replicates": replicates, "seed": seed}
    reachable = np.full(pool.sequences, -1)
    if train is not None:
        router = routing.train(trace_of({"trace": train}).among(pool.drafters), k)
        found = routing.evaluate(router, pool, learners=LEARNERS, **same)
    else:
        found = routing.validate(pool, by=by, learners=LEARNERS, **same)
        for training, test in routing.folds_of(pool, by, routing.FOLDS, seed):
            seen = np.unique(found.best[training])
            among = pool.among([pool.drafters[i] for i in seen])
            reachable[test] = seen[routing.best_drafters(among, k)[test]]
    return {
        **labels(pool),
        "tokens": found.comparison.tokens,
        "route": found.route,
        "best": found.best,
        "reachable": reachable,
        **{f"rounds.{policy.name}": policy.rounds for policy in found.comparison.policies},
    }


def stream(domains: NDArray[np.str_], block: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return an order (S,) of texts: `block` of a domain, `block` of the next, round until none is left."""
    left = {name: rng.permutation(np.flatnonzero(domains == name)).tolist() for name in dict.fromkeys(domains.tolist())}
    order: list[int] = []
    while any(left.values()):
        for texts in left.values():
            order += texts[:block]
            del texts[:block]
    return np.array(order, np.int64)


def _streams(pool: hl.Trace, block: int, *, k: int, replicates: int, seed: int) -> Arrays:
    """Return rounds (S,) of each learner in streams, started afresh with each text, and carried."""
    rngs = [np.random.default_rng([seed, block, each]) for each in range(replicates)]
    orders = np.array([stream(pool.domains, block, rng) for rng in rngs])
    rounds = {}
    for name in LEARNERS:
        for what, carry in ((name, False), (f"{name}, carried", True)):
            rounds[what], _ = played(pool, name, k=k, seed=seed, replicates=replicates, orders=orders, carry_over=carry)
    return {
        **labels(pool),
        "tokens": np.diff(pool.offsets).astype(np.float64),
        **{f"rounds.{name}": column for name, column in rounds.items()},
    }
