"""What results say of the recorded trace that they are of, and how to find them by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claim import Arrays, Result, Results
from experiments.texts import labels

__all__ = ["counted", "described", "greedy", "members", "sampled"]


def described(trace: hl.Trace) -> dict[str, NDArray[Any]]:
    """Return `labels` of a trace's S texts and rows (S,) of each, drafters and kinds (N,), the target's temperature,
    and sampled, whether the target drew the texts itself, by chance."""
    temperature = trace.manifest.target_processing.temperature
    return {
        **labels(trace),
        "rows": np.diff(trace.offsets).astype(np.float64),
        "drafters": np.array(trace.drafters),
        "kinds": np.array([drafter.kind for drafter in trace.manifest.drafters]),
        "temperature": np.array(temperature),
        "sampled": np.array(trace.manifest.path == "own_sample" and temperature > 0),
    }


def sampled(results: Results) -> Results:
    """Return the results of part "trace" whose target was sampled."""
    return Results([each for each in results.where(part="trace") if each.arrays["sampled"]])


def greedy(results: Results) -> Results:
    """Return the results of part "trace" whose target was greedy."""
    return Results([each for each in results.where(part="trace") if each.arrays["temperature"] == 0])


def counted(results: Iterable[Result]) -> str:
    """Return in words how many prompts each trace has."""
    return ", ".join(f"{each.setting['trace']}: {len(set(each.arrays['prompts']))} prompts" for each in results)


def members(arrays: Arrays) -> dict[str, NDArray[np.bool_]]:
    """Return {kind: its drafters (N,)} in the order of the trace."""
    return {kind: arrays["kinds"] == kind for kind in dict.fromkeys(arrays["kinds"].tolist())}
