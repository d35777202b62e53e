"""Effects of claim 6 on its results, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from experiments.claim import Answer, Results, answered
from experiments.claims.domains.asked import CLAIM, SPECIALISTS
from experiments.claims.domains.measure import (
    BANDITS,
    CARRIED,
    CARRYING,
    CHOSEN,
    FASTEST,
    GRIDS,
    HOME,
    MATCHED,
    NEW,
    PLAIN,
    PRICED,
    PUBLISHED,
    STRONG,
    THOMPSON,
    TUNED,
)
from experiments.policy_table import PolicyTable, absent
from experiments.texts import POOLED
from hedgelab.regret import Interval

__all__ = ["Table", "check", "tables"]

Cases = Mapping[str, Callable[..., Interval]]


class Table(PolicyTable):
    """What one setting gave: texts, policies and their effects."""

    @property
    def pool(self) -> str:
        """What is chosen among."""
        return str(self.setting["pool"])

    @property
    def name(self) -> str:
        """Trace and pool in words."""
        return f"{self.trace}, {self.pool}"

    def over(self, policy: str, other: str, group: str = POOLED, comparisons: int = 1) -> Interval:
        """Return MAT of a policy over that of another, paired."""
        return self.texts.ratio(self.rounds(other), self.rounds(policy), group, comparisons)

    def price(self, policy: str, other: str, group: str = POOLED, comparisons: int = 1) -> Interval:
        """Return MAT of a policy over that of another, less 1."""
        return Interval(*(end - 1 for end in self.over(policy, other, group, comparisons)))

    def speed(self, policy: str, other: str = PLAIN, comparisons: int = 1) -> Interval:
        """Return tokens per second of a policy over those of another, paired."""
        return self.texts.ratio(
            self.column(f"seconds.{other}"), self.column(f"seconds.{policy}"), comparisons=comparisons
        )

    def alone_minus(self, policy: str, drafter: int, comparisons: int = 1) -> Interval:
        """Return MAT of a policy minus that of one drafter of the pool."""
        alone = self.arrays["alone"][:, drafter]
        return self.texts.difference(self.tokens, self.rounds(policy), alone, comparisons=comparisons)


def tables(results: Results) -> list[Table]:
    """Return the settings' tables, those left out whose pool the trace has not."""
    return [Table(*result) for result in results if "absent" not in result.arrays]


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answer to each question; see CLAIM."""
    known = tables(results)
    main = {table.pool: table for table in known if table.setting["trace"] == results[0].setting["trace"]}
    cases, notes = _cases(known, main), _notes(results, known, main)
    return {name: answered(CLAIM, name, cases[name], notes.get(name, "") if cases[name] else "") for name in cases}


def _cases(known: Sequence[Table], main: Mapping[str, Table]) -> dict[str, Cases]:
    """Return {question: {case: effect}}; known : all tables, main : by pool, those of the first trace."""
    seven = [table for table in known if table.pool == SPECIALISTS]
    here = [main[SPECIALISTS]] if SPECIALISTS in main else []
    domains = [(table, group) for table in here for group in table.texts.groups]
    return {
        "faster": {
            f"{group}: {other}": partial(table.minus, NEW, other, group)
            for table, group in domains
            for other in (*PUBLISHED, MATCHED)
        }
        | {
            f"{POOLED}: {name} alone": partial(table.alone_minus, NEW, i)
            for table in here
            for i, name in enumerate(table.arrays["drafters"].tolist())
        },
        "bandits_elsewhere": {
            f"{table.name}: {bandit}": partial(table.minus, NEW, bandit)
            for table in known
            if table.pool != PRICED
            for bandit in (*BANDITS, THOMPSON)
        },
        "matched_generalist": {group: partial(table.minus, NEW, MATCHED, group) for table, group in domains},
        "strong_generalist": {group: partial(table.minus, NEW, STRONG, group) for table, group in domains},
        "single_specialist": {
            f"{table.name}, {how}": partial(table.minus, policy, CHOSEN)
            for table in seven
            for how, policy in (("afresh", NEW), ("carried", CARRIED(NEW)))
        },
        "home_specialist": {group: partial(table.price, NEW, HOME, group) for table, group in domains},
        "follow_the_leader": {
            table.name: partial(table.minus, "ftl", NEW) for table in known if table.pool in (SPECIALISTS, "all")
        },
        "tuned_bandits": {
            f"{main[pool].name}: {bandit}": partial(main[pool].minus, bandit, NEW)
            for pool in (SPECIALISTS, "all")
            if pool in main
            for bandit in TUNED
        },
        "seconds": {
            f"{main[pool].name}: {other}": partial(main[pool].speed, NEW, other)
            for pool in (SPECIALISTS, "retrieval specialists", PRICED)
            if pool in main
            for other in (PLAIN, FASTEST)
        },
    }


def _notes(results: Results, known: Sequence[Table], main: Mapping[str, Table]) -> dict[str, str]:
    chosen = (
        f"{table.name}: {' and '.join(table.arrays['chosen'].tolist())}" for table in known if table.pool == SPECIALISTS
    )
    constants = (
        f"{name} {_constants(name, main[pool].arrays[f'constants.{name}'].tolist())} ({pool})"
        for pool in (SPECIALISTS, "all")
        if pool in main
        for name in TUNED
    )
    left_out = ", ".join(main[PRICED].arrays["left_out"].tolist()) if PRICED in main else ""
    return {
        "faster": (_mats(main[SPECIALISTS]) if SPECIALISTS in main else "no specialists") + absent(results),
        "bandits_elsewhere": "learners start afresh with each text, the bandits with the constants that their authors "
        "give",
        "single_specialist": "chosen on the other half of each domain's prompts: "
        + "; ".join(chosen)
        + "; carried, minus a uniform choice (95%, each alone): "
        + "; ".join(_carried(table) for table in known if table.pool == SPECIALISTS),
        "tuned_bandits": "constants chosen on the other half of each domain's prompts: " + ", ".join(constants),
        "seconds": "modelled from calls measured on one CPU"
        + (f"; left out, drafting not measured: {left_out}" if left_out else ""),
    }


def _carried(table: Table) -> str:
    found = ((name, table.minus(CARRIED(name), "uniform")) for name in CARRYING)
    return f"{table.trace} " + ", ".join(f"{name} {x.estimate:+.3f} [{x.low:.3f}, {x.high:.3f}]" for name, x in found)


def _mats(table: Table) -> str:
    mats = (f"{name} {table.mat(name).estimate:.2f}" for name in (NEW, *PUBLISHED, MATCHED, STRONG, HOME))
    return "MAT over all domains: " + ", ".join(mats) + "; no constant is tuned"


def _constants(name: str, values: Sequence[float]) -> str:
    """Return constants in words, at an end of their grid with a word on that: a better one may lie beyond."""
    _, key, grid = GRIDS[name]
    ends = {min(grid): " (least tried)", max(grid): " (most tried)"}
    return f"{key} " + " and ".join(f"{value:g}{ends.get(value, '')}" for value in values)
