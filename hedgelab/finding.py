r"""What the acceptance matrix says about specialists: do they win at home, and are they weak abroad?

All comparisons are differences of walked MAT on the same prompts (`Ratios.contrast`), at error level 2.5% a side.

**At home.** In a domain with m home specialists and g generalists:

    yes           some home specialist beats every generalist
    no            some generalist beats every home specialist
    cannot tell   neither is shown, or an interval is unknown (one prompt)
    no contest    there is no home specialist, or no generalist

"Beats every" is an intersection-union test: each of its intervals must lie on the right side, none needs a correction
(Berger 1982). "Some" is one of several tries: Bonferroni, so *yes* takes intervals with 2.5% / m outside at either
end, *no* with 2.5% / g. As far as the intervals hold, a false yes has probability 2.5% at most, and so has a false no,
per domain: over several domains they add up. Yes and no exclude each other. The same question is asked within each
family (`family_of`).

**Abroad.** A specialist's mean MAT over the domains other than its home, each counted once, against the mean of each
generalist over the same domains:

    yes           below every generalist (each interval below 0)
    no            above some generalist (2.5% / g)
    cannot tell, no contest    as above
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgelab.comparison import cell, half_width
from hedgelab.matrix import AcceptanceMatrix, Role
from hedgelab.regret import Interval
from hedgelab.sheets import Cell, Sheet

__all__ = ["ALL", "Abroad", "Duel", "Finding", "Verdict", "home_advantage"]

ALL = "all"  # the scope of a verdict over all families
_TAIL = 0.025


@dataclass(frozen=True)
class Duel:
    """MAT of a specialist minus that of a generalist, on the same prompts.

    difference : with its 95% interval. low, high : the ends that *yes* and *no* look at, corrected for several tries
    """

    specialist: str
    generalist: str
    difference: Interval
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """Whether a home specialist beats every generalist in a domain; see the module's docstring.

    scope : a family, or ALL. answer : "yes", "no", "cannot tell" or "no contest". shown : the duel that decides: of the
    specialist that does best against its hardest generalist, that generalist; None without a contest
    """

    domain: str
    scope: str
    answer: str
    specialists: tuple[str, ...]
    generalists: tuple[str, ...]
    duels: tuple[Duel, ...]
    shown: Duel | None


@dataclass(frozen=True)
class Abroad:
    """A specialist at home and elsewhere, in walked MAT.

    at_home, abroad : None where no text is of its home, or of other domains. abroad : mean over other domains, each
    counted once. best_foreign : (domain, MAT) where it does best abroad. below_family, below_all : answers to whether
    it is below every generalist abroad, of its own family and of all
    """

    specialist: str
    family: str
    home: str
    at_home: Interval | None
    abroad: Interval | None
    best_foreign: tuple[str, Interval] | None
    below_family: str
    below_all: str


@dataclass(frozen=True)
class Finding:
    """What `home_advantage` found: a verdict per domain over all families, per family and domain, and abroad."""

    trace: str
    k: int
    overall: tuple[Verdict, ...]
    by_family: tuple[Verdict, ...]
    abroad: tuple[Abroad, ...]

    def text(self) -> list[str]:
        """Return the finding in words, a line a statement."""
        return [*self._at_home(), *self._elsewhere()]

    def sheets(self) -> list[Sheet]:
        """Return the finding as tables: by domain and family, and abroad; without specialists none."""
        return [sheet for sheet in (self._verdicts(), self._travels()) if sheet.rows]

    def markdown(self) -> list[str]:
        """Return the finding in words and tables, as lines of Markdown."""
        lines = [f"- {line}" for line in self.text()]
        for sheet in self.sheets():
            lines += ["", *sheet.markdown()]
        return lines

    def document(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold; an interval that nobody knows is null."""
        return {
            name: _plain(value) for name, value in asdict(self).items() if name in ("overall", "by_family", "abroad")
        }

    @property
    def families(self) -> tuple[str, ...]:
        """Families with a contest in some domain."""
        return tuple(dict.fromkeys(v.scope for v in self.by_family if v.shown))

    def _at_home(self) -> Iterator[str]:
        met = [verdict for verdict in self.overall if verdict.shown]
        if not met:
            yield "No domain has both a home specialist and a generalist: nothing to compare."
            return
        yield _summary("A home specialist beats every generalist", met)
        for family in self.families if len(self.families) > 1 else ():
            inside = [verdict for verdict in self.by_family if verdict.scope == family and verdict.shown]
            yield _summary(f"Within {family}, a home specialist beats every generalist", inside)

    def _elsewhere(self) -> Iterator[str]:
        for name, among in (("below_family", "of their own family"), ("below_all", "of all families")):
            if name == "below_all" and len({entry.family for entry in self.abroad}) < 2:
                continue  # the same sentence again
            answers = [getattr(entry, name) for entry in self.abroad]
            asked = sum(answer != "no contest" for answer in answers)
            if asked:
                yield (
                    f"Abroad, on average over the other domains, {answers.count('yes')} of {asked} specialists are "
                    f"below every generalist {among}, {answers.count('no')} above some, "
                    f"{answers.count('cannot tell')} undecided."
                )

    def _verdicts(self) -> Sheet:
        by_family = self.by_family if len(self.families) > 1 else ()
        rows: list[list[str | Cell]] = []
        for verdict in (*self.overall, *by_family):
            if verdict.shown is None:
                continue
            answer = Cell(verdict.answer, verdict.answer == "yes")
            others = [] if verdict.scope == ALL else [duel for duel in verdict.duels if duel != verdict.shown]
            for duel in (verdict.shown, *others):
                pair = f"{duel.specialist} - {duel.generalist}"
                first = duel == verdict.shown
                rows.append([verdict.domain, verdict.scope, answer if first else "", pair, cell(duel.difference)])
        title = (
            "MAT of the best home specialist minus that of its hardest generalist, within families of each generalist, "
            "paired, with 95% intervals; the answer corrects for several specialists or generalists"
        )
        header = ["domain", "among", "specialist wins", "pair", "difference of MAT"]
        return Sheet(title, header, rows, left=4)

    def _travels(self) -> Sheet:
        rows: list[list[str | Cell]] = []
        for entry in self.abroad:
            foreign = (
                "" if entry.best_foreign is None else f"{entry.best_foreign[0]}: {half_width(entry.best_foreign[1])}"
            )
            rows.append(
                [
                    entry.specialist,
                    *("" if value is None else half_width(value) for value in (entry.at_home, entry.abroad)),
                    foreign,
                    entry.below_family,
                    entry.below_all,
                ]
            )
        header = [
            "specialist",
            "at home",
            "abroad, mean",
            "best abroad",
            "below own generalists",
            "below all generalists",
        ]
        return Sheet("MAT of each specialist at home and abroad, ± half of the 95% interval", header, rows)


def home_advantage(matrix: AcceptanceMatrix) -> Finding:
    """Return whether specialists win at home, and how they fare abroad; see the module's docstring.

    >>> from hedgelab.trace import sample_trace
    >>> from hedgelab.matrix import acceptance_matrix
    >>> found = home_advantage(acceptance_matrix(sample_trace("t06")))
    >>> [(verdict.scope, verdict.answer) for verdict in found.by_family if verdict.domain == "sql"][:3]
    [('ngram', 'yes'), ('head 10-20-29', 'yes'), ('truncated 22', 'no')]
    """
    everyone = range(len(matrix.drafters))
    families = tuple(dict.fromkeys(matrix.families[i] for i in matrix.order))
    by_family = []
    for family in families:
        members = [i for i in everyone if matrix.families[i] == family]
        if any(matrix.roles[i].name == "specialist" for i in members):
            by_family += [_verdict(matrix, d, family, members) for d in range(len(matrix.domains))]
    return Finding(
        trace=matrix.trace,
        k=matrix.k,
        overall=tuple(_verdict(matrix, d, ALL, everyone) for d in range(len(matrix.domains))),
        by_family=tuple(by_family),
        abroad=tuple(_abroad(matrix, i) for i in matrix.order if matrix.roles[i].name == "specialist"),
    )


def _generalists(matrix: AcceptanceMatrix, members: Sequence[int]) -> list[int]:
    return [i for i in members if matrix.roles[i].name == "generalist"]


def _verdict(matrix: AcceptanceMatrix, d: int, scope: str, members: Sequence[int]) -> Verdict:
    domain = matrix.domains[d]
    specialists = [i for i in members if matrix.roles[i] == Role("specialist", domain)]
    generalists = _generalists(matrix, members)
    duels: dict[tuple[int, int], Duel] = {}
    for s in specialists:
        for g in generalists:
            weights = matrix.mat.pick(s, d) - matrix.mat.pick(g, d)
            duels[s, g] = Duel(
                matrix.drafters[s],
                matrix.drafters[g],
                matrix.mat.contrast(weights),
                matrix.mat.contrast(weights, _TAIL / len(specialists)).low,
                matrix.mat.contrast(weights, _TAIL / len(generalists)).high,
            )
    answer, shown = "no contest", None
    if duels:
        hardest = {
            s: min((duels[s, g] for g in generalists), key=lambda duel: duel.difference.estimate) for s in specialists
        }
        wins = [s for s in specialists if all(duels[s, g].low > 0 for g in generalists)]
        best = max(wins or specialists, key=lambda s: hardest[s].difference.estimate)
        loses = any(all(duels[s, g].high < 0 for s in specialists) for g in generalists)
        answer = "yes" if wins else "no" if loses else "cannot tell"
        shown = hardest[best]
    return Verdict(
        domain=domain,
        scope=scope,
        answer=answer,
        specialists=tuple(matrix.drafters[i] for i in specialists),
        generalists=tuple(matrix.drafters[i] for i in generalists),
        duels=tuple(duels.values()),
        shown=shown,
    )


def _abroad(matrix: AcceptanceMatrix, i: int) -> Abroad:
    home = matrix.roles[i].home
    foreign = [d for d, domain in enumerate(matrix.domains) if domain != home]
    best = max(foreign, key=lambda d: matrix.mat.estimate[i, d], default=None)
    everyone = range(len(matrix.drafters))

    def mean(drafter: int) -> NDArray[np.float64]:
        weights = np.zeros_like(matrix.mat.estimate)
        weights[drafter, foreign] = 1 / len(foreign)
        return weights

    def below(generalists: Sequence[int]) -> str:
        if not foreign or not generalists:
            return "no contest"
        differences = [mean(i) - mean(g) for g in generalists]
        if all(matrix.mat.contrast(weights).high < 0 for weights in differences):
            return "yes"
        tail = _TAIL / len(generalists)
        above = any(matrix.mat.contrast(weights, tail).low > 0 for weights in differences)
        return "no" if above else "cannot tell"

    return Abroad(
        specialist=matrix.drafters[i],
        family=matrix.families[i],
        home=home,
        at_home=matrix.mat.cell(i, matrix.domains.index(home)) if home in matrix.domains else None,
        abroad=matrix.mat.contrast(mean(i)) if foreign else None,
        best_foreign=None if best is None else (matrix.domains[best], matrix.mat.cell(i, best)),
        below_family=below(_generalists(matrix, [j for j in everyone if matrix.families[j] == matrix.families[i]])),
        below_all=below(_generalists(matrix, everyone)),
    )


def _summary(claim: str, verdicts: Sequence[Verdict]) -> str:
    domains = {
        answer: [verdict.domain for verdict in verdicts if verdict.answer == answer]
        for answer in ("yes", "no", "cannot tell")
    }

    def counted(answer: str, words: str) -> str:
        names = domains[answer]
        return f"{words} {len(names)}" + (f" ({', '.join(names)})" if names else "")

    return (
        f"{claim} {counted('yes', 'in')} of {len(verdicts)} domains; a generalist beats every home specialist "
        f"{counted('no', 'in')}; the prompts cannot tell {counted('cannot tell', 'in')}."
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Interval):
        return {key: _plain(entry) for key, entry in value._asdict().items()}
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value
