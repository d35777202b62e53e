"""Figure of claim 5: regret against delay in worlds, against draft length on real text, and MAT by kind of feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.claim import Results
from experiments.claims.delay import KS, difference, growth, late_regret
from experiments.texts import Texts
from paper_figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "delay"
CAPTION = (
    "What late losses cost. (a, b) Regret after T rounds against a constant delay d, N = 16: the adversary that "
    "repeats each choice for d + 1 rounds, and a world with one drafter better by 0.1; means of 16 seeds with 95% "
    "Student intervals. Dashed: bound of Hedge on stale weights, dash-dotted: of BOLD, both with rates tuned to d. "
    "(c) Real prompts, length loss: regret of the token game within a query, in tokens per play, against draft length "
    "k, with no delay, with the delays of the learner's own decode run (queue, BOLD), and held back to 2k - 1 "
    "(padded). (d) MAT of the decode loop minus that with delayed losses, k = 5, NormalHedge, by domain, paired. (c) "
    "and (d): 95% percentile intervals over prompts (bootstrap within domains). Against the adversary regret grows "
    "like sqrt(1 + d) unless the learner is told of other weights than those played, or has a rate tuned without the "
    "delay; in an easy world the copies of BOLD, and rates tuned to the delay, cost more than the delay itself."
)
_LINES = {
    "stale hedge": ("hedge, rate for d", "#0072B2", "o"),
    "bold hedge": ("BOLD over hedge", "#56B4E9", "s"),
    "normalhedge": ("normalhedge", "#009E73", "D"),
    "bold normalhedge": ("BOLD over normalhedge", "#8C510A", "^"),
    "hedge tuned without delay": ("hedge, rate for d = 0", "#D55E00", "X"),
    "normalhedge, own weights": ("normalhedge, own weights", "#CC79A7", "v"),
}
_LATE = {
    "none": ("no delay", "#000000", "o"),
    "queue": ("queue", "#009E73", "D"),
    "bold": ("BOLD", "#8C510A", "^"),
    "padded": ("padded", "#E69F00", "s"),
}
_MODES = {"padded": ("#E69F00", "s"), "censored": ("#CC79A7", "v"), "round starts": ("#0072B2", "P")}


def _growth(axes: Any, results: Results, world: str, title: str) -> None:
    for policy, (label, colour, marker) in _LINES.items():
        late, intervals, bound = growth(results, world, policy)
        style.band(axes, late, intervals, label=label, color=colour, marker=marker)
        if policy in ("stale hedge", "bold hedge"):
            axes.plot(late, bound, color=colour, linewidth=1, linestyle="--" if policy == "stale hedge" else "-.")
    axes.set(xscale="log", yscale="log", title=title, xlabel="1 + delay (rounds)", ylabel="regret")


def _real(axes: Any, results: Results) -> None:
    for j, (how, (label, colour, marker)) in enumerate(_LATE.items()):
        intervals = [late_regret(results, k, "normalhedge", how) for k in KS]
        place = np.array(KS) + 0.08 * (j - 1.5)
        style.points(axes, place, intervals, label=label, color=colour, marker=marker, linestyle="-", linewidth=0.8)
    axes.set(title="c  Real, normalhedge", xlabel="draft length k", ylabel="regret per play (tokens)")
    axes.set_xticks(KS)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", fontsize=6.5)


def _feedback(axes: Any, results: Results) -> None:
    result = results.one(kind="feedback", learner="normalhedge")
    groups = Texts(result.arrays).groups
    for j, (mode, (colour, marker)) in enumerate(_MODES.items()):
        intervals = [difference(result, mode, "delayed", group) for group in groups]
        place = np.arange(len(groups)) + 0.2 * (j - 1)
        style.points(axes, place, intervals, label=mode, color=colour, marker=marker)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.axvline(len(groups) - 1.5, color="black", linewidth=0.6)
    axes.set_xticks(np.arange(len(groups)), [name.replace(" ", "\n") for name in groups])
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
    axes.set(title="d  MAT beside delayed losses, normalhedge", ylabel="difference of MAT\n(tokens per round)")
    axes.legend(loc="upper right", bbox_to_anchor=(0.86, 1.0), fontsize=6.5, ncols=3)


@style.styled
def draw(results: Results) -> Figure:
    """Return the figure of `CAPTION`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(style.WIDE, 5.2))
    grid = figure.add_gridspec(2, 3)
    block, gap, real = (figure.add_subplot(grid[0, i]) for i in range(3))
    _growth(block, results, "block", "a  Adversary of blocks")
    _growth(gap, results, "gap", "b  One better by 0.1")
    _real(real, results)
    _feedback(figure.add_subplot(grid[1, :]), results)
    looks: dict[str, dict[str, Any]] = {
        label: {"color": colour, "marker": marker} for label, colour, marker in _LINES.values()
    }
    looks["bound, rate for d"] = {"color": _LINES["stale hedge"][1], "linestyle": "--"}
    looks["bound of BOLD"] = {"color": _LINES["bold hedge"][1], "linestyle": "-."}
    handles = [gap.plot([], [], **look)[0] for look in looks.values()]
    figure.legend(handles, [f"{label} (a, b)" for label in looks], loc="outside lower center", ncols=4, fontsize=6.5)
    return figure
