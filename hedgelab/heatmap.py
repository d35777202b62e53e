"""The acceptance matrix as a heat map: specialists in the order of the domains, so that a diagonal shows as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hedgelab.figure import STYLE, plain_text
from hedgelab.matrix import AcceptanceMatrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

__all__ = ["draw_matrix"]

_GAP = 0.3  # rows of space between families
_ROW, _COLUMN = 0.23, 0.97  # inches
_COLOURS = "Blues"  # one hue, its lightness falls all the way: readable in grey
_DARKEST = 0.88  # of the colour map: text on it stays readable


def _places(matrix: AcceptanceMatrix) -> NDArray[np.float64]:
    """Return (N,) the height of each row of `matrix.order`, from 0 at the top, with a gap between families."""
    families = [matrix.families[i] for i in matrix.order]
    breaks = [0, *(families[r] != families[r - 1] for r in range(1, len(families)))]
    return np.arange(len(families)) + _GAP * np.cumsum(breaks)


def _cells(axes: Axes, matrix: AcceptanceMatrix, of: str, heights: NDArray[np.float64], shaded: ScalarMappable) -> None:
    from matplotlib.patches import Rectangle

    ratios = matrix.ratios(of)
    best = ratios.estimate.max(axis=0)
    for height, i in zip(heights, matrix.order, strict=True):
        for d in range(len(matrix.domains)):
            interval = ratios.cell(i, d)
            colour = shaded.to_rgba(ratios.estimate[i : i + 1, d])[0]
            axes.add_patch(Rectangle((d, height), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.6))
            if matrix.is_home(i, d):
                frame = Rectangle((d + 0.03, height + 0.06), 0.94, 0.88, fill=False, edgecolor="black", linewidth=1.1)
                axes.add_patch(frame)
            ink = "white" if np.dot(colour[:3], (0.299, 0.587, 0.114)) < 0.55 else "black"
            middle = height + 0.52
            axes.text(d + 0.49, middle, f"{interval.estimate:.2f}", color=ink, fontsize=7.5, ha="right", va="center")
            if not np.isnan(interval.low):
                half = f"±{(interval.high - interval.low) / 2:.2f}"
                axes.text(d + 0.53, middle, half, color=ink, fontsize=7, ha="left", va="center", alpha=0.8)
            if interval.estimate == best[d]:
                axes.plot(d + 0.1, middle, marker="<", markersize=3.5, color=ink, markeredgewidth=0)


def _labels(axes: Axes, matrix: AcceptanceMatrix, heights: NDArray[np.float64]) -> None:
    columns = len(matrix.domains)
    axes.set_xlim(0, columns)
    axes.set_ylim(heights[-1] + 1, 0)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=7.5)
    axes.xaxis.tick_top()
    heads = [
        f"{plain_text(domain)}\n{count} prompt{'s' if count > 1 else ''}"
        for domain, count in zip(matrix.domains, matrix.prompts, strict=True)
    ]
    axes.set_xticks(np.arange(columns) + 0.5, heads)
    axes.set_yticks(heights + 0.5, [plain_text(matrix.drafters[i]) for i in matrix.order])
    rows: dict[str, list[float]] = {}
    for height, i in zip(heights, matrix.order, strict=True):
        rows.setdefault(matrix.families[i], []).append(height)
    for family, places in rows.items():
        middle = (places[0] + places[-1] + 1) / 2
        ends = [places[0] + 0.1, places[-1] + 0.9]
        axes.plot([columns + 0.05] * 2, ends, color="#888888", linewidth=0.8, clip_on=False)
        axes.text(columns + 0.1, middle, plain_text(family), fontsize=7, va="center", color="#444444")


def draw_matrix(matrix: AcceptanceMatrix, path: Path, of: str = "mat") -> None:
    """Write the heat map of `of` ("mat" or "acceptance") to `path`; its suffix chooses the format.

    Rows are drafters, grouped by family; columns domains. A cell holds the value and half of its 95% interval over
    prompts. Outlined: a specialist at home. Triangle: the largest value of the column. ValueError for another `of`.
    """
    from matplotlib import colormaps, rc_context
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure

    values = matrix.ratios(of).estimate
    heights = _places(matrix)
    columns = len(matrix.domains)
    with rc_context(STYLE):
        longest = max(len(name) for name in matrix.drafters)
        left, right = 0.25 + 0.062 * longest, 0.3 + 0.062 * max(len(name) for name in matrix.families)
        above, below = 0.75, 0.62
        wide, high = columns * _COLUMN, (heights[-1] + 1) * _ROW
        size = (max(left + wide + right, 5.6), above + high + below)
        figure = Figure(figsize=size)
        axes = figure.add_axes((left / size[0], below / size[1], wide / size[0], high / size[1]))
        shades = colormaps[_COLOURS](np.linspace(0.0, _DARKEST, 256))
        colours = LinearSegmentedColormap.from_list(_COLOURS, list(shades))
        lowest = 1.0 if of == "mat" else 0.0
        scale = Normalize(lowest, max(float(values.max()), lowest + 0.1))
        shaded = ScalarMappable(scale, colours)
        _cells(axes, matrix, of, heights, shaded)
        _labels(axes, matrix, heights)
        top = 1 - 0.2 / size[1]
        title = f"{plain_text(matrix.trace)}: {matrix.subject(of)}"
        figure.text(0.08 / size[0], top, title, fontsize=9, va="center")
        note = "± half of the 95% interval over prompts; outlined: a specialist at home; triangle: best of its domain"
        figure.text(0.08 / size[0], 0.1 / size[1], note, fontsize=7, va="bottom", color="#444444")
        bar = figure.add_axes((left / size[0], 0.42 / size[1], min(wide, 3.0) / size[0], 0.08 / size[1]))
        figure.colorbar(shaded, cax=bar, orientation="horizontal").outline.set_visible(False)
        bar.tick_params(labelsize=7, length=2, pad=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
