"""How often an offline router misroutes, what that costs against NormalHedge, and learners about a change of domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.claim import Results
from experiments.claims.out_of_distribution import POOLS, Table, of_kind
from experiments.claims.out_of_distribution.splices import LINES, NEW, ROUTER
from hedgelab.regret import Interval
from paper_figures import style

CLAIM = "out_of_distribution"
CAPTION = (
    "Among seven specialists a router that has not seen the domain sends nearly all texts to another than the best, "
    "and commits fewer tokens a round than NormalHedge; with generalists in the pool it misroutes less often, and "
    "commits more. (a) Share of texts not sent to their best drafter, routers cross-validated over prompts (domains "
    "known) or trained on the other domains (domain left out). (b) Mean committed tokens per round (MAT) of "
    "NormalHedge minus that of the router. (c) Expected tokens of a round begun at a row, minus those of the drafter "
    "that is best in that half, about the seam of texts spliced from recordings of two domains (temperature 0.6, seven "
    "specialists, means over 6 rows); the router saw the first prompt. 20 prompts a domain, draft length 5; bars and "
    "bands: 95% intervals, each on its own: (a) exact binomial, (b) bootstrap over prompts within domains, paired, (c) "
    "bootstrap over pairs of texts."
)

_WIDTH = 6  # rows of a bin of the profile
_BY = {"prompt": "domains known", "domain": "domain left out"}
_SHOWN = {POOLS[0]: "7 specialists", POOLS[1]: "and their\ngeneralists", POOLS[2]: "all drafters"}
_STYLES = {"ftl": (0, (2, 2))}  # it lies over NormalHedge's
_NAMES = {NEW: "NormalHedge", "hedge": "Hedge", "fixed-share": "Fixed-Share", "ftl": "follow the leader"}


def _by_pool(axes: Any, tables: list[Table], effect: Callable[[Table], Interval]) -> None:
    traces = list(dict.fromkeys(table.trace for table in tables))
    looks = [(trace, by) for by in _BY for trace in traces]
    for place, (trace, by) in enumerate(looks):
        those = [table for table in tables if table.trace == trace and table.setting["by"] == by]
        x = [list(_SHOWN).index(table.setting["pool"]) for table in those]
        shift = 0.16 * (place - (len(looks) - 1) / 2)
        colour = style.look("", traces.index(trace))["color"]
        style.points(
            axes,
            np.array(x) + shift,
            [effect(table) for table in those],
            label=f"{trace}, {_BY[by]}",
            color=colour,
            marker="o" if by == "prompt" else "s",
            markerfacecolor="white" if by == "prompt" else colour,
        )
    axes.set_xticks(range(len(_SHOWN)), list(_SHOWN.values()))
    axes.set_xlim(-0.5, len(_SHOWN) - 0.5)
    for edge in (0.5, 1.5):
        axes.axvline(edge, color="#000000", alpha=0.1, linewidth=0.7)
    axes.tick_params(axis="x", length=0)


def _about_the_seam(axes: Any, table: Table) -> None:
    for name in LINES:
        x, effects = table.profile(name, _WIDTH)
        looks = style.look(name)
        style.band(axes, x, effects, label=_NAMES.get(name, name), linestyle=_STYLES.get(name, "-"), **looks)
    axes.axvline(-0.5, color="#000000", linewidth=0.8)
    axes.text(0.5, 0.97, "domain changes", transform=axes.get_xaxis_transform(), va="top", fontsize=7.5)
    axes.set_xlabel("rows from the seam")
    axes.set_ylabel("tokens of a round minus\nbest drafter's of each half")
    axes.legend(loc="lower left", ncols=1)


@style.styled
def draw(results: Results) -> Figure:
    """Return the figure."""
    routes, splices = of_kind(results, "routes"), of_kind(results, "splices")
    figure = Figure(figsize=(style.WIDE, 5.6), layout="constrained")
    grid = figure.subplot_mosaic([["a", "b"], ["c", "c"]], height_ratios=[1, 1.1])
    _by_pool(grid["a"], routes, lambda table: table.share(table.misrouted))
    grid["a"].set_ylim(-0.03, 1.03)
    grid["a"].set_ylabel("share of texts misrouted")
    grid["a"].set_title("a  Not sent to the best drafter")
    _by_pool(grid["b"], routes, lambda table: table.minus(NEW, ROUTER))
    grid["b"].axhline(0, color=style.look(ROUTER)["color"], linewidth=0.8)
    grid["b"].set_ylabel("MAT")
    grid["b"].set_title("b  NormalHedge minus router")
    if routes:
        grid["b"].legend(loc="upper right", handletextpad=0.2)
    two = [table for table in splices if table.setting["pieces"] == 2]
    if two:
        _about_the_seam(grid["c"], two[0])
    grid["c"].set_title("c  Texts spliced from two domains")
    return figure
