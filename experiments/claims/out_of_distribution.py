r"""Claim 8: out of distribution a router misroutes, and the online learner wins.

A *router* picks one drafter for a text from its prompt, trained on the best drafters of other prompts
(`hedgelab.routing`). **In distribution** it knows the domain: cross-validation over prompts. **Out of distribution** it
does not: each domain is routed by a router trained on the others. *Misrouted*: not sent to the prompt's best drafter.

A router can only send to drafters that were best on some prompt of its training, and a domain's own specialist seldom
is abroad; so with specialists alone that it misroutes out of distribution says little. `reachable` therefore asks about
the best among those that it can send to.

**Splices.** The bundled traces hold texts of one domain each. A splice is one sequence put together from recorded rows:
texts of different domains are cut into equally many parts, and the first part of one is followed by the second of
another and so on, round the group. Every part is of a text that really was decoded; no model wrote the whole, and
drafts that reach over a seam are those of the text they come from. A group of texts is one observation.

**Streams.** Whole texts, `block` of a domain before the next one's turn, with the learners' state carried through; the
texts of a domain in another order in each replicate.

After the first full run: shares have exact binomial intervals, and the sentence says what the headline asks; that the
learner is up to 2.34 times better is asked by `ratio`.

Nothing is tuned on the texts evaluated: learners have their defaults, the router's penalty is that of the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claim import Answer, Arrays, Claim, Question, Results, Setting, above, below, inside, trace_of
from experiments.intervals import exact, of_share, percentile
from experiments.rounds import POOLED, UNKNOWN, Sample, cut_of, has_pool, members, packed, played, sample_of, unpacked
from hedgelab import bounds, routing
from hedgelab.comparison import compare
from hedgelab.feedback import losses as losses_of
from hedgelab.oracles import expected_fixed_rounds
from hedgelab.regret import Interval, tracking

__all__ = ["CLAIM", "LEARNERS", "QUICK", "SETTINGS", "Table", "check", "of_kind", "run"]

SPECIALISTS, WITH_GENERALISTS = "truncated specialists", "truncated specialists, generalists"
POOLS = (SPECIALISTS, WITH_GENERALISTS, "all")
TRACES = ("t06", "greedy")
NEW, SHARE, ROUTER = "normalhedge", "fixed-share", "router"
LEARNERS = (NEW, "hedge", SHARE, "ftl")
SWITCHES = 4  # tracking regret is measured to the best sequences of 0 to so many switches
BEFORE, AFTER = 60, 90  # rows about a seam that the profile holds
CLOSE = 0.05  # tokens a round that make no difference
BANDS = 4000  # resamples of each point of the profile

CLAIM = Claim(
    sentence="Out of distribution a router misroutes nine prompts in ten, and the online learner is faster.",
    source="Not-a-Bandit, arXiv 2510.20064, section on prompt variants",
    questions={
        "out_of_domain": Question(
            "With a domain left out of its training, a router among seven specialists misroutes more than 90% of the "
            "prompts, and NormalHedge's MAT is above the router's.",
            above(0.0),
            "share - 0.9, MAT",
            comparisons=4,
        ),
        "ratio": Question(
            "In some domain left out NormalHedge's MAT is at least 2.34 times the router's.",
            above(2.34),
            "MAT / MAT",
            comparisons=2,
        ),
        "reachable": Question(
            "Misrouting is no matter of drafters that the router never saw win: of those that it did, too, it sends "
            "more than 90% of the prompts of a domain left out to another than the best.",
            above(0.9),
            "share of texts",
            comparisons=2,
        ),
        "in_distribution": Question(
            f"With domains that it knows, the router is within {CLOSE} tokens a round of NormalHedge.",
            inside(-CLOSE, CLOSE),
            "MAT",
            comparisons=2,
        ),
        "generalists": Question(
            "With generalists to choose from NormalHedge is above the router out of distribution, too.",
            above(0.0),
            "MAT",
            comparisons=4,
        ),
        "frozen": Question(
            "Where the domain changes in the middle of a text, NormalHedge is above a router that knew the first "
            "domain.",
            above(0.0),
            "MAT",
            comparisons=4,
        ),
        "fixed_share": Question(
            "Where the domain changes, in spliced texts and in streams, Fixed-Share is above NormalHedge and Hedge.",
            above(0.0),
            "MAT",
            comparisons=20,
        ),
        "tracking_bound": Question(
            f"In spliced texts Fixed-Share's tracking regret stays below its bound, for 0 to {SWITCHES} switches.",
            below(1.0),
            "largest regret / bound",
            comparisons=4,
        ),
        "carried": Question(
            "Carrying NormalHedge's state through a stream whose domain changes costs tokens a round, however long the "
            "blocks.",
            below(0.0),
            "MAT",
            comparisons=6,
        ),
    },
)

_BASE: dict[str, Any] = {"k": 5, "replicates": 8}
SETTINGS: Sequence[Setting] = [
    *(
        {"what": "routes", "trace": trace, "pool": pool, "by": by, **_BASE}
        for trace in TRACES
        for pool in POOLS
        for by in routing.BY
    ),
    *(
        {"what": "splices", "trace": trace, "pool": SPECIALISTS, "pieces": pieces, **_BASE}
        for trace in TRACES
        for pieces in (2, 5)
    ),
    *(
        {"what": "streams", "trace": trace, "pool": SPECIALISTS, "block": block, **_BASE}
        for trace in TRACES
        for block in (1, 5, 20)
    ),
]
_SMALL: dict[str, Any] = {"k": 5, "replicates": 2, "prompts": 6}
QUICK: Sequence[Setting] = [
    *(
        {"what": "routes", "trace": trace, "pool": pool, "by": by, **_SMALL}
        for trace, pool in (("t06", SPECIALISTS), ("t06", WITH_GENERALISTS), ("greedy", SPECIALISTS))
        for by in routing.BY
    ),
    *({"what": "splices", "trace": "t06", "pool": SPECIALISTS, "pieces": pieces, **_SMALL} for pieces in (2, 5)),
    {"what": "streams", "trace": "t06", "pool": SPECIALISTS, "block": 2, **_SMALL},
]


def run(setting: Setting, seed: int) -> Arrays:
    """Return what `_routes`, `_splices` or `_streams` gives; "about" alone where the trace has no such pool."""
    trace = cut_of(setting)
    if not has_pool(trace, str(setting["pool"])):
        return {"about": packed({"absent": setting["pool"]})}
    names = members(trace, str(setting["pool"]))
    pool = trace if len(names) == len(trace.drafters) else trace.among(names)
    return {"routes": _routes, "splices": _splices, "streams": _streams}[str(setting["what"])](pool, setting, seed)


def _about(trace: hl.Trace, **more: Any) -> NDArray[np.uint8]:
    return packed(
        {
            "domains": trace.domains.tolist(),
            "clusters": trace.conversations.tolist(),
            "strata": trace.home_domains.tolist(),
            "drafters": list(trace.drafters),
            **more,
        }
    )


def _routes(pool: hl.Trace, setting: Setting, seed: int) -> Arrays:
    """Return rounds (S,) of each policy, and where texts were sent.

    route, best : (S,) drafter sent to, and the prompt's best. reachable : (S,) the best of those that the text's router
    can send to; -1 where that is not known. A setting with "train" names another trace that the router is trained on;
    its prompts must be others
    """
    k, replicates = int(setting["k"]), int(setting["replicates"])
    reachable = np.full(pool.sequences, -1)
    if "train" in setting:
        other = trace_of({"trace": setting["train"]})
        found = routing.evaluate(
            routing.train(other.among(pool.drafters), k), pool, k=k, learners=LEARNERS, replicates=replicates, seed=seed
        )
    else:
        by = str(setting["by"])
        found = routing.validate(pool, by=by, k=k, learners=LEARNERS, replicates=replicates, seed=seed)
        rounds = expected_fixed_rounds(pool, k=k).rounds
        for training, test in routing.folds_of(pool, by, routing.FOLDS, seed):
            seen = np.unique(found.best[training])
            reachable[test] = seen[_best_of_prompt(pool, rounds[:, seen])[test]]
    return {
        "about": _about(pool),
        "tokens": found.comparison.tokens,
        "route": found.route,
        "best": found.best,
        "reachable": reachable,
        "foreign": found.foreign(),
        **{f"rounds.{policy.name}": policy.rounds for policy in found.comparison.policies},
    }


def _best_of_prompt(trace: hl.Trace, rounds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return (S,) the column of fewest rounds (S, N) over all texts of each text's prompt."""
    _, prompt = np.unique(trace.column("prompt_sha256"), axis=0, return_inverse=True)
    sums = np.zeros((int(prompt.max()) + 1, rounds.shape[1]))
    np.add.at(sums, prompt, rounds)
    return sums.argmin(axis=1)[prompt]


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


def _splices(pool: hl.Trace, setting: Setting, seed: int) -> Arrays:
    """Return rounds (X,) of each policy on spliced texts, their tracking regret, and profiles about the first seam.

    regret : (learners, X, SWITCHES + 1) of the token game without delay. bound : (X, SWITCHES + 1), Fixed-Share's.
    profile : (learners and the router, X, BEFORE + AFTER) tokens that a round begun at a row is expected to commit, by
    the learner's weights in decoding, minus those of the drafter that is best over the part; NaN outside the text
    """
    k, pieces, replicates = int(setting["k"]), int(setting["pieces"]), int(setting["replicates"])
    groups = groups_of(pool, pieces, 2 * k, seed)
    spliced, rows = splice(pool, groups)
    first = np.array([group[r] for group in groups for r in range(pieces)])
    route = routing.validate(pool, k=k, learners=(), replicates=1, seed=seed).route[first]
    found = compare(spliced, LEARNERS, k=k, replicates=replicates, seed=seed, routes={ROUTER: route})
    table = losses_of(spliced, k=k)
    seams = -(-np.diff(pool.offsets)[first] // pieces)  # rows of the first part
    regret = np.zeros((len(LEARNERS), len(rows), SWITCHES + 1))
    bound = np.zeros((len(rows), SWITCHES + 1))
    for x in range(len(rows)):
        known = table[spliced.offsets[x] : spliced.offsets[x + 1] - (k - 1)]
        bound[x] = [bounds.fixed_share_anytime(len(known), known.shape[1], m) for m in range(SWITCHES + 1)]
        for i, name in enumerate(LEARNERS):
            regret[i, x] = tracking(known, hl.play(known, name).round_loss, SWITCHES)
    sent = np.repeat(route, np.diff(spliced.offsets))
    runs = [hl.replay(spliced, name, k=k, seed=seed, token_game=True).expected_loss for name in LEARNERS]
    lines = np.array([*runs, table[np.arange(len(table)), sent]], np.float64)
    least = _least_by_part(table, pool, rows)
    return {
        "about": packed(
            {
                "domains": ["splices"] * len(rows),
                "clusters": [str(g) for g in range(len(groups)) for _ in range(pieces)],
                "strata": ["splices"] * len(rows),
                "drafters": list(pool.drafters),
                "lines": [*LEARNERS, ROUTER],
            }
        ),
        "tokens": found.tokens,
        "regret": regret,
        "bound": bound,
        "profile": np.array([_about_seams(spliced, seams, (k + 1) * (least - line)) for line in lines], np.float32),
        **{f"rounds.{policy.name}": policy.rounds for policy in found.policies},
    }


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


def stream(domains: NDArray[np.str_], block: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return an order (S,) of texts: `block` of a domain, `block` of the next, round until none is left."""
    left = {name: rng.permutation(np.flatnonzero(domains == name)).tolist() for name in dict.fromkeys(domains.tolist())}
    order: list[int] = []
    while any(left.values()):
        for texts in left.values():
            order += texts[:block]
            del texts[:block]
    return np.array(order, np.int64)


def _streams(pool: hl.Trace, setting: Setting, seed: int) -> Arrays:
    """Return rounds (S,) of each learner in streams, started afresh with each text, and carried."""
    k, replicates, block = int(setting["k"]), int(setting["replicates"]), int(setting["block"])
    rngs = [np.random.default_rng([seed, block, each]) for each in range(replicates)]
    orders = np.array([stream(pool.domains, block, rng) for rng in rngs])
    rounds = {}
    for name in LEARNERS:
        for what, carry in ((name, False), (f"{name}, carried", True)):
            rounds[what], _ = played(pool, name, k=k, seed=seed, replicates=replicates, orders=orders, carry_over=carry)
    return {
        "about": _about(pool),
        "tokens": np.diff(pool.offsets).astype(np.float64),
        **{f"rounds.{name}": column for name, column in rounds.items()},
    }


class Table:
    """What one setting gave: its sample and its policies' MAT."""

    def __init__(self, setting: Setting, arrays: Arrays) -> None:
        self.setting = setting
        self.arrays = arrays
        self.about: dict[str, Any] = unpacked(arrays["about"])
        self.sample: Sample = sample_of(arrays)

    @property
    def trace(self) -> str:
        """Name of the trace."""
        return Path(str(self.setting["trace"])).name

    def minus(self, policy: str, other: str, group: str = POOLED, comparisons: int = 1) -> Interval:
        """MAT of a policy minus that of another, paired."""
        return self.sample.difference(self.rounds(policy), self.rounds(other), group, comparisons)

    def rounds(self, policy: str) -> NDArray[np.float64]:
        """(S,) rounds of a policy."""
        return self.arrays[f"rounds.{policy}"]

    def share(self, texts: NDArray[np.bool_], group: str = POOLED, comparisons: int = 1) -> Interval:
        """Share of a group's texts, with the exact binomial interval; texts of one conversation count once together.

        Where a conversation counts in part, the ends are those of the whole numbers below and above.
        """
        here = np.full(len(texts), True) if group == POOLED else self.sample.domains == group
        _, of = np.unique(self.sample.clusters[here], return_inverse=True)
        hits, count = float((np.bincount(of, texts[here]) / np.bincount(of)).sum()), int(of.max()) + 1
        low = of_share(math.floor(hits + 1e-9), count, comparisons).low
        return Interval(hits / count, low, of_share(math.ceil(hits - 1e-9), count, comparisons).high)

    @property
    def misrouted(self) -> NDArray[np.bool_]:
        """(S,) whether a text was not sent to its prompt's best drafter."""
        return np.asarray(self.arrays["route"] != self.arrays["best"])

    def profile(self, name: str, width: int) -> tuple[NDArray[np.float64], list[Interval]]:
        """Return rows from the seam (B,), and the profile there (see `_splices`), means over bins of `width` rows.

        No bin crosses the seam. A bin of B is left out where no text reaches
        """
        values = np.asarray(self.arrays["profile"][self.about["lines"].index(name)], np.float64)
        bins = np.arange(-(BEFORE // width) * width, AFTER - width + 1, width)
        places, found = [], []
        for start in bins.tolist():
            part = values[:, BEFORE + start : BEFORE + start + width]
            known = np.isfinite(part).sum(axis=1).astype(np.float64)
            if (reached := known > 0).any():
                sample = self.sample.among(reached, BANDS)
                places.append(start + (width - 1) / 2)
                found.append(sample.ratio(np.nansum(part, axis=1)[reached], known[reached]))
        return np.array(places, np.float64), found

    def largest_ratio(self, comparisons: int = 1) -> Interval:
        """Largest over domains of NormalHedge's MAT over the router's; each resample takes its own largest.

        Its tails are Student's with the degrees of freedom of the domain that has the fewest.
        """
        estimates, largest, degrees = [], [], []
        for group in self.sample.groups[:-1]:
            here, drawn, single = self.sample.draws(group)
            top, bottom = self.rounds(ROUTER)[here], self.rounds(NEW)[here]
            estimates.append(top.sum() / bottom.sum())
            largest.append((drawn @ top) / (drawn @ bottom))
            degrees.append(0 if single else drawn.degrees)
        return percentile(max(estimates), np.max(largest, axis=0), comparisons, degrees=min(degrees))


def of_kind(results: Results, what: str) -> list[Table]:
    """Return the tables of "routes", "splices" or "streams", those left out whose pool the trace has not."""
    return [Table(*result) for result in results.where(what=what) if "tokens" in result.arrays]


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answer to each question; see CLAIM."""
    routes, splices, streams = (of_kind(results, what) for what in ("routes", "splices", "streams"))
    abroad = [table for table in routes if table.setting["by"] == "domain"]
    among_seven = [table for table in abroad if table.setting["pool"] == SPECIALISTS]
    at_home = [table for table in routes if table.setting["by"] == "prompt" and table.setting["pool"] == SPECIALISTS]
    rivals = (NEW, "hedge")
    return {
        "out_of_domain": _answer(
            "out_of_domain",
            {
                f"{table.trace}: {what}": effect
                for table in among_seven
                for what, effect in (
                    ("misrouted beyond 0.9", partial(_beyond, table)),
                    ("NormalHedge - router", partial(table.minus, NEW, ROUTER)),
                )
            },
            "leaving a domain out leaves its specialist without a winning prompt: a router cannot learn to send there",
        ),
        "ratio": _answer(
            "ratio",
            {table.trace: table.largest_ratio for table in among_seven},
            "largest over domains in each resample, which overstates it: in favour of the claim",
        ),
        "reachable": _answer(
            "reachable",
            {
                table.trace: partial(table.share, table.arrays["route"] != table.arrays["reachable"])
                for table in among_seven
            },
        ),
        "in_distribution": _answer(
            "in_distribution",
            {table.trace: partial(table.minus, NEW, ROUTER) for table in at_home},
            "misrouted: " + "; ".join(f"{t.trace} {t.share(t.misrouted).estimate:.0%}" for t in at_home),
        ),
        "generalists": _answer(
            "generalists",
            {
                f"{table.trace}, {table.setting['pool']}": partial(table.minus, NEW, ROUTER)
                for table in abroad
                if table not in among_seven
            },
            "misrouted: "
            + "; ".join(
                f"{t.trace}, {t.setting['pool']} {t.share(t.misrouted).estimate:.0%}"
                for t in abroad
                if t not in among_seven
            ),
        ),
        "frozen": _answer(
            "frozen",
            {
                f"{table.trace}, {table.setting['pieces']} pieces": partial(table.minus, NEW, ROUTER)
                for table in splices
            },
            "the router saw the prompt of the first piece and was trained on other prompts, that domain's among them",
        ),
        "fixed_share": _answer("fixed_share", _switching(splices, streams, rivals)),
        "tracking_bound": _answer(
            "tracking_bound",
            {f"{table.trace}, {table.setting['pieces']} pieces": partial(_against_bound, table) for table in splices},
            "no delay; regret to the best sequence of one switch, mean over spliced texts: "
            + "; ".join(_said_regret(table) for table in splices),
        ),
        "carried": _answer(
            "carried",
            {
                f"{table.trace}, blocks of {table.setting['block']}": partial(table.minus, f"{NEW}, carried", NEW)
                for table in streams
            },
        ),
    }


def _answer(question: str, cases: Mapping[str, Callable[..., Interval]], note: str = "") -> Answer:
    if not cases:
        return Answer(UNKNOWN, "the trace has not the drafters that this question is about")
    count = max(len(cases), CLAIM.questions[question].comparisons)
    return Answer({case: effect(comparisons=count) for case, effect in cases.items()}, note)


def _beyond(table: Table, comparisons: int) -> Interval:
    return Interval(*(end - 0.9 for end in table.share(table.misrouted, POOLED, comparisons)))


def _switching(
    splices: Sequence[Table], streams: Sequence[Table], rivals: Sequence[str]
) -> dict[str, Callable[..., Interval]]:
    cases: dict[str, Callable[..., Interval]] = {
        f"{table.trace}, {table.setting['pieces']} pieces: {rival}": partial(table.minus, SHARE, rival)
        for table in splices
        for rival in rivals
    }
    return cases | {
        f"{table.trace}, blocks of {table.setting['block']}: {rival}": partial(
            table.minus, f"{SHARE}, carried", f"{rival}, carried"
        )
        for table in streams
        for rival in rivals
    }


def _against_bound(table: Table, comparisons: int) -> Interval:
    regret = table.arrays["regret"][LEARNERS.index(SHARE)]
    return exact(float((regret / table.arrays["bound"]).max()))


def _said_regret(table: Table) -> str:
    means = table.arrays["regret"][:, :, 1].mean(axis=1)
    said = ", ".join(f"{name} {mean:.1f}" for name, mean in zip(LEARNERS, means, strict=True))
    return f"{table.trace}, {table.setting['pieces']} pieces: {said}"
