"""The style of all figures: that of `hedgelab demo`, one look a policy, intervals always."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import ArrayLike

from experiments.claim import Results
from hedgelab.figure import CYCLE, LOOKS, STYLE
from hedgelab.regret import Interval

__all__ = ["WIDE", "band", "look", "points", "styled", "used"]

WIDE = 7.2  # inches: two columns of a page

# further policies, by colour and marker; a policy looks the same in every figure
_LOOKS: dict[str, tuple[str, str]] = LOOKS | {
    "adahedge": ("#0072B2", "s"),
    "adanormalhedge": ("#009E73", "^"),
    "squint": ("#CC79A7", "o"),
    "fixed-share": ("#8C510A", "o"),
    "optimistic-hedge": ("#56B4E9", "P"),
    "exp3spec": ("#E69F00", "^"),
    "ucbspec": ("#D55E00", "P"),
    "ucb-tuned": ("#B2182B", "X"),
    "metasd": ("#A6761D", "d"),
    "moss": ("#D55E00", "s"),
    "thompson-beta": ("#E69F00", "h"),
    "explore-then-commit": ("#7F7F7F", "*"),
}
_MARKERS = "osD^v<>PXdh*"


@contextmanager
def used() -> Iterator[None]:
    """Set matplotlib to the style of the figures in a block, whatever it was set to before."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE | {"figure.constrained_layout.use": True})
        mpl.rcParams.update({"lines.markersize": 4, "lines.linewidth": 1.3})
        yield


def styled(draw: Callable[[Results], Any]) -> Callable[[Results], Any]:
    """Make a figure's function draw in this style."""

    @functools.wraps(draw)
    def drawn(results: Results) -> Any:
        with used():
            return draw(results)

    return drawn


def look(policy: str, index: int = 0) -> dict[str, Any]:
    """Return colour and marker of a policy; of one that has none of its own, the cycle's by `index`."""
    lap, place = divmod(index, len(CYCLE))  # in a second lap other markers
    colour, marker = _LOOKS.get(policy, (CYCLE[place], _MARKERS[(place + lap) % len(_MARKERS)]))
    return {"color": colour, "marker": marker}


def band(axes: Any, x: ArrayLike, intervals: Sequence[Interval], label: str | None = None, **looks: Any) -> None:
    """Draw a line of estimates, their intervals as a band."""
    rows = np.array(intervals, np.float64)
    (line,) = axes.plot(x, rows[:, 0], label=label, **looks)
    axes.fill_between(x, rows[:, 1], rows[:, 2], color=line.get_color(), alpha=0.18, linewidth=0)


def points(axes: Any, x: ArrayLike, intervals: Sequence[Interval], label: str | None = None, **looks: Any) -> None:
    """Draw estimates, their intervals as bars."""
    rows = np.array(intervals, np.float64)
    reach = np.maximum([rows[:, 0] - rows[:, 1], rows[:, 2] - rows[:, 0]], 0)
    axes.errorbar(x, rows[:, 0], yerr=reach, label=label, **{"linestyle": "none", "capsize": 2} | looks)
