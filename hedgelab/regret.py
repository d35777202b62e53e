"""Regret of a run, and intervals by bootstrap over prompts.

Two quantities that must not be mixed: regret *in rounds* of the decode loop, which is speed, and regret of the
*token game*, to which the theorems apply and in which a play is made at every row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab._jit import kernel
from hedgelab.decode_replay import Replay
from hedgelab.feedback import loss_of, row_losses

__all__ = ["Interval", "TokenGame", "bootstrap_counts", "ratio_interval", "sum_interval", "token_game"]


class Interval(NamedTuple):
    """An estimate with its 95% interval."""

    estimate: float
    low: float
    high: float


def bootstrap_counts(
    clusters: ArrayLike, *, strata: ArrayLike | None = None, resamples: int = 2000, seed: int = 0
) -> NDArray[np.float64]:
    """Return (resamples, S) how often each of S sequences is drawn when their clusters (prompts) are drawn with
    replacement.

    clusters : (S,) a label per sequence; texts of one prompt go together. strata : (S,) draw within each (domains
    are fixed, not sampled). One table serves every policy, which is what pairs the comparisons.

    >>> bootstrap_counts(["a", "b", "b"], resamples=4).shape
    (4, 3)
    """
    labels = np.asarray(clusters)
    groups = (
        np.zeros(len(labels), np.int64) if strata is None else np.unique(np.asarray(strata), return_inverse=True)[1]
    )
    if labels.ndim != 1 or len(labels) == 0 or groups.shape != labels.shape:
        raise ValueError(f"clusters and strata must be vectors of one length, got {labels.shape} and {groups.shape}")
    rng = np.random.Generator(np.random.PCG64(seed))
    out = np.zeros((resamples, len(labels)))
    for group in range(groups.max() + 1):
        members = np.flatnonzero(groups == group)
        _, inverse = np.unique(labels[members], return_inverse=True)
        count = inverse.max() + 1
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        out[:, members] = drawn[:, inverse]
    return out


def ratio_interval(numerator: ArrayLike, denominator: ArrayLike, counts: NDArray[np.float64]) -> Interval:
    """Return sum(numerator) / sum(denominator) with its percentile interval over the resamples `counts` (B, S).

    >>> ratio_interval([4.0, 4.0], [2.0, 2.0], bootstrap_counts([0, 1]))
    Interval(estimate=2.0, low=2.0, high=2.0)
    """
    above, below = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    draws = (counts @ above) / (counts @ below)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(float(above.sum() / below.sum()), float(low), float(high))


def sum_interval(values: ArrayLike, counts: NDArray[np.float64]) -> Interval:
    """Return sum(values) with its percentile interval over the resamples `counts` (B, S)."""
    terms = np.asarray(values, np.float64)
    low, high = np.quantile(counts @ terms, [0.025, 0.975])
    return Interval(float(terms.sum()), float(low), float(high))


class TokenGame(NamedTuple):
    """The token game of a run at chosen times (each (M,)): plays so far and static regret.

    plays : number of rows counted; regret : sum of expected losses minus the best drafter's sum, in units of loss
    """

    plays: NDArray[np.int64]
    regret: NDArray[np.float64]


@kernel
def _static_regret(
    alpha_flat,
    gamma_flat,
    alpha_deep,
    gamma_deep,
    begin,
    end,
    k,
    objective,
    estimator,
    flat_columns,
    deep_columns,
    expected_loss,
    times,
    progress,
    totals,
    regret,
):
    """Add up one part; progress = (plays, times passed), totals = (own loss, drafters' losses...)."""
    n = totals.shape[0] - 1
    losses = np.empty(n)
    written = 0
    for s in range(begin.shape[0]):
        for row in range(begin[s], end[s]):
            own = expected_loss[written]
            written += 1
            if np.isnan(own):
                continue
            row_losses(
                alpha_flat,
                gamma_flat,
                alpha_deep,
                gamma_deep,
                row,
                k,
                objective,
                estimator,
                flat_columns,
                deep_columns,
                losses,
            )
            totals[0] += own
            best = np.inf
            for i in range(n):
                totals[1 + i] += losses[i]
                best = min(best, totals[1 + i])
            progress[0] += 1
            while progress[1] < times.shape[0] and times[progress[1]] == progress[0]:
                regret[progress[1]] = totals[0] - best
                progress[1] += 1


def token_game(run: Replay, times: ArrayLike) -> TokenGame:
    """Return the token game's static regret of a run at `times`, increasing numbers of plays; later ones are left out.

    The run must be one game: made with `token_game=True`, and with `carry_over=True` unless the trace is a single
    sequence. Rows whose loss never became known (the last k - 1 of a sequence) are no plays.
    """
    if run.expected_loss is None:
        raise ValueError("this run did not record the token game: replay(..., token_game=True)")
    if run.settings["granularity"] != "token" or run.settings["feedback"] == "bandit":
        raise ValueError("the token game has a play at every row: granularity must be token, and feedback not bandit")
    if run.trace.sequences > 1 and not run.settings["carry_over"]:
        raise ValueError("the learner started afresh for each sequence: one regret curve needs carry_over=True")
    wanted = np.asarray(times, dtype=np.int64)
    if wanted.ndim != 1 or (np.diff(wanted) <= 0).any() or (wanted < 1).any():
        raise ValueError("times must be increasing whole numbers of at least 1")
    objective, estimator = loss_of(run.settings["objective"], run.settings["estimator"])
    progress = np.zeros(2, np.int64)
    totals = np.zeros(1 + len(run.trace.drafters))
    regret = np.empty(len(wanted))
    rows = 0
    for part in run.trace.parts():
        here = int((part.end - part.begin).sum())
        _static_regret(
            part.alpha_flat,
            part.gamma_flat,
            part.alpha_deep,
            part.gamma_deep,
            part.begin,
            part.end,
            run.settings["k"],
            objective,
            estimator,
            run.trace.flat_columns,
            run.trace.deep_columns,
            run.expected_loss[rows : rows + here],
            wanted,
            progress,
            totals,
            regret,
        )
        rows += here
    return TokenGame(wanted[: progress[1]], regret[: progress[1]])
