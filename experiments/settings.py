"""What a task is given, its setting and the trace in it, and what it gives."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import hedgelab as hl

__all__ = ["Arrays", "ClaimError", "Setting", "trace_of"]

Setting = Mapping[str, Any]  # plain values: text, numbers, booleans, None, lists of these
Arrays = Mapping[str, NDArray[Any]]


class ClaimError(ValueError):
    """Settings, results or a claim that cannot be run or judged; the message names it."""


@functools.cache
def _opened(name: str, prompts: int | None) -> hl.Trace:
    trace = hl.open_trace(name) if Path(name).is_absolute() else hl.sample_trace(name)
    return trace if prompts is None else trace.few_prompts(prompts)


def trace_of(setting: Setting) -> hl.Trace:
    """Return the trace that a setting names under "trace": a bundled one, or a folder by its absolute path.

    Under "prompts", if it is there and not None, only so many prompts of each domain.
    """
    return _opened(str(setting["trace"]), setting.get("prompts"))
