"""Who decodes faster, domain by domain: NormalHedge against fixed drafters and bandits, and what that is in seconds.

PUBLISHED holds figures of Not-a-Bandit (arXiv 2510.20064, its tables of MAT) that stand beside ours in ratios: other
targets, other drafters, a draft length that the paper does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.claim import Results
from experiments.claims.domains import SPECIALISTS, Table, tables
from experiments.claims.domains.measure import FASTEST, HOME, MATCHED, NEW, PRICED, SINGLE, STRONG
from hedgelab.regret import Interval
from paper_figures import style

CLAIM = "domains"
CAPTION = (
    "In every domain NormalHedge on full information commits more tokens a round than the bandits, and choosing among "
    "specialists more than a generalist that saw as many tokens as each; a generalist that saw all texts commits more "
    "still. (a), (b) Mean committed tokens per round (MAT) of each policy minus NormalHedge's, temperature 0.6, draft "
    "length 5, 20 prompts a domain; hollow: fixed drafters, the home specialist told the domain, the best fixed "
    "drafter chosen on these texts. (c) Ratios of MAT beside those published for other targets. (d) Modelled speed-up "
    "over plain decoding of a 135M target on one CPU core, temperature 0.6, evaluation of the other drafters charged "
    "by schedule: above 1 is faster. Bars: 95% intervals, each on its own, of the bootstrap over prompts within "
    "domains, paired."
)

PUBLISHED = {  # MAT
    "Llama-3.1-8B": {"HedgeSpec": 7.15, "EAGLE": 5.69, "UCBSpec": 5.09, "EXP3Spec": 4.86},
    "Qwen-3-8B": {"HedgeSpec": 6.37, "EAGLE": 4.23},
    "Qwen-3-32B": {"HedgeSpec": 6.21, "EAGLE": 2.88},
}

_FIXED = {MATCHED: "v", STRONG: "^", HOME: "s", SINGLE: "o"}  # hollow
_POLICIES = ("uniform", "exp3spec", "ucbspec", "metasd", "ucb-tuned", "hedge", "ftl", "router", *_FIXED)
_RATIOS = (
    ("/ EAGLE,\ntoken-matched", MATCHED, "EAGLE"),
    ("/ EAGLE,\nall texts", STRONG, "EAGLE"),
    ("/ UCBSpec", "ucbspec", "UCBSpec"),
    ("/ EXP3Spec", "exp3spec", "EXP3Spec"),
)
_SPEEDS = (
    ("NormalHedge, every round", f"{NEW}, every round"),
    ("every 4 rounds", f"{NEW}, every 4 rounds"),
    ("2 drafters a round", f"{NEW}, 2 drafters a round"),
    ("not charged", f"{NEW}, not charged"),
    ("UCBSpec", "ucbspec"),
    ("tuned UCB", "ucb-tuned"),
    ("fastest single drafter", FASTEST),
)
_SPEED_POOLS = {SPECIALISTS: "truncated (7)", "retrieval specialists": "retrieval (7)", PRICED: "all with a cost"}


def _look(policy: str) -> dict[str, Any]:
    if policy in _FIXED:
        return {"color": "#000000", "marker": _FIXED[policy], "markerfacecolor": "white"}
    return dict(style.look(policy))


def _differences(axes: Any, table: Table, title: str) -> None:
    shown = [name for name in _POLICIES if np.isfinite(table.rounds(name)).any()]
    groups = table.texts.groups
    shifts = np.linspace(-0.38, 0.38, len(shown))
    for shift, name in zip(shifts, shown, strict=True):
        known = [(x, table.minus(name, NEW, group)) for x, group in enumerate(groups)]
        known = [(x, effect) for x, effect in known if np.isfinite(effect.estimate)]
        style.points(
            axes,
            np.array([x for x, _ in known]) + shift,
            [effect for _, effect in known],
            label=name,
            **{"markersize": 3.4, "elinewidth": 0.9, "capsize": 0} | _look(name),
        )
    axes.axhline(0, color=style.look(NEW)["color"], linewidth=1)
    for edge in np.arange(len(groups) - 1) + 0.5:
        axes.axvline(edge, color="#000000", alpha=0.5 if edge == len(groups) - 1.5 else 0.1, linewidth=0.7)
    labels = [f"{group}\n{table.mat(NEW, group).estimate:.2f}" for group in groups]
    axes.set_xticks(np.arange(len(groups)), labels)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("MAT minus NormalHedge's")
    axes.set_title(title)


def _ratios(axes: Any, by_trace: Mapping[str, Table]) -> None:
    for place, (trace, table) in enumerate(by_trace.items()):
        known = [(y, table.over(NEW, other)) for y, (_, other, _) in enumerate(_RATIOS)]
        known = [(y, effect) for y, effect in known if np.isfinite(effect.estimate)]
        _bars(axes, [e for _, e in known], np.array([y for y, _ in known]) - 0.2 + 0.13 * place, trace, place)
    for model, marker in zip(PUBLISHED, ("x", "+", "1"), strict=True):
        mats = PUBLISHED[model]
        places = [(mats["HedgeSpec"] / mats[name], y) for y, (_, _, name) in enumerate(_RATIOS) if name in mats]
        x, y = np.array(places).T
        axes.plot(x, y + 0.27, marker, color="#666666", markersize=5, label=f"{model}, published")
    axes.axvline(1, color="#000000", linewidth=0.8)
    axes.set_yticks(range(len(_RATIOS)), [label for label, _, _ in _RATIOS])
    axes.set_ylim(len(_RATIOS) - 0.45, -0.5)
    axes.set_xlabel("MAT of NormalHedge / MAT of ...")
    axes.set_title("c  Beside the published ratios")
    _below(axes, 2)


def _speedups(axes: Any, by_pool: Mapping[str, Table]) -> None:
    for place, (pool, table) in enumerate(by_pool.items()):
        known = [(y, table.speed(policy)) for y, (_, policy) in enumerate(_SPEEDS)]
        known = [(y, effect) for y, effect in known if np.isfinite(effect.estimate)]
        heights = np.array([y for y, _ in known]) + 0.2 * (place - 1)
        _bars(axes, [e for _, e in known], heights, _SPEED_POOLS[pool], place + 3)
    axes.axvline(1, color="#000000", linewidth=0.8)
    axes.set_xscale("log")
    ticks = [each for each in (0.05, 0.1, 0.2, 0.5, 1, 2) if axes.get_xlim()[0] <= each <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(_SPEEDS)), [label for label, _ in _SPEEDS])
    axes.set_ylim(len(_SPEEDS) - 0.45, -0.5)
    axes.set_xlabel("modelled speed-up over plain decoding")
    axes.set_title("d  In seconds")
    if by_pool:
        _below(axes, len(by_pool))


def _below(axes: Any, columns: int) -> None:
    place = {"loc": "upper center", "bbox_to_anchor": (0.4, -0.2), "ncols": columns}
    axes.legend(fontsize=7, handletextpad=0.2, columnspacing=1, **place)


def _bars(axes: Any, effects: list[Interval], heights: Any, label: str, index: int) -> None:
    rows = np.array(effects, np.float64).reshape(-1, 3)
    reach = np.maximum([rows[:, 0] - rows[:, 1], rows[:, 2] - rows[:, 0]], 0)
    looks = style.look("", index)
    axes.errorbar(rows[:, 0], heights, xerr=reach, label=label, linestyle="none", elinewidth=1, markersize=3.5, **looks)


@style.styled
def draw(results: Results) -> Figure:
    """Return the figure."""
    known = tables(results)
    main = results[0].setting["trace"]
    pools = {table.pool: table for table in known if table.setting["trace"] == main}
    figure = Figure(figsize=(style.WIDE, 8.2), layout="constrained")
    grid = figure.subplot_mosaic([["a", "a"], ["b", "b"], ["c", "d"]], height_ratios=[1, 1, 1.05])
    for key, pool, words in (("a", SPECIALISTS, "specialists"), ("b", "all", "drafters of all kinds")):
        if pool in pools:
            count = len(pools[pool].arrays["drafters"])
            _differences(grid[key], pools[pool], f"{key}  Choosing among {count} {words}; below: MAT of NormalHedge")
    found: dict[str, Any] = {}
    for key in "ab":
        found |= dict(zip(*reversed(grid[key].get_legend_handles_labels()), strict=True))
    order = [name for name in _POLICIES if name in found]
    figure.legend(
        [found[name] for name in order], order, loc="outside upper center", ncols=6, columnspacing=1, handletextpad=0.1
    )
    seven = {table.trace: table for table in known if table.pool == SPECIALISTS}
    _ratios(grid["c"], seven)
    _speedups(grid["d"], {pool: pools[pool] for pool in _SPEED_POOLS if pool in pools})
    return figure
