"""Figure of claim 3: regret per token against T in the token game, and beside it rounds of decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import hedgelab as hl
from experiments.claim import Results
from experiments.claims.no_regret import POLICIES, POOLS, PROTOCOLS, decoded, pools, regrets, spread, unit
from paper_figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "no_regret"
CAPTION = (
    "Regret per token against the number of tokens T in the token game, and rounds of decoding beside it. (a, b) "
    "Streams of real prompts of mixed domains, length loss, no delay, among all drafters and among the specialists "
    "alone, one of each domain; the prompts come again and again, and each stream (8 in a, 24 in b) draws from its "
    "own bootstrap resample of them within domains: bands are 95% Student intervals over these resamples. (c) The "
    "greedy adversary, which is deterministic, and (d) fair coins, N = 16, 10 seeds, 95% Student intervals. Dashed: "
    "Hedge's anytime bound sqrt(ln N / T); dotted in (d): the expected regret of every algorithm. (e) The decode "
    "loop, length loss, k = 5, among the specialists: token-game regret per token with the loop's delays, against "
    "rounds above the best specialist's, with 95% percentile intervals over prompts (bootstrap within domains); "
    "hollow: started afresh for each query, to its own best specialist; filled: carried over all prompts, to the best "
    "over all. Bands that reach below zero are cut there. Among all drafters one leads for good and regret falls like "
    "1 / T. Which specialist leads depends on the prompts drawn: regret stays small, but how fast it falls is not "
    "known well enough to compare it with T^(-1/2); follow the leader does as well there as any learner, and only the "
    "adversary defeats it. Carried over among specialists the order of the learners' regrets is not that of their "
    "rounds."
)

_WORDS = {POOLS[0]: "all", POOLS[1]: "specialists"}


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


def _decoding(axes: Any, results: Results, pool: str) -> None:
    data = decoded(results, "length", pool)
    zoom = axes.inset_axes([0.57, 0.2, 0.4, 0.42])
    for protocol in PROTOCOLS:
        regret, excess = data.regret(protocol), 100 * data.excess_rounds(protocol)
        for i, name in enumerate(POLICIES):
            x, y = data.draws.interval(regret[:, i]), data.draws.interval(excess[:, i])
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
    axes.legend([hollow, filled], ["afresh for each query", "carried over"], loc="upper left", fontsize=6.5)


@style.styled
def draw(results: Results) -> Figure:
    """Return the figure of `CAPTION`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(style.WIDE, 5.2))
    grid = figure.add_gridspec(2, 6)
    top = [figure.add_subplot(grid[0, 2 * i : 2 * i + 2]) for i in range(3)]
    coins, decoding = figure.add_subplot(grid[1, :2]), figure.add_subplot(grid[1, 2:])
    there = pools(results)  # a trace without specialists shows all drafters twice
    for axes, pool in ((top[0], there[0]), (top[1], there[-1])):
        n = int(regrets(results, kind="stream", objective="length", pool=pool)["hedge"].arrays["drafters"])
        title = f"{'ab'[axes is top[1]]}  Real prompts, {_WORDS[pool]} ({n})"
        _curves(axes, results, title, n, kind="stream", objective="length", pool=pool)
    for axes, title, world in ((top[2], "c  Greedy adversary", "greedy"), (coins, "d  Fair coins", "fair-coins")):
        found = regrets(results, kind="long", world=world)
        _curves(axes, results, title, int(found["hedge"].arrays["drafters"]), kind="long", world=world)
    times, drafters = found["hedge"].arrays["times"], int(found["hedge"].arrays["drafters"])
    known = [hl.bounds.fair_coins(int(t), drafters) / t for t in times]
    coins.plot(times, known, color="black", linestyle=(0, (1, 1)), linewidth=1.6)
    _decoding(decoding, results, there[-1])
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
