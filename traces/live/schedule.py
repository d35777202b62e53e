"""What a policy learns from, and when: settings of `traces.live.policy`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hedgelab.decode_replay import GRANULARITY, coin_place
from hedgelab.feedback import OBJECTIVES, loss_of, whole_draft_length

__all__ = ["CHOOSE", "FEEDBACK", "Schedule", "Setting"]

CHOOSE = ("turns", "random", "likely")
MIXTURE = "mixture"
FEEDBACK = ("delayed", "bandit")


@dataclass(frozen=True)
class Schedule:
    """When drafters are evaluated on rows that they did not draft: every few rounds, all of them or some.

    every : rounds between two turns. drafters : how many units (drafters that are evaluated together, see `Policy`) a
        turn; None: all; 0: never
    choose : "turns": they come round in order, and each is then evaluated on all rows that it has missed: nothing is
        skipped, losses come late. "random": drawn uniformly; "likely": those that the learner plays with the largest
        probability, in turns among equals. These two skip rows: what they do to a loss is in `Play.known`

    >>> Schedule.parse("every=2,random=3")
    Schedule(every=2, drafters=3, choose='random')
    """

    every: int = 1
    drafters: int | None = None
    choose: str = "turns"

    def __post_init__(self) -> None:
        for name, value, least in (("every", self.every, 1), ("drafters", self.drafters, 0)):
            if name == "drafters" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"schedule: {name} must be a whole number of at least {least}, got {value!r}")
        if self.choose not in CHOOSE:
            raise ValueError(f"schedule: choose must be one of {', '.join(CHOOSE)}, got {self.choose!r}")
        if self.choose != "turns" and not self.drafters:
            raise ValueError(f"schedule: {self.choose!r} must say how many drafters a turn, got {self.drafters!r}")

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Return the schedule that `str` writes as `text`. Raises ValueError for another text.

        "every": all drafters after every round; "every=4": after every fourth; "turns=3", "random=3", "likely=3": three
        of them; "every=2,turns=3": three of them after every second round; "never".
        """
        if text == "never":
            return cls(drafters=0)
        found: dict[str, Any] = {}
        for word in text.split(","):
            name, given, number = word.strip().partition("=")
            key = "every" if name == "every" else "drafters"
            bare = name == "every" and not given
            if name not in ("every", *CHOOSE) or key in found or not (bare or _digits(number)):
                raise ValueError(
                    f"schedule {text!r}: {word.strip()!r} does not fit; write never, every, every=M, or one of "
                    f"{', '.join(f'{each}=B' for each in CHOOSE)}, or every=M and one of these, parted by a comma"
                )
            found[key] = 1 if bare else int(number)
            if key == "drafters":
                found["choose"] = name
        if found.get("drafters") == 0:
            raise ValueError(f"schedule {text!r}: nobody is ever evaluated; write never")
        return cls(**found)

    def __str__(self) -> str:
        if self.drafters == 0:
            return "never"
        every = "every" if self.every == 1 else f"every={self.every}"
        if self.drafters is None:
            return every
        some = f"{self.choose}={self.drafters}"
        return some if self.every == 1 else f"{every},{some}"

    @property
    def skips(self) -> bool:
        """Whether rows of drafters are never evaluated."""
        return self.choose != "turns"


@dataclass(frozen=True)
class Setting:
    """What a policy learns from and when; the names that `hedgelab.replay` has mean the same here.

    objective : "length", "acceptance", or "mixture": weight x acceptance loss + (1 - weight) x length loss, a loss of
        no theorem of its own. estimator : of the length loss (C, B, A) or of the acceptance (gamma, alpha); of a
        mixture, it sets that of the part that has it
    feedback : "delayed" or "bandit"; None: the learner's own
    carry_over : one state for all texts, also for those that are decoded at the same time, instead of a fresh one each
    """

    k: int
    objective: str = "length"
    estimator: str | None = None
    weight: float = 0.5
    feedback: str | None = None
    granularity: str = "token"
    carry_over: bool = False
    seed: int = 0
    replicate: int = 0
    schedule: Schedule = Schedule()

    def __post_init__(self) -> None:
        whole_draft_length(self.k)
        self.parts()
        if self.feedback is not None and self.feedback not in FEEDBACK:
            raise ValueError(f"feedback must be one of {', '.join(FEEDBACK)} or None, got {self.feedback!r}")
        if self.granularity not in GRANULARITY:
            raise ValueError(f"granularity must be one of {', '.join(GRANULARITY)}, got {self.granularity!r}")
        if not isinstance(self.carry_over, bool):
            raise ValueError(f"carry_over must be True or False, got {self.carry_over!r}")
        if not isinstance(self.schedule, Schedule):
            raise ValueError(f"schedule must be a Schedule (Schedule.parse reads one), got {self.schedule!r}")
        coin_place(self.seed, self.replicate)

    def parts(self) -> list[tuple[float, int, int]]:
        """Return (weight, objective, estimator), as codes of `hedgelab.feedback`, of each part of the loss that counts.

        >>> Setting(5).parts(), Setting(5, "mixture", weight=0.25).parts()
        ([(1.0, 1, 2)], [(0.25, 0, 0), (0.75, 1, 2)])
        """
        if self.objective != MIXTURE:
            if self.objective not in OBJECTIVES:
                raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, {MIXTURE}, got {self.objective!r}")
            return [(1.0, *loss_of(self.objective, self.estimator))]
        if isinstance(self.weight, bool) or not isinstance(self.weight, int | float) or not 0 <= self.weight <= 1:
            raise ValueError(f"weight of a mixture must lie in [0, 1], got {self.weight!r}")
        allowed = [name for names in OBJECTIVES.values() for name in names]
        if self.estimator is not None and self.estimator not in allowed:
            raise ValueError(f"estimator of a mixture must be one of {', '.join(allowed)}, got {self.estimator!r}")
        shares = {"acceptance": float(self.weight), "length": 1.0 - self.weight}
        return [
            (share, *loss_of(name, self.estimator if self.estimator in OBJECTIVES[name] else None))
            for name, share in shares.items()
            if share > 0
        ]


def _digits(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
