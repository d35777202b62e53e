"""Pool size: policies replayed on pools of several sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.labels import labels
from experiments.settings import Arrays, Setting, trace_of
from hedgelab.cost import unknown

__all__ = ["BETAS", "ENLARGED", "PAPER", "POLICIES", "PRICED", "acceptances", "run"]

POLICIES = ("normalhedge", "hedge", "ftl", "ucbspec", "exp3spec", "metasd", "thompson-beta", "uniform")
BETAS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of ucb-tuned
PRICED = ("normalhedge", "ftl", "ucbspec", "uniform")
ENLARGED = ("normalhedge", "ucbspec", "exp3spec", "uniform")
PAPER = 7  # drafters of a pool in the paper
_ORDER, _WEAK = 0, 1  # streams of the generators


class Pool(NamedTuple):
    """The drafters `members` (N,) of a trace. place : (order, size) among a setting's. replicate : of the coins."""

    place: tuple[int, int]
    replicate: int
    members: NDArray[np.int64]
    trace: hl.Trace

    def best(self, alone: NDArray[np.float64]) -> int:
        """Return the member that costs least over all texts. alone : (S, n) what each of the trace's drafters costs."""
        return int(self.members[alone[:, self.members].sum(axis=0).argmin()])


def _pools(trace: hl.Trace, setting: Setting, sizes: Sequence[int], seed: int) -> Iterator[Pool]:
    for m in range(setting["orders"]):
        replicate = setting["first"] + m
        generator = np.random.Generator(np.random.PCG64([seed, _ORDER, replicate]))
        order = generator.permutation(len(trace.drafters))
        for j, size in enumerate(sizes):
            members = np.sort(order[:size])
            yield Pool((m, j), replicate, members, trace.among([trace.drafters[i] for i in members]))


def _sizes(setting: Setting, n: int) -> list[int]:
    """Return the sizes of pools among n drafters: the setting's, then all."""
    return [size for size in setting["sizes"] if size < n] + [n]


def _fingerprint(trace: hl.Trace, names: Sequence[str]) -> int:
    """Return the set of a trace's drafters as a number: bit i for the i-th of `names`, modulo 2^61 - 1."""
    there = set(trace.drafters)
    return sum(1 << i for i, name in enumerate(names) if name in there) % (2**61 - 1)


def _texts(trace: hl.Trace) -> Arrays:
    return {"tokens": np.diff(trace.offsets), **labels(trace)}


def _real(setting: Setting, seed: int) -> Arrays:
    trace, k = trace_of(setting), setting["k"]
    sizes = _sizes(setting, len(trace.drafters))
    learners = [hl.learner(name) for name in POLICIES] + [hl.learner("ucb-tuned", beta=beta) for beta in BETAS]
    shape = (setting["orders"], len(sizes), trace.sequences)
    rounds = np.empty((len(learners), *shape), np.int32)
    best, informed = (np.empty(shape, np.float32) for _ in range(2))
    played = np.empty((len(learners), *shape[:2]), np.int64)
    alone = hl.oracles.expected_fixed_rounds(trace, k=k).rounds
    for pool in _pools(trace, setting, sizes, seed):
        for p, learner in enumerate(learners):
            replayed = hl.replay(pool.trace, learner, k=k, seed=seed, replicate=pool.replicate)
            rounds[(p, *pool.place)] = replayed.sequence_rounds
            played[(p, *pool.place)] = _fingerprint(replayed.trace, trace.drafters)
        best[pool.place] = alone[:, pool.best(alone)]
        informed[pool.place] = hl.oracles.informed_rounds(pool.trace, k=k)
    pools = {"pools": played, "sizes": np.array(sizes)}
    return {"rounds": rounds, "best": best, "informed": informed, **pools, **_texts(trace)}


def _speed(setting: Setting, seed: int) -> Arrays:
    trace, k, costs = trace_of(setting), setting["k"], hl.Costs.load()
    strangers = unknown(trace, costs)
    priced = [name for name in trace.drafters if name not in strangers and costs.drafters[name].draft is not None]
    if not priced:
        return {"sizes": np.zeros(0, np.int64)}
    trace = trace.among(priced)
    sizes = _sizes(setting, len(priced))
    shape = (setting["orders"], len(sizes), trace.sequences)
    seconds = np.empty((len(PRICED) + 1, *shape), np.float32)
    fixed = np.empty(shape, np.float32)
    bills = hl.cost.fixed_bills(trace, costs, k=k, replicates=1, seed=seed)
    alone = np.stack([bills[name][0].by_sequence for name in trace.drafters], axis=1)
    for pool in _pools(trace, setting, sizes, seed):
        for p, name in enumerate(PRICED):
            replayed = hl.replay(pool.trace, name, k=k, seed=seed, replicate=pool.replicate)
            seconds[(p, *pool.place)] = hl.cost.bill(replayed, costs).by_sequence
            if name == "normalhedge":
                seconds[(-1, *pool.place)] = hl.cost.bill(replayed, costs, every=0).by_sequence
        fixed[pool.place] = alone[:, pool.best(alone)]
    plain = np.diff(trace.offsets) * costs.target.step.median
    return {"seconds": seconds, "fixed": fixed, "plain": plain, "sizes": np.array(sizes), **labels(trace)}


def _duplicates(setting: Setting, seed: int) -> Arrays:
    trace, k = trace_of(setting), setting["k"]
    size = min(PAPER, len(trace.drafters))
    rounds = np.empty((2, len(ENLARGED), setting["orders"], trace.sequences), np.int32)
    alone = hl.oracles.expected_fixed_rounds(trace, k=k).rounds
    for pool in _pools(trace, setting, [size], seed):
        best = int(np.flatnonzero(pool.members == pool.best(alone))[0])
        more = _columns(pool.trace, np.concatenate([np.arange(size), np.full(size, best)]))
        for p, name in enumerate(ENLARGED):
            for j, each in enumerate((pool.trace, more)):
                replayed = hl.replay(each, name, k=k, seed=seed, replicate=pool.replicate)
                rounds[j, p, pool.place[0]] = replayed.sequence_rounds
    return {"rounds": rounds, **_texts(trace)}


def _columns(trace: hl.Trace, columns: NDArray[np.int64]) -> hl.Trace:
    """Return the trace of these columns, repeats allowed, under new names; its texts keep their coins."""
    depth, flat = trace.alpha.shape[1], set(trace.flat_columns.tolist())
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
        depths=[1 if i in flat else depth for i in columns.tolist()],
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
    k, sizes, batch = setting["k"], setting["sizes"], setting["batch"]
    means = acceptances(trace_of(setting), max(sizes), seed)
    whole = hl.worlds.pool(means, setting["rows"], sequences=setting["texts"], k=k, seed=seed * 1000 + batch)
    rounds = np.empty((2, len(ENLARGED), len(sizes), whole.sequences), np.int32)
    best = np.empty((len(sizes), whole.sequences), np.float32)
    for j, size in enumerate(sizes):
        pool = whole if size == max(sizes) else _columns(whole, np.arange(size))
        best[j] = hl.oracles.expected_fixed_rounds(pool, k=k).overall
        for p, name in enumerate(ENLARGED):
            for stream in (False, True):
                replayed = hl.replay(pool, name, k=k, seed=seed, replicate=batch, carry_over=stream)
                rounds[int(stream), p, j] = replayed.sequence_rounds
    texts = _texts(whole)
    own = np.array([f"{batch} {name}" for name in texts["prompts"]])  # other texts than those of other batches
    return {"rounds": rounds, "best": best, "sizes": np.array(sizes), **texts, "prompts": own}


def run(setting: Setting, seed: int) -> Arrays:
    """Replay policies on pools of several sizes.

    real        rounds (policies, orders, sizes, S) of POLICIES and of ucb-tuned with each of BETAS, best and informed
                (orders, sizes, S), pools (policies, orders, sizes) what was played among, sizes, tokens (S,)
    speed       seconds (policies, orders, sizes, S) of PRICED and of NormalHedge without the price of scoring, fixed
                (orders, sizes, S) of the best drafter by seconds, plain (S,), sizes: none where no cost is known
    duplicates  rounds (without and with, policies, orders, S) of ENLARGED, tokens (S,)
    enlarged    rounds (afresh and streams, policies, sizes, S) of ENLARGED, best (sizes, S), sizes, tokens (S,)

    All have the `labels` of their texts.
    """
    kinds = {"real": _real, "speed": _speed, "duplicates": _duplicates, "enlarged": _enlarged}
    return kinds[setting["kind"]](setting, seed)
