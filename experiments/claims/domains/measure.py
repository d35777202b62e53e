"""Rounds and modelled seconds of every policy of claim 6, text by text."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.labels import labels
from experiments.rounds import has_pool, members, narrowed, played, specialist_kinds, tuned
from experiments.settings import Arrays, Setting, trace_of
from hedgelab.comparison import compare
from hedgelab.cost import CostsError, bill, fixed_bills, unknown
from hedgelab.matrix import roles_of
from hedgelab.oracles import expected_fixed_rounds
from hedgelab.routing import validate

__all__ = [
    "BANDITS",
    "CARRIED",
    "CARRYING",
    "CHOSEN",
    "FASTEST",
    "GRIDS",
    "HOME",
    "MATCHED",
    "NEEDS",
    "NEW",
    "PLAIN",
    "PRICED",
    "PUBLISHED",
    "ROUTER",
    "SINGLE",
    "STRONG",
    "THOMPSON",
    "TUNED",
    "run",
]

NEEDS = {"router": ("scikit-learn", "scipy")}
PRICED = "priced"  # the pool of all whose drafting was measured
PUBLISHED = ("ucbspec", "exp3spec")  # the bandits in the paper's tables
NEW = "normalhedge"
CARRYING = (NEW, "hedge")  # played over a mixed stream, too
CARRIED = "{}, carried".format  # the name of such a run
BANDITS = (*PUBLISHED, "metasd", "banditspec-release")  # as published, constants included
THOMPSON = "thompson-beta"  # nothing to tune
LEARNERS = (NEW, "hedge", "ftl", *BANDITS, THOMPSON, "uniform")
TUNED = ("ucb-tuned", "explore-then-commit")
GRIDS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "ucb-tuned": ("ucb-tuned", "beta", (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 1, 2)),
    "explore-then-commit": ("explore-then-commit", "rounds", (1, 2, 3, 4, 6, 8, 16, 32, 64)),
}
SCHEDULES: dict[str, dict[str, int]] = {  # of scoring the drafters that were not chosen; see hedgelab.cost
    "every round": {},
    "every 4 rounds": {"every": 4},
    "2 drafters a round": {"drafters": 2},
    "not charged": {"every": 0},
}
MATCHED, STRONG, HOME, SINGLE, CHOSEN, FASTEST, ROUTER, PLAIN = (
    "matched generalist",
    "strong generalist",
    "home specialist",
    "best fixed drafter",
    "best fixed drafter of the other half",
    "fastest single drafter",
    "router",
    "plain decoding",
)
GENERALISTS = {MATCHED: "*-matched", STRONG: "*-all"}

Lines = dict[str, NDArray[np.float64]]  # (2, S) rounds and seconds of each policy, NaN where not known


def run(setting: Setting, seed: int) -> Arrays:
    """Return rounds and seconds of each policy on each text (S,), as "rounds.POLICY" and "seconds.POLICY".

    Seconds are there where they are known, those of plain decoding too. drafters : (N,) names. alone : (S, N) rounds of
    each. chosen : (2,) the best single drafters of either half. constants.POLICY : (2,) the tuned ones, each chosen on
    the other half. left_out : drafters of the trace that are not in the pool. A trace without such a pool gives
    "absent" alone.
    """
    trace, costs = trace_of(setting), hl.Costs.load()
    names = _pool(trace, str(setting["pool"]), costs)
    if not names:
        return {"absent": np.array(setting["pool"])}
    pool = narrowed(trace, names)
    same: dict[str, Any] = {"k": int(setting["k"]), "replicates": int(setting["replicates"]), "seed": seed}
    homes = _homes(pool, same["k"])
    routes = {
        ROUTER: validate(pool, k=same["k"], learners=(), replicates=1, seed=seed).route,
        HOME: np.maximum(homes, 0),
    }
    grids = {
        name: [hl.learner(base, **{key: value}) for value in values] for name, (base, key, values) in GRIDS.items()
    }
    found = compare(pool, [*LEARNERS, *itertools.chain(*grids.values())], routes=routes, costs=costs, **same)
    lines = {policy.name: _line(policy.rounds, policy.seconds) for policy in found.policies}
    lines[HOME] = np.where(homes >= 0, lines[HOME], np.nan)
    constants = {}
    for name, learners in grids.items():
        tried = np.array([lines.pop(learner.label) for learner in learners])
        best = tuned(pool, GRIDS[name][2], tried[:, 0], seed)
        constants[name] = best.values
        lines[name] = np.array([best.of(tried[:, 0]), best.of(tried[:, 1])])
    single = tuned(pool, range(len(names)), found.alone.T, seed)
    lines[CHOSEN] = _line(single.of(found.alone.T))
    lines |= {CARRIED(name): _carried(pool, name, same) for name in CARRYING}
    lines |= _scheduled(pool, costs, same)
    alone = _alone(pool, costs, same)
    lines[FASTEST] = min(alone.values(), key=lambda line: float(np.nan_to_num(line[1].sum(), nan=np.inf)))
    for name, generalist in _generalists(trace, pool).items():
        lines[name] = _alone(trace.among([generalist]), costs, same)[generalist]
    return {
        **labels(trace),
        "tokens": found.tokens,
        "drafters": np.array(pool.drafters),
        "alone": found.alone,
        "chosen": np.array([pool.drafters[int(place)] for place in single.values]),
        "left_out": np.array([name for name in trace.drafters if name not in names], str),
        **{f"constants.{name}": np.array(values) for name, values in constants.items()},
        **{f"rounds.{name}": rounds for name, (rounds, _) in lines.items()},
        **{f"seconds.{name}": seconds for name, (_, seconds) in lines.items() if not np.isnan(seconds).all()},
        f"seconds.{PLAIN}": found.tokens * costs.target.step.median,
    }


def _line(rounds: NDArray[np.float64], seconds: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    return np.array([rounds, np.full_like(rounds, np.nan) if seconds is None else seconds])


def _pool(trace: hl.Trace, pool: str, costs: hl.Costs) -> list[str]:
    """Return the drafters of a pool, none where the trace has no such pool."""
    if pool == PRICED:
        strangers = unknown(trace, costs)
        known = [name for name in trace.drafters if name not in strangers]
        return [name for name in known if costs.drafters[name].draft is not None]
    return members(trace, pool) if has_pool(trace, pool) else []


def _homes(pool: hl.Trace, k: int) -> NDArray[np.int64]:
    """Return (S,) the specialist of each text's domain, of several the best one there; -1 where there is none."""
    rounds = expected_fixed_rounds(pool, k=k).rounds
    homes = np.full(pool.sequences, -1)
    for domain in np.unique(pool.domains):
        here = pool.domains == domain
        own = [i for i, role in enumerate(roles_of(pool.manifest.drafters)) if role.home == domain]
        if own:
            homes[here] = min(own, key=lambda i: float(rounds[here, i].sum()))
    return homes


def _carried(pool: hl.Trace, name: str, same: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return a learner keeping what it learnt from text to text, in a random order in each replicate."""
    replicates = range(same["replicates"])
    orders = np.array([np.random.default_rng([same["seed"], each]).permutation(pool.sequences) for each in replicates])
    return _line(played(pool, name, orders=orders, carry_over=True, **same)[0])


def _scheduled(pool: hl.Trace, costs: hl.Costs, same: Mapping[str, Any]) -> Lines:
    """Return NormalHedge by other schedules of scoring, none where a cost is unknown."""
    count = len(pool.drafters)
    bills = {
        name: lambda run, how=how: bill(run, costs, **how | {"drafters": min(count, how.get("drafters", count))})
        for name, how in SCHEDULES.items()
    }
    try:
        rounds, seconds = played(pool, NEW, bills=bills, **same)
    except CostsError:
        return {}
    return {f"{NEW}, {name}": _line(rounds, column) for name, column in seconds.items()}


def _alone(trace: hl.Trace, costs: hl.Costs, same: Mapping[str, Any]) -> Lines:
    """Return each drafter alone: expected rounds, and mean seconds."""
    rounds = expected_fixed_rounds(trace, k=same["k"]).rounds
    bills = fixed_bills(trace, costs, **same)
    return {
        name: _line(rounds[:, i], np.mean([each.by_sequence for each in bills[name]], axis=0) if bills[name] else None)
        for i, name in enumerate(trace.drafters)
    }


def _generalists(trace: hl.Trace, pool: hl.Trace) -> dict[str, str]:
    """Return {what it is: name} of the generalists of the pool's kind, if the pool is of one kind."""
    kinds = {drafter.kind for drafter in pool.manifest.drafters}
    known = specialist_kinds(trace).get(kinds.pop(), ([], []))[1] if len(kinds) == 1 else []
    found = {what: [name for name in known if fnmatchcase(name, like)] for what, like in GENERALISTS.items()}
    return {what: names[0] for what, names in found.items() if names}
