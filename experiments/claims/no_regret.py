r"""Claim 3: full-information learners have no regret, in the token game; and what that says about rounds of decoding.

The token game has a play at every token, and regret there is what the theorems speak of. Rounds of a decode loop are
what costs time. Both are measured, and never one printed as the other:

    stream   token game without delay over a stream of real prompts, drawn again and again: the learner keeps its state
    decode   the decode loop on each prompt once, learners started afresh for each query or carried over; its token
             game with the decode loop's own delays, and its rounds
    world    token game in a synthetic world or against an adversary, plays on record: each run's own bound
    long     the same over 10^6 rounds
    coins    fair coins, on which every algorithm has one known expected regret: is the measuring right?

Streams and decoding are among two pools: all drafters of the trace, where one may lead by so much that regret is easy;
and the specialists, one of each domain, of which a stream of mixed domains makes every one a compromise. Regret in a
pool is to the best fixed drafter of that pool. A trace without specialists is judged by all drafters alone.

After the first full run: `rate` asks about a gap in place of the greedy adversary, which uniform passed too; leaves
points of regret below one loss out of its fits; and has 24 streams in place of 8 among the specialists.

No learner has a constant that was tuned here: all run with their defaults, which need no horizon.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claim import Answer, Arrays, Claim, Question, Result, Results, Setting, above, below, exactly, trace_of
from experiments.intervals import exact, exponent, jackknife, of_mean, of_ratio, of_resamples, percentile, resample
from experiments.prompts import draws, labels
from experiments.rounds import has_pool, members
from hedgelab.contest import world_of
from hedgelab.regret import Interval
from hedgelab.worlds import World

__all__ = [
    "CLAIM",
    "LEARNERS",
    "POLICIES",
    "POOLS",
    "QUICK",
    "SETTINGS",
    "Decoded",
    "check",
    "decoded",
    "pools",
    "regrets",
    "run",
    "spread",
]

LEARNERS = ("hedge", "normalhedge", "adahedge", "squint", "adanormalhedge")
REFERENCES = ("ftl", "uniform")  # no theorem promises that their regret per token vanishes
POLICIES = (*LEARNERS, *REFERENCES)
OBJECTIVES = ("length", "acceptance")
POOLS = ("all", "truncated specialists")
PROTOCOLS = ("query", "stream")  # state started afresh for each prompt, or carried over

Matrix = NDArray[np.float64]

# the order T^(-1/2) and what is left to it: terms of order sqrt(ln ln T) in the bounds tilt a line through two decades
# by less than 0.01, so 0.05 excludes none of them and sees any T^(-0.4)
RATE = below(-0.45)

CLAIM = Claim(
    sentence="Full-information learners have no regret: average regret to the best fixed drafter vanishes at rate "
    "sqrt(ln N / T).",
    source="Not-a-Bandit (arXiv 2510.20064), section 4: the guarantee of HedgeSpec with NormalHedge or Hedge; "
    "Cesa-Bianchi and Lugosi 2006, Theorem 2.2",
    questions={
        "rate": Question(
            "Regret per token falls like T^(-1/2) or faster over the last two decades of T, on streams of real prompts "
            "and where one drafter is better by 0.1, for each of five learners.",
            RATE,
            "exponent of T",
            comparisons=len(LEARNERS) * (len(OBJECTIVES) * len(POOLS) + 1),
        ),
        "small": Question(
            "At the end of the stream regret is below sqrt(T ln N / 2), what Hedge is promised that knows T.",
            below(1.0),
            "sqrt(T ln N / 2)",
            comparisons=len(LEARNERS) * len(OBJECTIVES) * len(POOLS),
        ),
        "bounded": Question(
            "Each learner that has a bound stays below it in every run of every world and stream.",
            below(1.0),
            "of its bound",
        ),
        "coins": Question(
            "On fair coins every learner's regret is the one that probability theory gives every algorithm.",
            exactly(1.0, 0.05),
            "of the exact value",
            comparisons=len(POLICIES),
        ),
        "normalhedge": Question(
            "NormalHedge, whose own bound is vacuous at these T, stays below sqrt(T ln N / 2) in every world.",
            below(1.0),
            "sqrt(T ln N / 2)",
            comparisons=11,
        ),
        "query": Question(
            "Within a single query, started afresh, each learner has at most half of the regret of one that learns "
            "nothing.",
            below(0.5),
            "of uniform's regret",
            comparisons=len(LEARNERS) * len(OBJECTIVES) * len(POOLS),
        ),
        "rounds": Question(
            "In rounds of decoding the same guarantee holds: MAT lacks no more than (k + 1) sqrt(ln N / (2T)) tokens "
            "to the best fixed drafter's, within a query and over a stream.",
            below(1.0),
            "of that many tokens",
            comparisons=len(LEARNERS) * len(PROTOCOLS) * len(POOLS),
        ),
        "order": Question(
            "Small token-game regret means few rounds: in at least three of four pairs of learners the one with the "
            "smaller regret has the fewer rounds.",
            above(0.75),
            "of the pairs",
            comparisons=len(PROTOCOLS) * len(OBJECTIVES) * len(POOLS),
        ),
        "acceptance": Question(
            "What wins by acceptance wins in rounds: the best drafter and each learner by acceptance loss commit no "
            "fewer tokens a round than by length loss, give or take 0.05.",
            above(-0.05),
            "tokens per round",
            comparisons=(1 + len(LEARNERS)) * len(POOLS),
        ),
    },
)

WORLDS = (  # name, N: 11 of them
    ("fair-coins", 16),
    ("gap", 16),
    ("drifting", 16),
    ("switching", 16),
    ("alternating", 16),
    ("greedy", 16),
    ("block", 16),
    ("breakaway", 16),
    ("greedy", 2),
    ("block", 2),
    ("breakaway", 2),
)


def _settings(
    trace: str,
    streams: tuple[int, int],
    tokens: int,
    replicates: int,
    rounds: int,
    seeds: int,
    long: int,
    coins: tuple[int, int],
) -> list[Setting]:
    found: list[Setting] = []
    for pool, objective in itertools.product(POOLS, OBJECTIVES):
        base = {"trace": trace, "pool": pool, "k": 5, "objective": objective}
        found += [
            {"kind": "stream", **base, "learner": name, "tokens": tokens, "streams": streams[POOLS.index(pool)]}
            for name in POLICIES
        ]
        found.append({"kind": "decode", **base, "replicates": replicates})
    found += [{"kind": "world", "world": name, "drafters": n, "rounds": rounds, "seeds": seeds} for name, n in WORLDS]
    found += [
        {"kind": "long", "world": world, "drafters": 16, "rounds": long, "seeds": seeds, "learner": name}
        for world in ("greedy", "fair-coins", "gap")
        for name in POLICIES
    ]
    found.append({"kind": "coins", "drafters": 16, "rounds": coins[0], "seeds": coins[1]})
    return found


SETTINGS = _settings("t06", (8, 24), 1_000_000, 8, 30_000, 10, 1_000_000, (1000, 2000))
QUICK = _settings("t10", (3, 3), 20_000, 2, 2000, 3, 20_000, (200, 150))


def unit(rounds: float | NDArray[np.int64], drafters: int) -> Matrix:
    """Return sqrt(T ln N / 2), by which regrets are measured."""
    return np.sqrt(np.asarray(rounds) * math.log(drafters) / 2)


@functools.lru_cache(maxsize=2)
def _narrowed(trace: hl.Trace, pool: str) -> hl.Trace:
    return trace if pool == "all" else trace.among(members(trace, pool))


# ------------------------------------------------------------------ streams


@functools.lru_cache(maxsize=2)
def _losses(trace: hl.Trace, k: int, objective: str) -> tuple[Matrix, NDArray[np.int64]]:
    """Return losses (rows, N) of the rows that have one, and where each sequence's begin (S + 1,)."""
    every = hl.feedback.losses(trace, k=k, objective=objective)
    known = ~np.isnan(every[:, 0])
    return every[known], np.concatenate([[0], np.cumsum(known)])[trace.offsets]


def _orders(trace: hl.Trace, lengths: NDArray[np.int64], tokens: int, streams: int, seed: int) -> list[NDArray]:
    """Return for each stream the sequences in order, as many as hold `tokens` plays.

    A stream draws from its own bootstrap resample of the prompts, within domains: so the spread over streams is that
    over prompts, although prompts come again and again.
    """
    weights = resample(trace.conversations, trace.home_domains, resamples=streams, seed=seed).weights
    rng = np.random.default_rng([seed, 1])
    orders = []
    for drawn in weights:
        mean = float(drawn @ lengths) / drawn.sum()
        order = np.empty(0, np.int64)
        while lengths[order].sum() < tokens:
            more = rng.choice(len(lengths), math.ceil(tokens / mean) + 10, p=drawn / drawn.sum())
            order = np.concatenate([order, more])
        orders.append(order)
    return orders


def _stream(losses: Matrix, begin: NDArray[np.int64], order: NDArray[np.int64], tokens: int) -> World:
    """Return the token game over the prompts in `order`, `tokens` plays long."""
    rows = np.concatenate([np.arange(begin[s], begin[s + 1]) for s in order])[:tokens]

    def blocks(seed: int) -> Iterator[Matrix]:
        for first in range(0, tokens, 4096):
            yield losses[rows[first : first + 4096]]

    return World("stream", tokens, losses.shape[1], blocks=blocks)


def _run_stream(setting: Setting, seed: int) -> Arrays:
    trace, tokens = _narrowed(trace_of(setting), setting["pool"]), setting["tokens"]
    losses, begin = _losses(trace, setting["k"], setting["objective"])
    orders = _orders(trace, np.diff(begin), tokens, setting["streams"], seed)
    games = [hl.play(_stream(losses, begin, order, tokens), setting["learner"], seed=seed) for order in orders]
    n = losses.shape[1]
    known = [hl.bounds.Facts(tokens, n, variance=game.variance) for game in games]
    return {
        "times": games[0].times,
        "regret": np.array([game.regret_at for game in games]),
        "bound": np.array([_bound(setting["learner"], facts) for facts in known]),
        "drafters": np.array(n),
        "best": np.array([trace.drafters[int(game.drafter_losses.argmin())] for game in games]),
    }


def _bound(learner: str, facts: hl.bounds.Facts) -> float:
    return hl.bounds.FOR_LEARNER[learner](facts) if learner in LEARNERS else math.nan


# ------------------------------------------------------------------ decoding


def _by_sequence(run: hl.Replay, order: NDArray[np.int64]) -> Matrix:
    """Return (2, S) rounds and the sum of expected losses of each sequence, for a run over the sequences in `order`."""
    assert run.expected_loss is not None
    sums = np.add.reduceat(np.nan_to_num(run.expected_loss), run.trace.offsets[:-1])
    found = np.empty((2, len(order)))
    found[0, order], found[1, order] = run.sequence_rounds, sums
    return found


def _run_decode(setting: Setting, seed: int) -> Arrays:
    trace, k, objective = _narrowed(trace_of(setting), setting["pool"]), setting["k"], setting["objective"]
    losses, begin = _losses(trace, k, objective)
    rng = np.random.default_rng([seed, 2])
    orders = [rng.permutation(trace.sequences) for _ in range(setting["replicates"])]
    kept = np.zeros((len(PROTOCOLS), len(POLICIES), 2, trace.sequences))
    for replicate, order in enumerate(orders):
        for p, (cut, places) in enumerate(((trace, np.arange(trace.sequences)), (trace.select(order), order))):
            for i, name in enumerate(POLICIES):
                run = hl.replay(
                    cut,
                    name,
                    k=k,
                    objective=objective,
                    carry_over=PROTOCOLS[p] == "stream",
                    token_game=True,
                    seed=seed,
                    replicate=replicate,
                )
                kept[p, i] += _by_sequence(run, places) / len(orders)
    drafter_loss = np.concatenate([np.zeros((1, losses.shape[1])), np.cumsum(losses, axis=0)])
    return {
        "rounds": kept[:, :, 0],
        "own_loss": kept[:, :, 1],
        "drafter_loss": np.diff(drafter_loss[begin], axis=0),
        "fixed_rounds": hl.oracles.expected_fixed_rounds(trace, k=k).rounds,
        "tokens": np.diff(trace.offsets),
        "plays": np.diff(begin),
        "names": np.array(trace.drafters),
        **labels(trace),
    }


# ------------------------------------------------------------------ worlds


def _world(setting: Setting) -> World:
    world = world_of(setting["world"], setting["rounds"], setting["drafters"])
    assert isinstance(world, World)  # no file of losses
    return world


def _run_world(setting: Setting, seed: int) -> Arrays:
    """Regret and the run's own bound after a hundredth, a tenth, and all of the rounds: (learners, seeds, 3)."""
    world, t = _world(setting), setting["rounds"]
    parts = np.array([t // 100, t // 10, t])
    regret, bound = (np.empty((len(LEARNERS), setting["seeds"], len(parts))) for _ in range(2))
    for i, name in enumerate(LEARNERS):
        for s in range(setting["seeds"]):
            game = hl.play(world, name, seed=seed + s, times=parts, record=True)
            assert game.losses is not None
            assert game.probs is not None
            regret[i, s] = game.regret_at
            for j, part in enumerate(parts):
                bound[i, s, j] = _bound(name, hl.bounds.Facts.of_play(game.losses[:part], game.probs[:part]))
    return {"times": parts, "regret": regret, "bound": bound}


def _run_long(setting: Setting, seed: int) -> Arrays:
    world, name = _world(setting), setting["learner"]
    games = [hl.play(world, name, seed=seed + s) for s in range(setting["seeds"])]
    known = [hl.bounds.Facts(world.rounds, world.drafters, variance=game.variance) for game in games]
    return {
        "times": games[0].times,
        "regret": np.array([game.regret_at for game in games]),
        "bound": np.array([_bound(name, facts) for facts in known]),
        "drafters": np.array(world.drafters),
    }


def _run_coins(setting: Setting, seed: int) -> Arrays:
    t, n, seeds = setting["rounds"], setting["drafters"], range(setting["seeds"])
    world = hl.worlds.fair_coins(t, n)
    regret = [[hl.play(world, name, seed=seed + s, times=[t]).regret_at[0] for s in seeds] for name in POLICIES]
    return {"regret": np.array(regret), "exact": np.array(hl.bounds.fair_coins_exact(t, n))}


_RUNS = {
    "stream": _run_stream,
    "decode": _run_decode,
    "world": _run_world,
    "long": _run_long,
    "coins": _run_coins,
}


def run(setting: Setting, seed: int) -> Arrays:
    """Return what a setting gives, by its kind; the module's docstring says what the kinds are. Only the
    mark `absent` where the trace has none of the pool."""
    if "pool" in setting and not has_pool(trace_of(setting), setting["pool"]):
        return {"absent": np.array(1)}
    return _RUNS[setting["kind"]](setting, seed)


# ------------------------------------------------------------------ aggregation


def _rate(times: NDArray[np.int64], regret: Matrix) -> float:
    """Return the exponent of regret per token against T over the last two decades, NaN with fewer than 5 points at
    which regret is one loss or more: the others say nothing of a rate."""
    kept = (times >= times[-1] / 100) & (regret >= 1.0)
    return exponent(times[kept], regret[kept]) - 1.0 if kept.sum() >= 5 else math.nan


def _rates(result: Result, comparisons: int) -> Interval | None:
    """Return the exponent with its interval: over resampled prompts for streams, over seeds for worlds. None where it
    is saturated: no fit in more than half of the streams; those without one are left out."""
    times, regret = result.arrays["times"], result.arrays["regret"]
    if result.setting["kind"] == "stream":
        rates = np.array([_rate(times, row) for row in regret])
        fitted = rates[~np.isnan(rates)]
        return of_resamples(fitted, comparisons) if 2 * len(fitted) >= len(rates) else None
    found = jackknife(lambda runs: _rate(times, runs.mean(axis=0)), regret, comparisons)
    return None if math.isnan(found.estimate) else found


def _saturated(result: Result) -> str:
    """Return from when on mean regret is below one loss, and in how many streams there is no fit; empty if in none."""
    times, regret = result.arrays["times"], result.arrays["regret"]
    without = sum(math.isnan(_rate(times, row)) for row in regret)
    if not without:
        return ""
    above = np.flatnonzero(regret.mean(axis=0) >= 1.0)
    first = 0 if not len(above) else int(above[-1]) + 1
    since = f", in the mean after T = {times[first]}" if first < len(times) else ""
    name = f"{result.setting['learner']}: {_name(result.setting)}"
    return f"{name}, {without} of {len(regret)} runs{since}"


def _name(setting: Setting) -> str:
    if setting["kind"] == "stream":
        return f"stream, {setting['objective']}, {setting['pool']}"
    return f"{setting['world']}, N = {setting['drafters']}"


def _there(result: Result) -> bool:
    return "absent" not in result.arrays


def pools(results: Results) -> list[str]:
    """Return the pools that the trace has, all drafters first."""
    return [pool for pool in POOLS if any(map(_there, results.where(kind="decode", pool=pool)))]


def regrets(results: Results, **setting: str) -> Mapping[str, Result]:
    """Return {policy: result} of streams or long worlds with these settings."""
    return {result.setting["learner"]: result for result in results.where(**setting)}


def _streams(results: Results) -> list[Result]:
    return [result for result in results.where(kind="stream") if _there(result)]


def spread(result: Result) -> list[Interval]:
    """Return mean regret per token at each time with its 95% interval: over resampled prompts, or over seeds."""
    of = of_resamples if result.setting["kind"] == "stream" else of_mean
    return [of(column) for column in (result.arrays["regret"] / result.arrays["times"]).T]


def _bounded(results: Results) -> dict[str, Interval]:
    """Return {learner in world: largest regret as a share of the same run's bound}."""
    shares: dict[str, float] = {}
    for result in results.where(kind="world"):
        ratio = (result.arrays["regret"] / result.arrays["bound"]).max(axis=(1, 2))
        shares |= {f"{name}: {_name(result.setting)}": value for name, value in zip(LEARNERS, ratio, strict=True)}
    for result in [*_streams(results), *results.where(kind="long")]:
        name, long = result.setting["learner"], ", long" if result.setting["kind"] == "long" else ""
        if name in LEARNERS:
            ratio = result.arrays["regret"][:, -1] / result.arrays["bound"]
            shares[f"{name}: {_name(result.setting)}{long}"] = ratio.max()
    return {case: exact(value) for case, value in shares.items()}


class Decoded:
    """One pool's and objective's decoding, with what its bootstrap draws give. S sequences, B draws."""

    def __init__(self, result: Result) -> None:
        arrays = result.arrays
        self.k = int(result.setting["k"])
        self.rounds, self.own_loss = arrays["rounds"], arrays["own_loss"]  # (protocols, policies, S)
        self.drafter_loss, self.fixed = arrays["drafter_loss"], arrays["fixed_rounds"]  # (S, N)
        self.tokens, self.plays = arrays["tokens"].astype(np.float64), arrays["plays"].astype(np.float64)
        self.names = arrays["names"].tolist()
        self.resampled = draws(arrays)

    def draws(self, of: Matrix) -> Matrix:
        """Return sums over sequences of `of` (S, ...): the trace's own first, then the resamples', (1 + B, ...)."""
        return np.concatenate([of.sum(axis=0, keepdims=True), self.resampled @ of])

    def interval(self, drawn: Matrix, comparisons: int = 1) -> Interval:
        """Return the interval of a statistic from its draws (1 + B,), the trace's own first."""
        return percentile(float(drawn[0]), drawn[1:], comparisons, degrees=self.resampled.degrees)

    def regret(self, protocol: str) -> Matrix:
        """Return token-game regret per play of each policy, (1 + B, policies).

        query : to each query's own best drafter. stream : to the best drafter over all, which each resample chooses
        """
        own = self.own_loss[PROTOCOLS.index(protocol)].T
        if protocol == "query":
            total = self.draws(own - self.drafter_loss.min(axis=1, keepdims=True))
        else:
            total = self.draws(own) - self.draws(self.drafter_loss).min(axis=1, keepdims=True)
        return total / self.draws(self.plays[:, None])

    def mat(self, protocol: str) -> Matrix:
        """Return MAT of each policy, (1 + B, policies)."""
        return self.draws(self.tokens[:, None]) / self.draws(self.rounds[PROTOCOLS.index(protocol)].T)

    def best_mat(self, protocol: str) -> Matrix:
        """Return MAT of the best fixed drafter, of each query or over all, (1 + B, 1)."""
        if protocol == "query":
            rounds = self.draws(self.fixed.min(axis=1, keepdims=True))
        else:
            rounds = self.draws(self.fixed).min(axis=1, keepdims=True)
        return self.draws(self.tokens[:, None]) / rounds

    def best(self) -> str:
        """Return who decodes all texts in the fewest rounds alone, and in how many resamples too, in words."""
        rounds = self.draws(self.fixed)
        winner = rounds.argmin(axis=1)
        again = (winner[1:] == winner[0]).mean()
        mat = self.tokens.sum() / rounds[0, winner[0]]
        return f"{self.names[winner[0]]} of {len(self.names)} (MAT {mat:.2f}; the best in {again:.0%} of resamples)"

    def tokens_promised(self, protocol: str) -> float:
        """Return (k + 1) sqrt(ln N / (2T)): in tokens, T plays of the mean query or of all."""
        plays = self.plays.mean() if protocol == "query" else self.plays.sum()
        return (self.k + 1) * math.sqrt(math.log(self.fixed.shape[1]) / (2 * plays))

    def excess_rounds(self, protocol: str) -> Matrix:
        """Return rounds above the best fixed drafter's, as a share of them, (1 + B, policies)."""
        return self.best_mat(protocol) / self.mat(protocol) - 1


def decoded(results: Results, objective: str, pool: str = POOLS[0]) -> Decoded:
    """Return the decoding among a pool with losses of an objective."""
    return Decoded(results.one(kind="decode", objective=objective, pool=pool))


def _query(results: Results, comparisons: int) -> dict[str, Interval]:
    cases: dict[str, Interval] = {}
    for pool, objective in itertools.product(pools(results), OBJECTIVES):
        data = decoded(results, objective, pool)
        regret = data.own_loss[0] - data.drafter_loss.min(axis=1)  # (policies, S)
        idle = regret[POLICIES.index("uniform")]
        cases |= {
            f"{name}, {objective}, {pool}": of_ratio(regret[i], idle, data.resampled, comparisons)
            for i, name in enumerate(LEARNERS)
        }
    return cases


def _rounds(results: Results, comparisons: int) -> dict[str, Interval]:
    cases: dict[str, Interval] = {}
    for pool in pools(results):
        data = decoded(results, "length", pool)
        for protocol in PROTOCOLS:
            lacking = (data.best_mat(protocol) - data.mat(protocol)) / data.tokens_promised(protocol)
            cases |= {
                f"{name}, {protocol}, {pool}": data.interval(lacking[:, i], comparisons)
                for i, name in enumerate(LEARNERS)
            }
    return cases


def _order(results: Results, comparisons: int) -> dict[str, Interval]:
    """Pairs among the learners and follow the leader: uniform would agree with everything."""
    count = len(LEARNERS) + 1
    first, second = np.triu_indices(count, 1)
    cases: dict[str, Interval] = {}
    for pool, objective in itertools.product(pools(results), OBJECTIVES):
        data = decoded(results, objective, pool)
        for protocol in PROTOCOLS:
            regret, mat = data.regret(protocol)[:, :count], data.mat(protocol)[:, :count]
            alike = np.sign(regret[:, first] - regret[:, second]) == np.sign(mat[:, second] - mat[:, first])
            cases[f"{protocol}, {objective}, {pool}"] = data.interval(alike.mean(axis=1), comparisons)
    return cases


def _acceptance(results: Results, comparisons: int) -> dict[str, Interval]:
    cases: dict[str, Interval] = {}
    for pool in pools(results):
        by_length, by_acceptance = (decoded(results, objective, pool) for objective in OBJECTIVES)
        mats = by_length.draws(by_length.tokens[:, None]) / by_length.draws(by_length.fixed)  # (1 + B, N)
        winner = by_acceptance.draws(by_acceptance.drafter_loss).argmin(axis=1)
        lost = mats[np.arange(len(mats)), winner] - mats.max(axis=1)
        cases[f"best drafter, {pool}"] = by_length.interval(lost, comparisons)
        difference = by_acceptance.mat("query") - by_length.mat("query")
        cases |= {
            f"{name}, {pool}": by_length.interval(difference[:, i], comparisons) for i, name in enumerate(LEARNERS)
        }
    return cases


def _leaders(streams: list[Result]) -> str:
    """Return who had the smallest loss in how many of the streams."""
    found = {}
    for game in streams:
        names, times = np.unique(game.arrays["best"], return_counts=True)
        order = np.argsort(-times, kind="stable")
        words = ", ".join(f"{names[i]} {times[i]}" for i in order)
        found[_name(game.setting)] = f"{_name(game.setting)}: {words} of {times.sum()}"
    return "; ".join(found.values())


def check(results: Results) -> dict[str, Answer]:
    """Return the answer to each question."""
    asked = {name: question.comparisons for name, question in CLAIM.questions.items()}
    streams, coins = _streams(results), results.one(kind="coins")
    games = [*streams, *results.where(kind="long", world="gap")]
    learning = [game for game in games if game.setting["learner"] in LEARNERS]
    fits = {f"{game.setting['learner']}: {_name(game.setting)}": _rates(game, asked["rate"]) for game in learning}
    rates = {case: fit for case, fit in fits.items() if fit is not None}
    saturated = "; ".join(filter(None, map(_saturated, learning))) or "none"
    idle = {
        _name(game.setting): fit.estimate
        for game in games
        if game.setting["learner"] == "uniform" and (fit := _rates(game, 1)) is not None
    }
    final = {
        f"{game.setting['learner']}: {_name(game.setting)}": of_resamples(
            game.arrays["regret"][:, -1] / unit(game.setting["tokens"], int(game.arrays["drafters"])), asked["small"]
        )
        for game in streams
        if game.setting["learner"] in LEARNERS
    }
    worst = {
        _name(result.setting): of_mean(
            result.arrays["regret"][LEARNERS.index("normalhedge"), :, -1]
            / unit(result.setting["rounds"], result.setting["drafters"]),
            asked["normalhedge"],
        )
        for result in results.where(kind="world")
    }
    best = "; ".join(f"{pool}: {decoded(results, 'length', pool).best()}" for pool in pools(results))
    flips = coins.arrays["regret"] / coins.arrays["exact"]
    return {
        "rate": Answer(
            rates,
            "no delay; defaults, nothing tuned; prompts repeat in a stream. Uniform: "
            + "; ".join(f"{rate:.2f} on {name}" for name, rate in idle.items())
            + f". Saturated, regret below one loss, so without a fit: {saturated}; a case with most runs so is left "
            "out. Streams in which a drafter is the best fixed one, by the stream's loss: " + _leaders(streams),
        ),
        "small": Answer(final, "mean over streams of prompts drawn again and again, no delay"),
        "bounded": Answer(
            _bounded(results),
            "largest over runs, and over a hundredth, a tenth and all of the rounds; NormalHedge's bound is vacuous "
            "here, its share says little",
        ),
        "coins": Answer({name: of_mean(row, asked["coins"]) for name, row in zip(POLICIES, flips, strict=True)}),
        "normalhedge": Answer(worst, "adversaries see the plays"),
        "query": Answer(
            _query(results, asked["query"]), "regret to each query's own best drafter, with the decode loop's delays"
        ),
        "rounds": Answer(
            _rounds(results, asked["rounds"]),
            "length loss; query: to each query's own best drafter; stream: each prompt once, in random order, to the "
            "best drafter over all; both drafters chosen in hindsight on the same texts. The best over all: " + best,
        ),
        "order": Answer(_order(results, asked["order"]), "five learners and follow the leader, in the same runs"),
        "acceptance": Answer(
            _acceptance(results, asked["acceptance"]),
            "learners started afresh for each query. The drafter of the fewest rounds in each pool: " + best,
        ),
    }
