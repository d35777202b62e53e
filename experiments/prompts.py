"""Which texts are drawn together when prompts are resampled: kept with results, so that `check` can draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claim import Arrays
from experiments.intervals import Draws, resample

__all__ = ["draws", "labels"]


def labels(trace: hl.Trace) -> dict[str, NDArray[np.int64]]:
    """Return {"prompt", "home", "domain"}, a number for each text (S,): what it is drawn with, the domain within which
    that is drawn, and its own domain, in the manifest's order."""
    place = {name: i for i, name in enumerate(trace.manifest.domains)}
    return {
        "prompt": np.unique(trace.conversations, return_inverse=True)[1].astype(np.int64),
        "home": np.array([place[name] for name in trace.home_domains.tolist()], np.int64),
        "domain": np.array([place[name] for name in trace.domains.tolist()], np.int64),
    }


def draws(arrays: Arrays | Mapping[str, Any], resamples: int = 20_000) -> Draws:
    """Return resamples of texts, prompts drawn within domains; `labels` in arrays. The same for every claim on the same
    trace."""
    return resample(arrays["prompt"], arrays["home"], resamples=resamples)
