r"""Rounds and seconds of policies on a trace, for claims: the same coins for all, kept text by text.

A policy's rounds are means over coin replicates, so that a claim's intervals, over prompts, are not widened by luck
that more replicates would remove. Texts in another order keep their coins: these depend on a text's id, the position
in it and the replicate alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.settings import ClaimError
from hedgelab.contract import Learner
from hedgelab.matrix import roles_of
from hedgelab.routing import folds_of

__all__ = ["Tuned", "has_pool", "members", "narrowed", "played", "specialist_kinds", "tuned"]

Seconds = Mapping[str, NDArray[np.float64]]


def specialist_kinds(trace: hl.Trace) -> dict[str, tuple[list[str], list[str]]]:
    """Return {kind: (specialists, generalists of the same kind)} of a trace, kinds without a specialist left out."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for drafter, role in zip(trace.manifest.drafters, roles_of(trace.manifest.drafters), strict=True):
        if role.name in ("specialist", "generalist"):
            found.setdefault(drafter.kind, ([], []))[role.name == "generalist"].append(drafter.name)
    return {kind: both for kind, both in found.items() if both[0]}


def has_pool(trace: hl.Trace, pool: str) -> bool:
    """Return whether a trace has a pool, see `members`: of each that its name says, a drafter at least."""
    kind, _, wanted = pool.partition(" ")
    specialists, generalists = specialist_kinds(trace).get(kind, ([], []))
    return pool == "all" or bool(specialists and (generalists or "generalists" not in wanted))


def members(trace: hl.Trace, pool: str) -> list[str]:
    """Return the drafters of a pool: "all", or "KIND specialists", or "KIND specialists, generalists".

    Raises ClaimError where there is none.
    """
    if pool == "all":
        return list(trace.drafters)
    kind, _, rest = pool.partition(" ")
    specialists, generalists = specialist_kinds(trace).get(kind, ([], []))
    wanted = {"specialists": specialists, "specialists, generalists": [*specialists, *generalists]}.get(rest, [])
    if not wanted:
        raise ClaimError(f"no pool {pool!r} in trace {trace.manifest.name!r}")
    return wanted


def narrowed(trace: hl.Trace, drafters: Sequence[str]) -> hl.Trace:
    """Return the trace of some drafters, the trace itself if they are all."""
    return trace if len(drafters) == len(trace.drafters) else trace.among(drafters)


def played(
    trace: hl.Trace,
    policy: Learner | str,
    *,
    k: int,
    seed: int,
    replicates: int,
    orders: NDArray[np.int64] | None = None,
    bills: Mapping[str, Callable[[hl.Replay], hl.Bill]] | None = None,
    **options: Any,
) -> tuple[NDArray[np.float64], Seconds]:
    """Return a policy's rounds (S,) on each text and {schedule: seconds (S,)}, means over replicates.

    orders : (replicates, S) in which the texts come, default the trace's own. bills : {schedule: what a run costs}.
    options go to `hedgelab.replay`
    """
    rounds = np.zeros(trace.sequences)
    seconds = {name: np.zeros(trace.sequences) for name in bills or {}}
    for replicate in range(replicates):
        order = np.arange(trace.sequences) if orders is None else orders[replicate]
        stream = trace if orders is None else trace.select(order)
        run = hl.replay(stream, policy, k=k, seed=seed, replicate=replicate, **options)
        rounds[order] += run.sequence_rounds
        for name, bill in (bills or {}).items():
            seconds[name][order] += bill(run).by_sequence
    return rounds / replicates, {name: total / replicates for name, total in seconds.items()}


class Tuned(NamedTuple):
    """A policy whose constant was chosen on one half of the prompts and scored on the other, both ways.

    values : the two halves' constants, each chosen on the other half. pick : (S,) place of each text's constant in the
    grid
    """

    values: tuple[float, float]
    pick: NDArray[np.int64]

    def of(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (S,) each text's entry in (G, S), under the constant that it is scored with."""
        return rows[self.pick, np.arange(len(self.pick))]


def tuned(trace: hl.Trace, grid: Sequence[float], rounds: NDArray[np.float64], seed: int) -> Tuned:
    """Return the constants of the fewest rounds on the other half of the prompts, halves drawn within domains.

    rounds : (G, S), of each constant of the grid
    """
    pick = np.full(trace.sequences, -1)
    values = []
    for training, test in folds_of(trace, "prompt", 2, seed):
        best = int(rounds[:, training].sum(axis=1).argmin())
        pick[test] = best
        values.append(float(grid[best]))
    return Tuned((values[0], values[-1]), pick)
