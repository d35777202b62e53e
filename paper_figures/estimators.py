"""Figure: bias, spread and cost in drafters of estimates of a round's committed length."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.claim import Result, Results
from experiments.claims import length
from experiments.intervals import of_mean
from experiments.recordings import sampled
from hedgelab.figure import plain_text
from paper_figures import style

__all__ = ["CAPTION", "CLAIM", "draw"]

CLAIM = "length"
CAPTION = (
    "Estimators of the expected committed length from one verified path: A plug-in (as published), B realised, C "
    "Rao-Blackwell. (a) Bias of A, exact: dots are drafters of random token worlds, the line a world where the "
    "first acceptance decides all; B and C are exact in each. (b) Mean of A - B on recorded text, k = 5, by kind of "
    "drafter (t06: temperature 0.6, 140 prompts; t10: temperature 1, 70 prompts): 95% bootstrap intervals over "
    "prompts, each alone; the grey band is 0.05 tokens; greedy text has no bias (shown where A is defined). (c) "
    "Variance of one drafter's loss against the number of drafters, log scales: full information (B) and importance "
    "weighting; means over 8 draws of pools, bands are 95% Student intervals over these draws, not over prompts. "
    "(d) Standard deviation of A, B and C within domains at temperature 0.6, k = 5, with 95% intervals over 140 "
    "prompts; A is missing where gamma is unknown off the path."
)

_NAMES = {"A": "A plug-in", "B": "B realised", "C": "C Rao-Blackwell"}
_COLOURS = {"A": ("#D55E00", "s"), "B": ("#0072B2", "o"), "C": ("#009E73", "D")}


def _look(name: str) -> dict[str, str]:
    return dict(zip(("color", "marker"), _COLOURS[name], strict=True))


def _worlds(axes: Any, results: Results) -> None:
    axes.axhline(0, color="#000000", linewidth=0.7)
    rng = np.random.default_rng(0)  # spreads the dots alone
    label: str | None = "random worlds"
    for each in results.where(part="worlds"):
        error = each.arrays["mean"][:, 0] - each.arrays["true"]
        for k in range(error.shape[-1]):
            values = error[:, :, k].ravel()
            values = values[~np.isnan(values)]
            x = k + 1 + rng.uniform(-0.22, 0.22, len(values))
            axes.plot(x, values, ".", color="#777777", markersize=2, alpha=0.6, label=label)
            label = None
    for each in results.where(part="made worlds"):
        i = int(np.flatnonzero(each.arrays["names"] == "accepting for ever")[0])
        error = each.arrays["mean"][i, 0, 0] - each.arrays["true"][i, 0]
        axes.plot(np.arange(1, len(error) + 1), error, label="accepting for ever", **_look("A"))
    axes.set_xlabel("draft length k")
    axes.set_ylabel("bias of A, tokens a round")
    axes.set_title("a  Bias in worlds, exact")
    axes.set_ylim(top=1.35)
    axes.legend(loc="upper left", handletextpad=0.3, borderpad=0.1)


def _texts(axes: Any, results: Results) -> None:
    traces = list(results.where(part="trace"))
    found = [
        {kind: bias() for kind, bias in length.biases(each.arrays, "A", int(each.arrays["focus"])).items()}
        for each in traces
    ]
    kinds = list(dict.fromkeys(kind for each in found for kind in each))
    limit = length.TOLERANCE
    axes.axvspan(-limit, limit, color="#000000", alpha=0.06, linewidth=0)
    axes.axvline(0, color="#000000", linewidth=0.7)
    for j, (shift, each, intervals) in enumerate(
        zip(np.linspace(-0.25, 0.25, len(traces)), traces, found, strict=True)
    ):
        rows = np.array([intervals[kind] for kind in kinds if kind in intervals])
        places = np.array([p for p, kind in enumerate(kinds) if kind in intervals]) + shift
        name = str(each.setting["trace"])
        reach = np.maximum([rows[:, 0] - rows[:, 1], rows[:, 2] - rows[:, 0]], 0)
        look = style.look(name, j)
        axes.errorbar(rows[:, 0], places, xerr=reach, label=name, linestyle="none", capsize=1.5, markersize=3, **look)
    axes.set_yticks(range(len(kinds)), [plain_text(kind) for kind in kinds])
    axes.set_ylim(len(kinds) - 0.4, -0.6)
    axes.set_xlabel("mean of A - B, tokens a round")
    axes.set_title("b  Bias on recorded text")
    axes.legend(loc="upper left", bbox_to_anchor=(0.58, 1.0), handletextpad=0.2, borderpad=0.2)


_CURVES: dict[str, tuple[str, str, Any]] = {
    "full": ("full information", "#0072B2", "-"),
    "uniform": ("bandit, uniform play", "#D55E00", "-"),
    "own": ("bandit, EXP3Spec", "#000000", ":"),
}


def _growth(axes: Any, results: Results) -> None:
    markers = iter("os^v")
    sources: dict[str, str] = {}
    for (source, kind), (sizes, variances) in length.growths(results).items():
        sources.setdefault(source, next(markers, "x"))
        _, colour, line = _CURVES[kind]
        marker = "" if kind == "own" else sources[source]  # on top of uniform play's line
        looks: dict[str, Any] = {
            "color": colour,
            "linestyle": line,
            "marker": marker,
            "markersize": 3,
            "linewidth": 1.0,
        }
        style.band(axes, sizes, [of_mean(column) for column in variances.T], **looks)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_yscale("log")
    axes.set_xlabel("number of drafters N")
    axes.set_ylabel("variance, tokens squared")
    axes.set_title("c  Variance and N")
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, linestyle=line, label=name) for name, colour, line in _CURVES.values()]
    handles += [
        Line2D([], [], color="#555555", marker=marker, linestyle="none", label=source, markersize=3)
        for source, marker in sources.items()
    ]
    axes.legend(handles=handles, loc="upper left", fontsize=6, labelspacing=0.25, handlelength=1.6, borderpad=0.1)


def _spreads(axes: Any, result: Result) -> None:
    arrays = result.arrays
    found = length.deviations(arrays)
    kinds, names = arrays["kinds"].tolist(), [str(name) for name in arrays["drafters"]]
    order = sorted(range(len(names)), key=lambda i: kinds.index(kinds[i]))
    for (name, label), shift in zip(_NAMES.items(), (-0.22, 0.0, 0.22), strict=True):
        here = [place for place, i in enumerate(order) if names[i] in found[name]]
        intervals = [found[name][names[order[place]]] for place in here]
        looks = _look(name) | {"markersize": 2.6, "capsize": 0, "elinewidth": 0.8}
        style.points(axes, np.array(here) + shift, intervals, label=label, **looks)
    for place in range(1, len(order)):
        if kinds[order[place]] != kinds[order[place - 1]]:
            axes.axvline(place - 0.5, color="#000000", alpha=0.15, linewidth=0.7)
    axes.set_xticks(range(len(order)), [plain_text(names[i]) for i in order], rotation=90, fontsize=5.8)
    axes.set_xlim(-0.6, len(order) - 0.4)
    axes.set_ylim(0, None)
    axes.set_ylabel("standard deviation, tokens")
    axes.set_title(f"d  Spread within domains, {result.setting['trace']}")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3, handletextpad=0.2, columnspacing=1.2)


@style.styled
def draw(results: Results) -> Any:
    """Return the figure; spreads of the first sampled trace."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(style.WIDE, 5.6))
    above, below = list(figure.subfigures(2, 1, height_ratios=[2.5, 3.1]))  # type: ignore[arg-type]
    one, two, three = above.subplots(1, 3, width_ratios=[1, 1.05, 1.1])
    _worlds(one, results)
    _texts(two, results)
    _growth(three, results)
    _spreads(below.subplots(), sampled(results)[0])
    return figure
