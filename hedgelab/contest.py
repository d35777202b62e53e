"""Learners side by side in one token game, over many seeds: the computation behind `hedgelab play`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab import worlds
from hedgelab.contract import Learner
from hedgelab.decode_replay import resolve
from hedgelab.regret import Interval
from hedgelab.token_game import log_times, play

__all__ = ["WORLDS", "Contest", "contest", "world_of"]

# what the command line can build from numbers: name -> builder(T, N, **settings)
WORLDS: dict[str, Callable[..., worlds.World]] = {
    "fair-coins": worlds.fair_coins,
    "gap": worlds.gap,
    "drifting": worlds.drifting,
    "switching": worlds.switching,
    "alternating": worlds.alternating,
    "greedy": worlds.greedy,
    "block": worlds.block,
    "breakaway": worlds.breakaway,
}
_WHOLE = {"switches", "length", "last", "best"}


def world_of(name: str, rounds: int, drafters: int, **settings: float) -> worlds.World | NDArray[Any]:
    """Return a world by name, or the losses (T, N) of a .npy file, as a memory map.

    Raises ValueError for a name that is neither, or settings that the world does not take.

    >>> world_of("gap", 100, 4, gap=0.25)
    <World 'gap': 100 rounds, 4 drafters>
    """
    if name.endswith(".npy"):
        if settings:
            raise ValueError(f"a file of losses takes no settings, got {', '.join(settings)}")
        return np.load(Path(name), mmap_mode="r", allow_pickle=False)
    if name not in WORLDS:
        raise ValueError(f"no world {name!r}; there are {', '.join(WORLDS)}, or a .npy file of losses")
    values = {key: int(value) if key in _WHOLE and value == int(value) else value for key, value in settings.items()}
    try:
        return WORLDS[name](rounds, drafters, **values)
    except TypeError as error:
        raise ValueError(f"world {name!r}: {error}") from error


@dataclass(frozen=True)
class Contest:
    """Regret of several learners. S seeds, M times.

    regret : of each learner (S, M), at `times` (M,); notes : each learner's caveats
    """

    world: str
    rounds: int
    drafters: int
    settings: dict[str, Any]
    times: NDArray[np.int64]
    feedback: dict[str, str]
    regret: dict[str, NDArray[np.float64]]
    notes: dict[str, tuple[str, ...]]

    def final(self, name: str) -> Interval:
        """Return the mean regret after all rounds, with a 95% interval over seeds (normal; NaN for one seed)."""
        last = self.regret[name][:, -1]
        half = 1.96 * float(last.std(ddof=1)) / np.sqrt(len(last)) if len(last) > 1 else float("nan")
        mean = float(last.mean())
        return Interval(mean, mean - half, mean + half)

    @property
    def unit(self) -> float:
        """sqrt(T ln N / 2): Hedge's bound with full information, no delay and T known. Regret is shown in it too."""
        return float(np.sqrt(self.rounds * np.log(self.drafters) / 2))

    def document(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold."""
        return {
            "world": self.world,
            "rounds": self.rounds,
            "drafters": self.drafters,
            "settings": self.settings,
            "interval": "95%, normal, over seeds",
            "times": self.times.tolist(),
            "learners": {
                name: {
                    "feedback": self.feedback[name],
                    "regret": {
                        key: None if np.isnan(value) else value for key, value in self.final(name)._asdict().items()
                    },
                    "mean_regret_at": rows.mean(axis=0).tolist(),
                    "caveats": list(self.notes[name]),
                }
                for name, rows in self.regret.items()
            },
        }


def contest(
    world: worlds.World | ArrayLike,
    learners: Iterable[str | Learner],
    *,
    seeds: int = 10,
    seed: int = 0,
    delay: int = 0,
    delay_mode: str = "queue",
    advance: Callable[[int], None] = lambda _: None,
) -> Contest:
    """Play each learner `seeds` times, with seeds seed, seed + 1, ... shared by all learners.

    Raises ValueError as `hedgelab.play` does, or for two learners of one name.

    >>> contest(worlds.gap(200, 3, 0.3), ["hedge", "ucb1"], seeds=2).regret["hedge"].shape[0]
    2
    """
    policies = [resolve(learner, None)[0] for learner in learners]
    names = [policy.label for policy in policies]
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"every line needs a learner of its own, got {', '.join(names) or 'none'}")
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    regret: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names}
    notes: dict[str, tuple[str, ...]] = {}
    game = None
    for number in range(seeds):
        for policy, name in zip(policies, names, strict=True):
            game = play(world, policy, seed=seed + number, delay=delay, delay_mode=delay_mode)
            regret[name].append(game.regret_at)
            notes[name] = game.caveats
            advance(1)
    assert game is not None
    return Contest(
        world=game.settings["world"],
        rounds=game.rounds,
        drafters=len(game.drafter_losses),
        settings={"seeds": seeds, "seed": seed, "delay": delay, "delay_mode": delay_mode},
        times=log_times(game.rounds),
        feedback={name: policy.feedback for policy, name in zip(policies, names, strict=True)},
        regret={name: np.array(rows) for name, rows in regret.items()},
        notes=notes,
    )
