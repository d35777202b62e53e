"""Claim 2: what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.claims.length.pools import pools, subpools
from experiments.claims.length.recorded import learner, texts
from experiments.claims.length.worlds import made_worlds, random_worlds
from experiments.settings import Arrays, Setting

__all__ = ["run"]

_PARTS: Mapping[str, Callable[[Setting, int], Arrays]] = {
    "worlds": random_worlds,
    "made worlds": made_worlds,
    "trace": texts,
    "learner": learner,
    "subpools": subpools,
    "pool": pools,
}


def run(setting: Setting, seed: int) -> Arrays:
    """Return what the setting's part gives, see there; seed chooses random worlds, sub-pools, pools and coins."""
    return _PARTS[setting["part"]](setting, seed)
