"""Learners in the token game and in decoding, each kind of setting by a function of its own; `run` chooses."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.intervals import resample
from experiments.labels import labels
from experiments.rounds import has_pool, members
from experiments.settings import Arrays, Setting, trace_of
from hedgelab.contest import world_of
from hedgelab.worlds import World

__all__ = ["LEARNERS", "POLICIES", "PROTOCOLS", "run"]

LEARNERS = ("hedge", "normalhedge", "adahedge", "squint", "adanormalhedge")
POLICIES = (*LEARNERS, "ftl", "uniform")  # of the last two no theorem promises that their regret per token vanishes
PROTOCOLS = ("query", "stream")  # state started afresh for each prompt, or carried over

Matrix = NDArray[np.float64]


def _bound(learner: str, facts: hl.bounds.Facts) -> float:
    return hl.bounds.FOR_LEARNER[learner](facts) if learner in LEARNERS else math.nan


def _regret(games: Sequence[hl.Game], learner: str) -> Arrays:
    """Return the regret of a learner's games (games, times), and the bound of each at its end (games,)."""
    t, n = int(games[0].times[-1]), len(games[0].drafter_losses)
    known = [hl.bounds.Facts(t, n, variance=game.variance) for game in games]
    return {
        "times": games[0].times,
        "regret": np.array([game.regret_at for game in games]),
        "bound": np.array([_bound(learner, facts) for facts in known]),
        "drafters": np.array(n),
    }


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
    best = np.array([trace.drafters[int(game.drafter_losses.argmin())] for game in games])
    return {**_regret(games, setting["learner"]), "best": best, **labels(trace)}


# ------------------------------------------------------------------ decoding


def _run_decode(setting: Setting, seed: int) -> Arrays:
    trace, k, objective = _narrowed(trace_of(setting), setting["pool"]), setting["k"], setting["objective"]
    losses, begin = _losses(trace, k, objective)
    rng = np.random.default_rng([seed, 2])
    shape = (len(PROTOCOLS), len(POLICIES), trace.sequences)
    rounds, own_loss, replicates = np.zeros(shape), np.zeros(shape), setting["replicates"]
    for replicate in range(replicates):
        order = rng.permutation(trace.sequences)
        texts = {"query": (trace, np.arange(trace.sequences)), "stream": (trace.select(order), order)}
        for (p, protocol), (i, name) in itertools.product(enumerate(PROTOCOLS), enumerate(POLICIES)):
            given, places = texts[protocol]
            run = hl.replay(
                given,
                name,
                k=k,
                objective=objective,
                carry_over=protocol == "stream",
                token_game=True,
                seed=seed,
                replicate=replicate,
            )
            assert run.expected_loss is not None
            sums = np.add.reduceat(np.nan_to_num(run.expected_loss), given.offsets[:-1])
            rounds[p, i, places] += run.sequence_rounds / replicates
            own_loss[p, i, places] += sums / replicates
    drafter_loss = np.concatenate([np.zeros((1, losses.shape[1])), np.cumsum(losses, axis=0)])
    return {
        "rounds": rounds,
        "own_loss": own_loss,
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
    return _regret([hl.play(world, name, seed=seed + s) for s in range(setting["seeds"])], name)


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
    """Return what a setting gives, by its kind; the package's docstring says what the kinds are. Only the
    mark `absent` where the trace has none of the pool."""
    if "pool" in setting and not has_pool(trace_of(setting), setting["pool"]):
        return {"absent": np.array(1)}
    return _RUNS[setting["kind"]](setting, seed)
