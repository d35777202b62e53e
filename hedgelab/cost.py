r"""What a replay would have taken on a machine whose calls were measured: seconds, tokens per second, speed-up.

A round r that commits Y tokens with drafter i takes

    draft_i(k) + verify(M_r + 1) + sum_j evaluate_j(n_jr) + play + Y observe

    draft_i(k)   proposing k tokens, or a tree no deeper than k
    M_r          drafts that the target reads: of a chain as many as were proposed, of a tree its nodes
    n_jr         tokens on which drafter j, not chosen, is scored in this round; 0 unless it is its turn
    play, observe   the learner's: one distribution a round, one loss vector a token, for a bandit one a round

and plain autoregressive decoding takes Y step. The speed-up is sum_r Y step / sum_r seconds.

Full information is not free: a chosen drafter shows what it drafted, all others must be run over what was committed.
A drafter whose law depends on the prefix alone needs one pass over n tokens; one with a law at every depth drafts from
every start, and so does one that builds trees. Drafters take turns: `every` rounds, `drafters` of them, and a turn
scores all tokens of the text since the drafter's last one, which its caches must read anyway. The rounds stay those of
the replay, whose learner heard every loss at once: with turns the speed-up is an upper bound. What follows a text's
last turn is not scored.
A chosen drafter of depth 1 has shown its laws at the first k tokens of the round; of any other, a round shows one
start alone, so it is scored like those that were not chosen.

Not in it: prompts; what a bandit's drafter must read of the text since it was last chosen; longer texts than
`Costs.prefix`. The target's first layers, where a drafter needs them, are counted with the drafter at each of its
tokens and again when the target verifies: no work is shared. Costs are those of one text on one thread.

Source of the sum: Leviathan, Kalman and Matias 2023, section 3.3 (a round is a run of the target and k of the drafter),
with the costs of selection added; the calls are measured, not taken from sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hedgelab.algorithms import learner
from hedgelab.decode_replay import Replay, replay, whole
from hedgelab.storage.costs import Costs, CostsError, DrafterCost, LearnerCost, Machine, Points, Seconds, TargetCost
from hedgelab.trace import Trace

__all__ = [
    "Bill",
    "Costs",
    "CostsError",
    "DrafterCost",
    "LearnerCost",
    "Machine",
    "Points",
    "Seconds",
    "TargetCost",
    "bill",
    "fixed_bills",
    "unknown",
]

_CHAINS = {"chain", "one_hot"}  # one draft a depth, drawn or certain: the same calls


@dataclass(frozen=True)
class Bill:
    """Modelled CPU seconds of the R rounds of a replay of S sequences.

    draft, verify, evaluate, learn : (R,) seconds of each part
    tokens : (S,) committed tokens. rounds : (S,) rounds. step : seconds of an autoregressive step
    """

    draft: NDArray[np.float64]
    verify: NDArray[np.float64]
    evaluate: NDArray[np.float64]
    learn: NDArray[np.float64]
    tokens: NDArray[np.int64]
    rounds: NDArray[np.int64]
    step: float

    @cached_property
    def by_sequence(self) -> NDArray[np.float64]:
        """(S,) seconds of each sequence."""
        total = self.draft + self.verify + self.evaluate + self.learn
        place = np.repeat(np.arange(len(self.rounds)), self.rounds)
        return np.bincount(place, total, len(self.rounds)).astype(np.float64)

    @property
    def seconds(self) -> float:
        """Seconds of all rounds."""
        return float(self.by_sequence.sum())

    @property
    def tokens_per_second(self) -> float:
        """Committed tokens per second."""
        return float(self.tokens.sum()) / self.seconds

    @property
    def speedup(self) -> float:
        """Seconds of plain autoregressive decoding of the same tokens, per second of these rounds."""
        return float(self.tokens.sum()) * self.step / self.seconds


def fixed_bills(
    trace: Trace,
    costs: Costs,
    *,
    k: int | None = None,
    replicates: int = 4,
    seed: int = 0,
    drafters: Iterable[str] | None = None,
) -> dict[str, list[Bill]]:
    """Return drafter -> the bills of drafting every round with it alone, one a replicate; none where no cost is known.

    drafters : some of the trace's, default all. Nothing is selected, so nothing is scored or learnt.
    """
    found: dict[str, list[Bill]] = {}
    for name in trace.drafters if drafters is None else drafters:
        fixed = learner("fixed", drafter=name)
        runs = (replay(trace, fixed, k=k, seed=seed, replicate=each) for each in range(replicates))
        try:
            found[name] = [replace(bill(run, costs), learn=np.zeros(run.rounds)) for run in runs]
        except CostsError:
            found[name] = []
    return found


def unknown(trace: Trace, costs: Costs) -> dict[str, str]:
    """Return drafter -> why its cost is not known; empty where all are."""
    if trace.manifest.target.sha256 != costs.target.model.sha256:
        why = f"costs are those of {costs.target.model.name!r}, the trace's target is {trace.manifest.target.name!r}"
        return dict.fromkeys(trace.drafters, why)
    found = {}
    for drafter in trace.manifest.drafters:
        known = costs.drafters.get(drafter.name)
        if known is None:
            found[drafter.name] = "not measured"
        elif known.kind != drafter.kind or ({known.rule, drafter.rule} - _CHAINS and known.rule != drafter.rule):
            found[drafter.name] = (
                f"measured as {known.kind} by {known.rule}, in the trace {drafter.kind} by {drafter.rule}"
            )
        elif known.over is not None and known.over not in costs.drafters:
            found[drafter.name] = f"reads {known.over!r}, which was not measured"
    return found


def bill(run: Replay, costs: Costs, *, every: int | None = None, drafters: int | None = None) -> Bill:
    """Return what the rounds of a replay cost.

    every : rounds between two turns of scoring, 0 for none (a bandit learns from what it chose). Default: 1 for a run
    that learns from every drafter, else 0. drafters : of those that take turns, how many a turn, default all; they come
    round in the trace's order

    Raises CostsError for a run that needs what was not measured: a draft length above `costs.k`, or a drafter.

    >>> import hedgelab as hl
    >>> trace, costs = hl.sample_trace("t06").among(["lookup", "ngram-all", "eagle-matched"]), hl.Costs.load()
    >>> free = bill(hl.replay(trace, "normalhedge", k=5), costs, every=0)
    >>> bill(hl.replay(trace, "normalhedge", k=5), costs).speedup < free.speedup
    True
    """
    trace, k, n = run.trace, run.settings["k"], len(run.trace.drafters)
    if k > costs.k:
        raise CostsError(f"k is {k}; costs were measured for drafts of at most {costs.k}")
    learns = run.learner.feedback == "full"
    every = whole("every", every, 0, 2**31) if every is not None else int(learns)
    turn = n if drafters is None else whole("drafters", drafters, 1, n)
    used = sorted(set(run.picks.tolist())) if every == 0 else range(n)
    strangers = unknown(trace, costs)
    missing = {name: strangers[name] for i in used if (name := trace.drafters[i]) in strangers}
    known = [None if trace.drafters[i] in missing else costs.drafters.get(trace.drafters[i]) for i in range(n)]
    draft, reads = np.zeros(n), np.full(n, np.nan)
    for i in sorted(set(run.picks.tolist())):
        if (cost := known[i]) is None:
            continue
        if cost.draft is None:
            missing[trace.drafters[i]] = f"drafting was not measured: {cost.note}"
            continue
        draft[i] = cost.draft[k - 1].median
        reads[i] = np.nan if cost.nodes is None else cost.nodes[k - 1]
    if run.learner.name not in costs.learners:
        missing[f"learner {run.learner.name}"] = "not measured"
    if missing:
        raise CostsError("no cost is known of " + "; ".join(f"{name} ({why})" for name, why in missing.items()))
    verified = np.where(np.isnan(reads[run.picks]), run.proposed, reads[run.picks])
    policy = costs.learners[run.learner.name]
    by_token = run.settings["feedback"] != "bandit" and run.settings["granularity"] == "token"
    heard = run.committed.astype(np.float64) if by_token else np.ones(run.rounds)
    return Bill(
        draft=draft[run.picks],
        verify=costs.target.verify.at(verified + 1),
        evaluate=_evaluation(run, costs, every, turn),
        learn=policy.play.median + heard * policy.observe.median,
        tokens=run.sequence_tokens,
        rounds=run.sequence_rounds,
        step=costs.target.step.median,
    )


def _evaluation(run: Replay, costs: Costs, every: int, turn: int) -> NDArray[np.float64]:
    """Return (R,) the seconds of scoring drafters that were not chosen."""
    seconds = np.zeros(run.rounds)
    if every == 0:
        return seconds
    trace, k = run.trace, run.settings["k"]
    starts = np.repeat(np.cumsum(run.sequence_rounds) - run.sequence_rounds, run.sequence_rounds)
    within = np.arange(run.rounds) - starts  # round of its sequence
    turns, here = np.divmod(within + 1, every)
    groups = -(-len(trace.drafters) // turn)
    bases = _bases(trace, costs)
    for i, name in enumerate(trace.drafters):
        flat = costs.drafters[name].depth == 1
        owed = np.where((run.picks == i) & flat, np.maximum(run.committed - k, 0), run.committed)
        total = np.concatenate([[0], np.cumsum(owed)])
        at = np.flatnonzero((here == 0) & ((turns - 1) % groups == i // turn))
        if not len(at):
            continue
        since = np.maximum(starts[at], np.concatenate([[0], at[:-1] + 1]))  # behind its last turn in this sequence
        tokens = total[at + 1] - total[since]
        for table in [costs.drafters[name].evaluate, *bases.get(name, ())]:
            seconds[at] += table.in_blocks(tokens)
    return seconds


def _bases(trace: Trace, costs: Costs) -> dict[str, Sequence[Points]]:
    """Return drafter -> the tables of what it reads and nobody else of the trace has paid for."""
    paid = set(trace.drafters)
    found: dict[str, Sequence[Points]] = {}
    for name in trace.drafters:
        over = costs.drafters[name].over
        if over is not None and over not in paid:
            paid.add(over)
            found[name] = [costs.drafters[over].evaluate]
    return found
