"""Policies' rounds on the texts of one setting, as results hold them, and the effects that follow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Result
from experiments.settings import Arrays, Setting
from experiments.texts import POOLED, Texts
from hedgelab.regret import Interval

__all__ = ["PolicyTable", "absent"]


def absent(results: Iterable[Result]) -> str:
    """Return in words which pools are missing from which traces, empty if none is."""
    found = [f"{setting['trace']}, {setting['pool']}" for setting, arrays in results if "absent" in arrays]
    return f"; left out, no such pool: {'; '.join(dict.fromkeys(found))}" if found else ""


class PolicyTable:
    """What one setting gave: its texts, and policies' rounds on them. Missing policies give no interval (NaN).

    arrays : `labels`, "tokens" (S,) and "rounds.POLICY" (S,) at least
    """

    def __init__(self, setting: Setting, arrays: Arrays) -> None:
        self.setting, self.arrays = setting, arrays
        self.texts = Texts(arrays)
        self.tokens = np.asarray(arrays["tokens"], np.float64)

    @property
    def trace(self) -> str:
        """Name of the trace; of one of the user's the folder, for two folders may have one name."""
        return str(self.setting["trace"])

    def column(self, name: str) -> NDArray[np.float64]:
        """Return an array of the texts (S,), NaN if it is not there."""
        return np.asarray(self.arrays.get(name, np.full(len(self.texts), np.nan)))

    def rounds(self, policy: str) -> NDArray[np.float64]:
        """Return (S,) rounds of a policy."""
        return self.column(f"rounds.{policy}")

    def mat(self, policy: str, group: str = POOLED, comparisons: int = 1) -> Interval:
        """Return MAT of a policy, tokens / rounds over a group's texts."""
        return self.texts.ratio(self.tokens, self.rounds(policy), group, comparisons)

    def minus(self, policy: str, other: str, group: str = POOLED, comparisons: int = 1) -> Interval:
        """Return MAT of a policy minus that of another, paired."""
        return self.texts.difference(self.tokens, self.rounds(policy), self.rounds(other), group, comparisons)
