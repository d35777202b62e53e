"""Claim 4: worst-case regret against the number of drafters, with full information and by bandit feedback."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import growth
from experiments.claim import Results
from experiments.claims import scaling
from experiments.intervals import of_mean
from paper_figures import style

CLAIM = "scaling"
CAPTION = (
    "Regret of the token game against the number of drafters N. (a) Pseudo-regret in the world that is worst for "
    "the learner at that N: losses 0 or 1 of mean 1/2, one drafter better by a gap from one grid; the gap is chosen "
    "on other seeds (12 up to N = 64, 8 up to 256, then 4) than those shown (16 to 64 a point at full size); bands "
    "are 95% Student intervals over seeds. Hollow: on the choosing seeds more than 0.75 of the regret of learning "
    "nothing, or a worst gap at an end of the grid; such points are in no fit. Lines in grey: the laws sqrt(N), "
    "dashed, and sqrt(ln N), dotted, through MOSS and fixed-rate Hedge. (b) A gap of 0.2 at every N, 24 seeds. (c) "
    "Exponents of N from N = 8 on, 95% bootstrap intervals over seeds at each N, each alone; vertical ticks mark "
    "the mean slope of the learner's own theorem on the same points. A learner without interval has fewer than four "
    "points to fit."
)
ORDER = (*scaling.FULL, *scaling.BANDIT)
_OWN = {
    "hedge-fixed": {"color": "#003D5C", "marker": "v"},
    "tsallis-inf": {"color": "#7F3B08", "marker": "p"},
}


def _look(name: str) -> dict[str, Any]:
    return _OWN.get(name) or style.look(name)


def _envelopes(axes: Any, found: dict[str, scaling.Curve]) -> None:
    for name, each in found.items():
        intervals = [of_mean(score) for score in each.scores]
        line = "-" if name in scaling.FULL else "--"
        look = _look(name)
        style.band(axes, each.drafters, intervals, color=look["color"], linestyle=line, linewidth=0.9)
        for which, face in ((each.learnt, look["color"]), (~each.learnt, "white")):
            axes.plot(
                each.drafters[which], each.means[which], linestyle="none", markerfacecolor=face, markersize=3.5, **look
            )
    for name, law, dashes in (("moss", "sqrt_n", (0, (5, 3))), ("hedge-fixed", "sqrt_log_n", (0, (1, 1.5)))):
        fitted = found[name].fitted
        n = fitted.drafters
        if len(n) < 2:
            continue
        dense = np.unique(np.geomspace(n[0], n[-1] * 2, 40).round())
        scale = float(growth.scale(growth.law(law, n), fitted.means, fitted.variances))
        axes.plot(dense, scale * growth.law(law, dense), color="#555555", linestyle=dashes, linewidth=1.6, zorder=5)
        label = "$\\sqrt{N}$" if law == "sqrt_n" else "$\\sqrt{\\ln N}$"
        axes.annotate(
            label,
            (dense[-1], scale * growth.law(law, dense[-1:])[0]),
            xytext=(0, -4),
            textcoords="offset points",
            va="top",
            color="#333333",
            annotation_clip=False,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("drafters N")
    axes.set_ylabel("pseudo-regret in the worst world")
    axes.set_title("a  Worst case at each N")


def _fixed(axes: Any, results: Results) -> None:
    for name in (*scaling.FIXED_BANDIT, *scaling.FIXED_FULL):
        curve, look = scaling.fixed(results, name), _look(name)
        style.band(axes, curve.drafters, [of_mean(score) for score in curve.scores], **look)
        axes.annotate(
            name,
            (curve.drafters[-1], curve.means[-1]),
            xytext=(4, -5 if name == "normalhedge" else 2),
            textcoords="offset points",
            va="center",
            color=look["color"],
            fontsize=7,
            annotation_clip=False,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * 6)
    axes.set_xlabel("drafters N")
    axes.set_ylabel("pseudo-regret, gap 0.2")
    axes.set_title("b  The same gap at every N")


def _exponents(axes: Any, found: dict[str, scaling.Curve]) -> None:
    for place, name in enumerate(reversed(ORDER)):
        interval = found[name].fitted.exponent()
        if not np.isnan(interval.estimate):
            bars = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
            axes.errorbar([interval.estimate], [place], xerr=bars, capsize=2, linestyle="none", **_look(name))
            law = interval.estimate - found[name].fitted.exponent(scaling.THEOREM[name]).estimate
            axes.plot([law], [place], marker="|", color="black", markersize=10, markeredgewidth=1.2)
        else:
            axes.text(0.02, place, "too few points learnt", fontsize=6.5, va="center", color="#555555")
    for value in (0.0, 0.5, 1.0):
        axes.axvline(value, color="#BBBBBB", linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(ORDER)), reversed(ORDER))
    axes.axhline(len(scaling.BANDIT) - 0.5, color="#BBBBBB", linewidth=0.8, linestyle=":")
    axes.set_xlim(min(-0.15, axes.get_xlim()[0]), max(1.05, axes.get_xlim()[1]))
    axes.set_xlabel("exponent of N")
    axes.set_title("c  Exponents")


@style.styled
def draw(results: Results) -> Any:
    """Return the figure."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    found = {name: scaling.envelope(results, name) for name in ORDER}
    figure = Figure(figsize=(style.WIDE, 3.3))
    axes = figure.subplots(1, 3, width_ratios=[1.45, 1.0, 1.0])
    _envelopes(axes[0], found)
    _fixed(axes[1], results)
    _exponents(axes[2], found)
    handles = [
        Line2D([], [], linestyle="-" if name in scaling.FULL else "--", label=name, linewidth=1, **_look(name))
        for name in ORDER
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, columnspacing=1.2)
    return figure
