"""Who drafts next, and what a learner is told: `hedgelab.decode_loop` for a decoder that is running.

The order of calls and the stream of random numbers are those of `hedgelab.replay` with `delay_mode="queue"`: where
accepted lengths and losses are equal, so are the picks. Round by round a decoder calls

1. `Play.pick(row)`: who drafts;
2. `Play.committed(...)`: how the round ended. Bandits learn here;
3. `Play.due()`: who is to be evaluated on the rows that were committed. Nobody, for bandits;
4. `Play.known(upto, columns)`: how far they were. Losses that became known reach the learner, in order of rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.algorithms import fixed
from hedgelab.contract import Learner
from hedgelab.decode_loop import draw, is_distribution
from hedgelab.decode_replay import fresh_state, resolve
from hedgelab.feedback import ACCEPTANCE, LENGTH, loss_range, row_losses, rows_until_known
from hedgelab.lanes import count_outside
from traces.live.schedule import Setting

__all__ = ["Columns", "Play", "Policy", "Round"]

_RETRIES = 64  # plays of a bandit that insists on dead drafters, before it is overruled


class Columns(Protocol):
    """Acceptances of one text, as `hedgelab.trace.Part` has them: C-contiguous, its rows first, room behind allowed."""

    @property
    def alpha_flat(self) -> NDArray[np.float32]:
        """(T', N1)."""

    @property
    def gamma_flat(self) -> NDArray[np.float32]:
        """(T', N1)."""

    @property
    def alpha_deep(self) -> NDArray[np.float32]:
        """(T', K, N2): entry [t, d] is row t as draft d of a round that began at t - d."""

    @property
    def gamma_deep(self) -> NDArray[np.float32]:
        """(T', K, N2)."""

    @property
    def flat_columns(self) -> NDArray[np.int64]:
        """(N1,) drafter of each flat column."""

    @property
    def deep_columns(self) -> NDArray[np.int64]:
        """(N2,) drafter of each deep column."""


class Round(NamedTuple):
    """A round: where it began, who drafted and with what probability, how many losses the learner had seen by then."""

    row: int
    pick: int
    chance: float
    losses_seen: int


@dataclass
class _Memory:
    """The state of a learner, and how many losses it has seen."""

    state: NDArray[np.float64]
    seen: int = 0


class Policy:
    """A learner over N drafters, for one text at a time or for several at once.

    units : drafters that are evaluated together, because one reads another's laws, as indices; None: each on its own.

    text : for a policy of one text alone, its number: picks then come from a generator of its own.

    Picks come from one generator, that of `hedgelab.replay` for (seed, replicate), in the order in which they are made.
    So that what a text gets does not depend on the texts beside it, give each a policy of its own; one that carries
    over is shared, and depends on them anyway.
    """

    def __init__(
        self,
        learner: str | Learner,
        drafters: Sequence[str],
        setting: Setting,
        units: Sequence[Sequence[int]] | None = None,
        text: int | None = None,
    ) -> None:
        self.learner, jitted = resolve(learner, None)
        self.setting, self.drafters = setting, tuple(drafters)
        if not self.drafters:
            raise ValueError("a policy needs a drafter at least")
        n = len(self.drafters)
        self.units = [(i,) for i in range(n)] if units is None else [tuple(unit) for unit in units]
        if sorted(i for unit in self.units for i in unit) != list(range(n)) or not all(self.units):
            raise ValueError(f"units must hold each of the {n} drafters once, got {self.units}")
        asked = setting.schedule.drafters
        if asked is not None and asked > len(self.units):
            raise ValueError(f"schedule {setting.schedule}: {asked} drafters a turn, there are {len(self.units)}")
        self.bandit = (setting.feedback or self.learner.feedback) == "bandit"
        if self.bandit and self.learner.feedback == "full":
            raise ValueError(
                f"learner {self.learner.name!r} needs every drafter's loss: it cannot run on bandit feedback"
            )
        self.evaluates = not self.bandit and self.learner.feedback != "none" and asked != 0
        self.play_kernel, self.observe_kernel = (
            self.learner.compiled() if jitted else (self.learner.play, self.learner.observe)
        )
        self.params, self._fresh = fresh_state(self.learner, n, self.drafters)
        self.parts = setting.parts()
        self.lag = max(rows_until_known(objective, setting.k) for _, objective, _ in self.parts)
        widths = [
            share * loss_range("length" if code == LENGTH else "acceptance", setting.k) for share, code, _ in self.parts
        ]
        self.width = sum(widths)
        entropy = [setting.seed, setting.replicate] if text is None else [setting.seed, setting.replicate, 2, text]
        self.rng = np.random.Generator(np.random.PCG64(entropy))
        self.turns = np.random.Generator(np.random.PCG64([*entropy, 1]))  # who is evaluated
        self.texts: set[int] = set()  # numbers of the texts that one which carries over has learnt from
        self._shared = _Memory(self._fresh.copy()) if setting.carry_over else None

    def of_text(self, number: int) -> Policy:
        """Return a policy like this one for one text alone, with a generator of its own."""
        return Policy(self.learner, self.drafters, self.setting, self.units, number)

    @property
    def only(self) -> int | None:
        """The one drafter that this policy ever picks, while it can; None for other policies."""
        return int(self.params[0]) if self.learner.play is fixed.LEARNER.play else None

    def begin(self, context: ArrayLike = ()) -> Play:
        """Return a new text's play, its learner in the state that it has now if it carries over, else in a fresh one.

        context : (C,) what is known of the text before it begins, the same in all of its rounds
        """
        known = np.asarray(context, np.float32).astype(np.float64)  # float32 is what a replay keeps of it
        if known.ndim != 1:
            raise ValueError(f"context must be a vector, got shape {known.shape}")
        return Play(self, self._shared or _Memory(self._fresh.copy()), known)


@dataclass
class _Played:
    """What was in force in a round, for the losses of its rows."""

    row: int
    pick: int
    probs: NDArray[np.float64]
    told: bool = True  # whether the learner, which may have been overruled, is told


class Play:
    """One text: its rounds, and the losses that have not been revealed. Made by `Policy.begin`.

    rounds : the rounds so far. row : the row at which the next one begins. waiting : the first row whose loss has not
    been revealed: who is evaluated now must be scored from there on, for every loss that comes next to be its own.
    """

    def __init__(self, policy: Policy, memory: _Memory, context: NDArray[np.float64]) -> None:
        n = len(policy.drafters)
        self.policy, self.rounds = policy, list[Round]()
        self.row = self.waiting = 0
        self._memory, self._context = memory, context
        self._probs = np.full(n, np.nan)
        self._alive = np.ones(n, np.bool_)
        self._open = self._ended = False  # whether a round is running; whether the text ends with the last one
        self._queue = list(policy.units)  # whose turn it is
        self._past: deque[_Played] = deque()  # rounds whose rows have not all been revealed
        self._upto = np.zeros(n, np.int64)
        self._sum, self._count = np.zeros(n), np.zeros(n, np.int64)  # of losses that were scored

    @property
    def probs(self) -> NDArray[np.float64]:
        """(N,) what was played last; NaN before the first round."""
        return self._probs.copy()

    @property
    def losses_seen(self) -> int:
        """How many losses the learner has seen, of other texts too if it carries over."""
        return self._memory.seen

    @property
    def alive(self) -> NDArray[np.bool_]:
        """(N,) which drafters could still draft when the last round began."""
        return self._alive.copy()

    # ------------------------------------------------------------------ a round

    def pick(self, row: int, alive: Sequence[bool] | NDArray[np.bool_] | None = None) -> int:
        """Return who drafts in the round that begins at `row`.

        alive : (N,) who still can; who once could not never drafts again. The probabilities of the others are scaled to
        sum to 1, and a uniform choice takes their place where the learner leaves them none. A learner of bandit
        feedback, which may divide by any of its probabilities, keeps them: where a dead drafter is drawn it is told a
        loss of 1, as of a round that accepted nothing, and plays again. If it insists, the choice is uniform, and it is
        not told what came of it.

        Raises ValueError for a row at which no round can begin, and where nobody is alive or the learner plays no
        distribution.
        """
        if self._open or self._ended or row != self.row:
            wait = "the round before it has not been committed" if self._open else f"the next one begins at {self.row}"
            raise ValueError(f"no round can begin at row {row}: {'the text has ended' if self._ended else wait}")
        if alive is not None:
            self._bury(np.asarray(alive))
        played = self._played()
        self._probs, self._open = played.probs, True
        self.rounds.append(Round(row, played.pick, float(played.probs[played.pick]), self.losses_seen))
        self._past.append(played)
        return played.pick

    def _bury(self, alive: NDArray[Any]) -> None:
        if alive.shape != self._alive.shape or alive.dtype != np.bool_:
            raise ValueError(f"alive must be {len(self._alive)} truth values, got {alive.dtype} of shape {alive.shape}")
        if (alive & ~self._alive).any():
            name = self.policy.drafters[int((alive & ~self._alive).argmax())]
            raise ValueError(f"row {self.row}: drafter {name!r} is alive again; it was dead before")
        if not alive.any():
            raise ValueError(f"row {self.row}: no drafter is alive")
        self._alive = alive.copy()

    def _played(self) -> _Played:
        """Let the learner play, and draw one of those alive."""
        policy, memory = self.policy, self._memory
        everyone, bandit = self._alive.all(), policy.learner.feedback == "bandit"
        for _ in range(_RETRIES):
            probs = np.full(len(self._alive), np.nan)
            policy.play_kernel(policy.params, memory.state, self._context, policy.rng, probs)
            if not is_distribution(probs):
                raise ValueError(
                    f"learner {policy.learner.name!r}: in the round at row {self.row} play did not write a "
                    f"distribution (non-negative, sum 1) over the {len(probs)} drafters"
                )
            if not everyone and not bandit:
                left = float(probs[self._alive].sum())
                if not left > 0.0:
                    break
                probs = np.where(self._alive, probs / left, 0.0)
            pick = int(draw(probs, policy.rng.random()))
            if self._alive[pick]:
                return _Played(self.row, pick, probs)
            self._tell(probs, pick, 1.0)
        probs = self._alive / self._alive.sum()
        return _Played(self.row, int(draw(probs, policy.rng.random())), probs, told=not bandit)

    def committed(
        self, accepted: int, taken: int, cut: bool, block: float | None = None, first: float | None = None
    ) -> None:
        """Take the outcome of the round: drafts accepted on the path, tokens committed, whether the text ended.

        cut : the text ends inside the drafts, no token is left for the target: taken = accepted; else one more
        block : of a learner that is paid the block, the mean of 1 - TV over what was drafted. first : with objective
            "acceptance" or a mixture, gamma or alpha of the first draft. Only bandits need either

        A bandit is told 1 - accepted / k or 1 - block, 1 - first, or their mixture; nothing of a round that the text's
        end has cut before its k drafts, unless the objective is "acceptance".
        """
        k = self.policy.setting.k
        if not self._open:
            raise ValueError("no round to commit: pick first")
        if not 0 <= accepted <= k or taken != accepted + (not cut) or taken < 1:
            raise ValueError(
                f"round at row {self.row}: {accepted} accepted of at most {k}, {taken} committed, cut {bool(cut)} do "
                "not fit: accepted + 1 are committed, or accepted, at least 1, where the text ends inside the drafts"
            )
        if self.policy.bandit:
            self._learn_reward(accepted, cut, block, first)
            self._past.clear()
        self.row += taken
        self._open, self._ended = False, bool(cut)

    def _learn_reward(self, accepted: int, cut: bool, block: float | None, first: float | None) -> None:
        policy, k = self.policy, self.policy.setting.k
        # a reward that the end truncated is not the drafter's; k accepted drafts, and the first one, are whole
        if cut and accepted < k and any(objective == LENGTH for _, objective, _ in policy.parts):
            return
        needs = {ACCEPTANCE: ("first", first)}
        if policy.learner.reward == "block":
            needs[LENGTH] = ("block", block)
        loss = 0.0
        for share, objective, _ in policy.parts:
            name, value = needs.get(objective, ("accepted", accepted / k))
            if value is None or not 0 <= value <= 1:
                raise ValueError(
                    f"round at row {self.row}: learner {policy.learner.name!r} needs {name} in [0, 1], got {value!r}"
                )
            loss += share * (1.0 - float(value))
        played = self._past[-1]
        if played.told:
            self._tell(played.probs, played.pick, loss)

    def _tell(self, probs: NDArray[np.float64], pick: int, loss: float) -> None:
        """Let the learner observe the loss of its pick alone."""
        losses = np.full(len(probs), np.nan)
        losses[pick] = loss
        self._observe(probs, pick, losses)

    def _observe(self, probs: NDArray[np.float64], pick: int, losses: NDArray[np.float64]) -> None:
        policy = self.policy
        policy.observe_kernel(policy.params, self._memory.state, self._context, probs, pick, losses)
        self._memory.seen += 1

    # ------------------------------------------------------------------ losses

    def due(self) -> list[int]:
        """Return who is to be evaluated after this round, by the schedule, in order: asked once a round."""
        schedule = self.policy.setting.schedule
        if self._open or not self.rounds or not self.policy.evaluates or len(self.rounds) % schedule.every:
            return []
        alive = self._alive.tolist()
        able = [unit for unit in self._queue if any(alive[i] for i in unit)]
        count = len(able) if schedule.drafters is None else min(schedule.drafters, len(able))
        if schedule.choose == "random":
            chosen = [able[int(i)] for i in self.policy.turns.choice(len(able), count, replace=False)]
        elif schedule.choose == "likely":
            probs = self._probs.tolist()
            chosen = sorted(able, key=lambda unit: -max(probs[i] for i in unit))[:count]
        else:
            chosen = able[:count]
        for unit in chosen:  # to the end: equals of "likely" come round as well
            self._queue.remove(unit)
        self._queue.extend(chosen)
        return sorted(i for unit in chosen for i in unit if alive[i])

    def known(self, upto: NDArray[np.int64], columns: Columns) -> None:
        """Reveal to the learner, in order of rows, every loss that is now known, with what was in force at its row.

        upto : (N,) rows before upto[i] have been evaluated for drafter i, or skipped, at most the rows committed
        columns : the acceptances of the text's rows, alpha NaN where a row was skipped

        A row's loss needs as many rows from its own on as its objective looks ahead, of every drafter that is alive; a
        dead drafter's loss is 1 where it lacks them. Only rows at which a round began count with granularity "round".

        Schedules "random" and "likely" skip rows. A loss that needs one of those is replaced by the mean of that
        drafter's scored losses so far in this text, before any by half of the loss's range: a heuristic without a
        bound.

        Raises ValueError for a loss that is not in [0, 1], for NaN where nothing may be skipped, for rows out of order
        and for arrays of other shapes.
        """
        if self._open:
            raise ValueError(f"the round at row {self.row} has not been committed")
        arrays = self._checked(upto, columns)
        policy, past = self.policy, self._past
        self._upto = np.array(upto, np.int64)
        if policy.bandit:
            return
        every_token, lag = policy.setting.granularity == "token", policy.lag
        own_entry_only = policy.learner.feedback == "bandit"
        end = int(self._upto[self._alive].min())
        rows, rounds = [], []
        while self.waiting + lag <= end:
            while len(past) > 1 and past[1].row <= self.waiting:
                past.popleft()
            if (every_token or past[0].row == self.waiting) and past[0].told:
                rows.append(self.waiting)
                rounds.append(past[0])
            self.waiting += 1
        if rows:
            for played, losses in zip(rounds, self._losses(np.array(rows), arrays), strict=True):
                if own_entry_only:
                    self._tell(played.probs, played.pick, float(losses[played.pick]))
                else:
                    self._observe(played.probs, played.pick, losses)

    def _checked(self, upto: NDArray[np.int64], columns: Columns) -> list[NDArray[Any]]:
        """Return read-only views of what the kernel reads: four blocks of acceptances, two lists of columns."""
        n, k = len(self._alive), self.policy.setting.k
        if not isinstance(upto, np.ndarray) or upto.shape != (n,) or upto.dtype.kind not in "iu":
            raise ValueError(f"upto must be an array of {n} whole numbers, one a drafter, got {upto!r}")
        wrong = (upto < self._upto) | (upto > self.row)
        if wrong.any():
            i = int(wrong.argmax())
            raise ValueError(
                f"drafter {self.policy.drafters[i]!r}: rows before {upto[i]} cannot be known: {self._upto[i]} were, "
                f"{self.row} are committed"
            )
        rows = int(upto.max())
        flat, deep = columns.flat_columns, columns.deep_columns
        named = [*flat.tolist(), *deep.tolist()]
        if len(named) != n or set(named) != set(range(n)):
            raise ValueError(f"flat and deep columns must name {n} drafters once, got {flat.tolist()}, {deep.tolist()}")
        views = []
        for name, width in (
            ("alpha_flat", len(flat)),
            ("gamma_flat", len(flat)),
            ("alpha_deep", len(deep)),
            ("gamma_deep", len(deep)),
        ):
            array = getattr(columns, name)
            shape = (width,) if name.endswith("flat") else (array.shape[1:2] or (0,)) + (width,)
            if (
                array.dtype != np.float32
                or not array.flags.c_contiguous
                or array.shape[1:] != shape
                or len(array) < rows
                or (len(shape) == 2 and width and shape[0] < k)
            ):
                raise ValueError(
                    f"{name} must be float32, C-contiguous, {rows} rows or more of {width} columns, by depth of "
                    f"{k} or more if deep; got {array.dtype} of shape {array.shape}"
                )
            views.append(array)
        return [_read_only(array) for array in (*views, np.asarray(flat, np.int64), np.asarray(deep, np.int64))]

    def _losses(self, rows: NDArray[np.int64], arrays: list[NDArray[Any]]) -> NDArray[np.float64]:
        """Return the losses (R, N) of rows (R,)."""
        policy, k = self.policy, self.policy.setting.k
        losses = np.zeros((len(rows), len(self._alive)))
        part = np.empty(len(self._alive))
        for row, line in zip(rows.tolist(), losses, strict=True):
            for share, objective, estimator in policy.parts:
                row_losses(*arrays[:4], row, k, objective, estimator, *arrays[4:], part)
                line += share * part
        if not self._alive.all():
            lacking = self._upto < rows[:, None] + policy.lag
            losses[~self._alive & (np.isnan(losses) | lacking)] = 1.0
        if policy.setting.schedule.skips:
            self._replace_skipped(rows, losses, arrays)
        if count_outside(losses.reshape(-1), 0.0, 1.0):
            place, i = (int(at[0]) for at in np.nonzero(~((losses >= 0.0) & (losses <= 1.0))))
            raise ValueError(
                f"row {rows[place]}, drafter {policy.drafters[i]!r}: the loss is {losses[place, i]}; allowed: [0, 1]. "
                "Was it evaluated, and is gamma defined at every draft that the estimator needs?"
            )
        return losses

    def _replace_skipped(
        self, rows: NDArray[np.int64], losses: NDArray[np.float64], arrays: list[NDArray[Any]]
    ) -> None:
        """Put means of the losses before where a loss needs a row that was skipped."""
        alpha_flat, _, alpha_deep, _, flat, deep = arrays
        depth = np.arange(self.policy.lag)
        window = rows[:, None] + depth  # (R, lag)
        skipped = np.empty(losses.shape, np.bool_)
        skipped[:, flat] = np.isnan(alpha_flat[window]).any(axis=1)
        if len(deep):  # a block without columns may hold fewer depths than the window
            skipped[:, deep] = np.isnan(alpha_deep[window, depth]).any(axis=1)
        skipped &= np.isnan(losses)
        scored = np.where(skipped, 0.0, losses)
        sums = self._sum + np.cumsum(scored, axis=0)
        counts = self._count + np.cumsum(~skipped, axis=0)
        # a skipped row adds nothing: what is summed up to it is what was summed before it
        means = np.where(counts > 0, sums / np.maximum(counts, 1), 0.5 * self.policy.width)
        losses[skipped] = means[skipped]
        self._sum, self._count = sums[-1], counts[-1]


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    # of the type that the engines' kernels were compiled for, so that no process compiles them again
    view = array.view()
    view.flags.writeable = False
    return view
