"""Engine 1: the game of the theorems, one play and one loss vector a round.

In round t the learner plays w_t over the N drafters, the engine samples the pick from w_t, and the world gives losses
l_t in [0, 1]^N. Regret is that of the plays, R_T = sum_t <w_t, l_t> - min_i sum_t l_t(i): no sampling noise, unless
the learner draws inside its play. What a round of *decoding* costs is another matter: `hedgelab.replay`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab import caveats
from hedgelab._jit import uncompiled
from hedgelab.contract import Learner
from hedgelab.decode_replay import fresh_state, resolve, whole
from hedgelab.delays import MODES, most_outstanding, per_round
from hedgelab.regret import SecondOrder, second_order, whole_times
from hedgelab.token_loop import BOLD, QPM_D, QUEUE, compiled_game, no_adversary, plain_game
from hedgelab.worlds import World, block_rounds

__all__ = ["FEEDBACK", "Game", "log_times", "play"]

FEEDBACK = ("full", "bandit")


@dataclass(frozen=True, repr=False)
class Game:
    """What a learner did in a token game of T rounds over N drafters.

    picks : (T,) int32; round_loss : (T,) float64, <w_t, l_t>
    drafter_losses : (N,) cumulative loss of each drafter
    pick_loss : cumulative loss of the picks, which has sampling noise; its mean is expected_loss
    variance : sum over rounds of the losses' variance under w_t (S of the second-order bounds)
    times, regret_at : (M,) numbers of rounds, and the static regret after them
    probs, losses : (T, N), only from `play(..., record=True)`
    caveats : what in these settings voids the conditions of the learner's theorem
    """

    learner: Learner
    settings: dict[str, Any]
    picks: NDArray[np.int32]
    round_loss: NDArray[np.float64]
    drafter_losses: NDArray[np.float64]
    expected_loss: float
    pick_loss: float
    variance: float
    times: NDArray[np.int64]
    regret_at: NDArray[np.float64]
    probs: NDArray[np.float64] | None
    losses: NDArray[np.float64] | None
    caveats: tuple[str, ...]

    def __repr__(self) -> str:
        world = self.settings["world"]
        return f"<Game of {self.learner.label!r} in {world!r}: {self.rounds} rounds, regret {self.regret:.4g}>"

    @property
    def rounds(self) -> int:
        """Number of rounds T."""
        return len(self.picks)

    @property
    def best(self) -> int:
        """Index of the drafter with the smallest loss, the first of equals."""
        return int(self.drafter_losses.argmin())

    @property
    def best_loss(self) -> float:
        """L*, the loss of the best drafter."""
        return float(self.drafter_losses.min())

    @property
    def regret(self) -> float:
        """Static regret, expected_loss - best_loss."""
        return self.expected_loss - self.best_loss

    def second_order(self) -> SecondOrder:
        """Return L*, V and the like, see `hedgelab.regret.second_order`. Needs `play(..., record=True)`."""
        if self.losses is None or self.probs is None:
            raise ValueError("this game kept no plays: play(..., record=True)")
        return second_order(self.losses, self.probs)


def log_times(rounds: int, per_decade: int = 10) -> NDArray[np.int64]:
    """Return increasing numbers of rounds up to `rounds`, log-spaced.

    >>> log_times(100, 2).tolist()
    [1, 3, 10, 32, 100]
    """
    count = int(np.ceil(np.log10(max(rounds, 1)) * per_decade)) + 1
    return np.unique(np.round(np.geomspace(1, rounds, count)).astype(np.int64))


def _given_blocks(losses: Any) -> Iterator[NDArray[np.float64]]:
    count = block_rounds(losses.shape[1])
    for first in range(0, losses.shape[0], count):
        yield np.ascontiguousarray(losses[first : first + count], dtype=np.float64)


def _outside(row: NDArray[np.float64], t: int) -> ValueError:
    wrong = int(np.flatnonzero(~((row >= 0.0) & (row <= 1.0)))[0])
    return ValueError(f"losses must lie in [0, 1]: round {t}, drafter {wrong} has {float(row[wrong])!r}")


def _world(losses: Any) -> World:
    """Return a world of given losses (T, N), which are read a block at a time."""
    if isinstance(losses, World):
        return losses
    try:
        given = losses if isinstance(losses, np.ndarray) else np.asarray(losses)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"losses must be a World or an array (rounds, drafters): {error}") from error
    if isinstance(given, np.ma.MaskedArray):
        raise ValueError("losses must not be masked: every drafter has a loss in every round")
    if len(given.shape) != 2 or 0 in given.shape or given.dtype.kind not in "fiub":
        raise ValueError(
            f"losses must be a World or real numbers of shape (rounds, drafters), got {given.dtype} {given.shape}"
        )
    return World(
        name="given losses",
        rounds=int(given.shape[0]),
        drafters=int(given.shape[1]),
        blocks=lambda seed: _given_blocks(given),
    )


def _blocks(world: World, seed: int) -> Iterator[NDArray[np.float64]]:
    if world.blocks is not None:
        yield from world.blocks(seed)
        return
    count = block_rounds(world.drafters)
    for first in range(0, world.rounds, count):
        yield np.zeros((min(count, world.rounds - first), world.drafters))


def _delays(delay: ArrayLike, rounds: int, mode: str) -> tuple[NDArray[np.int64], int, int, int]:
    """Return (delays with -1 for losses that never come, slots of the ring, most outstanding, longest given)."""
    delays = per_round(delay, rounds)
    if mode == "padded":
        delays = np.full(rounds, delays.max(initial=0), np.int64)
    revealed = np.minimum(delays, rounds) + np.arange(rounds) < rounds
    ring = int(delays[revealed].max(initial=0)) + 1
    return np.where(revealed, delays, -1), ring, most_outstanding(delays, rounds), int(delays.max(initial=0))


def play(
    losses: ArrayLike | World,
    learner: str | Learner = "hedge",
    *,
    feedback: str | None = None,
    delay: ArrayLike = 0,
    delay_mode: str = "queue",
    seed: int = 0,
    times: ArrayLike | None = None,
    record: bool = False,
    jit: bool | None = None,
) -> Game:
    """Play a learner against losses or a world and return what it did.

    losses : (T, N) in [0, 1], read a block at a time (a memory map will do), or a `hedgelab.worlds.World`, adversaries
        included: these see the plays
    learner : registered name, or a `Learner`, compiled or plain
    feedback : "full", the whole loss vector, or "bandit", the pick's alone. Default: what the learner is made for. A
        learner for bandit feedback is never shown more
    delay : rounds that a loss is late, one number or (T,); `hedgelab.delays.decode` gives those of a decode loop
    delay_mode : what is done about it, see `hedgelab.delays`
    seed : of the policy's draws, and of the world; both are paired across learners
    times : increasing numbers of rounds after which regret is noted; default `log_times(T)`
    record : keep plays and losses, (T, N) each
    jit : False runs learner, engine and all helpers as plain Python: same numbers, slow. Default: True unless the
        learner is plain Python

    Raises ValueError for losses outside [0, 1] (naming the first), arguments out of range, or a full-information
    learner with bandit feedback.

    >>> import hedgelab as hl
    >>> game = hl.play([[1, 0], [1, 0], [0, 1], [1, 0]], "hedge", record=True)
    >>> game.rounds, game.best, game.best_loss, game.probs[0].tolist()
    (4, 1, 1.0, [0.5, 0.5])
    """
    policy, jit = resolve(learner, jit)
    if feedback is None:
        feedback = "bandit" if policy.feedback == "bandit" else "full"
    for name, value, allowed in (("feedback", feedback, FEEDBACK), ("delay_mode", delay_mode, MODES)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    if feedback == "bandit" and policy.feedback == "full":
        raise ValueError(f"learner {policy.name!r} needs every drafter's loss: it cannot run on bandit feedback")
    if delay_mode == "qpm-d" and policy.feedback != "bandit":
        raise ValueError(f"delay_mode 'qpm-d' is for learners with bandit feedback, not {policy.name!r}")
    seed = whole("seed", seed, 0, 2**56 - 1)
    world = _world(losses)
    rounds, n = world.rounds, world.drafters
    delays, ring, outstanding, longest = _delays(delay, rounds, delay_mode)
    at = log_times(rounds) if times is None else whole_times(times, rounds)

    params, fresh = fresh_state(policy, n)
    adversary = world.adversary or no_adversary
    if jit and not hasattr(adversary, "py_func"):
        raise ValueError(f"{world.name}: the adversary is plain Python: decorate it with hedgelab.kernel, or jit=False")
    if jit:
        step, fold = policy.compiled()
        engine = compiled_game()
    else:
        step, fold, adversary = uncompiled(policy.play), uncompiled(policy.observe), uncompiled(adversary)
        engine = plain_game()
    mode = {"queue": QUEUE, "qpm-d": QPM_D}.get(delay_mode, BOLD)
    copies = outstanding + 1 if mode == BOLD else 1
    rng, world_rng = (np.random.Generator(np.random.PCG64([seed, stream])) for stream in (0, 1))
    carried = (
        np.array([0, -1]),  # clock
        np.zeros(copies, np.bool_),
        np.zeros((ring, n)),
        np.zeros((ring, n)),
        np.zeros(ring, np.int64),
        np.zeros(ring, np.int64),
        np.full(ring, -1, np.int64),
        np.full(ring, -1, np.int64),
        np.full(ring, -1, np.int64),
        np.zeros(n),
        np.full(n, -1, np.int64),  # queues by drafter
        np.full(n, -1, np.int64),
        np.zeros(rounds if mode == QPM_D else 0, np.int64),
        np.zeros(rounds if mode == QPM_D else 0),
    )
    states = np.repeat(fresh[None], copies, axis=0)
    settings, memory = np.array(world.settings, dtype=np.float64), np.zeros((world.memory, n))
    totals, sums, regret = np.zeros(n), np.zeros(3), np.zeros(len(at))
    picks, round_loss = np.empty(rounds, np.int32), np.empty(rounds)
    probs_kept, losses_kept = (np.empty((rounds if record else 0, n)) for _ in range(2))
    done = 0
    for given in _blocks(world, seed):
        if not isinstance(given, np.ndarray) or given.dtype.kind not in "fiub":
            raise ValueError(f"{world.name}: blocks must be arrays of real numbers, got {type(given).__name__}")
        block = np.ascontiguousarray(given, dtype=np.float64)
        if block.shape[1:] != (n,) or done + len(block) > rounds:
            raise ValueError(
                f"{world.name}: a block of shape {block.shape} in a world of {rounds} rounds, {n} drafters"
            )
        here = slice(done, done + len(block))
        played = engine(
            step,
            fold,
            adversary,
            settings,
            memory,
            world.adversary is not None,
            params,
            states,
            rng,
            world_rng,
            done,
            block,
            delays[here],
            mode,
            policy.feedback == "bandit",
            *carried,
            totals,
            sums,
            at,
            regret,
            picks[here],
            round_loss[here],
            probs_kept[here],
            losses_kept[here],
        )
        if played < -len(block):
            row = -1 - len(block) - played
            if world.adversary is not None:
                raise ValueError(f"{world.name}: losses outside [0, 1] in round {done + row}")
            raise _outside(block[row], done + row)
        if played < 0:
            raise ValueError(
                f"learner {policy.name!r}: in round {done - played - 1} play did not write a distribution "
                f"(non-negative, sum 1) over the {n} drafters"
            )
        done += len(block)
    if done != rounds:
        raise ValueError(f"{world.name}: {done} rounds of losses in a world of {rounds}")
    return Game(
        learner=policy,
        settings={
            "world": world.name,
            "feedback": feedback,
            "delay_mode": delay_mode,
            "longest_delay": longest,
            "most_outstanding": outstanding,
            "copies": copies,
            "seed": seed,
        },
        picks=picks,
        round_loss=round_loss,
        drafter_losses=totals,
        expected_loss=float(sums[0]),
        pick_loss=float(sums[1]),
        variance=float(sums[2]),
        times=at,
        regret_at=regret,
        probs=probs_kept if record else None,
        losses=losses_kept if record else None,
        caveats=caveats.of_game(
            policy,
            rounds=rounds,
            stationary=world.stationary,
            adaptive=world.adversary is not None,
            mode=delay_mode,
            late=outstanding > 0,
        ),
    )
