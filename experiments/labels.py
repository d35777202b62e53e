"""What results say of the texts that they are of, and of the trace that holds these."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl

__all__ = ["described", "labels"]


def labels(trace: hl.Trace) -> dict[str, NDArray[np.str_]]:
    """Return {"prompts", "homes", "domains"}, (S,) each: what a text is drawn with, the domain within which that is
    drawn, and its own domain."""
    return {"prompts": trace.conversations, "homes": trace.home_domains, "domains": trace.domains}


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
