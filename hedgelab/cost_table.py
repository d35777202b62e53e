"""Tables of what calls cost, and of the speed-ups that follow."""

from __future__ import annotations

import numpy as np

from hedgelab.comparison import cell
from hedgelab.cost import Costs, CostsError, fixed_bills
from hedgelab.feedback import draft_length
from hedgelab.regret import Interval, bootstrap_counts, ratio_interval
from hedgelab.sheets import Sheet
from hedgelab.storage.costs import Seconds
from hedgelab.trace import Trace

__all__ = ["calls", "speedups"]


def speedups(trace: Trace, costs: Costs, *, k: int | None = None, replicates: int = 4) -> Sheet:
    """Return for every drafter of a trace what a round with it alone costs and what comes of it, in draft rounds of k.

    Speed-ups have the interval of a bootstrap over prompts; that of the measured costs is in `calls`. Drafters without
    a measured cost are shown as "-".
    """
    k = draft_length(trace, k)
    if k > costs.k:
        raise CostsError(f"k is {k}; costs were measured for drafts of at most {costs.k}")
    strata, clusters = trace.home_domains, trace.conversations
    counts = bootstrap_counts(clusters, strata=strata, seed=0)
    alone = min(len(set(clusters[strata == name])) for name in np.unique(strata)) == 1
    rows = []
    for name, bills in fixed_bills(trace, costs, k=k, replicates=replicates).items():
        kind = trace.manifest.drafters[trace.drafters.index(name)].kind
        if not bills:
            rows.append([name, kind, *"-----"])
            continue
        tokens, rounds = bills[0].tokens, np.mean([each.rounds for each in bills], axis=0)
        seconds = np.mean([each.by_sequence for each in bills], axis=0)
        parts = [1e3 * np.concatenate(part).mean() for part in zip(*((b.draft, b.verify) for b in bills), strict=True)]
        found = ratio_interval(tokens * costs.target.step.median, seconds, counts)
        found = Interval(found.estimate, np.nan, np.nan) if alone else found
        rate = tokens.sum() / seconds.sum()
        shown = [*(f"{part:.3g}" for part in parts), f"{tokens.sum() / rounds.sum():.2f}", f"{rate:.1f}"]
        rows.append([name, kind, *shown, cell(found, 2)])
    header = ["drafter", "kind", "draft, ms", "verify, ms", "MAT", "tokens/s", "modelled speed-up"]
    plain = 1 / costs.target.step.median
    return Sheet(f"k = {k}; plain decoding makes {plain:.1f} tokens/s", header, rows, left=2)


def calls(costs: Costs) -> tuple[Sheet, Sheet, Sheet]:
    """Return what was measured of target, drafters and learners: medians with their 95% intervals.

    The tokens a round must commit for plain decoding to be no faster are (draft + verify) / step, scoring not counted.
    """
    step, k = costs.target.step, costs.k
    passes = zip(costs.target.verify.tokens, costs.target.verify.seconds, strict=True)
    target = [["step", "1", _shown(step, 1e3), "1.00"]]
    target += [["pass", str(n), _shown(each, 1e3), f"{each.median / step.median:.2f}"] for n, each in passes]
    drafters = []
    for name, drafter in costs.drafters.items():
        evaluated = [f"{1e3 * float(drafter.evaluate.in_blocks(n)):.3g}" for n in (1, k + 1)]
        if drafter.draft is None:
            drafters.append([name, drafter.kind, "-", "-", "-", *evaluated])
            continue
        read = 1 + (k if drafter.nodes is None else drafter.nodes[-1])
        level = (drafter.draft[-1].median + float(costs.target.verify.at(read))) / step.median
        drafters.append([name, drafter.kind, _shown(drafter.draft[-1], 1e3), f"{read:.3g}", f"{level:.2f}", *evaluated])
    learners = [
        [name, _shown(each.play, 1e6), _shown(each.observe, 1e6)] for name, each in sorted(costs.learners.items())
    ]
    header = ["drafter", "kind", f"draft of {k}, ms", "tokens verified", "breaks even at", "scores 1 token, ms"]
    return (
        Sheet("", ["target", "tokens", "ms", "in steps"], target),
        Sheet("", [*header, f"scores {k + 1}, ms"], drafters, left=2),
        Sheet("", ["learner", "play, µs", "observe, µs"], learners),
    )


def _shown(seconds: Seconds, unit: float) -> str:
    low, median, high = (f"{unit * value:.3g}" for value in (seconds.low, seconds.median, seconds.high))
    return f"{median} [{low}, {high}]"
