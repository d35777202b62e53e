"""Engine 2: a decode loop over a recorded trace.

Given the path and the past acceptances, a draft is accepted with probability alpha, independently of everything
else. So the joint law of (text, accepted lengths) of real speculative decoding is reproduced exactly by coins `u <
alpha`, for every policy that chooses by what a decoder knows at the start of a round: committed tokens, earlier
coins, revealed rows.

A round that starts at row t:

1. the learner plays a distribution, the engine samples the drafter from it;
2. drafts are accepted while the coin of row t + d lies below alpha[t + d, d, drafter], at most k of them;
3. one more token is committed, the corrected or the bonus one, unless the sequence ends first;
4. what the new rows make known reaches the learner, in token order, each loss with the probabilities in force when it
   was predicted. Rows from t on were unknown at step 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab import caveats
from hedgelab._jit import uncompiled
from hedgelab.algorithms import learner as registered
from hedgelab.contract import Learner
from hedgelab.decode_loop import compiled_engine, plain_engine
from hedgelab.delays import outstanding_in_decoding
from hedgelab.feedback import OBJECTIVES, draft_length, loss_of, refuse_undefined_gamma
from hedgelab.trace import ENGINE_COLUMNS, Trace

__all__ = ["FEEDBACK", "GRANULARITY", "Replay", "replay"]

FEEDBACK = ("delayed", "censored", "bandit")
DELAY_MODES = ("queue", "padded")
GRANULARITY = ("token", "round")


@dataclass(frozen=True, repr=False)
class Replay:
    """What a policy did on a trace. R rounds, S sequences, T rows; rounds are in the order they were run.

    picks : (R,) int32, drafter of each round
    accepted, committed : (R,) int32, accepted drafts on the path, and tokens the round added to it
    sequence_rounds, sequence_tokens : (S,) int64, rounds and committed tokens of each sequence of the trace
    expected_loss, losses_seen : (T,), only from `replay(..., token_game=True)`, see there
    settings : the arguments that the run depends on
    caveats : what in them voids the conditions of the learner's theorem for the token game of this run
    """

    trace: Trace
    learner: Learner
    settings: dict[str, Any]
    picks: NDArray[np.int32]
    accepted: NDArray[np.int32]
    committed: NDArray[np.int32]
    sequence_rounds: NDArray[np.int64]
    sequence_tokens: NDArray[np.int64]
    expected_loss: NDArray[np.float64] | None = None
    losses_seen: NDArray[np.int64] | None = None
    caveats: tuple[str, ...] = ()

    def __repr__(self) -> str:
        name = self.trace.manifest.name
        return f"<Replay of {self.learner.label!r} on {name!r}: {self.rounds} rounds, mat {self.mat:.4f}>"

    @property
    def rounds(self) -> int:
        """Number of rounds, those cut by a sequence's end included."""
        return len(self.picks)

    @property
    def mat(self) -> float:
        """Committed tokens per round, pooled: all tokens / all rounds."""
        return float(self.committed.sum()) / self.rounds

    @property
    def full(self) -> NDArray[np.bool_]:
        """(R,) whether a round ended with the target's own token, so was not cut by the sequence's end."""
        return self.committed == self.accepted + 1

    @property
    def mat_full_rounds(self) -> float:
        """Committed tokens per round over the rounds not cut by a sequence's end; NaN when there is none."""
        return float(self.committed[self.full].mean()) if self.full.any() else float("nan")

    @property
    def mat_by_sequence(self) -> NDArray[np.float64]:
        """(S,) committed tokens per round of each sequence; its mean is the mean over requests."""
        return self.sequence_tokens / self.sequence_rounds

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """(R,) the row, counted through the trace's sequences in order, at which each round started."""
        return np.cumsum(self.committed, dtype=np.int64) - self.committed

    @cached_property
    def proposed(self) -> NDArray[np.int32]:
        """(R,) int32, drafts that each round proposed: k, or fewer where a drafter had fewer to offer."""
        k = self.settings["k"]
        offered = np.minimum(self.trace.proposed[self.rows, self.picks], k)
        return np.where(np.isin(self.picks, self.trace.flat_columns), k, offered).astype(np.int32)


def whole(name: str, value: Any, low: int, high: int) -> int:
    """Return `value` as an int. Raises ValueError naming it when it is no whole number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number in [{low}, {high}], got {value!r}")
    return int(value)


def coin_place(seed: Any, replicate: Any) -> tuple[int, int]:
    """Return (seed, replicate) as ints. Raises ValueError outside the range of the coins."""
    return whole("seed", seed, 0, 2**56 - 1), whole("replicate", replicate, 0, 2**32 - 1)


def resolve(learner: str | Learner, jit: bool | None) -> tuple[Learner, bool]:
    """Return the learner, and whether it runs compiled. Raises TypeError, ValueError for what is neither."""
    policy = registered(learner) if isinstance(learner, str) else learner
    if not isinstance(policy, Learner):
        raise TypeError(f"learner must be a registered name or a hedgelab.Learner, got {type(learner).__name__}")
    if jit is not None and not isinstance(jit, bool):
        raise ValueError(f"jit must be True, False or None, got {jit!r}")
    if jit and not policy.jitted:
        raise ValueError(
            f"learner {policy.name!r} is plain Python: decorate its play and observe with hedgelab.kernel, or jit=False"
        )
    return policy, policy.jitted if jit is None else jit


def fresh_state(
    policy: Learner, n: int, drafters: tuple[str, ...] = ()
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (params (P,), state (rows, n)) of a learner that has seen nothing. Raises ValueError for a wrong state."""
    params = policy.params(drafters)
    given = np.asarray(policy.init(params, n))
    if given.dtype.kind not in "fiu" or given.ndim != 2 or given.shape[0] < 1 or given.shape[1] != n:
        raise ValueError(
            f"learner {policy.name!r}: init must return real numbers of shape (rows, {n}), "
            f"got {given.dtype} of shape {given.shape}"
        )
    return params, np.ascontiguousarray(given, dtype=np.float64)


def check_values(trace: Trace, extra: tuple[str, ...] = ()) -> None:
    """Raise TraceError for values that an engine must not meet, ValueError for acceptances that were not observed."""
    if not isinstance(trace, Trace):
        raise TypeError(f"trace must be a hedgelab.Trace (sample_trace, open_trace), got {type(trace).__name__}")
    trace.validate_values((*ENGINE_COLUMNS, *extra))
    if trace.manifest.feedback != "bandit":
        return
    for part in trace.parts():
        for begin, end, position in zip(part.begin, part.end, part.position, strict=True):
            for columns, alpha in (
                (trace.flat_columns, part.alpha_flat[begin:end, None]),
                (trace.deep_columns, part.alpha_deep[begin:end]),
            ):
                unseen = np.isnan(alpha).any(axis=1)
                if unseen.any():
                    row, column = (int(i) for i in np.unravel_index(int(unseen.argmax()), unseen.shape))
                    raise ValueError(
                        f"sequence {position}, row {row}: acceptance of {trace.drafters[columns[column]]!r} was not "
                        "observed (a trace with bandit feedback): replay needs every drafter's"
                    )


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def _checked_coins(coins: ArrayLike | None, trace: Trace) -> NDArray[np.float64]:
    if coins is None:
        return np.empty(0)
    given = np.ascontiguousarray(coins, dtype=np.float64)
    if given.shape != (trace.rows,):
        raise ValueError(f"coins must have one entry a row, shape ({trace.rows},), got {given.shape}")
    if not ((given >= 0.0) & (given < 1.0)).all():
        raise ValueError("coins must lie in [0, 1)")
    return given


def _checked_contexts(context: ArrayLike, trace: Trace) -> NDArray[np.float32]:
    given = np.asarray(context)
    if given.dtype.kind not in "fiub" or given.ndim != 2 or len(given) != trace.sequences:
        raise ValueError(
            "context must be True, False or an array of real numbers with a row a sequence, shape "
            f"({trace.sequences}, C), got {context!r}"
            if given.ndim == 0
            else f"context must have a row of real numbers a sequence, shape ({trace.sequences}, C), "
            f"got {given.dtype} of shape {given.shape}"
        )
    known = given.astype(np.float32)
    _, first, same = np.unique(trace.sequence_id, return_index=True, return_inverse=True)
    if not np.array_equal(known, known[first[same]], equal_nan=True):
        raise ValueError("context: a sequence that is selected twice must have the same row both times")
    return known


def replay(
    trace: Trace,
    learner: str | Learner,
    *,
    k: int | None = None,
    objective: str = "length",
    feedback: str | None = None,
    estimator: str | None = None,
    granularity: str = "token",
    delay_mode: str = "queue",
    carry_over: bool = False,
    context: bool | ArrayLike = False,
    coins: ArrayLike | None = None,
    seed: int = 0,
    replicate: int = 0,
    token_game: bool = False,
    jit: bool | None = None,
) -> Replay:
    """Run a policy through every sequence of a trace and return what it did.

    learner : registered name, or a `Learner`, compiled or plain
    k : draft length, default the trace's own; deep drafters hold no more than the trace's
    objective, estimator : the loss, see `hedgelab.feedback`: "length" (C, B or A) or "acceptance" (gamma or alpha)
    feedback : "delayed", every loss as soon as its rows are verified; "censored" (objective "length"), losses at once,
        from the rows of the round alone: biased, see `hedgelab.lengths.censored`; "bandit", the pick's own reward after
        each round, (Y - 1) / k, the block's mean gamma where the learner's `reward` says so, or the first draft's
        acceptance. Default: what the learner is made for. A bandit learner under "delayed" sees the entries of its own
        picks, delayed
    granularity : learn from the loss at every row ("token": the token game) or only where a round started ("round")
    delay_mode : what is done about late losses, see `hedgelab.delays`: "queue", one learner; "padded", as many copies
        as losses can be outstanding, plus one: row s is played by copy s mod copies, a round by the copy of its start
    carry_over : keep the learner's state from one sequence to the next instead of starting each afresh
    context : what learners are shown at the start of a round. True: the drafters' confidences (N,) there; an array
        (S, C): what is known of each sequence before it begins, the same in all of its rounds
    coins : (T,) own acceptance coins, in place of those of (seed, replicate)
    token_game : also return, for each row whose loss was revealed, the loss expected under the probabilities in force
        when it was predicted, and how many losses the learner had seen by then (NaN and 0 elsewhere)
    jit : False runs learner, engine and all helpers as plain Python: same picks, same lengths, slow. Default: True
        unless the learner is plain Python

    Raises ValueError for arguments out of range, a full-information learner with bandit feedback, or a trace that
    lacks what they need; TraceError for a trace with values that are no probabilities.

    >>> import hedgelab as hl
    >>> run = hl.replay(hl.sample_trace("greedy"), "normalhedge", k=5)
    >>> run.mat > hl.replay(hl.sample_trace("greedy"), "uniform", k=5).mat
    True
    """
    policy, jit = resolve(learner, jit)
    if not isinstance(trace, Trace):
        raise TypeError(f"trace must be a hedgelab.Trace (sample_trace, open_trace), got {type(trace).__name__}")
    k = draft_length(trace, k)
    loss, code = loss_of(objective, estimator)
    feedback = _choice("feedback", feedback or ("bandit" if policy.feedback == "bandit" else "delayed"), FEEDBACK)
    _choice("granularity", granularity, GRANULARITY)
    known = None if isinstance(context, (bool, np.bool_)) else _checked_contexts(context, trace)
    confidence = known is None and bool(context)
    for name, value in (("carry_over", carry_over), ("token_game", token_game)):
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True or False, got {value!r}")
    _choice("delay_mode", delay_mode, DELAY_MODES)
    seed, replicate = coin_place(seed, replicate)
    if feedback == "censored" and (objective != "length" or token_game):
        raise ValueError("censored feedback is for objective 'length' (an acceptance is never cut), without token_game")
    if delay_mode == "padded" and (feedback != "delayed" or granularity != "token" or policy.feedback == "bandit"):
        raise ValueError(
            "delay_mode 'padded' is for late losses of every token: feedback 'delayed', granularity 'token', and a "
            f"learner that needs every drafter's loss, not {policy.name!r} with feedback {feedback!r}"
        )
    if feedback == "bandit" and policy.feedback == "full":
        raise ValueError(f"learner {policy.name!r} needs every drafter's loss: it cannot run on bandit feedback")
    if trace.manifest.feedback == "bandit" and policy.feedback == "full":
        raise ValueError(
            f"learner {policy.name!r} needs every drafter's loss; this trace holds the chosen drafter's only"
        )
    check_values(trace, ("confidence",) if confidence else ())
    if estimator == "A":
        refuse_undefined_gamma(trace, k)
    own_coins = _checked_coins(coins, trace)

    n = len(trace.drafters)
    params, fresh = fresh_state(policy, n, trace.drafters)
    copies = outstanding_in_decoding(k, objective=objective) + 1 if delay_mode == "padded" else 1
    states = np.repeat(fresh[None], copies, axis=0)
    rng = np.random.Generator(np.random.PCG64([seed, replicate]))
    column, deep = block_layout(trace)
    if jit:
        play, observe = policy.compiled()
        engine = compiled_engine()
    else:
        play, observe, engine = uncompiled(policy.play), uncompiled(policy.observe), plain_engine()

    picks = np.empty(trace.rows, np.int32)
    accepted = np.empty(trace.rows, np.int32)
    committed = np.empty(trace.rows, np.int32)
    sequence_rounds = np.empty(trace.sequences, np.int64)
    expected_loss = np.full(trace.rows if token_game else 0, np.nan)
    losses_seen = np.zeros(trace.rows if token_game else 0, np.int64)
    contexts = np.empty((0, 0), np.float32)
    seen = np.zeros(copies, np.int64)
    rounds = rows = sequences = 0
    for part in trace.parts():
        here = int((part.end - part.begin).sum())
        if confidence:
            contexts = part.confidence
        elif known is not None:
            contexts = np.zeros((len(part.confidence), known.shape[1]), np.float32)
            for begin, end, position in zip(part.begin, part.end, part.position, strict=True):
                contexts[begin:end] = known[position]
        played = engine(
            play,
            observe,
            params,
            fresh,
            states,
            rng,
            part.begin,
            part.end,
            part.sequence_id,
            seed,
            replicate,
            own_coins[rows : rows + here],
            seen,
            part.alpha_flat,
            part.gamma_flat,
            part.alpha_deep,
            part.gamma_deep,
            trace.flat_columns,
            trace.deep_columns,
            column,
            deep,
            contexts,
            k,
            loss,
            code,
            feedback == "bandit",
            feedback == "censored",
            policy.reward == "block",
            policy.feedback == "bandit",
            granularity == "token",
            carry_over,
            picks[rounds:],
            accepted[rounds:],
            committed[rounds:],
            sequence_rounds[sequences:],
            expected_loss[rows : rows + here],
            losses_seen[rows : rows + here],
        )
        if played < 0:
            raise ValueError(
                f"learner {policy.name!r}: in round {rounds - played - 1} play did not write a distribution "
                f"(non-negative, sum 1) over the {n} drafters"
            )
        rounds += played
        rows += here
        sequences += len(part.begin)
    return Replay(
        trace=trace,
        learner=policy,
        settings={
            "k": k,
            "objective": objective,
            "estimator": estimator or OBJECTIVES[objective][0],
            "feedback": feedback,
            "granularity": granularity,
            "delay_mode": delay_mode,
            "carry_over": carry_over,
            "context": confidence if known is None else "given",
            "coins": "seed" if coins is None else "given",
            "seed": seed,
            "replicate": replicate,
        },
        picks=picks[:rounds],
        accepted=accepted[:rounds],
        committed=committed[:rounds],
        sequence_rounds=sequence_rounds,
        sequence_tokens=np.diff(trace.offsets),
        expected_loss=expected_loss if token_game else None,
        losses_seen=losses_seen if token_game else None,
        caveats=caveats.of_replay(
            policy,
            objective=objective,
            feedback=feedback,
            granularity=granularity,
            delay_mode=delay_mode,
            carry_over=carry_over,
        ),
    )


def block_layout(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return each drafter's column in its block (N,), and whether that is the deep block (N,)."""
    n = len(trace.drafters)
    column, deep = np.empty(n, np.int64), np.zeros(n, np.bool_)
    column[trace.flat_columns] = np.arange(len(trace.flat_columns))
    column[trace.deep_columns] = np.arange(len(trace.deep_columns))
    deep[trace.deep_columns] = True
    return column, deep
