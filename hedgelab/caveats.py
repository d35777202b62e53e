"""What in a setting voids the conditions of a learner's theorem, in words: runs carry these notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hedgelab.bounds import BOUNDS, FOR_LEARNER, NO_BOUND
from hedgelab.contract import Learner

__all__ = ["of_game", "of_replay"]


def _horizon(values: dict[str, Any], rounds: int | None) -> str | None:
    if values["horizon"] is None:
        return "its bound needs the horizon: without it, anytime"
    return "its bound needs horizon = T" if rounds is not None and values["horizon"] != rounds else None


def _beta(values: dict[str, Any], rounds: int | None) -> str | None:
    return None if 2 * values["beta"] ** 2 > 1 else f"its bound needs beta above 1/sqrt 2, this is {values['beta']:g}"


def _looks(values: dict[str, Any], rounds: int | None) -> str | None:
    unknown = values["horizon"] is None and values["rounds"] is None
    return "a fixed number of looks: regret may grow linearly" if unknown else None


# what a learner's own parameters must be for its bound, where the defaults or a user's values may not be that
_PARAMETERS: dict[str, Callable[[dict[str, Any], int | None], str | None]] = {
    "moss": _horizon,
    "exp3-p": _horizon,
    "explore-then-commit": _looks,
    "ucb-tuned": _beta,
    "metasd": _beta,
    "metasd-onpath": _beta,
    "kl-ucb": lambda values, rounds: None if values["c"] >= 3 else f"its theorems have c = 3, this is {values['c']:g}",
    "ucb-v": lambda values, rounds: (
        None if (values["zeta"], values["c"]) == (1.2, 1.0) else "its constants are for zeta = 1.2, c = 1"
    ),
}


def _theorem(policy: Learner, rounds: int | None, stationary: bool, adaptive: bool) -> list[str]:
    """Return what is missing without delay."""
    if policy.name not in FOR_LEARNER:
        reason = NO_BOUND.get(policy.name)
        return [f"no bound with constants: {reason}" if reason else f"no bound is registered for {policy.name!r}"]
    entry = FOR_LEARNER[policy.name]
    theorem = BOUNDS[entry.theorem]
    notes = []
    if theorem.status in ("asymptotic", "order only"):
        notes.append(f"its bound is {theorem.status}: no game can test it")
    if (theorem.holds == "stochastic" or {"gaps", "means", "lengths"} & set(entry.needs)) and not stationary:
        notes.append("its bound is for losses independent over rounds, with one mean a drafter")
    if policy.name in _PARAMETERS:
        values = {name: policy.values.get(name, parameter.default) for name, parameter in policy.parameters.items()}
        found = _PARAMETERS[policy.name](values, rounds)
        notes += [found] if found else []
    if adaptive and policy.randomises:
        notes.append("the adversary sees the pick in the one-hot play: no bound speaks of that")
    elif adaptive and theorem.holds in ("pseudo-regret", "stopping time"):
        notes.append("the world answers the plays: a bound on pseudo-regret does not speak of it")
    return notes


def of_game(
    policy: Learner,
    *,
    rounds: int | None = None,
    stationary: bool = False,
    adaptive: bool = False,
    mode: str = "queue",
    late: bool = False,
    by_policy: bool = False,
) -> tuple[str, ...]:
    """Return what in a token game voids the conditions of the learner's theorem; () where nothing does.

    stationary : whether losses are independent over rounds with one mean a drafter; adaptive : whether the world
    answers the plays; late : whether any loss is missing at any play; by_policy : whether delays depend on what was
    played; mode : see `hedgelab.delays`

    >>> import hedgelab as hl
    >>> of_game(hl.learner("moss", horizon=100), rounds=100, stationary=True)
    ()
    """
    if policy.feedback == "none":
        return ()
    notes = _theorem(policy, rounds, stationary, adaptive)
    doubling = policy.name == "hedge" and policy.values.get("schedule", 0) == 1
    if late and mode == "queue" and policy.name == "hedge" and not doubling:
        notes.append("under delay Hedge's bound is bounds.hedge_path, not that without delay")
    elif late and mode == "queue":
        full = policy.feedback == "full" or not by_policy  # decoding pads for full information alone
        padded = ": delay_mode 'padded' has one" if policy.name in FOR_LEARNER and full else ""
        notes.append(f"no bound is proved for {policy.name!r} on late losses{padded}")
    if late and mode in ("bold", "qpm-d") and by_policy:
        notes.append(f"{mode} needs delays that do not depend on what was played; delay_mode 'padded' makes them so")
    if (policy.randomises and not adaptive) or mode == "qpm-d":
        notes.append("expected_loss is that of the picks drawn: its mean over seeds is the theorem's")
    return tuple(notes)


def of_replay(
    policy: Learner, *, objective: str, feedback: str, granularity: str, delay_mode: str, carry_over: bool
) -> tuple[str, ...]:
    """Return what in a decode replay voids the conditions of the learner's theorem for the token game of the run."""
    if policy.feedback == "none":
        return ()
    notes = list(of_game(policy, mode=delay_mode, late=feedback == "delayed", by_policy=True))
    if feedback == "censored":
        notes.append("censored losses are biased: they end where the round does, so depend on the pick")
    if feedback == "bandit" or granularity == "round":
        notes.append("losses at round starts depend on the picks: a fixed drafter's sum of them is not its own run")
    if feedback == "bandit" and policy.reward == "block" and objective == "length":
        notes.append("the block's mean gamma stops at the first rejection: the paper's average goes on off the path")
    if feedback == "bandit" and carry_over:
        notes.append("rounds that a text's end cuts pay nothing, unless k drafts were accepted: a small bias")
    if not carry_over:
        notes.append("the learner starts afresh for each sequence: one game a sequence")
    return tuple(notes)
