r"""Claim 7: more drafters help with full information, while bandits pay for each.

*Sub-pools.* Random orders of the trace's drafters; the first N of an order are a pool, so each order is a chain of
nested pools. Every policy plays the same pools under the same coins, order m under replicate m. Text starts afresh with
every query, draft length k.

*Intervals* are for new prompts and new orders: both are drawn with replacement, prompts within domains, each on its
own (Owen 2007, the pigeonhole bootstrap). At N = all drafters an order has no meaning left but its coins.

*Enlarged pools* are made up: seven drafters with the trace's mean acceptance in each domain, the best among them, then
weak ones, none better than the trace's lower quartile; the smaller pool is the beginning of the larger one.
*Duplicates*: as many copies of a pool's best drafter as the pool has drafters.

*After the first full run*: an effect of exactly 0 could not hold where nothing falls or costs (questions rises, steps,
weak), so 0.05 tokens are let pass; and copies help uniform play too (question duplicates), so its gain is taken off.

*Speed-up* charges the scoring of drafters that were not chosen (`hedgelab.cost`); pools are then of drafters whose
cost is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments import growth
from experiments.claim import (
    Answer,
    Arrays,
    Claim,
    ClaimError,
    Question,
    Results,
    Setting,
    above,
    below,
    trace_of,
)
from experiments.intervals import Draws, of_mean, percentile, resample
from hedgelab.cost import unknown
from hedgelab.regret import Interval

__all__ = ["CLAIM", "QUICK", "SETTINGS", "Pools", "check", "run"]

POLICIES = ("normalhedge", "hedge", "ftl", "ucbspec", "exp3spec", "metasd", "thompson-beta", "uniform")
BETAS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of ucb-tuned
PRICED = ("normalhedge", "ftl", "ucbspec", "uniform")
ENLARGED = ("normalhedge", "ucbspec", "exp3spec", "uniform")
SPECS = ("ucbspec", "exp3spec")
SIZES = (2, 3, 5, 7, 8, 13, 21, 34)  # and all
PAPER = 7  # drafters of a pool in the paper
FIT_FROM = 5  # least N of an exponent
RESAMPLES = 20_000
CLOSE = 0.05  # tokens a round: what counts as no change
_ORDER, _WEAK = 0, 1  # streams of the generators

TRACES = ("t06", "greedy")
CLAIM = Claim(
    sentence=(
        "More drafters help: with full information MAT grows, or at least does not fall, as drafters are added, while "
        "bandits pay for each."
    ),
    source="arXiv 2510.20064; regret sqrt(T ln N) against sqrt(T N)",
    questions={
        "rises": Question(
            "NormalHedge's MAT does not fall by 0.05 tokens from seven random drafters to all of the trace.",
            above(-CLOSE),
            "tokens per round",
            len(TRACES),
        ),
        "bandits": Question(
            "UCBSpec's and EXP3Spec's MAT does fall.", below(0.0), "tokens per round", len(TRACES) * len(SPECS)
        ),
        "steps": Question(
            "NormalHedge's MAT falls by 0.05 tokens at no step from one size of pool to the next.",
            above(-CLOSE),
            "tokens per round",
            len(TRACES) * len(SIZES),
        ),
        "lead": Question(
            "NormalHedge's lead over UCBSpec and EXP3Spec is larger at all drafters than at seven.",
            above(0.0),
            "tokens per round",
            len(TRACES) * len(SPECS),
        ),
        "regret": Question(
            "From seven drafters to all, regret in rounds to the pool's best fixed drafter grows by more for UCBSpec "
            "and EXP3Spec than for NormalHedge.",
            above(0.0),
            "rounds per text beyond NormalHedge's",
            len(TRACES) * len(SPECS),
        ),
        "weak": Question(
            "Weak drafters added to seven do not cost NormalHedge 0.05 tokens: not ten times as many, not 4096.",
            above(-CLOSE),
            "tokens per round",
            4,
        ),
        "weak_bandits": Question(
            "They cost UCBSpec and EXP3Spec more than NormalHedge.", above(0.0), "tokens per round", 4
        ),
        "duplicates": Question(
            "Copies of the best drafter, as many as the pool has drafters, raise UCBSpec's and EXP3Spec's MAT by more "
            "than that of uniform play.",
            above(0.0),
            "tokens per round",
            len(SPECS),
        ),
        "speed": Question(
            "In modelled seconds more is less: with all drafters scored, NormalHedge's speed-up is lower with all "
            "drafters of known cost than with seven.",
            below(0.0),
            "times plain decoding",
            len(TRACES),
        ),
    },
)


def _chunks(kind: str, trace: str, orders: int, size: int, **more: Any) -> Iterator[Setting]:
    for first in range(0, orders, size):
        yield {"kind": kind, "trace": trace, "k": 5, "first": first, "orders": min(size, orders - first), **more}


def _settings() -> Iterator[Setting]:
    for trace in TRACES:
        yield from _chunks("real", trace, 32, 8, prompts=0, sizes=list(SIZES))
        yield from _chunks("speed", trace, 16, 8, prompts=0, sizes=list(SIZES))
    yield from _chunks("duplicates", TRACES[0], 16, 16, prompts=0, sizes=[PAPER])
    for batch in range(8):
        yield {
            "kind": "enlarged",
            "trace": TRACES[0],
            "k": 5,
            "batch": batch,
            "texts": 2,
            "rows": 180,
            "sizes": [7, 70, 700, 4096],
        }


def _quick() -> Iterator[Setting]:
    for trace in TRACES:
        yield from _chunks("real", trace, 4, 4, prompts=3, sizes=[3, 7, 13])
        yield from _chunks("speed", trace, 2, 2, prompts=3, sizes=[7])
    yield from _chunks("duplicates", TRACES[0], 4, 4, prompts=3, sizes=[PAPER])
    for batch in range(2):
        sizes = [7, 70, 140]
        yield {"kind": "enlarged", "trace": TRACES[0], "k": 5, "batch": batch, "texts": 1, "rows": 90, "sizes": sizes}


SETTINGS: Sequence[Setting] = tuple(_settings())
QUICK: Sequence[Setting] = tuple(_quick())


# ------------------------------------------------------------------ pools


def texts_of(setting: Setting) -> hl.Trace:
    """Return the setting's trace, or so many prompts a domain of it."""
    trace = trace_of(setting)
    return trace.few_prompts(setting["prompts"]) if setting["prompts"] else trace


def sizes_of(setting: Setting, n: int) -> list[int]:
    """Return the sizes of pools among n drafters: the setting's, then all."""
    return [size for size in setting["sizes"] if size < n] + [n]


def order_of(n: int, index: int, seed: int) -> NDArray[np.int64]:
    """Return an order of n drafters, (n,): its first N are a pool."""
    return np.random.Generator(np.random.PCG64([seed, _ORDER, index])).permutation(n)


def pool_of(trace: hl.Trace, order: NDArray[np.int64], size: int) -> hl.Trace:
    """Return the trace of the first `size` drafters of an order."""
    return trace.among([trace.drafters[i] for i in order[:size]])


def fingerprint(trace: hl.Trace, names: Sequence[str]) -> int:
    """Return the set of a trace's drafters as a number: bit i for the i-th of `names`, modulo 2^61 - 1."""
    there = set(trace.drafters)
    return sum(1 << i for i, name in enumerate(names) if name in there) % (2**61 - 1)


def _real(setting: Setting, seed: int) -> Arrays:
    trace, k = texts_of(setting), setting["k"]
    n = len(trace.drafters)
    sizes = sizes_of(setting, n)
    learners = [hl.learner(name) for name in POLICIES] + [hl.learner("ucb-tuned", beta=beta) for beta in BETAS]
    shape = (setting["orders"], len(sizes), trace.sequences)
    rounds = np.empty((len(learners), *shape), np.int32)
    best, informed = (np.empty(shape, np.float32) for _ in range(2))
    played = np.empty((len(learners), *shape[:2]), np.int64)
    alone = hl.oracles.expected_fixed_rounds(trace, k=k).rounds
    for m in range(setting["orders"]):
        index = setting["first"] + m
        order = order_of(n, index, seed)
        for j, size in enumerate(sizes):
            pool = pool_of(trace, order, size)
            for p, learner in enumerate(learners):
                replayed = hl.replay(pool, learner, k=k, seed=seed, replicate=index)
                rounds[p, m, j] = replayed.sequence_rounds
                played[p, m, j] = fingerprint(replayed.trace, trace.drafters)
            members = np.sort(order[:size])
            best[m, j] = alone[:, members[alone[:, members].sum(axis=0).argmin()]]
            informed[m, j] = hl.oracles.informed_rounds(pool, k=k)
    return {"rounds": rounds, "best": best, "informed": informed, "pools": played, "sizes": np.array(sizes)}


def _speed(setting: Setting, seed: int) -> Arrays:
    trace, k, costs = texts_of(setting), setting["k"], hl.Costs.load()
    strangers = unknown(trace, costs)
    priced = [name for name in trace.drafters if name not in strangers and costs.drafters[name].draft is not None]
    if not priced:
        return {"sizes": np.zeros(0, np.int64)}
    trace = trace.among(priced)
    n = len(priced)
    sizes = sizes_of(setting, n)
    shape = (setting["orders"], len(sizes), trace.sequences)
    seconds = np.empty((len(PRICED) + 1, *shape), np.float32)
    fixed = np.empty(shape, np.float32)
    bills = hl.cost.fixed_bills(trace, costs, k=k, replicates=1, seed=seed)
    alone = np.stack([bills[name][0].by_sequence for name in trace.drafters], axis=1)
    for m in range(setting["orders"]):
        index = setting["first"] + m
        order = order_of(n, index, seed)
        for j, size in enumerate(sizes):
            pool = pool_of(trace, order, size)
            for p, name in enumerate(PRICED):
                replayed = hl.replay(pool, name, k=k, seed=seed, replicate=index)
                seconds[p, m, j] = hl.cost.bill(replayed, costs).by_sequence
                if p == 0:
                    seconds[-1, m, j] = hl.cost.bill(replayed, costs, every=0).by_sequence
            members = np.sort(order[:size])
            fixed[m, j] = alone[:, members[alone[:, members].sum(axis=0).argmin()]]
    plain = np.diff(trace.offsets) * costs.target.step.median
    return {"seconds": seconds, "fixed": fixed, "plain": plain, "sizes": np.array(sizes)}


def _duplicates(setting: Setting, seed: int) -> Arrays:
    trace, k, (size,) = texts_of(setting), setting["k"], setting["sizes"]
    n = len(trace.drafters)
    size = min(size, n)
    rounds = np.empty((2, len(ENLARGED), setting["orders"], trace.sequences), np.int32)
    alone = hl.oracles.expected_fixed_rounds(trace, k=k).rounds.sum(axis=0)
    for m in range(setting["orders"]):
        index = setting["first"] + m
        members = np.sort(order_of(n, index, seed)[:size])
        pool = pool_of(trace, members, size)
        columns = np.concatenate([np.arange(size), np.full(size, alone[members].argmin())])
        more = _columns(pool, columns)
        for p, name in enumerate(ENLARGED):
            for j, each in enumerate((pool, more)):
                replayed = hl.replay(each, name, k=k, seed=seed, replicate=index)
                rounds[j, p, m] = replayed.sequence_rounds
    return {"rounds": rounds}


def _columns(trace: hl.Trace, columns: NDArray[np.int64]) -> hl.Trace:
    """Return the trace of these columns, repeats allowed, under new names; its texts keep their coins."""
    depth = trace.alpha.shape[1]
    deep = [1 if i in set(trace.flat_columns.tolist()) else depth for i in columns]
    return hl.Trace.from_arrays(
        token=trace.token,
        alpha=trace.alpha[:, :, columns],
        gamma=trace.gamma[:, :, columns],
        offsets=trace.offsets,
        domains=trace.domains.tolist(),
        drafters=[f"{trace.drafters[i]} {j}" for j, i in enumerate(columns.tolist())],
        k=trace.k,
        proposed=trace.proposed[:, columns],
        sequence_id=trace.sequence_id,
        depths=deep,
    )


def acceptances(trace: hl.Trace, n: int, seed: int) -> NDArray[np.float64]:
    """Return (D, n) mean first-draft acceptance: PAPER of the trace's drafters, evenly spaced by rank, then weak ones.

    Weak ones are uniform below the lower quartile of the trace's drafters, the same in every domain.
    """
    gamma = trace.gamma[:, 0, :]
    rows = np.repeat(trace.domains, np.diff(trace.offsets))
    means = np.array([np.nanmean(gamma[rows == d], axis=0) for d in trace.manifest.domains if (rows == d).any()])
    overall = means.mean(axis=0)
    ranks = np.linspace(0, len(overall) - 1, PAPER).round().astype(np.int64)
    strong = means[:, np.argsort(-overall, kind="stable")[ranks]]
    rng = np.random.Generator(np.random.PCG64([seed, _WEAK]))
    weak = rng.random(n - PAPER) * np.quantile(overall, 0.25)
    return np.clip(np.hstack([strong, np.broadcast_to(weak, (len(strong), len(weak)))]), 0, 1)


def _enlarged(setting: Setting, seed: int) -> Arrays:
    k, sizes = setting["k"], setting["sizes"]
    means = acceptances(trace_of(setting), max(sizes), seed)
    whole = hl.worlds.pool(means, setting["rows"], sequences=setting["texts"], k=k, seed=seed * 1000 + setting["batch"])
    rounds = np.empty((2, len(ENLARGED), len(sizes), whole.sequences), np.int32)
    best = np.empty((len(sizes), whole.sequences), np.float32)
    for j, size in enumerate(sizes):
        pool = whole if size == max(sizes) else _columns(whole, np.arange(size))
        best[j] = hl.oracles.expected_fixed_rounds(pool, k=k).overall
        for p, name in enumerate(ENLARGED):
            for stream in (False, True):
                replayed = hl.replay(pool, name, k=k, seed=seed, replicate=setting["batch"], carry_over=stream)
                rounds[int(stream), p, j] = replayed.sequence_rounds
    domains = np.repeat(np.arange(len(means)), setting["texts"])
    return {"rounds": rounds, "best": best, "tokens": np.diff(whole.offsets), "domains": domains}


def run(setting: Setting, seed: int) -> Arrays:
    """Replay policies on pools of several sizes.

    real        rounds (policies, orders, sizes, S) of POLICIES and of ucb-tuned with each of BETAS, best and informed
                (orders, sizes, S), pools (policies, orders, sizes) what was played among, sizes
    speed       seconds (policies, orders, sizes, S) of PRICED and of NormalHedge without the price of scoring, fixed
                (orders, sizes, S) of the best drafter by seconds, plain (S,), sizes: none where no cost is known
    duplicates  rounds (without and with, policies, orders, S) of ENLARGED
    enlarged    rounds (afresh and streams, policies, sizes, S), best (sizes, S), tokens and domains (S,)
    """
    kinds = {"real": _real, "speed": _speed, "duplicates": _duplicates, "enlarged": _enlarged}
    return kinds[setting["kind"]](setting, seed)


# ------------------------------------------------------------------ aggregation


@dataclass(frozen=True)
class Pools:
    """Pools of a trace, M orders of P sizes, S texts.

    sizes : (P,). cost : {policy: (M, P, S)} rounds, or seconds. gain : (S,) tokens, or seconds of plain decoding.
    prompts, orders : resamples of the texts and of the orders, B of each
    """

    sizes: NDArray[np.int64]
    cost: dict[str, NDArray[np.float64]]
    gain: NDArray[np.float64]
    prompts: Draws
    orders: Draws
    _kept: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)

    @property
    def degrees(self) -> float:
        """Of freedom: of the two the fewer."""
        return min(self.prompts.degrees, self.orders.degrees)

    def value(self, policy: str) -> NDArray[np.float64]:
        """(P,) MAT, or speed-up, over pools and texts."""
        return np.asarray(self.gain.sum() / self.cost[policy].mean(axis=0).sum(axis=-1))

    def drawn_cost(self, policy: str) -> NDArray[np.float64]:
        """(B, P) cost of the drawn prompts, averaged over the drawn orders."""
        if policy not in self._kept:
            orders, sizes, texts = self.cost[policy].shape
            each = (self.prompts @ self.cost[policy].reshape(-1, texts).T).reshape(-1, orders, sizes)
            self._kept[policy] = np.einsum("bm,bmp->bp", self.orders.weights, each) / orders
        return self._kept[policy]

    def drawn(self, policy: str) -> NDArray[np.float64]:
        """(B, P) MAT, or speed-up, of the drawn prompts and orders."""
        return np.asarray((self.prompts @ self.gain)[:, None] / self.drawn_cost(policy))

    def at(self, size: int) -> int:
        """Return the place of the size nearest to `size`."""
        return int(np.abs(self.sizes - size).argmin())


def _resamples(trace: hl.Trace, orders: int) -> tuple[Draws, Draws]:
    prompts = resample(trace.conversations, trace.home_domains, resamples=RESAMPLES)
    return prompts, resample(np.arange(orders), resamples=RESAMPLES, seed=1)


def _joined(results: Results, name: str, axis: int) -> NDArray[np.float64]:
    return np.concatenate([result.arrays[name] for result in results], axis=axis).astype(np.float64)


def folds(trace: hl.Trace) -> NDArray[np.int64]:
    """Return (S,) 0 or 1: every other prompt of each domain, by its id."""
    place: dict[tuple[str, str], int] = {}
    for home in np.unique(trace.home_domains):
        names = np.unique(trace.conversations[trace.home_domains == home])
        place |= {(str(home), str(name)): i % 2 for i, name in enumerate(names)}
    pairs = zip(trace.home_domains.tolist(), trace.conversations.tolist(), strict=True)
    return np.array([place[pair] for pair in pairs])


def _tuned(rounds: NDArray[np.float64], fold: NDArray[np.int64]) -> tuple[NDArray[np.float64], str]:
    """Return rounds (M, P, S) with the beta that needs the fewest on the other half of prompts at that size.

    rounds : (betas, M, P, S)
    """
    out = np.empty(rounds.shape[1:])
    used = set()
    for here in (0, 1):
        mine = fold == here
        total = rounds[..., ~mine].sum(axis=(1, 3))  # (betas, P)
        for j, b in enumerate(total.argmin(axis=0)):
            out[:, j, mine] = rounds[b][:, j, mine]
            used.add(BETAS[b])
    return out, ", ".join(f"{beta:g}" for beta in sorted(used))


def traces(results: Results, kind: str) -> list[str]:
    """Return the names of the traces that a kind of setting was run on."""
    return list(dict.fromkeys(result.setting["trace"] for result in results.where(kind=kind)))


def real_pools(results: Results, trace: str) -> tuple[Pools, str]:
    """Return rounds on a trace's pools, and the betas of ucb-tuned. Raises ClaimError where pools were not the same."""
    parts = results.where(kind="real", trace=trace)
    played = np.concatenate([part.arrays["pools"] for part in parts], axis=1)
    if (played != played[:1]).any():
        p, m, j = (int(i) for i in np.argwhere(played != played[:1])[0])
        names = (*POLICIES, *(f"ucb-tuned {beta:g}" for beta in BETAS))
        raise ClaimError(
            f"{names[p]} and {names[0]} met different pools: order {m}, size {parts[0].arrays['sizes'][j]}"
        )
    texts = texts_of(parts[0].setting)
    rounds = _joined(parts, "rounds", 1)
    cost = dict(zip(POLICIES, rounds, strict=False))
    cost["ucb-tuned"], betas = _tuned(rounds[len(POLICIES) :], folds(texts))
    cost["best fixed drafter"], cost["informed switching"] = _joined(parts, "best", 0), _joined(parts, "informed", 0)
    tokens = np.diff(texts.offsets).astype(np.float64)
    return Pools(parts[0].arrays["sizes"], cost, tokens, *_resamples(texts, rounds.shape[1])), betas


def priced_pools(results: Results, trace: str) -> Pools | None:
    """Return seconds on a trace's pools; None where no cost is known."""
    parts = results.where(kind="speed", trace=trace)
    if not len(parts[0].arrays["sizes"]):
        return None
    texts = texts_of(parts[0].setting)
    seconds = _joined(parts, "seconds", 1)
    cost = dict(zip((*PRICED, FREE), seconds, strict=True)) | {"best fixed drafter": _joined(parts, "fixed", 0)}
    return Pools(parts[0].arrays["sizes"], cost, parts[0].arrays["plain"], *_resamples(texts, seconds.shape[1]))


FREE = "normalhedge, scoring free"


class Enlarged(NamedTuple):
    """Enlarged pools: sizes (P,), {policy: (P, S)} rounds afresh, {policy: (batches, P)} MAT of streams, tokens (S,),
    counts, resamples of texts."""

    sizes: NDArray[np.int64]
    afresh: dict[str, NDArray[np.float64]]
    streams: dict[str, NDArray[np.float64]]
    tokens: NDArray[np.float64]
    counts: Draws

    def mat(self, policy: str, comparisons: int = 1) -> list[Interval]:
        """MAT at each size, texts afresh."""
        drawn = (self.counts @ self.tokens)[:, None] / (self.counts @ self.afresh[policy].T)
        whole = self.tokens.sum() / self.afresh[policy].sum(axis=1)
        degrees = self.counts.degrees
        return [percentile(v, draws, comparisons, degrees=degrees) for v, draws in zip(whole, drawn.T, strict=True)]

    def change(self, policy: str, size: int, comparisons: int, less: str = "") -> Interval:
        """MAT at a size less that at the first, texts afresh; less the same of another policy."""

        def change(counts: NDArray[np.float64]) -> NDArray[np.float64]:
            j = int(np.flatnonzero(self.sizes == size)[0])
            mats = {p: (counts @ self.tokens)[:, None] / (counts @ self.afresh[p].T) for p in (policy, less) if p}
            parts = [m[:, j] - m[:, 0] for m in mats.values()]
            return np.asarray(parts[0] - parts[1] if less else parts[0])

        whole = change(np.ones((1, len(self.tokens))))[0]
        return percentile(whole, change(self.counts.weights), comparisons, degrees=self.counts.degrees)


def enlarged(results: Results) -> Enlarged:
    """Return the enlarged pools of all batches; a batch is one stream."""
    parts = results.where(kind="enlarged")
    rounds = [part.arrays["rounds"].astype(np.float64) for part in parts]
    tokens = [part.arrays["tokens"].astype(np.float64) for part in parts]
    joined = np.concatenate(rounds, axis=3)
    mats = np.array(
        [t.sum() / r[1].sum(axis=-1) for t, r in zip(tokens, rounds, strict=True)]
    )  # (batches, policies, P)
    domains = np.concatenate([part.arrays["domains"] for part in parts])
    counts = resample(np.arange(len(domains)), domains, resamples=RESAMPLES)
    names = dict.fromkeys((*ENLARGED, "best fixed drafter"))
    afresh = dict(zip(names, [*joined[0], _joined(parts, "best", 1)], strict=True))
    streams = {name: mats[:, p] for p, name in enumerate(ENLARGED)}
    return Enlarged(np.array(parts[0].setting["sizes"]), afresh, streams, np.concatenate(tokens), counts)


def change(pools: Pools, policy: str, comparisons: int = 1, less: str = "") -> Interval:
    """Return a policy's MAT, or speed-up, with all drafters less that with seven; less the same of another."""

    def of(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(values[..., -1] - values[..., pools.at(PAPER)])

    whole, drawn = of(pools.value(policy)), of(pools.drawn(policy))
    if less:
        whole, drawn = whole - of(pools.value(less)), drawn - of(pools.drawn(less))
    return percentile(float(whole), drawn, comparisons, degrees=pools.degrees)


def regret(pools: Pools, policy: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rounds beyond those of the pool's best fixed drafter, (P,) and drawn (B, P)."""
    best = "best fixed drafter"
    over = (pools.cost[policy] - pools.cost[best]).mean(axis=0).sum(axis=-1)
    return over, pools.drawn_cost(policy) - pools.drawn_cost(best)


def exponents(pools: Pools, policy: str) -> tuple[float, NDArray[np.float64]]:
    """Return the exponent of regret in N from FIT_FROM on, all points alike, and drawn (B,); NaN for regret <= 0."""
    use = pools.sizes >= FIT_FROM
    over, drawn = regret(pools, policy)
    flat = np.ones(use.sum())
    with np.errstate(invalid="ignore"):
        found = growth.slope(pools.sizes[use], over[use], flat), growth.slope(pools.sizes[use], drawn[:, use], flat)
    return float(found[0]), found[1]


def _growth_beyond(pools: Pools, policy: str, comparisons: int) -> Interval:
    """Return by how many rounds a text regret grows from seven drafters to all, less NormalHedge's."""
    texts, j = len(pools.gain), pools.at(PAPER)
    (one, drawn), (other, drawn_other) = regret(pools, policy), regret(pools, "normalhedge")
    beyond, draws = (one - other) / texts, (drawn - drawn_other) / texts
    whole = float(beyond[-1] - beyond[j])
    return percentile(whole, draws[:, -1] - draws[:, j], comparisons, degrees=pools.degrees)


def copied(results: Results) -> Pools:
    """Return rounds without and with copies of the best drafter."""
    parts = results.where(kind="duplicates")
    rounds = _joined(parts, "rounds", 2)  # (2, policies, M, S)
    cost = {policy: rounds[:, p].swapaxes(0, 1) for p, policy in enumerate(ENLARGED)}
    texts = texts_of(parts[0].setting)
    tokens = np.diff(texts.offsets).astype(np.float64)
    return Pools(np.array([1, 2]), cost, tokens, *_resamples(texts, rounds.shape[2]))


def gained(pools: Pools, policy: str, comparisons: int, less: str = "") -> Interval:
    """Return MAT with copies less that without; less the same of another policy."""
    whole, drawn = np.diff(pools.value(policy))[0], np.diff(pools.drawn(policy), axis=1)[:, 0]
    if less:
        whole, drawn = whole - np.diff(pools.value(less))[0], drawn - np.diff(pools.drawn(less), axis=1)[:, 0]
    return percentile(float(whole), drawn, comparisons, degrees=pools.degrees)


def _said(pools: Pools, policies: Sequence[str], digits: int = 2) -> str:
    places = sorted({pools.at(PAPER), len(pools.sizes) - 1})
    return "; ".join(
        f"{policy} " + ", ".join(f"{pools.value(policy)[j]:.{digits}f} at N = {pools.sizes[j]}" for j in places)
        for policy in policies
    )


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answers; bootstrap over prompts and orders, Student's over streams."""
    wide = {name: question.comparisons for name, question in CLAIM.questions.items()}
    real = {name: real_pools(results, name) for name in traces(results, "real")}
    priced = {name: priced_pools(results, name) for name in traces(results, "speed")}
    made, copies = enlarged(results), copied(results)
    nothing = Interval(math.nan, math.nan, math.nan)
    steps = {}
    for name, (pools, _) in real.items():
        value, drawn = pools.value("normalhedge"), pools.drawn("normalhedge")
        for j in range(1, len(pools.sizes)):
            case = f"{name}, {pools.sizes[j - 1]} to {pools.sizes[j]}"
            step, draws = value[j] - value[j - 1], drawn[:, j] - drawn[:, j - 1]
            steps[case] = percentile(step, draws, wide["steps"], degrees=pools.degrees)
    last = made.sizes[-1]
    nh = made.streams["normalhedge"]
    cases = [(policy, int(size)) for policy in SPECS for size in (made.sizes[1], last)]
    policies = (*POLICIES, "ucb-tuned", "best fixed drafter")
    grown = {
        name: "; ".join(f"{policy} {exponents(pools, policy)[0]:.2f}" for policy in (*POLICIES, "ucb-tuned"))
        for name, (pools, _) in real.items()
    }
    fastest = []
    for name, found in priced.items():
        if found is not None:
            value = found.value("normalhedge")
            fastest.append(
                f"{name}: {_said(found, ('normalhedge', FREE, 'ucbspec', 'best fixed drafter'))}; NormalHedge is "
                f"fastest at N = {found.sizes[value.argmax()]} ({value.max():.2f})"
            )
    return {
        "rises": Answer(
            {name: change(pools, "normalhedge", wide["rises"]) for name, (pools, _) in real.items()},
            ". ".join(
                f"{name}: {_said(pools, policies)} (beta {betas}, chosen on the other half of prompts)"
                for name, (pools, betas) in real.items()
            )
            + ".",
        ),
        "bandits": Answer(
            {f"{name}, {p}": change(pools, p, wide["bandits"]) for name, (pools, _) in real.items() for p in SPECS}
        ),
        "steps": Answer(steps),
        "lead": Answer(
            {
                f"{name}, {p}": change(pools, "normalhedge", wide["lead"], less=p)
                for name, (pools, _) in real.items()
                for p in SPECS
            }
        ),
        "regret": Answer(
            {
                f"{name}, {p}": _growth_beyond(pools, p, wide["regret"])
                for name, (pools, _) in real.items()
                for p in SPECS
            },
            ". ".join(f"Exponents of regret from N = {FIT_FROM} on, {name}: {text}" for name, text in grown.items())
            + " (nan where regret is not positive). uniform learns nothing: its regret grows as the best improves.",
        ),
        "weak": Answer(
            {
                **{
                    f"texts afresh, N = {size}": made.change("normalhedge", int(size), wide["weak"])
                    for size in (made.sizes[1], last)
                },
                **{f"streams, N = {made.sizes[j]}": of_mean(nh[:, j] - nh[:, 0], wide["weak"]) for j in (1, -1)},
            },
            "; ".join(
                f"{policy} " + ", ".join(f"{m.estimate:.2f}" for m in made.mat(policy))
                for policy in (*ENLARGED, "best fixed drafter")
            )
            + f" at N = {', '.join(str(n) for n in made.sizes)}, texts afresh; streams: "
            + "; ".join(
                f"{policy} " + ", ".join(f"{m:.2f}" for m in values.mean(axis=0))
                for policy, values in made.streams.items()
            )
            + ".",
        ),
        "weak_bandits": Answer(
            {
                f"{policy}, N = {size}": made.change("normalhedge", size, wide["weak_bandits"], less=policy)
                for policy, size in cases
            },
            "Texts afresh.",
        ),
        "duplicates": Answer(
            {policy: gained(copies, policy, wide["duplicates"], less="uniform") for policy in SPECS},
            "Gains themselves: "
            + "; ".join(f"{policy} {gained(copies, policy, 1).estimate:+.3f}" for policy in ENLARGED)
            + ".",
        ),
        "speed": Answer(
            {
                name: nothing if found is None else change(found, "normalhedge", wide["speed"])
                for name, found in priced.items()
            },
            ". ".join(fastest) + "." if fastest else "No cost is known.",
        ),
    }
