"""The figure of `hedgelab demo`: regret with its bound, and speed by domain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgelab.comparison import Comparison, Curves
from hedgelab.regret import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hedgelab.contest import Contest

__all__ = ["CYCLE", "LOOKS", "STYLE", "draw", "draw_contest", "plain_text"]

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "pdf.fonttype": 42,
}

# Okabe and Ito's palette: told apart by colour-blind readers; markers, hollow for oracles, say it again in grey print
LOOKS: dict[str, tuple[str, str]] = {
    "uniform": ("#999999", "v"),
    "exp3": ("#E69F00", "<"),
    "ucb1": ("#D55E00", ">"),
    "hedge": ("#0072B2", "o"),
    "ftl": ("#56B4E9", "s"),
    "normalhedge": ("#009E73", "D"),
    "router": ("#000000", "P"),
    "best fixed drafter": ("#000000", "o"),
    "best fixed per prompt": ("#000000", "s"),
    "informed switching": ("#CC79A7", "D"),
    "clairvoyant switching": ("#CC79A7", "^"),
}
OTHER = ("#444444", "x")
CYCLE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")  # Okabe and Ito
MARKERS = ("", "o", "^", "s")


def _regret(axes: Axes, curves: Curves, objective: str) -> None:
    for name, rows in curves.per_token.items():
        colour, _ = LOOKS.get(name, OTHER)
        low, middle, high = np.quantile(rows, [0.025, 0.5, 0.975], axis=0)
        axes.plot(curves.tokens, middle, color=colour, label=name, linewidth=1.4)
        axes.fill_between(curves.tokens, low, high, color=colour, alpha=0.18, linewidth=0)
    bound = np.median(curves.hedge_bound, axis=0)
    axes.plot(
        curves.tokens,
        bound,
        color=LOOKS["hedge"][0],
        linestyle="--",
        linewidth=1.2,
        label="bound, Hedge only (its delays)",
    )
    axes.set_xscale("log")
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(1e-4, min(2.0, max(0.1, 1.5 * float(bound.max()))))
    axes.set_xlabel("tokens of a stream of prompts, learner state carried over")
    axes.set_ylabel(f"token-game regret per token ({objective} loss)")
    axes.set_title("a  Regret to the best fixed drafter")
    axes.legend(loc="lower left", frameon=True, framealpha=0.8, edgecolor="none")


def _speeds(axes: Axes, comparison: Comparison) -> None:
    summary = comparison.summary()
    groups = list(summary)
    known = [name for name in LOOKS if any(policy.name == name for policy in comparison.policies)]
    names = known + [policy.name for policy in comparison.policies if policy.name not in LOOKS]
    oracles = {policy.name for policy in comparison.policies if policy.kind == "oracle"}
    spread = np.linspace(-0.36, 0.36, len(names))
    for shift, name in zip(spread, names, strict=True):
        colour, marker = LOOKS.get(name, OTHER)
        intervals = [summary[group][name]["mat"] for group in groups]
        middle = np.array([interval.estimate for interval in intervals])
        error = np.abs([[i.estimate - i.low, i.high - i.estimate] for i in intervals]).T
        axes.errorbar(
            np.arange(len(groups)) + shift,
            middle,
            yerr=error,
            color=colour,
            marker=marker,
            markersize=4.5,
            markerfacecolor="white" if name in oracles else colour,
            linestyle="none",
            elinewidth=1,
            label=name,
        )
    for edge in np.arange(len(groups) - 1) + 0.5:
        axes.axvline(edge, color="#000000", alpha=0.08, linewidth=0.8)
    axes.axvline(len(groups) - 1.5, color="#000000", linewidth=0.8)
    axes.set_xticks(np.arange(len(groups)), [group.replace(" ", "\n") for group in groups])
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.set_ylabel("MAT: committed tokens per round")
    axes.set_title("b  Committed tokens per round by domain, with 95% intervals over prompts")


def plain_text(name: str) -> str:
    """Return a legend's text: no formulas, and nothing hidden by a leading underscore."""
    return " " * name.startswith("_") + name.replace("$", r"\$")


def draw_contest(contest: Contest, path: Path) -> None:
    """Write the regret curves of a token game to `path`; its suffix chooses the format."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        count = len(contest.regret)
        figure = Figure(figsize=(7.4, max(4.4, 0.17 * count + 1)))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.1, right=0.72, top=0.93, bottom=0.11)
        dashes = {"full": "-", "bandit": "--", "none": ":"}
        ordered = sorted(contest.regret, key=lambda name: -contest.final(name).estimate)  # the legend in their order
        known = all(name in LOOKS for name in ordered)
        banded = count <= len(CYCLE)  # more bands hide the lines
        for place, name in enumerate(ordered):
            rows = contest.regret[name]
            colour = LOOKS[name][0] if known else CYCLE[place % len(CYCLE)]
            middle, low, high = mean_interval(rows)
            axes.plot(
                contest.times,
                middle,
                linestyle=dashes[contest.feedback[name]],
                color=colour,
                label=plain_text(name),
                linewidth=1.4,
                marker=MARKERS[place // len(CYCLE) % len(MARKERS)],
                markevery=(place % 5, 5),
                markersize=4,
            )
            if len(rows) > 1 and banded:
                axes.fill_between(contest.times, low, high, color=colour, alpha=0.18, linewidth=0)
        if contest.drafters > 1:
            unit = np.sqrt(contest.times * np.log(contest.drafters) / 2)
            axes.plot(contest.times, unit, color="#000000", linewidth=0.8, linestyle="-.", label="sqrt(t ln N / 2)")
        axes.set_xscale("log")
        highest = max(float(np.nanmax(rows)) for rows in contest.regret.values())
        axes.set_ylim(0.1, 2.0 * max(highest, contest.unit, 1.0))  # first: a log scale would look for positive values
        axes.set_yscale("log", nonpositive="clip")
        axes.set_xlabel("rounds t")
        axes.set_ylabel("regret to the best fixed drafter")
        late = f", delay {contest.settings['delay']}" if contest.settings["delay"] else ""
        interval = ", 95% interval" if banded and contest.settings["seeds"] > 1 else ""
        seeds = f"mean of {contest.settings['seeds']} seeds{interval}"
        axes.set_title(f"{contest.world}, N = {contest.drafters}{late}: {seeds}")
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(1.01, 1.02),
            frameon=False,
            fontsize=7.5,
            title="solid full, dashed bandit,\ndotted no feedback",
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw(comparison: Comparison, curves: Curves, path: Path) -> None:
    """Write the figure to `path`; its suffix chooses the format (.png, .pdf, .svg)."""
    # a figure of its own, not pyplot's: no global state, no display needed
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(11.5, 4.6))
        # by hand: a layout engine would draw everything twice, a third of the demo's time
        figure.subplots_adjust(left=0.05, right=0.995, top=0.94, bottom=0.19, wspace=0.12)
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.75])
        if curves.hedge_bound.any():
            _regret(left, curves, comparison.settings["objective"])
        else:
            left.set_axis_off()
            left.text(0.5, 0.5, "no token game:\none drafter, or no text of k tokens", ha="center", va="center")
        _speeds(right, comparison)
        handles, labels = right.get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=len(labels), columnspacing=1.0, handletextpad=0.2)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
