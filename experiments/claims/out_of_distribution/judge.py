"""Effects of claim 8 on its results, and the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Answer, Results, answered
from experiments.claims.out_of_distribution.asked import CLAIM, SPECIALISTS
from experiments.claims.out_of_distribution.splices import AFTER, BEFORE, LEARNERS, LINES, NEW, ROUTER, SHARE
from experiments.intervals import UNTOLD, exact, of_ratio, of_share
from experiments.policy_table import PolicyTable, absent
from hedgelab.regret import Interval

__all__ = ["Table", "check", "of_kind"]


class Table(PolicyTable):
    """What one setting gave: its texts and its policies' MAT."""

    @property
    def name(self) -> str:
        """Trace and what is particular to the setting."""
        what = {"routes": "{pool}", "splices": "{pieces} pieces", "streams": "blocks of {block}"}
        return f"{self.trace}, {what[self.setting['what']].format(**self.setting)}"

    @property
    def misrouted(self) -> NDArray[np.bool_]:
        """(S,) whether a text was not sent to its prompt's best drafter."""
        return np.asarray(self.arrays["route"] != self.arrays["best"])

    def beyond_reach(self, comparisons: int = 1) -> Interval:
        """Return the share of texts not sent to the best drafter that the router can send to, where that is known."""
        known = self.arrays["reachable"] >= 0
        return self.share(self.arrays["route"] != self.arrays["reachable"], comparisons, known)

    def share(self, texts: NDArray[np.bool_], comparisons: int = 1, among: NDArray[np.bool_] | None = None) -> Interval:
        """Return the share of texts, with the exact binomial interval; texts of one conversation count once together.

        Where a conversation counts in part, the ends are those of the whole numbers below and above. among : (S,)
        """
        prompts = self.texts.prompts if among is None else self.texts.prompts[among]
        texts = texts if among is None else texts[among]
        if not len(prompts):
            return UNTOLD
        _, of = np.unique(prompts, return_inverse=True)
        hits, count = float((np.bincount(of, texts) / np.bincount(of)).sum()), int(of.max()) + 1
        low = of_share(math.floor(hits + 1e-9), count, comparisons).low
        return Interval(hits / count, low, of_share(math.ceil(hits - 1e-9), count, comparisons).high)

    def beyond(self, texts: NDArray[np.bool_], share: float, comparisons: int = 1) -> Interval:
        """Return the share of texts less another."""
        return Interval(*(end - share for end in self.share(texts, comparisons)))

    def largest_ratio(self, comparisons: int = 1) -> Interval:
        """Return the largest over domains of NormalHedge's MAT over the router's; each resample takes its own largest.

        Its tails are Student's with the degrees of freedom of the domain that has the fewest.
        """
        drawn = {group: self.texts.draws(group, comparisons) for group in self.texts.groups[:-1]}
        ratios = [
            draws.sums(self.rounds(ROUTER)[self.texts.of(group)]) / draws.sums(self.rounds(NEW)[self.texts.of(group)])
            for group, draws in drawn.items()
        ]
        fewest = min(drawn.values(), key=lambda draws: draws.degrees)
        return fewest.interval(np.max(ratios, axis=0), comparisons)

    def profile(self, line: str, width: int) -> tuple[NDArray[np.float64], list[Interval]]:
        """Return rows from the seam (B,), and a line's profile there, means over bins of `width` rows.

        See `splices.on_splices`. No bin crosses the seam. A bin of B is left out where no text reaches
        """
        values = np.asarray(self.arrays["profile"][LINES.index(line)], np.float64)
        places, found = [], []
        for start in range(-(BEFORE // width) * width, AFTER - width + 1, width):
            part = values[:, BEFORE + start : BEFORE + start + width]
            known = np.isfinite(part).sum(axis=1)
            if (reached := known > 0).any():
                places.append(start + (width - 1) / 2)
                draws = self.texts.draws(among=reached)
                found.append(of_ratio(np.nansum(part, axis=1)[reached], known[reached], draws))
        return np.array(places, np.float64), found

    def against_bound(self, comparisons: int = 1) -> Interval:
        """Return Fixed-Share's tracking regret over its bound, the largest over texts and switches."""
        return exact(float((self.arrays["regret"][LEARNERS.index(SHARE)] / self.arrays["bound"]).max()))


def of_kind(results: Results, what: str) -> list[Table]:
    """Return the tables of "routes", "splices" or "streams", those left out whose pool the trace has not."""
    return [Table(*result) for result in results.where(what=what) if "absent" not in result.arrays]


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answer to each question; see CLAIM."""
    routes, splices, streams = (of_kind(results, what) for what in ("routes", "splices", "streams"))
    abroad, at_home = ([table for table in routes if table.setting["by"] == by] for by in ("domain", "prompt"))
    seven, known = _among_seven(abroad), _among_seven(at_home)
    others = [table for table in abroad if table not in seven]
    cases: dict[str, dict[str, Callable[..., Interval]]] = {
        "out_of_domain": {
            f"{table.trace}: {what}": effect
            for table in seven
            for what, effect in (
                ("misrouted beyond 0.9", partial(table.beyond, table.misrouted, 0.9)),
                ("NormalHedge - router", partial(table.minus, NEW, ROUTER)),
            )
        },
        "ratio": {table.trace: table.largest_ratio for table in seven},
        "reachable": {table.trace: table.beyond_reach for table in seven},
        "in_distribution": {table.trace: partial(table.minus, NEW, ROUTER) for table in known},
        "generalists": {table.name: partial(table.minus, NEW, ROUTER) for table in others},
        "frozen": {table.name: partial(table.minus, NEW, ROUTER) for table in splices},
        "fixed_share": {
            f"{table.name}: {rival}": partial(table.minus, f"{SHARE}{how}", f"{rival}{how}")
            for tables, how in ((splices, ""), (streams, ", carried"))
            for table in tables
            for rival in (NEW, "hedge")
        },
        "tracking_bound": {table.name: table.against_bound for table in splices},
        "carried": {table.name: partial(table.minus, f"{NEW}, carried", NEW) for table in streams},
    }
    notes = {
        "out_of_domain": "leaving a domain out leaves its specialist without a winning prompt: a router cannot learn "
        "to send there" + absent(results),
        "ratio": "largest over domains in each resample, which overstates it: in favour of the claim",
        "in_distribution": _said_misrouted({table.trace: table for table in known}),
        "generalists": _said_misrouted({table.name: table for table in others}),
        "frozen": "the router saw the prompt of the first piece and was trained on other prompts, that domain's among "
        "them",
        "tracking_bound": "no delay; regret to the best sequence of one switch, mean over spliced texts: "
        + "; ".join(_said_regret(table) for table in splices),
    }
    return {name: answered(CLAIM, name, cases[name], notes.get(name, "") if cases[name] else "") for name in cases}


def _among_seven(tables: Sequence[Table]) -> list[Table]:
    return [table for table in tables if table.setting["pool"] == SPECIALISTS]


def _said_misrouted(tables: Mapping[str, Table]) -> str:
    shares = (f"{name} {table.share(table.misrouted).estimate:.0%}" for name, table in tables.items())
    return "misrouted: " + "; ".join(shares)


def _said_regret(table: Table) -> str:
    means = table.arrays["regret"][:, :, 1].mean(axis=1)
    said = ", ".join(f"{name} {mean:.1f}" for name, mean in zip(LEARNERS, means, strict=True))
    return f"{table.name}: {said}"
