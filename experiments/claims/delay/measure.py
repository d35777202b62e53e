"""Policies under late losses, each kind of setting by a function of its own; `run` chooses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claims.delay.own_delays import run_own_delays
from experiments.labels import labels
from experiments.settings import Arrays, Setting, trace_of
from hedgelab.algorithms.normalhedge import init as init_normalhedge
from hedgelab.algorithms.normalhedge import observe as observe_normalhedge
from hedgelab.algorithms.normalhedge import play as play_normalhedge
from hedgelab.contest import world_of

__all__ = ["LATE", "MODES", "SEARCHED", "run"]

SEARCHED = ("hedge", "normalhedge")  # learners of the real traces
LATE = ("none", "queue", "bold", "padded")  # what is done about late losses in the token game; none: there are none
MODES: dict[str, dict[str, Any]] = {  # feedback of the decode loop, and how `replay` is told
    "delayed": {},
    "padded": {"delay_mode": "padded"},
    "censored": {"feedback": "censored"},
    "round starts": {"granularity": "round"},
}

# ------------------------------------------------------------------ worlds


@hl.kernel
def _observe_own(params, state, context, probs, pick, losses):
    """NormalHedge that adds up the regret of what it would play now, in place of what was played."""
    now = np.empty(losses.shape[0])
    play_normalhedge(params, state, context, 0, now)
    observe_normalhedge(params, state, context, now, pick, losses)


def _own_weights() -> hl.Learner:
    return hl.Learner("normalhedge-own-weights", init_normalhedge, play_normalhedge, _observe_own)


def _fixed_rate(rate: float) -> hl.Learner:
    return hl.learner("hedge", learning_rate=rate)


def _policy(name: str, t: int, n: int, delays: NDArray[np.int64]) -> tuple[str | hl.Learner, str, float]:
    """Return a policy's learner, its delay mode, and its bound under these delays, NaN where none is known."""
    missing = hl.delays.missing(delays, t)
    if name in ("bold hedge", "bold hedge, varying delay"):
        copies = int(missing.max()) + 1
        return _fixed_rate(math.sqrt(8 * math.log(n) * copies / t)), "bold", math.sqrt(copies * t * math.log(n) / 2)
    if name == "stale hedge":
        bound = math.sqrt((t + 2 * int(missing.sum())) * math.log(n) / 2)
        return hl.delays.stale_hedge(t, n, delay=delays), "queue", bound
    if name == "hedge":
        rates = 2.0 * np.sqrt(math.log(n) / (np.arange(t) - missing + 1.0))
        return "hedge", "queue", float(hl.bounds.hedge_path(rates, missing, n)[-1])
    if name == "hedge tuned without delay":
        return _fixed_rate(math.sqrt(8 * math.log(n) / t)), "queue", math.nan
    if name == "normalhedge, own weights":
        return _own_weights(), "queue", math.nan
    return "normalhedge", "bold" if name.startswith("bold") else "queue", math.nan


def _run_world(setting: Setting, seed: int) -> Arrays:
    """Regret and bound of one policy, (delays, seeds)."""
    t, n, name = setting["rounds"], setting["drafters"], setting["policy"]
    regret, bound = (np.empty((len(setting["delays"]), setting["seeds"])) for _ in range(2))
    for i, d in enumerate(setting["delays"]):
        length = {"length": d + 1} if setting["world"] == "block" else {}
        world = world_of(setting["world"], t, n, **length)
        for s in range(setting["seeds"]):
            delays = np.full(t, d, np.int64)
            if name.endswith("varying delay"):
                delays = np.random.default_rng([seed + s, d]).integers(0, d + 1, t)
            learner, mode, bound[i, s] = _policy(name, t, n, delays)
            regret[i, s] = hl.play(world, learner, delay=delays, delay_mode=mode, seed=seed + s, times=[t]).regret
    return {"delays": np.array(setting["delays"]), "regret": regret, "bound": bound}


# ------------------------------------------------------------------ real traces


def _run_token_game(setting: Setting, seed: int) -> Arrays:
    """Each prompt's token game, length loss: regret (learners, late, S), the mean delay (learners, S), and BOLD's
    regret and guarantee with a rate tuned to both, (S,). The delays are those of the learner's own decode run."""
    trace, k = trace_of(setting), setting["k"]
    losses, n = hl.feedback.losses(trace, k=k), len(trace.drafters)
    known = ~np.isnan(losses[:, 0])
    regret = np.zeros((len(SEARCHED), len(LATE), trace.sequences))
    delay = np.zeros((len(SEARCHED), trace.sequences))
    tuned = np.zeros((2, trace.sequences))  # BOLD, padded
    guarantee = np.full(trace.sequences, np.inf)
    for i, name in enumerate(SEARCHED):
        run = hl.replay(trace, name, k=k, seed=seed)
        ends = np.cumsum(run.sequence_rounds)
        for s in range(trace.sequences):
            rows = slice(trace.offsets[s], trace.offsets[s + 1])
            own = losses[rows][known[rows]]
            if not len(own):
                continue
            late = hl.delays.decode(run.committed[ends[s] - run.sequence_rounds[s] : ends[s]], k)
            delay[i, s] = late.mean()
            for j, how in enumerate(LATE):
                regret[i, j, s] = _late_regret(own, name, late, how, k)
            if name == "hedge":
                width, copies, t = k / (k + 1), 2 * k, len(own)
                learner = _fixed_rate(math.sqrt(8 * math.log(n) * copies / t) / width)
                tuned[:, s] = [_late_regret(own, learner, late, how, k) for how in ("bold", "padded")]
                guarantee[s] = width * math.sqrt(copies * t * math.log(n) / 2)
    plays = np.add.reduceat(known.astype(np.int64), trace.offsets[:-1])
    return {
        "regret": regret,
        "delay": delay,
        "plays": plays,
        "tuned": tuned,
        "guarantee": guarantee,
        **labels(trace),
    }


def _late_regret(
    losses: NDArray[np.float64], learner: str | hl.Learner, late: NDArray[np.int64], how: str, k: int
) -> float:
    if how == "none":
        return hl.play(losses, learner).regret
    return hl.play(losses, learner, delay=2 * k - 1 if how == "padded" else late, delay_mode=how).regret


def _run_feedback(setting: Setting, seed: int) -> Arrays:
    """Rounds of each prompt, mean over coins (modes, S), and how often each drafter was picked (modes, N)."""
    trace = trace_of(setting)
    rounds = np.zeros((len(MODES), trace.sequences))
    picks = np.zeros((len(MODES), len(trace.drafters)))
    for i, options in enumerate(MODES.values()):
        for replicate in range(setting["replicates"]):
            run = hl.replay(trace, setting["learner"], k=setting["k"], seed=seed, replicate=replicate, **options)
            rounds[i] += run.sequence_rounds / setting["replicates"]
            picks[i] += np.bincount(run.picks, minlength=len(trace.drafters)) / run.rounds / setting["replicates"]
    return {"rounds": rounds, "picks": picks, "tokens": np.diff(trace.offsets), **labels(trace)}


_RUNS = {
    "world": _run_world,
    "example": _run_world,
    "token game": _run_token_game,
    "feedback": _run_feedback,
    "own delays": run_own_delays,
}


def run(setting: Setting, seed: int) -> Arrays:
    """Return what a setting gives, by its kind; the package's docstring says what the kinds are."""
    return _RUNS[setting["kind"]](setting, seed)
