"""What a learner is.

A learner is three functions and a few facts about them. `n` is the number of drafters (experts, arms).

``init(params, n) -> state``
    Plain Python. `params` (P,) float64 holds the parameters in their declared order, NaN where the value is None.
    Returns the state of a learner that has seen nothing: float64, shape (rows, n), at least one row. Raises
    ValueError when a parameter does not fit n.
``play(params, state, context, rng, probs)``
    Writes the distribution over drafters into `probs` (n,). `context` (C,) is what was known before drafting, often
    empty; `rng` a `numpy.random.Generator` for learners that randomise inside. The *engine* samples the pick from
    `probs`.
``observe(params, state, context, probs, pick, losses)``
    Folds one revealed loss vector into `state`. `probs`, `pick` and `context` are those in force when that loss was
    predicted, which under delay are not the latest. `losses` (n,) lies in [0, 1]; entries that were not seen are NaN:
    a learner with bandit feedback sees the entry of `pick` alone.

The engines own every argument array: a learner may read them during the call, must not keep them, and writes only to
`state` (and `play` to `probs`). Functions decorated with `hedgelab.kernel` run compiled; plain functions run in an
uncompiled copy of the same engine, which is slow and gives the same numbers (division by zero apart: compiled code
follows numpy). A play that writes no distribution ends the run with an error.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numba
import numpy as np
from numba import float64, int64, types, void
from numpy.typing import NDArray

__all__ = ["ADVERSARY", "OBSERVE", "PLAY", "Learner", "Parameter"]

_VECTOR = float64[::1]
_MATRIX = float64[:, ::1]
RNG = numba.typeof(np.random.Generator(np.random.PCG64(0)))
_PLAY_SIGNATURE = void(_VECTOR, _MATRIX, _VECTOR, RNG, _VECTOR)
_OBSERVE_SIGNATURE = void(_VECTOR, _MATRIX, _VECTOR, _VECTOR, int64, _VECTOR)
PLAY = types.FunctionType(_PLAY_SIGNATURE)
OBSERVE = types.FunctionType(_OBSERVE_SIGNATURE)
ADVERSARY = types.FunctionType(void(_VECTOR, _MATRIX, int64, _VECTOR, _VECTOR, RNG, _VECTOR))

_HUGE = 1e300
FEEDBACK = ("full", "bandit", "none")
REWARDS = ("accepted", "block")


@dataclass(frozen=True)
class Parameter:
    """A number that a learner takes: its default (None where the learner works it out), range and meaning."""

    default: float | None
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    integer: bool = False

    def problem(self, value: float | str | None) -> str | None:
        """Return what is wrong with `value`, or None."""
        if value is None:
            return None if self.default is None else "a number is needed"
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            return f"a number is needed, got {value!r}"
        if not -_HUGE < value < _HUGE:
            return f"a finite number is needed, got {value!r}"
        if self.integer and value != int(value):
            return f"a whole number is needed, got {value!r}"
        if not self.low <= value <= self.high:
            return f"must lie in [{self.low:g}, {self.high:g}], got {value!r}"
        return None


@dataclass(frozen=True)
class Learner:
    """A selection policy: see the module's text for the three functions.

    name : what `replay` and the command line call it
    feedback : "full" needs every drafter's loss, "bandit" only the pick's, "none" learns nothing
    reward : what a decode round pays a learner with bandit feedback, see `hedgelab.feedback`: "accepted" drafts, or the
        "block" mean of gamma
    randomises : whether `play` itself draws from rng, so that `probs` holds one draw and not the law of the pick
    parameters : declared parameters; `values` overrides their defaults (a drafter's index may be given by name)
    bound, reference : for the table of learners; "" where nothing is proved or published

    >>> import hedgelab as hl
    >>> hl.learner("hedge", learning_rate=0.1).values
    {'learning_rate': 0.1}
    """

    name: str
    init: Callable[[NDArray[np.float64], int], NDArray[np.float64]]
    play: Any
    observe: Any
    feedback: str = "full"
    reward: str = "accepted"
    randomises: bool = False
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    values: Mapping[str, float | str | None] = field(default_factory=dict)
    bound: str = ""
    reference: str = ""

    def __post_init__(self) -> None:
        if self.feedback not in FEEDBACK:
            raise ValueError(f"learner {self.name!r}: feedback must be one of {FEEDBACK}, got {self.feedback!r}")
        if self.reward not in REWARDS:
            raise ValueError(f"learner {self.name!r}: reward must be one of {REWARDS}, got {self.reward!r}")
        problems = [
            f"{name}: default: {problem}"
            for name, parameter in self.parameters.items()
            if (problem := parameter.problem(parameter.default))
        ]
        for name, value in self.values.items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                problems.append(f"{name}: no such parameter (known: {known})")
            elif not (name == "drafter" and isinstance(value, str)):
                problem = self.parameters[name].problem(value)
                if problem:
                    problems.append(f"{name}: {problem}")
        if problems:
            raise ValueError(f"learner {self.name!r}: " + "; ".join(problems))

    def with_values(self, **values: float | str | None) -> Learner:
        """Return this learner with some parameters set. Raises ValueError naming each parameter that does not fit."""
        return replace(self, values={**self.values, **values})

    def params(self, drafters: tuple[str, ...] = ()) -> NDArray[np.float64]:
        """Return the parameters as the kernels get them: (P,) float64, NaN for None; names of drafters become
        indices."""
        numbers = []
        for name, parameter in self.parameters.items():
            value = self.values.get(name, parameter.default)
            if isinstance(value, str):
                if value not in drafters and not (value.isdecimal() and len(value) < 10):
                    there = ", ".join(drafters) or "no names here, give its index"
                    raise ValueError(f"learner {self.name!r}: no drafter {value!r}; there are {there}")
                value = drafters.index(value) if value in drafters else int(value)
            numbers.append(math.nan if value is None else float(value))
        return np.array(numbers, dtype=np.float64)

    @property
    def label(self) -> str:
        """The name, with the parameters that were set."""
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"{self.name}({values})" if values else self.name

    @property
    def jitted(self) -> bool:
        """Whether both functions are compiled ones."""
        return hasattr(self.play, "py_func") and hasattr(self.observe, "py_func")

    @property
    def file(self) -> str:
        """The source file of `play`."""
        return inspect.getsourcefile(getattr(self.play, "py_func", self.play)) or "?"

    def compiled(self) -> tuple[Any, Any]:
        """Return (play, observe) compiled for the engines' signatures; the first call compiles or loads from the
        cache."""
        for function, signature in ((self.play, _PLAY_SIGNATURE), (self.observe, _OBSERVE_SIGNATURE)):
            if signature.args not in function.overloads:
                try:
                    function.compile(signature)
                except numba.core.errors.NumbaError as error:
                    raise TypeError(f"learner {self.name!r}: {function.__name__} does not compile: {error}") from error
        return self.play, self.observe
