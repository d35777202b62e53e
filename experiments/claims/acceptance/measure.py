"""Claim 1: what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.claims.acceptance.recorded import laws, texts
from experiments.claims.acceptance.worlds import positions, replays, two_states
from experiments.settings import Arrays, Setting

__all__ = ["run"]

_PARTS: Mapping[str, Callable[[Setting, int], Arrays]] = {
    "worlds": positions,
    "replay": replays,
    "two states": two_states,
    "trace": texts,
    "logits": laws,
}


def run(setting: Setting, seed: int) -> Arrays:
    """Return what the setting's part gives, see there; seed chooses the random worlds."""
    return _PARTS[setting["part"]](setting, seed)
