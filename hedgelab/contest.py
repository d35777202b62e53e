"""Learners side by side in one token game, over many seeds: the computation behind `hedgelab play`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab import worlds
from hedgelab.contract import Learner
from hedgelab.decode_replay import resolve
from hedgelab.regret import Interval, mean_interval
from hedgelab.token_game import log_times, play

__all__ = ["WORLDS", "Contest", "contest", "settings_of", "world_of"]

# what the command line can build: name -> builder(T, N, **settings), and settings where the builder has no defaults
WORLDS: dict[str, tuple[Callable[..., worlds.World], dict[str, Any]]] = {
    "fair-coins": (worlds.fair_coins, {}),
    "gap": (worlds.gap, {"gap": 0.1}),
    "drifting": (worlds.drifting, {"speed": 0.001}),
    "switching": (worlds.switching, {"switches": 4, "gap": 0.2}),
    "alternating": (worlds.alternating, {}),
    "greedy": (worlds.greedy, {}),
    "block": (worlds.block, {"length": 10}),
    "breakaway": (worlds.breakaway, {}),
}


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings that a world takes, with their defaults.

    >>> settings_of("gap")
    {'gap': 0.1, 'mean': 0.5, 'best': None}
    """
    build, given = WORLDS[name]
    own = {key: parameter.default for key, parameter in inspect.signature(build).parameters.items()}
    return {key: given.get(key, default) for key, default in own.items() if key not in ("T", "N")}


def world_of(
    name: str, rounds: int | None = None, drafters: int | None = None, **settings: float | str
) -> worlds.World | NDArray[Any]:
    """Return a world by name, 10,000 rounds and 16 drafters unless given, or the losses (T, N) of a .npy file.

    Raises ValueError for a name that is neither, or settings that the world does not take; OSError for a file that
    cannot be read.

    >>> world_of("gap", 100, 4, gap=0.25)
    <World 'gap': 100 rounds, 4 drafters>
    """
    if name.endswith(".npy"):
        if settings or rounds is not None or drafters is not None:
            raise ValueError("a file of losses has its own rounds and drafters, and takes no settings")
        if not Path(name).is_file():
            raise ValueError(f"no file {name!r}")
        return np.load(Path(name), mmap_mode="r", allow_pickle=False)
    if name not in WORLDS:
        raise ValueError(f"no world {name!r}; there are {', '.join(WORLDS)}, or a .npy file of losses")
    known = settings_of(name)
    unknown = [key for key in settings if key not in known]
    if unknown:
        raise ValueError(f"world {name!r} has no setting {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    whole = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in settings.items()
    }
    return WORLDS[name][0](
        10_000 if rounds is None else rounds, 16 if drafters is None else drafters, **{**WORLDS[name][1], **whole}
    )


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
        """Return the mean regret after all rounds, with Student's 95% interval over seeds (NaN for one seed)."""
        return Interval(*(float(part) for part in mean_interval(self.regret[name][:, -1])))

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
            "interval": "of the mean over seeds, 95%, Student",
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
    assert game is not None  # seeds >= 1
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
