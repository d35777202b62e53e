"""The conditions of the theorems: one error that names every argument outside them."""

from __future__ import annotations

import math
import numbers
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["ConditionError"]


class ConditionError(ValueError):
    """An argument lies outside a theorem's conditions; carries every problem found, each naming its argument.

    >>> error = ConditionError("T must be 1 or more, got 0", "N must be 1 or more, got 0")
    >>> error.problems
    ('T must be 1 or more, got 0', 'N must be 1 or more, got 0')
    >>> print(error)
    T must be 1 or more, got 0; N must be 1 or more, got 0
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)  # as args, so that the error survives the way back from a worker process

    @property
    def problems(self) -> tuple[str, ...]:
        """Every problem, one string each."""
        return self.args

    def __str__(self) -> str:
        return "; ".join(self.args)


class Condition(NamedTuple):
    """One condition on one argument."""

    name: str
    value: object
    what: str
    right: bool


def require(*conditions: Condition) -> None:
    """Raise ConditionError naming every argument whose condition fails."""
    problems = [f"{c.name} must be {c.what}, got {c.value!r}" for c in conditions if not c.right]
    if problems:
        raise ConditionError(*problems)


_SMALL, _LARGE = 1e-100, 1e100  # beyond, formulas over- or underflow


def _finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and bool(abs(value) < _LARGE)  # type: ignore[operator]


def whole(name: str, value: float, least: int = 1, most: float = math.inf) -> Condition:
    """`value` is a whole number in [least, most]."""
    right = _finite(value) and int(value) == value and least <= value <= most
    return Condition(name, value, f"a whole number of at least {least}{_at_most(most)}", right)


def positive(name: str, value: float, most: float = math.inf) -> Condition:
    """`value` is in (0, most]."""
    what = "positive and finite" if most == math.inf else f"in (0, {most:g}]"
    return Condition(name, value, what, _finite(value) and _SMALL <= value <= most)


def inside(name: str, value: float, low: float, high: float) -> Condition:
    """`value` is in [low, high]."""
    return Condition(name, value, f"in [{low:g}, {high:g}]", _finite(value) and low <= value <= high)


def probability(name: str, value: float) -> Condition:
    """`value` is strictly between 0 and 1."""
    return Condition(name, value, "strictly between 0 and 1", _finite(value) and 0 < value < 1)


def _at_most(most: float) -> str:
    return "" if most == math.inf else f" and at most {most:g}"


def vector(name: str, values: ArrayLike, low: float, high: float, length: int | None = None) -> Condition:
    """`values` is a vector in [low, high], not empty, of `length` entries if given."""
    array = as_vector(values)
    right = array is not None and len(array) > 0 and bool(((array >= low) & (array <= high)).all())
    right = right and (length is None or (array is not None and len(array) == length))
    size = "" if length is None else f" of {length}"
    return Condition(name, values, f"a vector{size} with entries in [{low:g}, {high:g}]", right)


def gaps_of(name: str, values: ArrayLike, high: float = 1.0) -> Condition:
    """`values` are gaps to the best mean: a vector in [0, high] with a 0 in it."""
    array = as_vector(values)
    right = array is not None and len(array) > 0 and bool(((array >= 0) & (array <= high)).all()) and array.min() == 0
    return Condition(name, values, f"a vector with entries in [0, {high:g}], the best drafter's being 0", right)


def as_vector(values: ArrayLike) -> NDArray[np.float64] | None:
    """Return `values` as a float64 vector, or None."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 1 else None
