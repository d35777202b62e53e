"""Claim 7: what more drafters do to committed tokens per round, and to modelled speed."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.claim import Results
from experiments.claims import pool_size
from experiments.intervals import of_mean
from paper_figures import style

CLAIM = "pool_size"
CAPTION = (
    "Pools of N drafters. (a) MAT on the first trace (at full size temperature 0.6, 140 prompts, draft length 5) "
    "against N: nested pools in 32 random orders, the same for every policy; bands are 95% percentile intervals "
    "of a bootstrap over prompts within domains and over orders. ucb-tuned: beta chosen on the other half of the "
    "prompts. Grey, hollow: oracles. (b) Made-up pools: seven drafters with the trace's mean acceptance, then "
    "weak ones only; solid with texts of 180 tokens afresh (112 texts, bootstrap), dotted with the state carried "
    "through streams of 14 texts (8 streams, 95% Student bars). (c) Modelled speed-up over plain decoding among "
    "the drafters of known cost, 16 orders; NormalHedge pays for scoring all others, dashed: as if that were "
    "free. The best fixed drafter, in hindsight by seconds, pays for no selection."
)
POLICIES = ("normalhedge", "hedge", "ftl", "ucb-tuned", "thompson-beta", "metasd", "ucbspec", "exp3spec", "uniform")


def _lines(axes: Any, pools: pool_size.Pools, policy: str, **looks: Any) -> None:
    rows, look = np.array(pools.intervals(policy)), style.look(policy) | looks
    axes.plot(pools.sizes, rows[:, 0], label=policy, **look)
    # lighter than elsewhere: prompts and pools are shared, so that all bands overlap
    axes.fill_between(pools.sizes, rows[:, 1], rows[:, 2], color=look["color"], alpha=0.09, linewidth=0)


def _real(axes: Any, results: Results) -> None:
    name = pool_size.traces(results, "real")[0]
    pools, _ = pool_size.real_pools(results, name)
    for oracle in (pool_size.BEST, pool_size.INFORMED):
        _lines(axes, pools, oracle, color="#777777", markerfacecolor="white", linewidth=0.9)
    for policy in POLICIES:
        _lines(axes, pools, policy, linewidth=1.1)
    axes.set_title(f"a  Pools of the trace {name}")
    axes.set_ylabel("committed tokens per round")


def _enlarged(axes: Any, results: Results) -> None:
    made, carried = pool_size.enlarged(results), pool_size.streams(results)
    for policy in pool_size.ENLARGED:
        style.band(axes, made.sizes, made.intervals(policy), **style.look(policy))
        if policy != "uniform":
            look = style.look(policy) | {"markerfacecolor": "white"}
            style.points(axes, made.sizes, [of_mean(mats) for mats in carried[policy].T], linestyle=":", **look)
    look = {"color": "#777777", "marker": "o", "markerfacecolor": "white", "linewidth": 0.9}
    style.band(axes, made.sizes, made.intervals(pool_size.BEST), **look)
    axes.set_xscale("log")
    axes.set_xticks(made.sizes, [str(size) for size in made.sizes])
    axes.minorticks_off()
    axes.set_title("b  Weak drafters added")
    axes.set_ylim(bottom=1)


def _speed(axes: Any, results: Results) -> None:
    for name in pool_size.traces(results, "speed")[:1]:
        pools = pool_size.priced_pools(results, name)
        if pools is None:
            axes.text(0.5, 0.5, "no cost is known", transform=axes.transAxes, ha="center")
            continue
        _lines(axes, pools, pool_size.BEST, color="#777777", markerfacecolor="white", linewidth=0.9)
        for policy in pool_size.PRICED:
            _lines(axes, pools, policy)
        _lines(axes, pools, pool_size.FREE, **style.look("normalhedge"), linestyle="--", markerfacecolor="white")
        axes.axhline(1.0, color="#BBBBBB", linewidth=0.8, zorder=0)
        axes.annotate(
            "plain decoding", (pools.sizes[0], 1.0), xytext=(0, 3), textcoords="offset points", color="#777777"
        )
    axes.set_ylim(bottom=0)
    axes.set_title("c  Modelled speed-up")
    axes.set_ylabel("times plain decoding")


@style.styled
def draw(results: Results) -> Any:
    """Return the figure."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(style.WIDE, 3.4))
    axes = figure.subplots(1, 3, width_ratios=[1.35, 1.0, 1.0])
    _real(axes[0], results)
    _enlarged(axes[1], results)
    _speed(axes[2], results)
    for each, step in ((axes[0], 1), (axes[2], 2)):
        shown = sorted(set(each.lines[0].get_xdata().tolist()) - {pool_size.PAPER + 1})[::-step]
        each.set_xscale("log")
        each.set_xticks(shown, [str(size) for size in shown])
        each.minorticks_off()
    for each in axes:
        each.set_xlabel("drafters N")
    handles, labels = axes[0].get_legend_handles_labels()
    handles.append(Line2D([], [], linestyle="--", **style.look("normalhedge") | {"markerfacecolor": "white"}))
    figure.legend(handles, [*labels, "c: scoring free"], loc="outside lower center", ncols=6, columnspacing=1.2)
    return figure
