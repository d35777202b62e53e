"""What kind of statement each bound is, in a table that programs can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

__all__ = ["BOUNDS", "Theorem"]

Status = Literal[
    "proved here",
    "read in source",
    "read as quoted",  # in a text that cites it with its number
    "recalled, unconfirmed constant",
    "asymptotic",  # a limit, no bound at any one T
    "order only",  # no constant is known
]
Holds = Literal[
    "pathwise",  # for every sequence of losses, adaptive ones too: sum <w_t, l_t> - min_i L(i)
    "expected",  # the expectation of the realised regret, adaptive adversaries too
    "pseudo-regret",  # max_i E[...], losses fixed in advance
    "stochastic",  # pseudo-regret when each drafter's losses are independent with one mean
    "high probability",  # realised regret, with probability at least 1 - delta
    "Bayesian",  # the mean over the prior the learner assumes
    "stopping time",  # rounds of decoding: E rounds(learner) - min_i E rounds(i)
    "lower",  # no learner does better on the instance that the docstring names
]


class Theorem(NamedTuple):
    """A row of the table.

    name : of the function in `hedgelab.bounds`; bound : the function; status : how the constant is known; holds : for
    which regret; source : where the statement is, or what the proof in the docstring rests on.
    """

    name: str
    bound: Callable[..., Any]
    status: Status
    holds: Holds
    source: str


BOUNDS: dict[str, Theorem] = {}

_F = TypeVar("_F", bound=Callable[..., Any])


def theorem(status: Status, holds: Holds, source: str) -> Callable[[_F], _F]:
    """Enter the function into `BOUNDS` and its status and source into its docstring."""

    def enter(function: _F) -> _F:
        name = function.__name__
        BOUNDS[name] = Theorem(name, function, status, holds, source)
        if function.__doc__ is not None:
            known = f"Status: {status} ({holds}). Source: {source}."
            function.__doc__ = f"{function.__doc__.rstrip()}\n\n    {known}\n    "
        return function

    return enter
