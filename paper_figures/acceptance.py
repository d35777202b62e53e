"""Figure: acceptance of a first draft by drafter and domain, and whether recorded alphas have the mean gamma."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.claim import Result, Results
from experiments.claims import acceptance
from experiments.recordings import sampled
from experiments.texts import Texts
from hedgelab.figure import plain_text
from paper_figures import style

__all__ = ["CAPTION", "CLAIM", "draw"]

CLAIM = "acceptance"
CAPTION = (
    "(a) Acceptance of a first draft, the mean of gamma over all rows, by drafter and domain: bundled trace at "
    "temperature 0.6, 20 prompts a domain, ± half of the 95% bootstrap interval over prompts; darker is more, the best "
    "of each domain underlined. (b) Mean of alpha minus mean of gamma by kind of drafter at temperatures 0.6 (140 "
    "prompts) and 1 (70 prompts): the claim asks for 0; bars are 95% bootstrap intervals over prompts, each alone, of "
    "kinds that share their texts; the grey band is what the claim's rule allows. (c) Mean alpha in ten bins of gamma, "
    "all drafters of a kind together, temperature 0.6, with 95% intervals: a calibrated record lies on the diagonal."
)

_GAP = 0.35  # rows between kinds


def _cells(result: Result, domains: tuple[str, ...]) -> NDArray[np.float64]:
    """Return (N, domains, 2): mean gamma and half of its 95% interval, each domain's prompts resampled on their own."""
    arrays, texts = result.arrays, Texts(result.arrays)
    found = [[texts.ratio(column, arrays["rows"], domain) for domain in domains] for column in arrays["gamma"].T]
    return np.array([[(each.estimate, (each.high - each.low) / 2) for each in row] for row in found])


def _heat(axes: Any, result: Result) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    kinds, domains = result.arrays["kinds"].tolist(), Texts(result.arrays).groups[:-1]
    cells = _cells(result, domains)
    order = sorted(range(len(kinds)), key=lambda i: kinds.index(kinds[i]))
    breaks = np.cumsum([0, *(kinds[a] != kinds[b] for a, b in itertools.pairwise(order))])
    heights = np.arange(len(order)) + _GAP * breaks
    best = cells[:, :, 0].max(axis=0)
    for height, i in zip(heights, order, strict=True):
        for d, (value, half) in enumerate(cells[i]):
            colour = colormaps["Blues"](0.88 * value)
            ink = "white" if np.dot(colour[:3], (0.299, 0.587, 0.114)) < 0.55 else "black"
            axes.add_patch(Rectangle((d, height), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.5))
            text = f"{value:.2f} ±{half:.2f}".replace("±0.", "±.")
            axes.text(d + 0.5, height + 0.52, text, color=ink, fontsize=5.2, ha="center", va="center")
            if value == best[d]:
                axes.plot([d + 0.08, d + 0.92], [height + 0.92] * 2, color=ink, linewidth=0.9, solid_capstyle="butt")
    axes.set_xlim(0, len(domains))
    axes.set_ylim(heights[-1] + 1, 0)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=5.6, pad=1.5)
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(len(domains)) + 0.5, [plain_text(name) for name in domains], fontsize=6.5)
    names = result.arrays["drafters"]
    axes.set_yticks(heights + 0.5, [plain_text(str(names[i])) for i in order])
    for kind in dict.fromkeys(kinds):
        places = [height for height, i in zip(heights, order, strict=True) if kinds[i] == kind]
        axes.plot(
            [len(domains) + 0.06] * 2, [places[0] + 0.1, places[-1] + 0.9], color="#888888", clip_on=False, lw=0.8
        )
        middle = (places[0] + places[-1] + 1) / 2
        axes.text(len(domains) + 0.12, middle, plain_text(kind), fontsize=6, va="center", color="#444444")
    axes.set_title("a  Acceptance of a first draft", pad=10)


def _differences(axes: Any, traces: Results) -> None:
    kinds = list(dict.fromkeys(kind for result in traces for kind in result.arrays["kinds"].tolist()))
    limit = acceptance.TOLERANCE
    axes.axvspan(-limit, limit, color="#000000", alpha=0.06, linewidth=0)
    axes.axvline(0, color="#000000", linewidth=0.7)
    shifts = np.linspace(-0.17, 0.17, len(traces)) if len(traces) > 1 else np.zeros(1)
    for j, (shift, result) in enumerate(zip(shifts, traces, strict=True)):
        found = acceptance.differences(result.arrays)
        rows = np.array([found[kind] for kind in kinds if kind in found])
        places = np.array([k for k, kind in enumerate(kinds) if kind in found]) + shift
        label = f"temperature {float(result.arrays['temperature']):g}"
        axes.errorbar(
            rows[:, 0],
            places,
            xerr=np.maximum([rows[:, 0] - rows[:, 1], rows[:, 2] - rows[:, 0]], 0),
            label=label,
            linestyle="none",
            capsize=1.5,
            **style.look(label, j),
        )
    axes.set_yticks(range(len(kinds)), [plain_text(kind) for kind in kinds])
    axes.set_ylim(len(kinds) - 0.4, -0.6)
    axes.set_xlabel("mean alpha - mean gamma")
    axes.set_title("b  Is gamma the mean of alpha?")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2, handletextpad=0.3, columnspacing=1, borderpad=0)


def _curves(axes: Any, result: Result) -> None:
    axes.plot([0, 1], [0, 1], color="#000000", linewidth=0.7)
    for j, (kind, points) in enumerate(acceptance.reliability(result.arrays).items()):
        if points:
            gammas, alphas = zip(*points, strict=True)
            style.points(axes, gammas, alphas, label=plain_text(kind), **style.look(kind, j), markersize=3, capsize=1)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_xlabel("gamma, by bins")
    axes.set_ylabel("mean alpha")
    axes.set_title("c  Calibration")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=6.5, handletextpad=0.2, labelspacing=0.35)


@style.styled
def draw(results: Results) -> Any:
    """Return the figure; heat map and calibration of the calibrated trace."""
    from matplotlib.figure import Figure

    traces = sampled(results)
    shown = next((each for each in traces if each.setting["calibrate"]), traces[0])
    rows = len(shown.arrays["drafters"])
    high = 0.12 * (rows + 4 + _GAP * 10)
    figure = Figure(figsize=(style.WIDE, high + 2.7))
    above, below = list(figure.subfigures(2, 1, height_ratios=[high, 2.7]))  # type: ignore[arg-type]
    _heat(above.subplots(), shown)
    left, right = below.subplots(1, 2, width_ratios=[1.15, 1])
    _differences(left, traces)
    _curves(right, shown)
    return figure
