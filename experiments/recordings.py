"""Results of recorded traces, found by what they say of these (`experiments.labels.described`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Results
from experiments.settings import Arrays

__all__ = ["counted", "greedy", "members", "sampled"]


def sampled(results: Results) -> Results:
    """Return the results of part "trace" whose target was sampled."""
    return Results([each for each in results.where(part="trace") if each.arrays["sampled"]])


def greedy(results: Results) -> Results:
    """Return the results of part "trace" whose target was greedy."""
    return Results([each for each in results.where(part="trace") if each.arrays["temperature"] == 0])


def counted(results: Results) -> str:
    """Return in words how many prompts each sampled trace has, and which traces are none."""
    there = sampled(results)
    words = [f"{each.setting['trace']}: {len(set(each.arrays['prompts']))} prompts" for each in there]
    others = [str(each.setting["trace"]) for each in results.where(part="trace") if not each.arrays["sampled"]]
    return ", ".join(words) + (f" (left out, not drawn by chance: {', '.join(others)})" if others else "")


def members(arrays: Arrays) -> dict[str, NDArray[np.bool_]]:
    """Return {kind: its drafters (N,)} in the order of the trace."""
    return {kind: arrays["kinds"] == kind for kind in dict.fromkeys(arrays["kinds"].tolist())}
