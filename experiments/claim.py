r"""What a claim is: a sentence that data can refute, settings that try to, and rules that were fixed before the run.

A claim is one module in `experiments/claims/`, with

    CLAIM      a `Claim`: its sentence, its source, and the questions put to the data; the first one is the headline
    SETTINGS   what is run, each a flat mapping of plain values; one setting is one task, kept on its own
    QUICK      the same in small, for tests: seconds instead of minutes, the same questions
    run        run(setting, seed) -> {name: array}: a pure function of its arguments, in whatever process
    check      check(results) -> {question: Answer}: aggregation and intervals alone

One that needs more room is a package of that name, whose `__init__.py` hands on the same five: `asked.py` says what is
asked and run, `measure.py` has run, `judge.py` has check. Results depend on `measure.py` and what that imports alone:
words and aggregation can change without a new run. What `measure.py` uses of an extra of hedgelab it says in NEEDS,
{extra: packages}.

A question says where its effect must lie (`Rule`). The verdict follows from the effect's interval: *holds* when all of
it lies there, *fails* when none of it does, else *cannot tell*. So `check` measures and the rule judges.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol

from experiments.intervals import UNTOLD
from experiments.settings import Arrays, ClaimError, Setting
from hedgelab.regret import Interval

__all__ = [
    "CANNOT_TELL",
    "FAILS",
    "HOLDS",
    "Answer",
    "Claim",
    "Experiment",
    "Finding",
    "Question",
    "Result",
    "Results",
    "Rule",
    "above",
    "answered",
    "below",
    "exactly",
    "findings",
    "inside",
    "judged",
]

Word = Literal["holds", "fails", "cannot tell"]
HOLDS: Word = "holds"
FAILS: Word = "fails"
CANNOT_TELL: Word = "cannot tell"


class Rule(NamedTuple):
    """The effect must lie in [low, high], or above low, or below high: equal to a single end is neither.

    >>> above(0.0).verdict(Interval(0.2, 0.1, 0.3)), above(0.0).verdict(Interval(0.2, -0.1, 0.5))
    ('holds', 'cannot tell')
    >>> inside(-1, 1).verdict(Interval(2.0, 1.5, 2.5)), str(inside(-1, 1))
    ('fails', 'in [-1, 1]')
    >>> above(0.0).verdict(Interval(0.0, 0.0, 0.0)), above(0.0).verdict(Interval(0.0, 0.0, 0.5))
    ('fails', 'cannot tell')
    """

    low: float = -math.inf
    high: float = math.inf

    def verdict(self, effect: Interval) -> Word:
        """Return whether all, none or a part of the effect's interval lies where it must; NaN tells nothing."""
        if any(math.isnan(end) for end in effect):
            return CANNOT_TELL
        if self._has(effect.low) and self._has(effect.high):
            return HOLDS
        beyond = effect.high <= self.low or effect.low >= self.high
        return FAILS if beyond and not (self._has(effect.low) or self._has(effect.high)) else CANNOT_TELL

    def _has(self, value: float) -> bool:
        if math.isinf(self.low):
            return value < self.high
        return value > self.low if math.isinf(self.high) else self.low <= value <= self.high

    def margin(self, effect: Interval) -> float:
        """Return how far the interval's worse end lies inside the rule; negative outside, -inf for NaN."""
        ends = (effect.low - self.low, self.high - effect.high)
        return -math.inf if any(math.isnan(end) for end in effect) else min(ends)

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"below {self.high:g}"
        return f"above {self.low:g}" if math.isinf(self.high) else f"in [{self.low:g}, {self.high:g}]"


def above(limit: float) -> Rule:
    """Return the rule that the effect is above `limit`."""
    return Rule(low=limit)


def below(limit: float) -> Rule:
    """Return the rule that the effect is below `limit`."""
    return Rule(high=limit)


def inside(low: float, high: float) -> Rule:
    """Return the rule that the effect lies in [low, high]."""
    return Rule(low, high)


def exactly(value: float, tolerance: float) -> Rule:
    """Return the rule that the effect is `value`, give or take `tolerance`."""
    return Rule(value - tolerance, value + tolerance)


@dataclass(frozen=True)
class Question:
    """Something to ask the data, fixed before the run.

    what : a sentence that may turn out false. rule : where its effect must lie. unit : of the effect. comparisons :
    intervals that are looked at together; each is widened so that all of them cover with 95% (Bonferroni)
    """

    what: str
    rule: Rule
    unit: str
    comparisons: int = 1


@dataclass(frozen=True)
class Claim:
    """A sentence, where it comes from, and {name: question}; the first question is the headline."""

    sentence: str
    source: str
    questions: Mapping[str, Question]

    @property
    def headline(self) -> str:
        """Name of the first question."""
        return next(iter(self.questions))


@dataclass(frozen=True)
class Answer:
    """What the data say to a question: its effect, or {case: effect} for a question about each of several cases.

    Of several cases all must be where the rule says: the question holds when it holds in all of them and fails when it
    fails in any. note : what a reader must know beside the number, how constants were tuned among it
    """

    effects: Interval | Mapping[str, Interval]
    note: str = ""

    def cases(self) -> Mapping[str, Interval]:
        """Return {case: effect}; a single effect has the case ''."""
        return {"": self.effects} if isinstance(self.effects, Interval) else self.effects


@dataclass(frozen=True)
class Finding:
    """A question with its verdict.

    effect, case : of the case that decided, the one farthest from where the rule wants it. tally : of each case's
    verdicts
    """

    claim: str
    name: str
    question: Question
    answer: Answer
    verdict: Word
    case: str
    effect: Interval
    tally: Mapping[Word, int]


class Result(NamedTuple):
    """What one setting gave."""

    setting: Setting
    arrays: Arrays


class Results(Sequence[Result]):
    """The results of a claim's settings, in their order.

    >>> results = Results([Result({"k": 3}, {}), Result({"k": 5}, {})])
    >>> results.one(k=5).setting, len(results.where(k=7))
    ({'k': 5}, 0)
    """

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = list(results)

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: Any) -> Any:
        return self._results[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def where(self, **values: Any) -> Results:
        """Return those whose settings have these values."""
        missing = object()
        return Results(
            [
                result
                for result in self._results
                if all(result.setting.get(key, missing) == value for key, value in values.items())
            ]
        )

    def one(self, **values: Any) -> Result:
        """Return the only one whose setting has these values. Raises ClaimError if there is none, or more."""
        found = self.where(**values)
        if len(found) != 1:
            raise ClaimError(f"{len(found)} results have {json.dumps(values)}; expected one")
        return found[0]


class Experiment(Protocol):
    """A module in `experiments/claims/`, see above."""

    CLAIM: Claim
    SETTINGS: Sequence[Setting]
    QUICK: Sequence[Setting]

    def run(self, setting: Setting, seed: int) -> Arrays:
        """Return what the setting gives; seed is the same for all settings of a run, which pairs them."""
        ...

    def check(self, results: Results) -> Mapping[str, Answer]:
        """Return the answer to each question."""
        ...


def answered(claim: Claim, question: str, cases: Mapping[str, Callable[..., Interval]], note: str = "") -> Answer:
    """Return the effects of all cases, each called with `comparisons`: as many as announced, or as there are if more.

    Without a case the effect is UNTOLD.
    """
    if not cases:
        return Answer(UNTOLD, note or "the traces have nothing that this question is about")
    count = max(len(cases), claim.questions[question].comparisons)
    return Answer({case: effect(comparisons=count) for case, effect in cases.items()}, note)


def findings(name: str, experiment: Experiment | ModuleType, results: Results) -> list[Finding]:
    """Return a finding for each question of a claim, in their order. Raises ClaimError unless each has one answer."""
    return judged(name, experiment.CLAIM, experiment.check(results))


def judged(name: str, claim: Claim, answers: Mapping[str, Answer]) -> list[Finding]:
    """Return the findings that follow from a claim's answers, as `findings`."""
    if set(answers) != set(claim.questions):
        raise ClaimError(f"claim {name!r} asks {', '.join(claim.questions)} and answers {', '.join(answers)}")
    found = []
    for key, question in claim.questions.items():
        cases = answers[key].cases()
        if not cases:
            raise ClaimError(f"claim {name!r}: the answer to {key!r} has no effect")
        words = {case: question.rule.verdict(effect) for case, effect in cases.items()}
        tally = {word: sum(each == word for each in words.values()) for word in (HOLDS, FAILS, CANNOT_TELL)}
        verdict = FAILS if tally[FAILS] else CANNOT_TELL if tally[CANNOT_TELL] else HOLDS
        deciding = [case for case, word in words.items() if word == verdict]
        case = min(deciding, key=lambda each: question.rule.margin(cases[each]))
        found.append(Finding(name, key, question, answers[key], verdict, case, cases[case], tally))
    return found
