"""Engine 2: a decode loop over a recorded trace.

Given the path and the past acceptances, a draft is accepted with probability alpha, independently of everything else. So the joint
law of (text, accepted lengths) of real speculative decoding is reproduced exactly by coins `u < alpha`, for every
policy that chooses by what a decoder knows at the start of a round: committed tokens, earlier coins, revealed rows.

A round that starts at row t:

1. the learner plays a distribution, the engine samples the drafter from it;
2. drafts are accepted while the coin of row t + d lies below alpha[t + d, d, drafter], at most k of them;
3. one more token is committed, the corrected or the bonus one, unless the sequence ends first;
4. what the new rows make known reaches the learner, in token order, each loss with the probabilities in force when it was
   predicted. Rows from t on were unknown at step 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numba
import numpy as np
from numba import boolean, float32, float64, int32, int64
from numpy.typing import ArrayLike, NDArray

from hedgelab import coins as coin_streams
from hedgelab._jit import kernel, uncompiled
from hedgelab.algorithms import learner as registered
from hedgelab.contract import OBSERVE, PLAY, RNG, Learner
from hedgelab.feedback import ACCEPTANCE, OBJECTIVES, draft_length, loss_of, row_losses, rows_until_known
from hedgelab.trace import Trace

__all__ = ["FEEDBACK", "GRANULARITY", "Replay", "replay"]

FEEDBACK = ("delayed", "bandit")
GRANULARITY = ("token", "round")


@kernel
def draw(probs, uniform):
    """Return the index whose share of [0, 1) holds `uniform`; never one of probability 0."""
    total = 0.0
    last = 0
    for i in range(probs.shape[0]):
        if probs[i] > 0.0:
            last = i
            total += probs[i]
            if uniform < total:
                return i
    return last  # rounding left the sum below 1


@kernel
def accepted_drafts(uniforms, first, row, end, k, drafter, alpha_flat, alpha_deep, column, deep):
    """Return how many drafts of a round that starts at `row` are accepted on the path, 0..min(k, end - row).

    uniforms : coins of the sequence, which begins at row `first`
    column, deep : (N,) the drafter's column in its block, and whether that is the deep block
    """
    c = column[drafter]
    accepted = 0
    if deep[drafter]:
        while accepted < k and row + accepted < end:
            if not uniforms[row + accepted - first] < alpha_deep[row + accepted, accepted, c]:
                break
            accepted += 1
    else:
        while accepted < k and row + accepted < end:
            if not uniforms[row + accepted - first] < alpha_flat[row + accepted, c]:
                break
            accepted += 1
    return accepted


@kernel
def replay_part(
    play,
    observe,
    params,
    fresh,
    state,
    rng,
    begin,
    end,
    sequence_id,
    seed,
    replicate,
    coins,
    seen,
    alpha_flat,
    gamma_flat,
    alpha_deep,
    gamma_deep,
    flat_columns,
    deep_columns,
    column,
    deep,
    contexts,
    k,
    objective,
    estimator,
    bandit,
    own_entry_only,
    every_token,
    carry_over,
    picks,
    accepted,
    committed,
    rounds,
    expected_loss,
    losses_seen,
):
    """Replay the sequences of one part; return the number of rounds.

    params (P,), fresh and state (rows, N), seen (1,) the losses that `state` has seen, coins (rows of the part,) or empty: then those of (seed, replicate, sequence, position);
    contexts (T', C) float32, what is known before a round starts at a row, C = 0: nothing. Writes picks, accepted, committed (one entry a round), rounds
    (one a sequence) and, where not empty, expected_loss and losses_seen (one entry a row, in the order of the sequences).
    """
    # loops instead of slice assignments: those would compile numba's error messages for shapes, 10 s of a first run
    n = fresh.shape[1]
    lag = rows_until_known(objective, k)
    # A loss waits for at most lag + k rows, a round has at least one row: so many rounds can be waiting at once.
    ring = lag + k + 1
    ring_start = np.zeros(ring, np.int64)
    ring_pick = np.zeros(ring, np.int64)
    ring_seen = np.zeros(ring, np.int64)
    ring_probs = np.zeros((ring, n))
    ring_context = np.zeros((ring, contexts.shape[1]))
    longest = 0
    for s in range(begin.shape[0]):
        longest = max(longest, end[s] - begin[s])
    uniforms = np.empty(longest)
    losses = np.empty(n)
    total_rounds = 0
    written = 0  # rows of the sequences before this one
    for s in range(begin.shape[0]):
        first, last = begin[s], end[s]
        if coins.shape[0] > 0:
            for i in range(last - first):
                uniforms[i] = coins[written + i]
        else:
            coin_streams.fill(seed, coin_streams.COIN, sequence_id[s], 0, replicate, uniforms[: last - first])
        if not carry_over:
            for i in range(fresh.shape[0]):
                for j in range(n):
                    state[i, j] = fresh[i, j]
            seen[0] = 0
        row = first
        waiting = first  # the first row whose loss has not been revealed
        newest = -1  # rounds of this sequence, and the one that holds `waiting`
        oldest = 0
        while row < last:
            newest += 1
            slot = newest % ring
            probs = ring_probs[slot]
            context = ring_context[slot]
            for i in range(contexts.shape[1]):
                context[i] = contexts[row, i]
            play(params, state, context, rng, probs)
            pick = draw(probs, rng.random())
            got = accepted_drafts(uniforms, first, row, last, k, pick, alpha_flat, alpha_deep, column, deep)
            cut = row + got >= last  # no token is left for the target: the sequence ends inside the drafts
            taken = got if cut else got + 1
            ring_start[slot] = row
            ring_pick[slot] = pick
            ring_seen[slot] = seen[0]
            picks[total_rounds] = pick
            accepted[total_rounds] = got
            committed[total_rounds] = taken
            total_rounds += 1
            row += taken
            if bandit:
                if not cut:  # a truncated reward is not the drafter's
                    for i in range(n):
                        losses[i] = np.nan
                    if objective == ACCEPTANCE:
                        gain = alpha_flat if estimator else gamma_flat
                        gain_deep = alpha_deep if estimator else gamma_deep
                        start, c = ring_start[slot], column[pick]
                        losses[pick] = 1.0 - np.float64(gain_deep[start, 0, c] if deep[pick] else gain[start, c])
                    else:
                        losses[pick] = 1.0 - got / k
                    observe(params, state, context, probs, pick, losses)
                    seen[0] += 1
                continue
            while waiting + lag <= row:
                while oldest < newest and ring_start[(oldest + 1) % ring] <= waiting:
                    oldest += 1
                slot = oldest % ring
                if every_token or waiting == ring_start[slot]:
                    row_losses(
                        alpha_flat,
                        gamma_flat,
                        alpha_deep,
                        gamma_deep,
                        waiting,
                        k,
                        objective,
                        estimator,
                        flat_columns,
                        deep_columns,
                        losses,
                    )
                    if expected_loss.shape[0] > 0:
                        mixture = 0.0
                        for i in range(n):
                            mixture += ring_probs[slot, i] * losses[i]
                        expected_loss[written + waiting - first] = mixture
                        losses_seen[written + waiting - first] = ring_seen[slot]
                    if own_entry_only:
                        for i in range(n):
                            if i != ring_pick[slot]:
                                losses[i] = np.nan
                    observe(params, state, ring_context[slot], ring_probs[slot], ring_pick[slot], losses)
                    seen[0] += 1
                waiting += 1
        rounds[s] = newest + 1
        written += last - first
    return total_rounds


def _given(dtype: Any, ndim: int) -> Any:
    """An array that the engine only reads: memory maps are read-only."""
    return numba.types.Array(dtype, ndim, "C", readonly=True)


_SIGNATURE = int64(
    PLAY,
    OBSERVE,
    float64[::1],  # params
    float64[:, ::1],  # fresh
    float64[:, ::1],  # state
    RNG,
    _given(int64, 1),  # begin
    _given(int64, 1),  # end
    _given(int64, 1),  # sequence_id
    int64,  # seed
    int64,  # replicate
    _given(float64, 1),  # coins
    int64[::1],  # seen
    _given(float32, 2),  # alpha_flat
    _given(float32, 2),  # gamma_flat
    _given(float32, 3),  # alpha_deep
    _given(float32, 3),  # gamma_deep
    _given(int64, 1),  # flat_columns
    _given(int64, 1),  # deep_columns
    _given(int64, 1),  # column
    _given(boolean, 1),  # deep
    _given(float32, 2),  # contexts
    int64,  # k
    int64,  # objective
    int64,  # estimator
    boolean,  # bandit
    boolean,  # own_entry_only
    boolean,  # every_token
    boolean,  # carry_over
    int32[::1],  # picks
    int32[::1],  # accepted
    int32[::1],  # committed
    int64[::1],  # rounds
    float64[::1],  # expected_loss
    int64[::1],  # losses_seen
)


@cache
def _compiled_engine() -> Any:
    # The explicit signature takes learners as function pointers: one compiled engine serves them all.
    if hasattr(replay_part, "compile"):
        replay_part.compile(_SIGNATURE)
        replay_part.disable_compile()
    return replay_part


@cache
def _plain_engine() -> Any:
    return uncompiled(replay_part)


@dataclass(frozen=True)
class Replay:
    """What a policy did on a trace. R rounds, S sequences, T rows; rounds are in the order they were run.

    picks : (R,) int32, drafter of each round
    accepted, committed : (R,) int32, accepted drafts on the path, and tokens the round added to it
    sequence_rounds, sequence_tokens : (S,) int64, rounds and committed tokens of each sequence of the trace
    expected_loss, losses_seen : (T,), only from `replay(..., token_game=True)`, see there
    settings : the arguments that the run depends on
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
        offered = self.trace.proposed[self.rows, self.picks]
        return np.minimum(offered, self.settings["k"]).astype(np.int32)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number in [{low}, {high}], got {value!r}")
    return int(value)


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


def replay(
    trace: Trace,
    learner: str | Learner,
    *,
    k: int | None = None,
    objective: str = "length",
    feedback: str | None = None,
    estimator: str | None = None,
    granularity: str = "token",
    carry_over: bool = False,
    context: bool = False,
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
    feedback : "delayed", every loss as soon as its rows are verified; "bandit", the pick's own reward after each round,
        (Y - 1) / k or the first draft's acceptance. Default: what the learner is made for. A bandit learner under "delayed" sees
        the entries of its own picks, delayed
    granularity : learn from the loss at every row ("token": the token game) or only where a round started ("round")
    carry_over : keep the learner's state from one sequence to the next instead of starting each afresh
    context : show learners the drafters' confidences (N,) at the row where the round starts
    coins : (T,) own acceptance coins, in place of those of (seed, replicate)
    token_game : also return, for each row whose loss was revealed, the loss expected under the probabilities in force when it
        was predicted, and how many losses the learner had seen by then (NaN and 0 elsewhere)
    jit : False runs learner, engine and all helpers as plain Python: same picks, same lengths, slow. Default: True unless
        the learner is plain Python

    Raises ValueError for arguments out of range, a full-information learner with bandit feedback, or a trace that lacks what
    they need; TraceError for a trace with values that are no probabilities.

    >>> import hedgelab as hl
    >>> run = hl.replay(hl.sample_trace("greedy"), "normalhedge", k=5)
    >>> run.mat > hl.replay(hl.sample_trace("greedy"), "uniform", k=5).mat
    True
    """
    policy = registered(learner) if isinstance(learner, str) else learner
    if not isinstance(policy, Learner):
        raise TypeError(f"learner must be a registered name or a hedgelab.Learner, got {type(learner).__name__}")
    k = draft_length(trace, k)
    loss, code = loss_of(objective, estimator)
    feedback = _choice("feedback", feedback or ("bandit" if policy.feedback == "bandit" else "delayed"), FEEDBACK)
    _choice("granularity", granularity, GRANULARITY)
    seed = _whole("seed", seed, 0, 2**56 - 1)
    replicate = _whole("replicate", replicate, 0, 2**32 - 1)
    if feedback == "bandit" and policy.feedback == "full":
        raise ValueError(f"learner {policy.name!r} needs every drafter's loss: it cannot run on bandit feedback")
    if trace.manifest.feedback == "bandit" and policy.feedback == "full":
        raise ValueError(f"learner {policy.name!r} needs every drafter's loss; this trace holds the chosen drafter's only")
    trace.validate_values()
    if estimator == "A":
        _refuse_undefined_gamma(trace, k)
    jit = policy.jitted if jit is None else jit
    if jit and not policy.jitted:
        raise ValueError(f"learner {policy.name!r} is plain Python: decorate its play and observe with hedgelab.kernel, or jit=False")
    own_coins = _checked_coins(coins, trace)

    n = len(trace.drafters)
    params = policy.params(trace.drafters)
    fresh = np.ascontiguousarray(policy.init(params, n), dtype=np.float64)
    if fresh.ndim != 2 or fresh.shape[0] < 1 or fresh.shape[1] != n:
        raise ValueError(f"learner {policy.name!r}: init must return shape (rows, {n}), got {fresh.shape}")
    state = fresh.copy()
    rng = np.random.Generator(np.random.PCG64([seed, replicate]))
    column, deep = block_layout(trace)
    if jit:
        play, observe = policy.compiled()
        engine = _compiled_engine()
    else:
        play, observe, engine = uncompiled(policy.play), uncompiled(policy.observe), _plain_engine()

    picks = np.empty(trace.rows, np.int32)
    accepted = np.empty(trace.rows, np.int32)
    committed = np.empty(trace.rows, np.int32)
    sequence_rounds = np.empty(trace.sequences, np.int64)
    expected_loss = np.full(trace.rows if token_game else 0, np.nan)
    losses_seen = np.zeros(trace.rows if token_game else 0, np.int64)
    nothing = np.empty((0, 0), np.float32)
    seen = np.zeros(1, np.int64)
    rounds = rows = sequences = 0
    for part in trace.parts():
        here = int((part.end - part.begin).sum())
        rounds += engine(
            play,
            observe,
            params,
            fresh,
            state,
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
            part.confidence if context else nothing,
            k,
            loss,
            code,
            feedback == "bandit",
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
            "carry_over": carry_over,
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
    )


def block_layout(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return each drafter's column in its block (N,), and whether that is the deep block (N,)."""
    n = len(trace.drafters)
    column, deep = np.empty(n, np.int64), np.zeros(n, np.bool_)
    column[trace.flat_columns] = np.arange(len(trace.flat_columns))
    column[trace.deep_columns] = np.arange(len(trace.deep_columns))
    deep[trace.deep_columns] = True
    return column, deep


def _refuse_undefined_gamma(trace: Trace, k: int) -> None:
    for part in trace.parts():
        if np.isnan(part.gamma_deep[:, :k]).any():
            raise ValueError(
                "estimator A needs gamma at every depth, but a draft that the path left has none (NaN): use B or C"
            )
