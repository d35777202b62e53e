r"""Rounds and seconds of policies on a trace, for claims: the same coins for all, kept text by text.

A policy's rounds are means over coin replicates, so that a claim's intervals, over prompts, are not widened by luck
that more replicates would remove. Texts in another order keep their coins: these depend on a text's id, the position
in it and the replicate alone.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claim import ClaimError, Setting, trace_of
from experiments.intervals import Draws, of_difference_of_ratios, of_ratio, resample
from hedgelab.contract import Learner
from hedgelab.matrix import roles_of
from hedgelab.regret import Interval
from hedgelab.routing import folds_of

__all__ = [
    "POOLED",
    "UNKNOWN",
    "Sample",
    "Tuned",
    "cut_of",
    "has_pool",
    "members",
    "narrowed",
    "packed",
    "played",
    "sample_of",
    "specialist_kinds",
    "tuned",
    "unpacked",
]

POOLED = "pooled"
UNKNOWN = Interval(math.nan, math.nan, math.nan)
RESAMPLES = 20_000  # at least 200 for each of the comparisons looked at together

Seconds = Mapping[str, NDArray[np.float64]]


def packed(document: Any) -> NDArray[np.uint8]:
    """Return a value that JSON can hold as an array of numbers, for results; `unpacked` returns it.

    >>> unpacked(packed({"domains": ["sql"]}))
    {'domains': ['sql']}
    """
    return np.frombuffer(json.dumps(document).encode(), np.uint8)


def unpacked(array: NDArray[Any]) -> Any:
    """Return what `packed` made an array of."""
    return json.loads(np.asarray(array, np.uint8).tobytes().decode())


def cut_of(setting: Setting) -> hl.Trace:
    """Return the setting's trace, or under "prompts" so many prompts of each domain."""
    trace = trace_of(setting)
    return trace.few_prompts(int(setting["prompts"])) if setting.get("prompts") else trace


def specialist_kinds(trace: hl.Trace) -> dict[str, tuple[list[str], list[str]]]:
    """Return {kind: (specialists, generalists of the same kind)} of a trace, kinds without a specialist left out."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for drafter, role in zip(trace.manifest.drafters, roles_of(trace.manifest.drafters), strict=True):
        if role.name in ("specialist", "generalist"):
            found.setdefault(drafter.kind, ([], []))[role.name == "generalist"].append(drafter.name)
    return {kind: both for kind, both in found.items() if both[0]}


def has_pool(trace: hl.Trace, pool: str) -> bool:
    """Return whether a trace has a drafter of a pool, see `members`."""
    return pool == "all" or pool.partition(" ")[0] in specialist_kinds(trace)


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


@functools.lru_cache(maxsize=32)
def _draws(clusters: tuple[str, ...], strata: tuple[str, ...], resamples: int, seed: int) -> Draws:
    """Return resamples, the same for all policies and for all settings of the same texts."""
    return resample(clusters, strata, resamples=resamples, seed=seed)


class Sample:
    """Texts with their domains and what is drawn in the bootstrap: conversations, within the domain they began in.

    Intervals are NaN where a domain has one conversation: its bootstrap has no spread to show.
    domains, clusters, strata : S labels. tokens : (S,)
    """

    def __init__(
        self,
        domains: Sequence[str],
        clusters: Sequence[str],
        strata: Sequence[str],
        tokens: NDArray[Any],
        resamples: int = RESAMPLES,
    ) -> None:
        self.domains = np.array(domains, str)
        self.clusters = np.array(clusters, str)
        self.strata = np.array(strata, str)
        self.tokens = np.asarray(tokens, np.float64)
        self.resamples = resamples

    @property
    def groups(self) -> tuple[str, ...]:
        """The domains in the order of the texts, and POOLED."""
        return (*dict.fromkeys(self.domains.tolist()), POOLED)

    def among(self, texts: NDArray[np.bool_], resamples: int = RESAMPLES) -> Sample:
        """Return the sample of some of the texts."""
        domains, clusters, strata = (part[texts].tolist() for part in (self.domains, self.clusters, self.strata))
        return Sample(domains, clusters, strata, self.tokens[texts], resamples)

    def draws(self, group: str) -> tuple[NDArray[np.bool_], Draws, bool]:
        """Return (S,) whether a text is of a group, resamples of these, each domain's its own, and whether some stratum
        has a single conversation."""
        here = np.full(len(self.domains), True) if group == POOLED else self.domains == group
        strata = self.strata[here] if group == POOLED else np.full(int(here.sum()), group)
        clusters = self.clusters[here]
        place = (self.groups.index(group) + 1) % len(self.groups)
        drawn = _draws(tuple(clusters.tolist()), tuple(strata.tolist()), self.resamples, place)
        return here, drawn, min(len(set(clusters[strata == name])) for name in np.unique(strata)) < 2

    def mat(self, rounds: NDArray[np.float64], group: str = POOLED, comparisons: int = 1) -> Interval:
        """Return tokens / rounds of a policy over a group's texts."""
        return self.ratio(self.tokens, rounds, group, comparisons)

    def difference(
        self,
        rounds: NDArray[np.float64],
        other: NDArray[np.float64],
        group: str = POOLED,
        comparisons: int = 1,
    ) -> Interval:
        """Return MAT of one policy minus that of another, paired: both on the same drawn prompts."""
        here, drawn, single = self.draws(group)
        tokens = self.tokens[here]
        return _shown(of_difference_of_ratios(tokens, rounds[here], other[here], drawn, comparisons), single)

    def ratio(
        self, above: NDArray[np.float64], below: NDArray[np.float64], group: str = POOLED, comparisons: int = 1
    ) -> Interval:
        """Return sum(above) / sum(below) over a group's texts."""
        here, drawn, single = self.draws(group)
        return _shown(of_ratio(above[here], below[here], drawn, comparisons), single)


def _shown(interval: Interval, single: bool) -> Interval:
    return Interval(interval.estimate, math.nan, math.nan) if single else interval


def sample_of(arrays: Mapping[str, NDArray[Any]]) -> Sample:
    """Return the sample that results hold under "about" (domains, clusters, strata, packed) and "tokens"."""
    about = unpacked(arrays["about"])
    return Sample(about["domains"], about["clusters"], about["strata"], arrays["tokens"])
