"""Texts put together from recorded ones, and what policies do about their seams; see the claim."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.settings import Arrays
from hedgelab import bounds, routing
from hedgelab.comparison import compare
from hedgelab.feedback import losses as losses_of
from hedgelab.regret import tracking

__all__ = [
    "AFTER",
    "BEFORE",
    "LEARNERS",
    "LINES",
    "NEW",
    "ROUTER",
    "SHARE",
    "SWITCHES",
    "groups_of",
    "on_splices",
    "splice",
]

NEW, SHARE, ROUTER = "normalhedge", "fixed-share", "router"
LEARNERS = (NEW, "hedge", SHARE, "ftl")
LINES = (*LEARNERS, ROUTER)
SWITCHES = 4  # tracking regret is measured to the best sequences of 0 to so many switches
BEFORE, AFTER = 60, 90  # rows about a seam that the profile holds


def groups_of(trace: hl.Trace, pieces: int, least: int, seed: int) -> list[list[int]]:
    """Return groups of `pieces` texts of different domains, each text in one group at most, drawn at random.

    The domains with the most texts left go first, so that few are left over. least : rows that each part needs
    """
    rng = np.random.default_rng([seed, pieces])
    long = np.flatnonzero(np.diff(trace.offsets) >= least * pieces)
    left = {
        domain: rng.permutation(long[trace.domains[long] == domain]).tolist() for domain in np.unique(trace.domains)
    }
    groups = []
    while sum(bool(texts) for texts in left.values()) >= pieces:
        draw = {domain: float(rng.random()) for domain in left}
        order = sorted(left, key=lambda domain: (-len(left[domain]), draw[domain]))
        groups.append([left[domain].pop() for domain in order[:pieces]])
    return groups


def splice(trace: hl.Trace, groups: Sequence[Sequence[int]]) -> tuple[hl.Trace, list[NDArray[np.int64]]]:
    """Return the spliced texts, as many a group as it has texts, and of each the rows of the trace that it is made of.

    Text r of a group of p: part 0 of its r-th text, part 1 of the next, round to part p - 1.
    """
    parts = {
        s: np.array_split(np.arange(trace.offsets[s], trace.offsets[s + 1]), len(group))
        for group in groups
        for s in group
    }
    rows, names = [], []
    for group in groups:
        for r in range(len(group)):
            turn = [group[(r + j) % len(group)] for j in range(len(group))]
            rows.append(np.concatenate([parts[s][j] for j, s in enumerate(turn)]))
            names.append(" > ".join(str(trace.domains[s]) for s in turn))
    order = np.concatenate(rows)
    return (
        hl.Trace.from_arrays(
            token=trace.token[order],
            alpha=trace.alpha[order],
            gamma=trace.gamma[order],
            proposed=trace.proposed[order],
            confidence=trace.confidence[order],
            offsets=np.cumsum([0, *(len(each) for each in rows)]),
            domains=names,
            drafters=trace.drafters,
            depths=[trace.k if i in trace.deep_columns else 1 for i in range(len(trace.drafters))],
            k=trace.k,
        ),
        rows,
    )


def on_splices(pool: hl.Trace, pieces: int, *, k: int, replicates: int, seed: int) -> Arrays:
    """Return rounds (X,) of each policy on spliced texts, their tracking regret, and profiles about the first seam.

    regret : (learners, X, SWITCHES + 1) of the token game without delay. bound : (X, SWITCHES + 1), Fixed-Share's.
    profile : (LINES, X, BEFORE + AFTER) tokens that a round begun at a row is expected to commit, by the learner's
    weights in decoding, minus those of the drafter that is best over the part; NaN outside the text. A group is drawn
    as one prompt, all of one domain
    """
    groups = groups_of(pool, pieces, 2 * k, seed)
    texts, rows = splice(pool, groups)
    first = np.array([group[r] for group in groups for r in range(pieces)])
    route = routing.validate(pool, k=k, learners=(), replicates=1, seed=seed).route[first]
    found = compare(texts, LEARNERS, k=k, replicates=replicates, seed=seed, routes={ROUTER: route})
    table = losses_of(texts, k=k)
    regret, bound = _tracked(texts, table, k)
    seams = -(-np.diff(pool.offsets)[first] // pieces)  # rows of the first part
    sent = np.repeat(route, np.diff(texts.offsets))
    runs = [hl.replay(texts, name, k=k, seed=seed, token_game=True).expected_loss for name in LEARNERS]
    lines = np.array([*runs, table[np.arange(len(table)), sent]], np.float64)
    least = _least_by_part(table, pool, rows)
    return {
        "prompts": np.repeat(np.arange(len(groups)), pieces).astype(str),
        "homes": np.full(len(rows), "splices"),
        "domains": np.full(len(rows), "splices"),
        "tokens": found.tokens,
        "regret": regret,
        "bound": bound,
        "profile": np.array([_about_seams(texts, seams, (k + 1) * (least - line)) for line in lines], np.float32),
        **{f"rounds.{policy.name}": policy.rounds for policy in found.policies},
    }


def _tracked(texts: hl.Trace, table: NDArray[np.float64], k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the learners' tracking regret and Fixed-Share's bound, see `on_splices`; table : (T, N) losses."""
    regret = np.zeros((len(LEARNERS), texts.sequences, SWITCHES + 1))
    bound = np.zeros((texts.sequences, SWITCHES + 1))
    for x in range(texts.sequences):
        known = table[texts.offsets[x] : texts.offsets[x + 1] - (k - 1)]
        bound[x] = [bounds.fixed_share_anytime(len(known), known.shape[1], m) for m in range(SWITCHES + 1)]
        for i, name in enumerate(LEARNERS):
            regret[i, x] = tracking(known, hl.play(known, name).round_loss, SWITCHES)
    return regret, bound


def _least_by_part(
    table: NDArray[np.float64], trace: hl.Trace, rows: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return (T,) the losses, (T, N) of spliced texts made of `rows`, of the drafter that loses least in each part."""
    order = np.concatenate(rows)
    text = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    _, part = np.unique([text, np.searchsorted(trace.offsets, order, side="right")], axis=1, return_inverse=True)
    sums = np.zeros((int(part.max()) + 1, table.shape[1]))
    np.add.at(sums, part, np.nan_to_num(table))
    return table[np.arange(len(table)), sums.argmin(axis=1)[part]]


def _about_seams(trace: hl.Trace, seams: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (X, BEFORE + AFTER) the values (T,) of the rows about each text's seam, NaN outside the text."""
    out = np.full((trace.sequences, BEFORE + AFTER), np.nan)
    for x, seam in enumerate(seams.tolist()):
        begin, end = (int(place) for place in trace.offsets[x : x + 2])
        rows = np.arange(begin + seam - BEFORE, begin + seam + AFTER)
        inside_text = (rows >= begin) & (rows < end)
        out[x, inside_text] = values[rows[inside_text]]
    return out
