"""What the tests of several claims do with results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.claim import Result, Results, findings
from experiments.runner import experiment

__all__ = ["changed", "verdict"]


def changed(results: Results, change: Callable[[dict[str, Any]], None]) -> Results:
    """Return results whose arrays were changed; the results given stay as they are."""
    found = []
    for setting, arrays in results:
        own = dict(arrays)
        change(own)
        found.append(Result(setting, own))
    return Results(found)


def verdict(name: str, results: Results, question: str) -> str:
    """Return the verdict of a claim's question."""
    return next(each.verdict for each in findings(name, experiment(name), results) if each.name == question)
