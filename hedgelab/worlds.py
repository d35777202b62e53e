r"""Worlds: where the losses of the token game come from.

    fair_coins, iid, gap      stationary: independent over rounds and drafters, known means
    drifting, switching       means that move, slowly or at once
    domains                   means that depend on a hidden domain, redrawn every so many rounds
    alternating               the fixed sequence on which follow the leader fails
    greedy, block, breakaway  adversaries: losses chosen against the distribution played, see hedgelab.adversaries

Losses are a pure function of (seed, round): a block of rounds has its own generator, and the size of a block depends
on N alone. So a short world is the beginning of a long one, and 10^8 rounds or 10^4 drafters need no more memory than
a block. Worlds of one N and one kind of draw use the same uniforms under the same seed: comparisons over gaps, speeds
or learners are paired. `hedgelab.pools.pool` makes traces for the decode loop, `hedgelab.token_worlds` models so
small that every text can be enumerated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab import adversaries
from hedgelab.coins import uniforms
from hedgelab.pools import pool
from hedgelab.token_worlds import TokenWorld, accepting_for_ever, random_world, two_state_world

__all__ = [
    "TokenWorld",
    "World",
    "accepting_for_ever",
    "alternating",
    "block",
    "breakaway",
    "domains",
    "drifting",
    "fair_coins",
    "gap",
    "greedy",
    "iid",
    "pool",
    "random_world",
    "switching",
    "two_state_world",
]

_LOSSES, _PLACES = 0, 1  # spawn keys: the losses of a block of rounds; where best drafters and changes lie
_DOMAINS = 32  # stream of hedgelab.coins
_BLOCK = 1 << 18  # losses in a block, about
_ROUNDS = 4096  # rounds in a block, at most

Matrix = NDArray[np.float64]
Means = Callable[[int, int, int], Matrix]


@dataclass(frozen=True, eq=False, repr=False)
class World:
    """A game of T rounds and N drafters: either losses that are there beforehand, or an adversary.

    rounds, drafters : T, N. blocks : ``blocks(seed)`` yields the losses in order, (B, N) float64 in [0, 1], rows
    contiguous, B as it likes; those of this module also take ``blocks(seed, start)``. adversary : a kernel, see
    `hedgelab.adversaries`, with `settings` (P,) and a state of `memory` rows.
    means : (N,) mean losses where they are the same for all rounds and seeds, else None. mean_losses :
    ``mean_losses(seed, start, count)`` returns the means (count, N) of those rounds, None where there are none.
    stationary : whether losses are independent over rounds with one mean a drafter under each seed. Raises ValueError
    naming each field that does not fit.

    >>> world = World("halves", 2, 3, blocks=lambda seed: iter([np.full((2, 3), 0.5)]))
    >>> world, world.array().tolist()
    (<World 'halves': 2 rounds, 3 drafters>, [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]])
    """

    name: str
    rounds: int
    drafters: int
    blocks: Callable[..., Iterator[Matrix]] | None = None
    adversary: Any = None
    settings: ArrayLike = ()
    memory: int = 1
    means: NDArray[np.float64] | None = None
    mean_losses: Means | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        problems = [
            *_whole("rounds", self.rounds, 1),
            *_whole("drafters", self.drafters, 1),
            *_whole("memory", self.memory, 1),
        ]
        if (self.blocks is None) == (self.adversary is None):
            problems.append("a world has either blocks or an adversary")
        settings = np.array(self.settings, dtype=np.float64)
        if settings.ndim != 1:
            problems.append(f"settings must be a vector, got shape {settings.shape}")
        means = None if self.means is None else np.array(self.means, dtype=np.float64)
        if means is not None and means.shape != (self.drafters,):
            problems.append(f"means must have shape ({self.drafters},), got {means.shape}")
        if problems:
            raise ValueError(f"world {self.name!r}: " + "; ".join(problems))
        for name, array in (("settings", settings), ("means", means)):
            if array is not None:
                array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return f"<World {self.name!r}: {self.rounds} rounds, {self.drafters} drafters>"

    def array(self, seed: int = 0) -> Matrix:
        """Return all losses, (T, N) float64. Raises ValueError for an adversary, whose losses depend on the learner.

        >>> gap(1000, 3, 0.2).array(seed=1).shape
        (1000, 3)
        """
        if self.blocks is None:
            raise ValueError(f"world {self.name!r}: an adversary's losses depend on the learner")
        out = np.empty((self.rounds, self.drafters))
        done = 0
        for losses in self.blocks(seed):
            if np.shape(losses)[1:] != (self.drafters,) or done + len(losses) > self.rounds:
                shape = (self.rounds, self.drafters)
                raise ValueError(
                    f"world {self.name!r}: a block of shape {np.shape(losses)} in a world of shape {shape}"
                )
            out[done : done + len(losses)] = losses
            done += len(losses)
        if done != self.rounds:
            raise ValueError(f"world {self.name!r}: blocks yield {done} rounds of {self.rounds}")
        return out


# ------------------------------------------------------------------ arguments


def _whole(name: str, value: Any, low: int, high: float = 2**62) -> list[str]:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        most = f" in [{low}, {high:g}]" if high < 2**62 else f" of at least {low} (and below 2^62)"
        return [f"{name} must be a whole number{most}, got {value!r}"]
    return []


def _within(name: str, value: Any, low: float, high: float) -> list[str]:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return [] if number and low <= value <= high else [f"{name} must be a number in [{low:g}, {high:g}], got {value!r}"]


def _game(T: Any, N: Any) -> list[str]:
    return [*_whole("T", T, 1), *_whole("N", N, 1)]


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ValueError("; ".join(problems))


def _matrix(name: str, values: ArrayLike, ndim: int) -> Matrix:
    """Return `values` as a read-only array of loss means. Raises ValueError for another shape or range."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != ndim or array.size == 0 or not ((array >= 0) & (array <= 1)).all():
        shape = "(N,)" if ndim == 1 else "(domains, N)"
        raise ValueError(f"{name} must be {shape} in [0, 1], got shape {array.shape}")
    array.setflags(write=False)
    return array


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


# ------------------------------------------------------------------ blocks


def block_rounds(drafters: int) -> int:
    """Return how many rounds of N losses are made or read at once: 2 MB of them, at most 4096 rounds."""
    return max(1, min(_ROUNDS, _BLOCK // drafters))


def _blocks(rounds: int, drafters: int, fill: Callable[..., Matrix], seed: int = 0, start: int = 0) -> Iterator[Matrix]:
    """Yield the losses from round `start` on; ``fill(seed, block, first, count, drafters)`` makes one whole block."""
    _refuse([*_whole("seed", seed, 0, 2**56 - 1), *_whole("start", start, 0, rounds)])
    count = block_rounds(drafters)
    for index in range(start // count, -(-rounds // count)):
        first = index * count
        yield fill(int(seed), index, first, count, drafters)[max(start - first, 0) : rounds - first]


def _fill_coins(seed: int, index: int, first: int, count: int, drafters: int) -> Matrix:
    bits = np.unpackbits(np.frombuffer(_generator(seed, _LOSSES, index).bytes(-(-count * drafters // 8)), np.uint8))
    return bits[: count * drafters].reshape(count, drafters).astype(np.float64)


def _fill(means: Means, concentration: float | None, seed: int, index: int, first: int, count: int, N: int) -> Matrix:
    """Draw a block around its means: Beta with that concentration, Bernoulli for None."""
    rng = _generator(seed, _LOSSES, index)
    mean = means(seed, first, count)
    if concentration is None:
        losses = rng.random((count, N))
        return np.less(losses, mean, out=losses)
    above = rng.standard_gamma(concentration * mean, (count, N))
    return above / (above + rng.standard_gamma(concentration * (1.0 - mean), (count, N)))


def _fill_means(means: Means, seed: int, index: int, first: int, count: int, N: int) -> Matrix:
    """The means themselves: for fixed sequences."""
    return means(seed, first, count)


def _stochastic(
    name: str,
    T: int,
    N: int,
    mean_losses: Means,
    *,
    means: Matrix | None = None,
    concentration: float | None = None,
    stationary: bool = False,
) -> World:
    fill = functools.partial(_fill, mean_losses, concentration)
    blocks = functools.partial(_blocks, T, N, fill)
    return World(name, T, N, blocks, means=means, mean_losses=mean_losses, stationary=stationary)


# ------------------------------------------------------------------ stationary


def _constant(means: Matrix, seed: int, start: int, count: int) -> Matrix:
    return np.broadcast_to(means, (count, len(means)))


def fair_coins(T: int, N: int) -> World:
    r"""Return T rounds of N independent fair coins: no learner can do better or worse than any other.

    Whatever is played has expected regret E max_i sum_t (1/2 - l_t(i)) to the realised best, which is
    (sqrt(T) / 2) E max of N standard normals as T grows: about sqrt(T ln N / 2) for large N. It validates the
    measuring.

    >>> fair_coins(4, 2).means.tolist()
    [0.5, 0.5]
    """
    _refuse(_game(T, N))
    means = np.full(N, 0.5)
    return World(
        "fair_coins",
        T,
        N,
        functools.partial(_blocks, T, N, _fill_coins),
        means=means,
        mean_losses=functools.partial(_constant, means),
        stationary=True,
    )


def iid(T: int, means: ArrayLike, *, kind: str = "bernoulli", concentration: float = 4.0) -> World:
    r"""Return T rounds of losses independent over rounds and drafters, with mean losses `means` (N,) in [0, 1].

        bernoulli    P(l = 1) = m, else 0
        beta         Beta(c m, c (1 - m)), c the concentration: variance m (1 - m) / (c + 1)

    >>> iid(3, [0.0, 1.0]).array().tolist()
    [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """
    problems = [*_whole("T", T, 1), *_within("concentration", concentration, 0.1, 1e6)]
    if kind not in ("bernoulli", "beta"):
        problems.append(f"kind must be bernoulli or beta, got {kind!r}")
    _refuse(problems)
    m = _matrix("means", means, 1)
    return _stochastic(
        "iid",
        T,
        len(m),
        functools.partial(_constant, m),
        means=m,
        concentration=float(concentration) if kind == "beta" else None,
        stationary=True,
    )


def _gap_means(N: int, gap: float, mean: float, best: int | None, seed: int, start: int, count: int) -> Matrix:
    means = np.full(N, mean)
    means[_generator(seed, _PLACES).integers(N) if best is None else best] = mean - gap
    return np.broadcast_to(means, (count, N))


def gap(T: int, N: int, gap: float, *, mean: float = 0.5, best: int | None = None) -> World:
    r"""Return T rounds of Bernoulli losses of mean `mean`, lower by `gap` for one drafter.

    best : its index; None lets the seed draw it, so that no learner gains by its order of ties (`World.means` is then
    None, `mean_losses` knows). Hard at a given T for gap = c sqrt(ln N / T) under full information, c sqrt(N / T) for
    bandits.

    >>> gap(10, 3, 0.2, best=1).means.tolist()
    [0.5, 0.3, 0.5]
    """
    problems = [*_game(T, N), *_within("mean", mean, 0, 1)]
    if not problems:
        problems += _within("gap", gap, 0, mean)
        problems += [] if best is None else _whole("best", best, 0, N - 1)
    _refuse(problems)
    mean_losses = functools.partial(_gap_means, N, gap, mean, best)
    means = None if best is None else mean_losses(0, 0, 1)[0]
    return _stochastic("gap", T, N, mean_losses, means=means, stationary=True)


# ------------------------------------------------------------------ means that move


def _drift_means(N: int, speed: float, mean: float, amplitude: float, seed: int, start: int, count: int) -> Matrix:
    phase = 2.0 * np.pi * _generator(seed, _PLACES).random(N)
    angle = np.arange(start, start + count) * (speed / amplitude)
    return np.clip(mean + amplitude * np.sin(np.mod(angle, 2.0 * np.pi)[:, None] + phase), 0.0, 1.0)


def drifting(T: int, N: int, speed: float, *, mean: float = 0.5, amplitude: float = 0.25) -> World:
    r"""Return T rounds of Bernoulli losses whose means swing, each with a phase that the seed draws.

        mu_t(i) = mean + amplitude sin(speed t / amplitude + phase_i)

    `speed` is the most that a mean moves in a round, so sum_t max_i |mu_t(i) - mu_{t-1}(i)| <= speed (T - 1), the
    variation budget of Besbes, Gur and Zeevi 2014. All drafters have the same mean over a period of 2 pi amplitude /
    speed rounds: static regret sees no difference there, tracking regret does.

    >>> world = drifting(1000, 2, speed=0.01)
    >>> bool(np.abs(np.diff(world.mean_losses(0, 0, 1000), axis=0)).max() <= 0.01)
    True
    """
    problems = [*_game(T, N), *_within("speed", speed, 0, 1), *_within("mean", mean, 0, 1)]
    if not problems and not (1e-9 <= amplitude <= min(mean, 1 - mean)):
        problems.append(f"amplitude must lie in [1e-9, {min(mean, 1 - mean):g}], got {amplitude!r}")
    _refuse(problems)
    return _stochastic("drifting", T, N, functools.partial(_drift_means, N, speed, mean, amplitude))


@functools.lru_cache(maxsize=8)
def _segments(T: int, N: int, switches: int, at: str, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first rounds of the segments after the first (m,), and each segment's best drafter (m + 1,)."""
    rng = _generator(seed, _PLACES)
    best = rng.integers(N, size=switches + 1)
    if switches:
        best[1:] = best[0] + np.cumsum(rng.integers(1, N, size=switches))  # never the one before
        best %= N
    if at == "even":
        return np.array([j * T // (switches + 1) for j in range(1, switches + 1)], np.int64), best
    return np.sort(1 + rng.choice(T - 1, switches, replace=False)) if switches else np.empty(0, np.int64), best


def _switch_means(
    T: int, N: int, switches: int, gap: float, mean: float, at: str, seed: int, start: int, count: int
) -> Matrix:
    rounds, best = _segments(T, N, switches, at, seed)
    means = np.full((count, N), mean)
    now = best[np.searchsorted(rounds, np.arange(start, start + count), side="right")]
    means[np.arange(count), now] = mean - gap
    return means


def switching(T: int, N: int, switches: int, gap: float, *, mean: float = 0.5, at: str = "even") -> World:
    r"""Return T rounds of Bernoulli losses of mean `mean`, lower by `gap` for one drafter, another after each switch.

    switches : how often the best drafter changes, in [0, T - 1]. at : "even" divides the rounds into m + 1 segments
    of equal length, "random" lets the seed draw the m rounds. The seed also draws who is best.

    >>> switching(6, 2, 2, 0.5).array(seed=3).shape
    (6, 2)
    """
    problems = [*_game(T, N), *_within("mean", mean, 0, 1)]
    if not problems:
        problems += [*_within("gap", gap, 0, mean), *_whole("switches", switches, 0, T - 1 if N > 1 else 0)]
    if at not in ("even", "random"):
        problems.append(f"at must be even or random, got {at!r}")
    _refuse(problems)
    return _stochastic("switching", T, N, functools.partial(_switch_means, T, N, switches, gap, mean, at))


def _domain_means(means: Matrix, length: int, seed: int, start: int, count: int) -> Matrix:
    first = start // length
    drawn = uniforms(seed, _DOMAINS, 0, first, (start + count - 1) // length - first + 1)
    domain = (drawn * len(means)).astype(np.int64)
    return means[domain[np.arange(start, start + count) // length - first]]


def domains(T: int, means: ArrayLike, length: int) -> World:
    r"""Return T rounds of Bernoulli losses whose means are a row of `means` (D, N), drawn anew every `length` rounds.

    Prompts of `length` tokens from D equally likely domains, mixed: the best drafter of a domain is known, the domain
    is not shown.

    >>> domains(6, [[0.0, 1.0], [1.0, 0.0]], length=2).array(seed=5).tolist()
    [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    _refuse([*_whole("T", T, 1, 2**31), *_whole("length", length, 1)])
    m = _matrix("means", means, 2)
    return _stochastic("domains", T, m.shape[1], functools.partial(_domain_means, m, length))


# ------------------------------------------------------------------ against a learner


def _alternating(N: int, seed: int, start: int, count: int) -> Matrix:
    losses = np.zeros((count, N))
    t = np.arange(start, start + count)
    losses[np.arange(count), N - 1 - (t - 1) % N] = 1.0
    if start == 0:
        losses[0] = (N - 1.0 - np.arange(N)) / N
    return losses


def alternating(T: int, N: int) -> World:
    r"""Return the fixed sequence on which follow the leader loses nearly every round.

    First losses (N - 1 - i) / N, so that one drafter leads; from then on loss 1 for the leader, 0 for the others, in
    turn. Follow the leader loses T - 1 after the first round, every drafter at most ceil((T - 1) / N) + 1: its regret
    is (1 - 1/N) T - O(1), linear. N = 2 is the textbook's (1/2, 0), (0, 1), (1, 0), (0, 1), ...

    >>> alternating(3, 2).array().tolist()
    [[0.5, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    _refuse(_game(T, N))
    fill = functools.partial(_fill_means, functools.partial(_alternating, N))
    return World("alternating", T, N, functools.partial(_blocks, T, N, fill))


def greedy(T: int, N: int) -> World:
    r"""Return the adversary that puts loss 1 on the max(1, N // 2) drafters of largest probability, 0 on the others.

    Ties are broken at random. Against NormalHedge at N = 2 the regret tends to 1.47 sqrt(T ln N / 2) (measured);
    `breakaway` makes more.

    >>> greedy(100, 2)
    <World 'greedy': 100 rounds, 2 drafters>
    """
    _refuse(_game(T, N))
    return World("greedy", T, N, adversary=adversaries.heaviest_half)


def block(T: int, N: int, length: int) -> World:
    r"""Return the greedy adversary that repeats each choice for `length` rounds: the adversary against delay.

    A learner that sees its losses d rounds late plays d + 1 rounds on the same knowledge: with length = d + 1 it loses
    them all in the same way.

    >>> block(100, 2, length=5).settings.tolist()
    [5.0]
    """
    _refuse([*_game(T, N), *_whole("length", length, 1)])
    return World("block", T, N, adversary=adversaries.repeated_half, settings=[length], memory=2)


def breakaway(T: int, N: int, *, last: int | None = None) -> World:
    r"""Return the greedy adversary that in its last rounds lets one drafter break away from the others.

    In the `last` rounds, default floor(sqrt T), all but the leader (least cumulative loss, the first of equals) lose 1.
    All figures measured, as multiples of sqrt(T ln N / 2), which bounds Hedge with its rate tuned to T. That Hedge:
    0.93 at N = 2, 0.97 at N = 8 and 64, where `greedy` makes 0.50 (T = 4000). NormalHedge at N = 2: 1.729 at T = 200,
    1.769 at T = 800, 1.792 at T = 32,000, where `greedy` makes 1.47; the most that losses 0 and 1 can cause, by dynamic
    programming over both regrets, is 1.731 and 1.770 at the first two.

    >>> breakaway(100, 2).settings.tolist()
    [90.0]
    """
    problems = _game(T, N)
    _refuse(problems if problems or last is None else _whole("last", last, 0, T))
    last = math.isqrt(T) if last is None else last
    return World("breakaway", T, N, adversary=adversaries.breakaway, settings=[T - last])
