r"""Claim 6: full-information selection commits more tokens a round than a generalist of as many tokens and bandits.

A *pool* is what the policies choose among: the specialists of one kind, without the generalists of that kind, as in the
paper; or all drafters of the trace; or all whose drafting was measured (for seconds). Generalists, and the specialist
of the text's own domain, are fixed drafters: they choose nothing. Two generalists stand beside the truncated
specialists: `*-matched` saw as many tokens as each of them, `*-all` as many as all of them together.

Learners start afresh with each text unless "carried", which goes through all texts in a random order, another one in
each replicate. Tuned constants are chosen on one half of the prompts of each domain and scored on the other, both ways.
The best single specialist is chosen in the same way. Best fixed and fastest single drafters are chosen on the texts
that they are scored on, which favours them.

"Faster" is first of all MAT, tokens a round, as in the paper's tables; the last question asks for modelled seconds.

After the first full run: the best single specialist is no longer chosen on the texts that it is scored on; Thompson
sampling, which has nothing to tune, went from the tuned bandits to the other ones; the grids of beta and explore are
wider; the sentence says what the headline asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claim import Answer, Arrays, Claim, Question, Results, Setting, above, inside
from experiments.rounds import (
    POOLED,
    UNKNOWN,
    cut_of,
    has_pool,
    members,
    packed,
    played,
    sample_of,
    specialist_kinds,
    tuned,
    unpacked,
)
from hedgelab.comparison import compare
from hedgelab.cost import CostsError, bill, fixed_bills, unknown
from hedgelab.matrix import roles_of
from hedgelab.oracles import expected_fixed_rounds
from hedgelab.regret import Interval
from hedgelab.routing import validate

__all__ = ["BANDITS", "CLAIM", "QUICK", "SCHEDULES", "SETTINGS", "Table", "check", "run", "tables"]

SPECIALISTS = "truncated specialists"  # a domain each, all seven
POOLS = (SPECIALISTS, "head specialists", "retrieval specialists", "all")
PRICED = "priced"  # all whose drafting was measured
TRACES = ("t06", "greedy", "t10")
PUBLISHED = ("ucbspec", "exp3spec")  # the bandits in the paper's tables
NEW = "normalhedge"
BANDITS = (*PUBLISHED, "metasd", "banditspec-release")  # as published, constants included
THOMPSON = "thompson-beta"  # nothing to tune
LEARNERS = (NEW, "hedge", "ftl", *BANDITS, THOMPSON, "uniform")
TUNED = ("ucb-tuned", "explore-then-commit")
CARRIED = (NEW, "hedge")
GRIDS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "hedge-tuned": ("hedge", "scale", (1, 2, 4, 8, 16, 32)),
    "ucb-tuned": ("ucb-tuned", "beta", (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 1, 2)),
    "explore-then-commit": ("explore-then-commit", "rounds", (1, 2, 3, 4, 6, 8, 16, 32, 64)),
}
SCHEDULES: dict[str, dict[str, int]] = {  # of scoring the drafters that were not chosen; see hedgelab.cost
    "every round": {},
    "every 4 rounds": {"every": 4},
    "2 drafters a round": {"drafters": 2},
    "not charged": {"every": 0},
}
MATCHED, STRONG, HOME, SINGLE, CHOSEN, FASTEST, ROUTER = (
    "matched generalist",
    "strong generalist",
    "home specialist",
    "best fixed drafter",
    "best fixed drafter of the other half",
    "fastest single drafter",
    "router",
)
_GENERALISTS = {MATCHED: "*-matched", STRONG: "*-all"}
CLOSE = 0.05  # tokens a round that make no difference

Line = tuple[NDArray[np.float64], NDArray[np.float64] | None]  # rounds (S,), seconds (S,) where they are known
Lines = dict[str, Line]

CLAIM = Claim(
    sentence="HedgeSpec (NormalHedge on full information) commits more tokens a round than published bandits and a "
    "generalist that saw as many tokens, in every domain, and than each single specialist over all of them.",
    source="Not-a-Bandit, arXiv 2510.20064, Tables 1 to 3",
    questions={
        "faster": Question(
            "In every domain and over all, NormalHedge on seven specialists commits more tokens a round than UCBSpec, "
            "EXP3Spec and a generalist that saw as many tokens, and over all more than each specialist alone.",
            above(0.0),
            "MAT",
            comparisons=31,
        ),
        "bandits_elsewhere": Question(
            "Over all domains, NormalHedge is above each bandit as published, MetaSD-UCB, the released code of "
            "BanditSpec and Thompson sampling included, at every temperature, with specialists of three kinds and with "
            "all drafters.",
            above(0.0),
            "MAT",
            comparisons=60,
        ),
        "matched_generalist": Question(
            "In every domain NormalHedge on seven specialists is above the generalist that saw as many tokens as each.",
            above(0.0),
            "MAT",
            comparisons=8,
        ),
        "strong_generalist": Question(
            "In every domain it is above the generalist that saw as many tokens as all of them together.",
            above(0.0),
            "MAT",
            comparisons=8,
        ),
        "single_specialist": Question(
            "Over a mixed stream NormalHedge on seven specialists is above the one of them that is best on other "
            "prompts, started afresh with each text or carried on.",
            above(0.0),
            "MAT",
            comparisons=6,
        ),
        "home_specialist": Question(
            "Not knowing the domain costs NormalHedge at most 5% of the home specialist's MAT, in every domain.",
            above(-0.05),
            "MAT / MAT - 1",
            comparisons=8,
        ),
        "follow_the_leader": Question(
            f"Follow-the-leader, with the same full information, comes within {CLOSE} tokens a round of NormalHedge.",
            inside(-CLOSE, CLOSE),
            "MAT",
            comparisons=6,
        ),
        "tuned_bandits": Question(
            f"Well-tuned bandits come within {CLOSE} tokens a round of NormalHedge.",
            above(-CLOSE),
            "MAT",
            comparisons=4,
        ),
        "seconds": Question(
            "With every drafter scored in every round, NormalHedge makes more tokens a second than plain decoding and "
            "than the fastest single drafter of its pool.",
            above(1.0),
            "ratio of tokens/s",
            comparisons=6,
        ),
    },
)

SETTINGS: Sequence[Setting] = [
    *({"trace": trace, "pool": pool, "k": 5, "replicates": 8} for trace in TRACES for pool in POOLS),
    {"trace": "t06", "pool": PRICED, "k": 5, "replicates": 8},
]
QUICK: Sequence[Setting] = [
    *({"trace": "t06", "pool": pool, "k": 5, "replicates": 2, "prompts": 4} for pool in (SPECIALISTS, "all")),
    {"trace": "greedy", "pool": SPECIALISTS, "k": 5, "replicates": 2, "prompts": 4},
    {"trace": "t06", "pool": "retrieval specialists", "k": 5, "replicates": 2, "prompts": 4},
]


def run(setting: Setting, seed: int) -> Arrays:
    """Return rounds and seconds of each policy on each text (S,), as "rounds.POLICY" and "seconds.POLICY".

    Seconds are there where they are known. "alone" : (S, N) rounds of each drafter. "about" says, packed, what the
    texts are and which constants were chosen. A trace without such a pool gives "about" alone.
    """
    trace, costs = cut_of(setting), hl.Costs.load()
    names = _pool(trace, str(setting["pool"]), costs)
    if not names:
        return {"about": packed({"absent": setting["pool"]})}
    pool = trace if len(names) == len(trace.drafters) else trace.among(names)
    same: dict[str, Any] = {"k": int(setting["k"]), "replicates": int(setting["replicates"]), "seed": seed}
    homes = _homes(pool, same["k"])
    routes = {
        ROUTER: validate(pool, k=same["k"], learners=(), replicates=1, seed=seed).route,
        HOME: np.maximum(homes, 0),
    }
    learners: list[hl.Learner | str] = [*LEARNERS]
    for name in GRIDS:
        learners += _grid(name)
    found = compare(pool, learners, routes=routes, costs=costs, **same)
    lines: Lines = {policy.name: (policy.rounds, policy.seconds) for policy in found.policies}
    lines[HOME] = _where(homes >= 0, lines[HOME])
    constants = {}
    for name, (_, _, values) in GRIDS.items():
        tried = [lines.pop(learner.label) for learner in _grid(name)]
        chosen = tuned(pool, values, np.array([rounds for rounds, _ in tried]), seed)
        constants[name] = chosen.values
        seconds = [billed for _, billed in tried if billed is not None]
        lines[name] = (
            chosen.of(np.array([rounds for rounds, _ in tried])),
            chosen.of(np.array(seconds)) if len(seconds) == len(tried) else None,
        )
    single = tuned(pool, range(len(names)), found.alone.T, seed)
    lines[CHOSEN] = (single.of(found.alone.T), None)
    orders = np.array(
        [np.random.default_rng([seed, each]).permutation(trace.sequences) for each in range(same["replicates"])]
    )
    for name in CARRIED:
        lines[f"{name}, carried"] = (played(pool, name, orders=orders, carry_over=True, **same)[0], None)
    lines |= _scheduled(pool, costs, same)
    alone = _alone(pool, costs, same)
    lines[FASTEST] = min(alone.values(), key=lambda line: math.inf if line[1] is None else float(line[1].sum()))
    for name, generalist in _generalists(trace, pool).items():
        lines[name] = _alone(trace.among([generalist]), costs, same)[generalist]
    about = {
        "domains": trace.domains.tolist(),
        "clusters": trace.conversations.tolist(),
        "strata": trace.home_domains.tolist(),
        "drafters": list(pool.drafters),
        "best": found.best_fixed,
        "chosen": [pool.drafters[int(place)] for place in single.values],
        "constants": constants,
        "left_out": [name for name in trace.drafters if name not in names],
    }
    return {
        "about": packed(about),
        "tokens": found.tokens,
        "step": np.array(costs.target.step.median),
        "alone": found.alone,
        **{f"rounds.{name}": rounds for name, (rounds, _) in lines.items()},
        **{f"seconds.{name}": seconds for name, (_, seconds) in lines.items() if seconds is not None},
    }


def _pool(trace: hl.Trace, pool: str, costs: hl.Costs) -> list[str]:
    """Return the drafters of a pool, none where the trace has no such pool."""
    if pool == PRICED:
        strangers = unknown(trace, costs)
        known = [name for name in trace.drafters if name not in strangers]
        return [name for name in known if costs.drafters[name].draft is not None]
    return members(trace, pool) if has_pool(trace, pool) else []


def _grid(name: str) -> list[hl.Learner]:
    base, key, values = GRIDS[name]
    return [hl.learner(base, **{key: value}) for value in values]


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


def _where(known: NDArray[np.bool_], line: Line) -> Line:
    rounds, seconds = line
    return np.where(known, rounds, np.nan), None if seconds is None else np.where(known, seconds, np.nan)


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
    return {f"{NEW}, {name}": (rounds, column) for name, column in seconds.items()}


def _alone(trace: hl.Trace, costs: hl.Costs, same: Mapping[str, Any]) -> Lines:
    """Return each drafter alone: expected rounds, and mean seconds."""
    rounds = expected_fixed_rounds(trace, k=same["k"]).rounds
    bills = fixed_bills(trace, costs, **same)
    return {
        name: (rounds[:, i], np.mean([each.by_sequence for each in bills[name]], axis=0) if bills[name] else None)
        for i, name in enumerate(trace.drafters)
    }


def _generalists(trace: hl.Trace, pool: hl.Trace) -> dict[str, str]:
    """Return {what it is: name} of the generalists of the pool's kind, if the pool is of one kind."""
    kinds = {drafter.kind for drafter in pool.manifest.drafters}
    known = specialist_kinds(trace).get(kinds.pop(), ([], []))[1] if len(kinds) == 1 else []
    found = {what: [name for name in known if fnmatchcase(name, like)] for what, like in _GENERALISTS.items()}
    return {what: names[0] for what, names in found.items() if names}


class Table:
    """What one setting gave: the sample, policies and their effects. Missing policies give no interval (NaN)."""

    def __init__(self, setting: Setting, arrays: Arrays) -> None:
        self.setting = setting
        self.about: dict[str, Any] = unpacked(arrays["about"])
        self.arrays = arrays
        self.sample = sample_of(arrays)
        self.plain = self.sample.tokens * float(arrays["step"])  # seconds of plain decoding

    @property
    def name(self) -> str:
        """Trace and pool in words."""
        return f"{Path(self.setting['trace']).name}, {self.setting['pool']}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The domains, and POOLED."""
        return self.sample.groups

    def rounds(self, policy: str) -> NDArray[np.float64]:
        """(S,) rounds, NaN where the policy is not there."""
        return self.arrays.get(f"rounds.{policy}", np.full_like(self.sample.tokens, np.nan))

    def minus(self, policy: str, other: str, group: str = POOLED, comparisons: int = 1) -> Interval:
        """MAT of a policy minus that of another, paired."""
        return self.sample.difference(self.rounds(policy), self.rounds(other), group, comparisons)

    def mat(self, policy: str, group: str = POOLED, comparisons: int = 1) -> Interval:
        """MAT of a policy."""
        return self.sample.mat(self.rounds(policy), group, comparisons)

    def over(self, policy: str, other: str, group: str = POOLED, comparisons: int = 1) -> Interval:
        """MAT of a policy over that of another, paired."""
        return self.sample.ratio(self.rounds(other), self.rounds(policy), group, comparisons)

    def speed(self, policy: str, other: str = "plain decoding", comparisons: int = 1) -> Interval:
        """Tokens per second of a policy over those of another, paired."""
        missing = np.full_like(self.plain, np.nan)
        columns = {**self.arrays, "seconds.plain decoding": self.plain}
        return self.sample.ratio(
            columns.get(f"seconds.{other}", missing), columns.get(f"seconds.{policy}", missing), POOLED, comparisons
        )

    def alone_minus(self, policy: str, drafter: int, comparisons: int = 1) -> Interval:
        """MAT of a policy minus that of one drafter of the pool."""
        return self.sample.difference(self.rounds(policy), self.arrays["alone"][:, drafter], POOLED, comparisons)


def tables(results: Results) -> list[Table]:
    """Return the settings' tables, those left out whose pool the trace has not."""
    return [Table(*result) for result in results if "tokens" in result.arrays]


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answer to each question; see CLAIM."""
    known = tables(results)
    main = results[0].setting["trace"]
    here = {table.setting["pool"]: table for table in known if table.setting["trace"] == main}
    seven = here.get(SPECIALISTS)
    return {
        "faster": _answer("faster", _faster(seven), _note_on(seven)),
        "bandits_elsewhere": _answer(
            "bandits_elsewhere",
            {
                f"{table.name}: {bandit}": partial(table.minus, NEW, bandit)
                for table in known
                if table.setting["pool"] != PRICED
                for bandit in (*BANDITS, THOMPSON)
            },
            "learners start afresh with each text, the bandits with the constants that their authors give",
        ),
        "matched_generalist": _answer("matched_generalist", _by_domain(seven, MATCHED)),
        "strong_generalist": _answer("strong_generalist", _by_domain(seven, STRONG)),
        "single_specialist": _answer(
            "single_specialist",
            {
                f"{table.name}, {how}": partial(table.minus, policy, CHOSEN)
                for table in known
                if table.setting["pool"] == SPECIALISTS
                for how, policy in (("afresh", NEW), ("carried", f"{NEW}, carried"))
            },
            "chosen on the other half of each domain's prompts: "
            + "; ".join(
                f"{t.name}: {' and '.join(t.about['chosen'])}" for t in known if t.setting["pool"] == SPECIALISTS
            ),
        ),
        "home_specialist": _answer("home_specialist", _price(seven)),
        "follow_the_leader": _answer(
            "follow_the_leader",
            {
                table.name: partial(table.minus, "ftl", NEW)
                for table in known
                if table.setting["pool"] in (SPECIALISTS, "all")
            },
        ),
        "tuned_bandits": _answer(
            "tuned_bandits",
            {
                f"{here[pool].name}: {bandit}": partial(here[pool].minus, bandit, NEW)
                for pool in (SPECIALISTS, "all")
                if pool in here
                for bandit in TUNED
            },
            _constants(here),
        ),
        "seconds": _answer(
            "seconds",
            {
                f"{here[pool].name}: {other}": partial(_speed, here[pool], other)
                for pool in (SPECIALISTS, "retrieval specialists", PRICED)
                if pool in here
                for other in ("plain decoding", FASTEST)
            },
            "modelled from calls measured on one CPU; "
            + (
                f"left out, drafting not measured: {', '.join(here[PRICED].about['left_out'])}"
                if PRICED in here
                else ""
            ),
        ),
    }


def _answer(question: str, cases: Mapping[str, Callable[..., Interval]], note: str = "") -> Answer:
    """Return the effects of all cases, their intervals widened for so many; without a case nothing can be told."""
    if not cases:
        return Answer(UNKNOWN, "the trace has not the drafters that this question is about")
    count = max(len(cases), CLAIM.questions[question].comparisons)
    return Answer({case: effect(comparisons=count) for case, effect in cases.items()}, note)


def _faster(table: Table | None) -> dict[str, Callable[..., Interval]]:
    if table is None:
        return {}
    names = table.about["drafters"]
    cases: dict[str, Callable[..., Interval]] = {
        f"{group}: {other}": partial(table.minus, NEW, other, group)
        for group in table.groups
        for other in (*PUBLISHED, MATCHED)
    }
    return cases | {f"{POOLED}: {name} alone": partial(table.alone_minus, NEW, i) for i, name in enumerate(names)}


def _by_domain(table: Table | None, other: str) -> dict[str, Callable[..., Interval]]:
    return {} if table is None else {group: partial(table.minus, NEW, other, group) for group in table.groups}


def _price(table: Table | None) -> dict[str, Callable[..., Interval]]:
    def effect(known: Table, group: str, comparisons: int) -> Interval:
        return Interval(*(end - 1 for end in known.over(NEW, HOME, group, comparisons)))

    return {} if table is None else {group: partial(effect, table, group) for group in table.groups}


def _speed(table: Table, other: str, comparisons: int) -> Interval:
    return table.speed(NEW, other, comparisons)


def _note_on(table: Table | None) -> str:
    if table is None:
        return ""
    mats = (f"{name} {table.mat(name).estimate:.2f}" for name in (NEW, *PUBLISHED, MATCHED, STRONG, HOME))
    return "MAT over all domains: " + ", ".join(mats) + "; no constant is tuned"


def _constants(here: Mapping[Any, Table]) -> str:
    said = [
        f"{name} {GRIDS[name][1]} {' and '.join(_place(value, GRIDS[name][2]) for value in values)} ({pool})"
        for pool in (SPECIALISTS, "all")
        if pool in here
        for name, values in here[pool].about["constants"].items()
        if name in TUNED
    ]
    return "constants chosen on the other half of each domain's prompts: " + ", ".join(said)


def _place(value: float, grid: Sequence[float]) -> str:
    """Return a constant in words, at an end of its grid with a word on that: a better one may lie beyond."""
    end = {min(grid): " (least tried)", max(grid): " (most tried)"}.get(value, "")
    return f"{value:g}{end}"
