"""Figure of claim 3: regret per token against T in the token game, and beside it rounds of decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import hedgelab as hl
from experiments.claim import Results
from experiments.claims.no_regret import POLICIES, PROTOCOLS, decoded, interval, regrets, spread, unit
from paper_figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "no_regret"
CAPTION = (
    "Regret per token against the number of tokens T in the token game, and rounds of decoding beside it. (a, b) "
    "Streams of real prompts, length and acceptance loss, no delay; the prompts come again and again, and each of the "
    "8 streams draws from its own bootstrap resample of them within domains: bands are 95% Student intervals over "
    "these resamples. (c) The greedy adversary and (d) fair coins, N = 16, 10 seeds, 95% Student intervals. Dashed: "
    "Hedge's anytime bound sqrt(ln N / T); dotted in (d): the expected regret of every algorithm. (e) The decode loop, "
    "length loss, k = 5: token-game regret per token with the loop's delays, against rounds above the best fixed "
    "drafter's, with 95% percentile intervals over prompts (bootstrap within domains); hollow: started afresh for each "
    "query, to its own best drafter; filled: carried over all prompts, to the best over all. Bands that "
    "reach below zero are cut there. All five learners fall like T^(-1/2) against the adversary and like 1 / T on real "
    "streams, where one drafter leads for good; small regret in the token game goes with few rounds, but is not the "
    "same number."
)


def _curves(axes: Any, results: Results, title: str, drafters: int, **setting: str) -> None:
    found = regrets(results, **setting)
    for place, name in enumerate(reversed(POLICIES)):
        result = found[name]
        late = result.arrays["times"] >= 10
        times, intervals = result.arrays["times"][late], np.array(spread(result))[late]
        line = ":" if name == "uniform" else "-"
        every = (place, len(POLICIES) + 2)
        style.band(axes, times, intervals.tolist(), linestyle=line, markevery=every, markersize=3.5, **style.look(name))
    bound = np.sqrt(2) * unit(times, drafters) / times
    axes.plot(times, bound, color="black", linestyle="--", linewidth=1)
    axes.set(xscale="log", title=title, xlim=(10, times[-1] * 1.15))
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(bound[-1] / (100 if setting["kind"] == "stream" else 8), 1.2)


def _decoding(axes: Any, results: Results) -> None:
    data = decoded(results, "length")
    zoom = axes.inset_axes([0.12, 0.52, 0.42, 0.38])
    for protocol in PROTOCOLS:
        regret, excess = data.regret(protocol), 100 * data.excess_rounds(protocol)
        for i, name in enumerate(POLICIES):
            x, y = interval(regret[:, i]), interval(excess[:, i])
            looks = style.look(name)
            for panel in (axes, zoom) if protocol == "stream" and name != "uniform" else (axes,):
                panel.errorbar(
                    x.estimate,
                    y.estimate,
                    xerr=[[max(x.estimate - x.low, 0)], [max(x.high - x.estimate, 0)]],
                    yerr=[[max(y.estimate - y.low, 0)], [max(y.high - y.estimate, 0)]],
                    markerfacecolor="white" if protocol == "query" else looks["color"],
                    elinewidth=0.8,
                    **looks,
                )
    for panel in (axes, zoom):
        panel.axhline(0, color="black", linewidth=0.5, zorder=0)
        panel.axvline(0, color="black", linewidth=0.5, zorder=0)
    zoom.tick_params(labelsize=6)
    zoom.locator_params(nbins=4)
    zoom.set_title("carried over, closer", fontsize=6.5)
    axes.set(
        title="e  Decode rounds beside the token game",
        xlabel="token-game regret per token (length loss)",
        ylabel="rounds above the best\nfixed drafter's (%)",
    )
    hollow, filled = (axes.plot([], [], "o", color="black", markerfacecolor=face)[0] for face in ("white", "black"))
    axes.legend([hollow, filled], ["afresh for each query", "carried over"], loc="lower right", fontsize=6.5)


def draw(results: Results) -> Figure:
    """Return the figure of `CAPTION`."""
    from matplotlib.figure import Figure

    style.use()
    figure = Figure(figsize=(style.WIDE, 5.2))
    grid = figure.add_gridspec(2, 6)
    top = [figure.add_subplot(grid[0, 2 * i : 2 * i + 2]) for i in range(3)]
    coins, decoding = figure.add_subplot(grid[1, :2]), figure.add_subplot(grid[1, 2:])
    stream = regrets(results, kind="stream", objective="length")["hedge"]
    n = int(stream.arrays["drafters"])
    _curves(top[0], results, "a  Real prompts, length", n, kind="stream", objective="length")
    _curves(top[1], results, "b  Real prompts, acceptance", n, kind="stream", objective="acceptance")
    for axes, title, world in ((top[2], "c  Greedy adversary", "greedy"), (coins, "d  Fair coins", "fair-coins")):
        found = regrets(results, kind="long", world=world)
        _curves(axes, results, title, int(found["hedge"].arrays["drafters"]), kind="long", world=world)
    times, drafters = found["hedge"].arrays["times"], int(found["hedge"].arrays["drafters"])
    known = [hl.bounds.fair_coins(int(t), drafters) / t for t in times]
    coins.plot(times, known, color="black", linestyle=(0, (1, 1)), linewidth=1.6)
    _decoding(decoding, results)
    for axes in (top[0], coins):
        axes.set_ylabel("regret per token")
    for axes in (*top, coins):
        axes.set_xlabel("tokens T" if axes in top[:2] else "rounds T")
    looks: dict[str, dict[str, Any]] = {name: {**style.look(name)} for name in POLICIES}
    looks["Hedge's bound"] = {"color": "black", "linestyle": "--"}
    looks["every algorithm (d)"] = {"color": "black", "linestyle": ":"}
    handles = [decoding.plot([], [], **look)[0] for look in looks.values()]
    figure.legend(handles, list(looks), loc="outside lower center", ncols=5, columnspacing=1.2, fontsize=7)
    return figure
