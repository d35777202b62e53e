"""Policies and oracles side by side on one trace: the computation behind `hedgelab demo` and `hedgelab replay`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab import bounds, oracles
from hedgelab.algorithms import learner
from hedgelab.contract import Learner
from hedgelab.cost import Costs, CostsError, bill, fixed_bills
from hedgelab.decode_replay import Replay, coin_place, replay, whole
from hedgelab.feedback import draft_length, loss_range
from hedgelab.regret import Interval, bootstrap_counts, ratio_interval, sum_interval, token_game
from hedgelab.trace import Trace

__all__ = ["POOLED", "BestOfKind", "Comparison", "Curves", "Policy", "compare", "default_learners", "regret_curves"]

POOLED = "all domains"
REPLICATES = 8  # coin replicates a policy is averaged over: they sharpen each prompt's mean, they add no prompts
RESAMPLES = 2000
STREAMS = 8

Advance = Callable[[int], None]
ModelledSeconds = NDArray[np.float64] | None


@dataclass(frozen=True)
class Policy:
    """One line of a comparison. S sequences.

    kind : "learner", or "oracle" (knows what a decoder cannot)
    rounds : (S,) float64, rounds of each sequence, mean over coins (exact for oracles that have an expectation)
    caveats : what voids the conditions of a learner's theorem here
    seconds : (S,) modelled seconds of each sequence, mean over coins; None where no cost is known
    """

    name: str
    kind: str
    feedback: str
    rounds: NDArray[np.float64]
    caveats: tuple[str, ...] = ()
    seconds: ModelledSeconds = None


class BestOfKind(NamedTuple):
    """The drafter of a kind that needs the fewest rounds alone, `best` of so many `drafters`.

    mat : its MAT, {domain or "all domains": interval}
    """

    kind: str
    drafters: int
    best: str
    mat: dict[str, Interval]


@dataclass(frozen=True)
class Comparison:
    """Policies on one trace, with paired bootstrap intervals over prompts (95%, percentile, drawn within domains).

    alone : (S, N) expected rounds of each drafter alone. costs : of the calls, where seconds are modelled
    """

    trace: Trace
    settings: dict[str, Any]
    best_fixed: str
    policies: tuple[Policy, ...]
    alone: NDArray[np.float64]
    costs: Costs | None = None

    @property
    def tokens(self) -> NDArray[np.float64]:
        """(S,) committed tokens of each sequence, the same for every policy."""
        return np.diff(self.trace.offsets).astype(np.float64)

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of the trace, in its own order."""
        there = set(self.trace.domains.tolist())
        return tuple(name for name in self.trace.manifest.domains if name in there)

    def summary(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return {domain or "all domains": {policy: numbers}}.

        Best fixed drafters and informed switching: exact expectations over coins. All others: means over replicates.

        mat : all tokens / all rounds; mat_mean_of_requests : mean over prompts of tokens / rounds
        rounds : sum over prompts; regret_rounds : rounds minus those that the best fixed drafter needs on average
        speedup : modelled seconds of plain decoding over those of the rounds (`hedgelab.cost`), where costs are known;
            of the best fixed drafter, as of learners, a mean over replicates
        """
        return self._summary

    def kinds(self) -> list[BestOfKind]:
        """Return the best drafter of each kind over all domains, alone, in the order in which the trace names kinds.

        It was chosen on the very texts on which its MAT is shown, which flatters a kind of many drafters.
        """
        members: dict[str, list[int]] = {}
        for i, drafter in enumerate(self.trace.manifest.drafters):
            members.setdefault(drafter.kind, []).append(i)
        total = self.alone.sum(axis=0)
        best = {kind: min(those, key=lambda i: float(total[i])) for kind, those in members.items()}
        mats: dict[str, dict[str, Interval]] = {kind: {} for kind in members}
        for domain, here, counts, single in self._resampled:
            for kind, i in best.items():
                interval = ratio_interval(self.tokens[here], self.alone[here, i], counts)
                mats[kind][domain] = _shown(interval, single)
        return [
            BestOfKind(kind, len(those), self.trace.drafters[best[kind]], mats[kind]) for kind, those in members.items()
        ]

    @cached_property
    def _resampled(self) -> list[tuple[str, NDArray[np.bool_], NDArray[np.float64], bool]]:
        """(domain, its texts (S,), draws (resamples, texts), whether one has a single prompt), and POOLED last."""
        found = []
        for domain in (*self.domains, POOLED):
            here = np.full(self.trace.sequences, True) if domain == POOLED else self.trace.domains == domain
            # a conversation is drawn as a whole: over all domains it belongs to that of its first turn
            strata = self.trace.home_domains[here] if domain == POOLED else self.trace.domains[here]
            clusters = self.trace.conversations[here]
            counts = bootstrap_counts(clusters, strata=strata, resamples=RESAMPLES, seed=0)
            single = min(len(set(clusters[strata == name])) for name in np.unique(strata)) < 2
            found.append((domain, here, counts, single))
        return found

    @cached_property
    def _summary(self) -> dict[str, dict[str, dict[str, Any]]]:
        # tables, figure and JSON all ask for it
        reference = next(policy for policy in self.policies if policy.name == BEST_FIXED).rounds
        table: dict[str, dict[str, dict[str, Any]]] = {}
        for domain, here, counts, single in self._resampled:
            tokens = self.tokens[here]
            table[domain] = {}
            for policy in self.policies:
                rounds = policy.rounds[here]
                numbers = {
                    "mat": ratio_interval(tokens, rounds, counts),
                    "mat_mean_of_requests": ratio_interval(tokens / rounds, np.ones_like(rounds), counts),
                    "rounds": sum_interval(rounds, counts),
                    "regret_rounds": sum_interval(rounds - reference[here], counts),
                }
                if self.costs is not None and policy.seconds is not None:
                    plain = tokens * self.costs.target.step.median
                    numbers["speedup"] = ratio_interval(plain, policy.seconds[here], counts)
                table[domain][policy.name] = {key: _shown(interval, single) for key, interval in numbers.items()}
        return table

    def difference(self, name: str, other: str) -> Interval:
        """Return MAT of one policy minus that of another over all domains, paired: on the same resampled prompts."""
        rounds = {policy.name: policy.rounds for policy in self.policies}
        for policy in (name, other):
            if policy not in rounds:
                raise ValueError(f"no policy {policy!r}; there are {', '.join(rounds)}")
        _, _, counts, single = self._resampled[-1]
        mats = [self.tokens.sum() / rounds[policy].sum() for policy in (name, other)]
        drawn = [(counts @ self.tokens) / (counts @ rounds[policy]) for policy in (name, other)]
        low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
        return _shown(Interval(float(mats[0] - mats[1]), float(low), float(high)), single)

    def document(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold."""
        return {
            "trace": {"name": self.trace.manifest.name, "sha256": self.trace.sha256, "sequences": self.trace.sequences},
            "settings": self.settings,
            "best_fixed_drafter": self.best_fixed,
            "policies": {policy.name: {"kind": policy.kind, "feedback": policy.feedback} for policy in self.policies},
            **({} if self.costs is None else {"costs": _said(self.costs)}),
            "interval": f"95%, percentile bootstrap over prompts within domains, {RESAMPLES} resamples, paired",
            "results": {
                domain: {
                    name: {key: _document(interval) for key, interval in numbers.items()}
                    for name, numbers in rows.items()
                }
                for domain, rows in self.summary().items()
            },
            "kinds": {
                best.kind: {
                    "drafters": best.drafters,
                    "best": best.best,
                    "mat": {domain: _document(interval) for domain, interval in best.mat.items()},
                }
                for best in self.kinds()
            },
        }


BEST_FIXED = "best fixed drafter"
ORACLES = (BEST_FIXED, "best fixed per prompt", "informed switching", "clairvoyant switching")


def _shown(interval: Interval, single: bool) -> Interval:
    # a bootstrap over one prompt in a domain has no spread to show
    return Interval(interval.estimate, math.nan, math.nan) if single else interval


def _document(interval: Interval) -> dict[str, float | None]:
    return {key: None if math.isnan(value) else value for key, value in interval._asdict().items()}


def _checked_route(name: str, route: ArrayLike, trace: Trace) -> NDArray[np.int64]:
    given, n = np.asarray(route), len(trace.drafters)
    right = given.shape == (trace.sequences,) and given.dtype.kind in "iu"
    if not right or ((given < 0) | (given >= n)).any():
        raise ValueError(f"route {name!r}: a drafter in [0, {n - 1}] for each of the {trace.sequences} texts is needed")
    return given.astype(np.int64)


def _said(costs: Costs) -> dict[str, Any]:
    return {"machine": costs.machine.processor, "measured": costs.measured, "provisional": costs.machine.provisional}


def default_learners() -> tuple[Learner, ...]:
    """Return the learners of the demo, with their defaults: few enough to tell apart in one figure."""
    return tuple(learner(name) for name in ("hedge", "normalhedge", "ftl", "exp3", "ucb1", "uniform"))


def compare(
    trace: Trace,
    policies: Iterable[Learner | str],
    *,
    k: int | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
    routes: Mapping[str, ArrayLike] = MappingProxyType({}),
    advance: Advance = lambda _: None,
    costs: Costs | None = None,
    **options: Any,
) -> Comparison:
    """Return policies and oracles on one trace under the same coins.

    costs : with them the comparison holds modelled seconds, of every policy whose drafters were measured

    policies : learners or registered names, each once (other parameters make another). options go to `replay`; a
    learner meets the feedback that it is made for unless they say otherwise.
    routes : {name: (S,) drafter's index}, policies that decide on a drafter for each text before it begins: exact, as
    the best fixed ones are
    """
    k = draft_length(trace, k)
    replicates = whole("replicates", replicates, 1, 2**32 - 1)
    seed, _ = coin_place(seed, replicates - 1)
    if "coins" in options:
        raise ValueError("compare draws its own coins, so that policies and oracles meet the same ones")
    if costs is not None and k > costs.k:
        raise CostsError(f"k is {k}; costs were measured for drafts of at most {costs.k}")
    if POOLED in trace.domains:
        raise ValueError(f"a domain must not be called {POOLED!r}, the name of the pooled line")
    chosen = [learner(policy) if isinstance(policy, str) else policy for policy in policies]
    labels = [policy.label for policy in chosen]
    routed = {name: _checked_route(name, route, trace) for name, route in routes.items()}
    for label in (*labels, *routed):
        if label in ORACLES or [*labels, *routed].count(label) > 1:
            raise ValueError(f"every line needs a name of its own, but there are two called {label!r}")
    rows: list[Policy] = []
    for label, policy in zip(labels, chosen, strict=True):
        total = np.zeros(trace.sequences)
        seconds: list[ModelledSeconds] = []
        for replicate in range(replicates):
            run = replay(trace, policy, k=k, seed=seed, replicate=replicate, **options)
            total += run.sequence_rounds
            seconds.append(_seconds(run, costs))
            advance(1)
        feedback = "none" if policy.feedback == "none" else run.settings["feedback"]
        rows.append(Policy(label, "learner", feedback, total / replicates, run.caveats, _mean(seconds)))
    fixed = oracles.expected_fixed_rounds(trace, k=k)
    alone: dict[int, ModelledSeconds] = {}
    if costs is not None:
        used = sorted({fixed.best, *(int(i) for route in routed.values() for i in route)})
        names = [trace.drafters[i] for i in used]
        bills = fixed_bills(trace, costs, k=k, replicates=replicates, seed=seed, drafters=names)
        alone = {i: _mean([each.by_sequence for each in bills[name]]) for i, name in zip(used, names, strict=True)}
    texts = np.arange(trace.sequences)
    for name, route in routed.items():
        rows.append(Policy(name, "learner", "none", fixed.rounds[texts, route], seconds=_along(route, alone)))
    switching = np.zeros(trace.sequences)
    for replicate in range(replicates):
        switching += oracles.clairvoyant_rounds(trace, k=k, seed=seed, replicate=replicate)
        advance(1)
    informed = oracles.informed_rounds(trace, k=k)
    known = (fixed.overall, fixed.per_query, informed, switching / replicates)
    for name, rounds in zip(ORACLES, known, strict=True):
        seconds_of = alone.get(fixed.best) if name == BEST_FIXED else None
        rows.append(Policy(name, "oracle", "all", rounds, seconds=seconds_of))
    return Comparison(
        trace=trace,
        settings={"k": k, "replicates": replicates, "seed": seed, **options},
        best_fixed=trace.drafters[fixed.best],
        policies=tuple(rows),
        alone=fixed.rounds,
        costs=costs,
    )


def _seconds(run: Replay, costs: Costs | None) -> ModelledSeconds:
    """Return (S,) the modelled seconds of a run; None where a cost is not known."""
    try:
        return None if costs is None else bill(run, costs).by_sequence
    except CostsError:
        return None


def _along(route: NDArray[np.int64], alone: Mapping[int, ModelledSeconds]) -> ModelledSeconds:
    """Return (S,) the seconds of each text with the drafter of its route, given those of drafters alone."""
    columns = [known for i in route.tolist() if (known := alone.get(i)) is not None]
    return np.array([known[s] for s, known in enumerate(columns)]) if len(columns) == len(route) else None


def _mean(seconds: Sequence[ModelledSeconds]) -> ModelledSeconds:
    known = [each for each in seconds if each is not None]
    return np.mean(known, axis=0) if known and len(known) == len(seconds) else None


@dataclass(frozen=True)
class Curves:
    """Token-game regret per token at given numbers of tokens, over bootstrap streams of prompts.

    tokens : (M,), M = 0 when no sequence is long enough for a play; per_token : {learner: (streams, M)}; hedge_bound :
    (streams, M)
    """

    tokens: NDArray[np.int64]
    per_token: dict[str, NDArray[np.float64]]
    hedge_bound: NDArray[np.float64]


def regret_curves(
    trace: Trace,
    names: Iterable[str],
    *,
    k: int | None = None,
    objective: str = "length",
    streams: int = STREAMS,
    seed: int = 0,
    advance: Advance = lambda _: None,
) -> Curves:
    """Return the token game's static regret per token of learners whose state is carried through a stream of prompts.

    A stream holds as many prompts as the trace, drawn with replacement, in random order: the spread over streams is the
    bootstrap's. The bound is Hedge's under the delays of its own run (`bounds.hedge_path`); it holds for no other
    learner.
    """
    k = draft_length(trace, k)
    n = len(trace.drafters)
    scale = learner("hedge").parameters["scale"].default
    names = tuple(names)
    for name in names:
        if learner(name).feedback == "bandit":
            raise ValueError(f"learner {name!r} has bandit feedback: it plays no token game")
    rng = np.random.default_rng(seed)
    orders = [rng.integers(0, trace.sequences, trace.sequences) for _ in range(streams)]
    # the lag keeps each sequence's last k - 1 rows out of the game
    lost = (k if objective == "length" else 1) - 1
    lengths = np.maximum(np.diff(trace.offsets) - lost, 0)
    shortest = min(int(lengths[order].sum()) for order in orders)
    if shortest == 0:
        return Curves(np.empty(0, np.int64), {}, np.empty((0, 0)))
    times = np.unique(np.geomspace(1, shortest, 60).astype(np.int64))
    per_token: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names}
    bound = []
    for order in orders:
        stream = trace.select(order)
        for name in per_token:
            run = replay(stream, name, k=k, objective=objective, carry_over=True, token_game=True, seed=seed)
            per_token[name].append(token_game(run, times).regret / times)
            if name == "hedge" and run.expected_loss is not None and run.losses_seen is not None:
                seen = run.losses_seen[~np.isnan(run.expected_loss)]
                rates = scale * np.sqrt(np.log(n) / (seen + 1))
                width = loss_range(objective, k)
                missing = np.arange(len(seen)) - seen
                path = bounds.hedge_path(rates, missing, n, loss_range=width) if n > 1 else np.zeros(len(seen))
                bound.append(path[times - 1] / times)
            advance(1)
    return Curves(times, {name: np.array(rows) for name, rows in per_token.items()}, np.array(bound))


def cell(interval: Interval, digits: int = 3) -> str:
    """Return an interval as text.

    >>> cell(Interval(2.0, 1.9, 2.1), 2)
    '2.00 [1.90, 2.10]'
    """
    if math.isnan(interval.low):
        return f"{interval.estimate:.{digits}f} [one prompt a domain]"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def half_width(interval: Interval) -> str:
    """Return an interval as its estimate and half of its width.

    >>> half_width(Interval(2.0, 1.9, 2.1))
    '2.00 ±0.10'
    """
    width = "" if math.isnan(interval.low) else f" ±{(interval.high - interval.low) / 2:.2f}"
    return f"{interval.estimate:.2f}{width}"
