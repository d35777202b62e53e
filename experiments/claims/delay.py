r"""Claim 5: late losses cost little, a factor sqrt(1 + delay), and black boxes keep the guarantee.

    world       token game of worlds and of an adversary built against delay, constant delays d up to 100, by policy
    example     the smallest case in which a rate tuned without the delay breaks the bound: N = 2, T = 2000, d = 13
    token game  on each real prompt, with the delays of the learner's own decode run, and with none
    feedback    the decode loop with delayed, padded, censored losses, and losses of round starts alone: rounds
    own delays  BOLD where the delay of a loss is that of the drafter picked: slow drafters reveal late

After the first full run: `bold` says that it checks the code, as a theorem for every path leaves nothing else to fail.

Learning rates are tuned to T, N and the delay by the theorem's formula, never to losses.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claim import Answer, Arrays, Claim, Question, Result, Results, Setting, above, below, inside, trace_of
from experiments.intervals import (
    Draws,
    exact,
    exponent,
    jackknife,
    of_difference_of_ratios,
    of_mean,
    of_ratio,
    percentile,
)
from experiments.prompts import draws, labels
from hedgelab.algorithms.normalhedge import init as init_normalhedge
from hedgelab.algorithms.normalhedge import observe as observe_normalhedge
from hedgelab.algorithms.normalhedge import play as play_normalhedge
from hedgelab.regret import Interval
from hedgelab.worlds import World

__all__ = [
    "CLAIM",
    "KS",
    "MODES",
    "QUICK",
    "SETTINGS",
    "check",
    "differences",
    "domains",
    "growth",
    "late_regret",
    "run",
]

Matrix = NDArray[np.float64]

TUNED = ("stale hedge", "bold hedge", "bold hedge, varying delay", "normalhedge", "bold normalhedge")
POLICIES = (*TUNED, "hedge", "hedge tuned without delay", "normalhedge, own weights")
EXAMPLE = ("stale hedge", "bold hedge", "hedge tuned without delay")
WORLDS = ("block", "gap", "drifting", "switching")
SEARCHED = ("hedge", "normalhedge")  # learners of the real traces
KS = (2, 3, 4, 5, 6)
LATE = ("none", "queue", "bold", "padded")  # what is done about late losses in the token game; none: there are none
MODES = ("delayed", "padded", "censored", "round starts")  # feedback of the decode loop
POOLS = ("greedy", "lure", "slow best", "slow worst")

CLAIM = Claim(
    sentence="Delay costs little: regret grows like sqrt(1 + delay), and black-box reductions (BOLD) keep the "
    "guarantee.",
    source="Not-a-Bandit (arXiv 2510.20064), section 4 on delayed feedback; Joulani, Gyorgy and Szepesvari 2013",
    questions={
        "growth": Question(
            "Regret grows like sqrt(1 + d) or slower with the delay d, in every world and for every learner made for "
            "delay: rates tuned to it, or NormalHedge.",
            below(0.6),  # the bound sqrt(T + 2D) itself has exponent 0.57 on these delays
            "exponent of 1 + d",
            comparisons=len(TUNED) * len(WORLDS),
        ),
        "adversary": Question(
            "Against the adversary that repeats its losses for d + 1 rounds it does grow like sqrt(1 + d), not slower.",
            inside(0.4, 0.6),
            "exponent of 1 + d",
            comparisons=4,
        ),
        "bounds": Question(
            "Every policy that has a bound under delay stays below it in every run.", below(1.0), "of its bound"
        ),
        "rate": Question(
            "A rate tuned without the delay does no harm: Hedge with rate sqrt(8 ln N / T) stays below "
            "sqrt((T + 2D) ln N / 2), N = 2, T = 2000, d = 13.",
            below(1.0),
            "of that bound",
        ),
        "weights": Question(
            "It does not matter whose weights NormalHedge is told it played: fed late losses with its present weights, "
            "its regret grows like sqrt(1 + d) too.",
            below(0.6),
            "exponent of 1 + d",
        ),
        "decode": Question(
            "On real text the delays of decoding raise regret within a query by no more than (1 + mean delay)^(1/2), "
            "for drafts of 2 to 6 tokens.",
            below(0.5),
            "exponent of 1 + mean delay",
            comparisons=len(KS) * len(SEARCHED),
        ),
        "bold": Question(
            "A check of the code: BOLD keeps its guarantee, a sum of its copies' bounds on every path, where the delay "
            "follows the drafter that was picked, as in decoding.",
            below(1.0),
            "of the guarantee",
        ),
        "padding": Question(
            "Holding losses back, which makes delays independent of the picks, costs less than 5% of MAT.",
            below(0.05),
            "of MAT",
            comparisons=len(SEARCHED),
        ),
        "partial": Question(
            "Every token's loss, late, is worth more tokens per round than what a round shows at once (censored), and "
            "than the losses of round starts alone.",
            above(0.0),
            "tokens per round",
            comparisons=2 * len(SEARCHED),
        ),
    },
)


def _settings(
    trace: str, rounds: int, seeds: int, delays: list[int], replicates: int, own: tuple[int, int]
) -> list[Setting]:
    found: list[Setting] = [
        {
            "kind": "world",
            "world": world,
            "policy": policy,
            "rounds": rounds,
            "drafters": 16,
            "seeds": seeds,
            "delays": delays,
        }
        for world in WORLDS
        for policy in POLICIES
    ]
    found += [
        {
            "kind": "example",
            "world": "block",
            "policy": policy,
            "rounds": 2000,
            "drafters": 2,
            "seeds": seeds,
            "delays": [13],
        }
        for policy in EXAMPLE
    ]
    found += [{"kind": "token game", "trace": trace, "k": k} for k in KS]
    found += [
        {"kind": "feedback", "trace": trace, "k": 5, "learner": name, "replicates": replicates} for name in SEARCHED
    ]
    found += [
        {"kind": "own delays", "pool": pool, "rounds": own[0], "drafters": 4, "slow": 20, "seeds": own[1]}
        for pool in POOLS
    ]
    return found


SETTINGS = _settings("t06", 30_000, 16, [0, 1, 3, 10, 30, 100], 8, (4000, 20))
QUICK = _settings("t10", 3000, 3, [0, 3, 10, 30], 2, (600, 2))


# ------------------------------------------------------------------ worlds


@hl.kernel
def _observe_own(params, state, context, probs, pick, losses):
    """NormalHedge that adds up the regret of what it would play now, in place of what was played."""
    now = np.empty(losses.shape[0])
    play_normalhedge(params, state, context, 0, now)
    observe_normalhedge(params, state, context, now, pick, losses)


def _own_weights() -> hl.Learner:
    return hl.Learner("normalhedge-own-weights", init_normalhedge, play_normalhedge, _observe_own)


def _fixed_rate(rate: float) -> hl.Learner:
    return hl.learner("hedge", learning_rate=rate)


def _world(name: str, rounds: int, drafters: int, delay: int) -> World:
    if name == "block":
        return hl.worlds.block(rounds, drafters, delay + 1)
    if name == "gap":
        return hl.worlds.gap(rounds, drafters, 0.1)
    if name == "drifting":
        return hl.worlds.drifting(rounds, drafters, 0.001)
    return hl.worlds.switching(rounds, drafters, 4, 0.2)


def _policy(name: str, t: int, n: int, delays: NDArray[np.int64]) -> tuple[str | hl.Learner, str, float]:
    """Return a policy's learner, its delay mode, and its bound under these delays, NaN where none is known."""
    missing = hl.delays.missing(delays, t)
    if name in ("bold hedge", "bold hedge, varying delay"):
        copies = int(missing.max()) + 1
        return _fixed_rate(math.sqrt(8 * math.log(n) * copies / t)), "bold", math.sqrt(copies * t * math.log(n) / 2)
    if name == "stale hedge":
        bound = math.sqrt((t + 2 * int(missing.sum())) * math.log(n) / 2)
        return hl.delays.stale_hedge(t, n, delay=delays), "queue", bound
    if name == "hedge":
        rates = 2.0 * np.sqrt(math.log(n) / (np.arange(t) - missing + 1.0))
        return "hedge", "queue", float(hl.bounds.hedge_path(rates, missing, n)[-1])
    if name == "hedge tuned without delay":
        return _fixed_rate(math.sqrt(8 * math.log(n) / t)), "queue", math.nan
    if name == "normalhedge, own weights":
        return _own_weights(), "queue", math.nan
    return "normalhedge", "bold" if name.startswith("bold") else "queue", math.nan


def _run_world(setting: Setting, seed: int) -> Arrays:
    """Regret and bound of one policy, (delays, seeds)."""
    t, n, name = setting["rounds"], setting["drafters"], setting["policy"]
    regret, bound = (np.empty((len(setting["delays"]), setting["seeds"])) for _ in range(2))
    for i, d in enumerate(setting["delays"]):
        world = _world(setting["world"], t, n, d)
        for s in range(setting["seeds"]):
            delays = np.full(t, d, np.int64)
            if name.endswith("varying delay"):
                delays = np.random.default_rng([seed + s, d]).integers(0, d + 1, t)
            learner, mode, bound[i, s] = _policy(name, t, n, delays)
            regret[i, s] = hl.play(world, learner, delay=delays, delay_mode=mode, seed=seed + s, times=[t]).regret
    return {"delays": np.array(setting["delays"]), "regret": regret, "bound": bound}


# ------------------------------------------------------------------ real traces


def _run_token_game(setting: Setting, seed: int) -> Arrays:
    """Each prompt's token game, length loss: regret (learners, late, S), the mean delay (learners, S), and BOLD's
    regret and guarantee with a rate tuned to both, (S,). The delays are those of the learner's own decode run."""
    trace, k = trace_of(setting), setting["k"]
    losses, n = hl.feedback.losses(trace, k=k), len(trace.drafters)
    known = ~np.isnan(losses[:, 0])
    regret = np.zeros((len(SEARCHED), len(LATE), trace.sequences))
    delay = np.zeros((len(SEARCHED), trace.sequences))
    tuned = np.zeros((2, trace.sequences))  # BOLD, padded
    guarantee = np.full(trace.sequences, np.inf)
    for i, name in enumerate(SEARCHED):
        run = hl.replay(trace, name, k=k, seed=seed)
        ends = np.cumsum(run.sequence_rounds)
        for s in range(trace.sequences):
            rows = slice(trace.offsets[s], trace.offsets[s + 1])
            own = losses[rows][known[rows]]
            if not len(own):
                continue
            late = hl.delays.decode(run.committed[ends[s] - run.sequence_rounds[s] : ends[s]], k)
            delay[i, s] = late.mean()
            for j, how in enumerate(LATE):
                regret[i, j, s] = _late_regret(own, name, late, how, k)
            if name == "hedge":
                width, copies, t = k / (k + 1), 2 * k, len(own)
                learner = _fixed_rate(math.sqrt(8 * math.log(n) * copies / t) / width)
                tuned[:, s] = [_late_regret(own, learner, late, how, k) for how in ("bold", "padded")]
                guarantee[s] = width * math.sqrt(copies * t * math.log(n) / 2)
    plays = np.add.reduceat(known.astype(np.int64), trace.offsets[:-1])
    return {
        "regret": regret,
        "delay": delay,
        "plays": plays,
        "tuned": tuned,
        "guarantee": guarantee,
        "drafters": np.array(n),
        **labels(trace),
    }


def _late_regret(losses: Matrix, learner: str | hl.Learner, late: NDArray[np.int64], how: str, k: int) -> float:
    if how == "none":
        return hl.play(losses, learner).regret
    if how == "padded":
        return hl.play(losses, learner, delay=2 * k - 1, delay_mode="padded").regret
    return hl.play(losses, learner, delay=late, delay_mode=how).regret


def _run_feedback(setting: Setting, seed: int) -> Arrays:
    """Rounds of each prompt, mean over coins (modes, S), and how often each drafter was picked (modes, N)."""
    trace = trace_of(setting)
    options: dict[str, dict[str, str]] = {
        "delayed": {},
        "padded": {"delay_mode": "padded"},
        "censored": {"feedback": "censored"},
        "round starts": {"granularity": "round"},
    }
    rounds = np.zeros((len(MODES), trace.sequences))
    picks = np.zeros((len(MODES), len(trace.drafters)))
    for i, mode in enumerate(MODES):
        for replicate in range(setting["replicates"]):
            run = hl.replay(
                trace,
                setting["learner"],
                k=setting["k"],
                seed=seed,
                replicate=replicate,
                **options[mode],  # type: ignore[arg-type]
            )
            rounds[i] += run.sequence_rounds / setting["replicates"]
            picks[i] += np.bincount(run.picks, minlength=len(trace.drafters)) / run.rounds / setting["replicates"]
    return {
        "rounds": rounds,
        "picks": picks,
        "tokens": np.diff(trace.offsets),
        **labels(trace),
    }


# ------------------------------------------------------------------ delays that follow the pick

Choose = Callable[[int, Matrix, np.random.Generator], Matrix]


def _heaviest_half(t: int, probs: Matrix, rng: np.random.Generator) -> Matrix:
    order = np.lexsort((rng.random(len(probs)), -probs))
    losses = np.zeros(len(probs))
    losses[order[: max(1, len(probs) // 2)]] = 1.0
    return losses


def _pool(name: str, rounds: int, n: int) -> Choose:
    """Return the losses of a pool whose first n // 2 drafters are slow."""
    if name == "greedy":
        return _heaviest_half
    slow = np.arange(n) < n // 2

    def choose(t: int, probs: Matrix, rng: np.random.Generator) -> Matrix:
        if name == "lure":  # slow drafters are good until half of the rounds have passed, then bad
            return np.where(slow, float(t >= rounds // 2), (rng.random(n) < 0.5).astype(np.float64))
        means = np.where(slow, 0.3 if name == "slow best" else 0.7, 0.5)
        return (rng.random(n) < means).astype(np.float64)

    return choose


def bold_with_own_delays(choose: Choose, delay_of: NDArray[np.int64], rounds: int, rate: float, seed: int) -> float:
    """Return the regret of BOLD over Hedge with a fixed rate when a round's loss is as late as the drafter picked.

    choose : gives the losses (N,) of a round, its distribution known. delay_of : (N,) rounds. `hedgelab.play` takes
    delays beforehand, so cannot ask this
    """
    n = len(delay_of)
    draw, world = (np.random.default_rng([seed, stream]) for stream in (0, 1))
    copies: list[Matrix] = []
    idle: list[int] = []
    due: dict[int, list[tuple[int, Matrix]]] = {}
    totals, own = np.zeros(n), 0.0
    for t in range(rounds):
        for copy, losses in due.pop(t, []):
            copies[copy] += losses
            heapq.heappush(idle, copy)
        if not idle:
            copies.append(np.zeros(n))
            heapq.heappush(idle, len(copies) - 1)
        copy = heapq.heappop(idle)
        weights = np.exp(-rate * (copies[copy] - copies[copy].min()))
        probs = weights / weights.sum()
        pick = min(int(np.searchsorted(np.cumsum(probs), draw.random())), n - 1)
        losses = choose(t, probs, world)
        own += float(probs @ losses)
        totals += losses
        due.setdefault(t + int(delay_of[pick]) + 1, []).append((copy, losses))
    return own - float(totals.min())


def _run_own_delays(setting: Setting, seed: int) -> Arrays:
    """Regret with the picks' own delays and with all losses held back to the longest, (2, seeds), and the guarantee."""
    t, n, slow = setting["rounds"], setting["drafters"], setting["slow"]
    rate = math.sqrt(8 * math.log(n) * (slow + 1) / t)
    own = np.where(np.arange(n) < n // 2, slow, 0)
    choose = _pool(setting["pool"], t, n)
    regret = [
        [bold_with_own_delays(choose, late, t, rate, seed + s) for s in range(setting["seeds"])]
        for late in (own, np.full(n, slow))
    ]
    return {"regret": np.array(regret), "guarantee": np.array(math.sqrt((slow + 1) * t * math.log(n) / 2))}


_RUNS = {
    "world": _run_world,
    "example": _run_world,
    "token game": _run_token_game,
    "feedback": _run_feedback,
    "own delays": _run_own_delays,
}


def run(setting: Setting, seed: int) -> Arrays:
    """Return what a setting gives, by its kind; the module's docstring says what the kinds are."""
    return _RUNS[setting["kind"]](setting, seed)


# ------------------------------------------------------------------ aggregation


def _exponent(result: Result, comparisons: int) -> Interval:
    """Return the exponent of mean regret against 1 + d, with Student's interval over seeds (jackknife)."""
    late = result.arrays["delays"] + 1
    return jackknife(lambda runs: exponent(late, runs.mean(axis=0)), result.arrays["regret"].T, comparisons)


def growth(results: Results, world: str, policy: str) -> tuple[NDArray[np.int64], list[Interval], Matrix]:
    """Return (1 + d, mean regret with its interval over seeds, mean bound), one entry a delay."""
    arrays = results.one(kind="world", world=world, policy=policy).arrays
    return arrays["delays"] + 1, [of_mean(row) for row in arrays["regret"]], arrays["bound"].mean(axis=1)


def late_regret(results: Results, k: int, learner: str, how: str) -> Interval:
    """Return regret of the token game within a query, in tokens per play, with its interval over prompts."""
    arrays = results.one(kind="token game", k=k).arrays
    regret = arrays["regret"][SEARCHED.index(learner), LATE.index(how)] * (k + 1)
    return of_ratio(regret, arrays["plays"], draws(arrays))


def differences(result: Result, mode: str, domain: int | None = None, comparisons: int = 1) -> Interval:
    """Return MAT of a mode of feedback minus that of `delayed`, paired over prompts, in one domain or over all."""
    arrays = result.arrays
    here = np.full(len(arrays["domain"]), True) if domain is None else arrays["domain"] == domain
    resampled = draws({name: arrays[name][here] for name in ("prompt", "home")})
    rounds = arrays["rounds"][:, here]
    return of_difference_of_ratios(
        arrays["tokens"][here], rounds[MODES.index(mode)], rounds[MODES.index("delayed")], resampled, comparisons
    )


def domains(result: Result) -> dict[str, int | None]:
    """Return the number of each domain in the results by its name, and None for all of them."""
    names = trace_of(result.setting).manifest.domains
    there = sorted({int(number) for number in result.arrays["domain"]})
    return {names[number]: number for number in there} | {"all domains": None}


def _decode(results: Results, comparisons: int) -> tuple[dict[str, Interval], str]:
    """Return {learner and k: e}, with regret (1 + mean delay)^e times that without delay, and the factors in words."""
    cases: dict[str, Interval] = {}
    factors = []
    for result in results.where(kind="token game"):
        arrays, k = result.arrays, result.setting["k"]
        resampled = draws(arrays)

        def sums(of: Matrix, resampled: Draws = resampled) -> Matrix:  # the trace's own prompts first
            return np.concatenate([of.sum(axis=0, keepdims=True), resampled @ of])

        plays = sums(arrays["plays"])
        for i, name in enumerate(SEARCHED):
            total = sums(arrays["regret"][i].T)  # (1 + B, late)
            factor = total[:, LATE.index("queue")] / total[:, LATE.index("none")]
            delay = sums(arrays["delay"][i] * arrays["plays"]) / plays
            drawn = np.log(factor) / np.log1p(delay)
            cases[f"{name}, k = {k}"] = percentile(float(drawn[0]), drawn[1:], comparisons, degrees=resampled.degrees)
            factors.append(f"{name}, k = {k}: {factor[0]:.2f} at mean delay {delay[0]:.1f}, longest {2 * k - 1}")
    return cases, "; ".join(factors)


def _bold(results: Results) -> tuple[dict[str, Interval], str]:
    """Return BOLD's largest share of its guarantee by pool and by k, and how it compares with padding."""
    cases: dict[str, Interval] = {}
    beside = []
    for result in results.where(kind="own delays"):
        name, (own, padded) = result.setting["pool"], result.arrays["regret"]
        cases[name] = exact(own.max() / result.arrays["guarantee"])
        beside.append(f"{name} {own.mean():.0f} against {padded.mean():.0f}")
    for result in results.where(kind="token game"):
        arrays, k = result.arrays, result.setting["k"]
        cases[f"real text, k = {k}"] = exact(float((arrays["tuned"][0] / arrays["guarantee"]).max()))
        sums = arrays["tuned"].sum(axis=1)
        beside.append(f"real text, k = {k}: {sums[0]:.0f} against {sums[1]:.0f}")
    return cases, "mean regret of BOLD against padding: " + "; ".join(beside)


def _bounds(results: Results) -> dict[str, Interval]:
    cases: dict[str, Interval] = {}
    for result in [*results.where(kind="world"), *results.where(kind="example")]:
        setting, share = result.setting, result.arrays["regret"] / result.arrays["bound"]
        if not np.isnan(share).any():
            where = f"{setting['world']}, N = {setting['drafters']}, T = {setting['rounds']}"
            cases[f"{setting['policy']}: {where}"] = exact(float(share.max()))
    return cases


def _padding(results: Results, comparisons: int) -> dict[str, Interval]:
    """Return {learner: 1 - MAT padded / MAT delayed}: the rounds that are alike in number, as the tokens are one."""
    cases: dict[str, Interval] = {}
    for result in results.where(kind="feedback"):
        resampled, rounds = draws(result.arrays), result.arrays["rounds"]
        delayed, padded = rounds[MODES.index("delayed")], rounds[MODES.index("padded")]
        share = of_ratio(delayed, padded, resampled, comparisons)
        cases[result.setting["learner"]] = Interval(1 - share.estimate, 1 - share.high, 1 - share.low)
    return cases


def _partial(results: Results, comparisons: int) -> tuple[dict[str, Interval], str]:
    cases: dict[str, Interval] = {}
    moved = []
    for result in results.where(kind="feedback"):
        name, picks = result.setting["learner"], result.arrays["picks"]
        for mode in ("censored", "round starts"):
            effect = differences(result, mode, comparisons=comparisons)
            cases[f"{name}: {mode}"] = Interval(-effect.estimate, -effect.high, -effect.low)
            other = 0.5 * float(np.abs(picks[MODES.index(mode)] - picks[MODES.index("delayed")]).sum())
            moved.append(f"{name}, {mode} {100 * other:.0f}%")
    return cases, "rounds drafted by another drafter, in distribution over all rounds: " + "; ".join(moved)


def check(results: Results) -> dict[str, Answer]:
    """Return the answer to each question."""
    asked = {name: question.comparisons for name, question in CLAIM.questions.items()}
    worlds = results.where(kind="world")
    example: Any = results.one(kind="example", policy="hedge tuned without delay").arrays
    bound: Any = results.one(kind="example", policy="stale hedge").arrays["bound"]
    bold, beside = _bold(results)
    decode, factors = _decode(results, asked["decode"])
    partial, moved = _partial(results, asked["partial"])
    return {
        "growth": Answer(
            {
                f"{each.setting['policy']}: {each.setting['world']}": _exponent(each, asked["growth"])
                for each in worlds
                if each.setting["policy"] in TUNED
            },
            "rates by formula from T, N and the delays; with a constant delay padding is BOLD. Where regret without "
            "delay is far below the bound, 1 + d copies that learn each on their own may cost 1 + d times as much, and "
            "still keep the guarantee",
        ),
        "adversary": Answer(
            {
                each.setting["policy"]: _exponent(each, asked["adversary"])
                for each in worlds.where(world="block")
                if each.setting["policy"] in TUNED and not each.setting["policy"].endswith("varying delay")
            }
        ),
        "bounds": Answer(_bounds(results), "largest over delays and seeds; NormalHedge has no bound under delay"),
        "rate": Answer(
            of_mean((example["regret"] / bound)[0]),
            f"mean regret {example['regret'].mean():.0f}, bound {bound.mean():.0f}, the adversary of blocks",
        ),
        "weights": Answer(
            _exponent(worlds.one(world="block", policy="normalhedge, own weights"), asked["weights"]),
            "the adversary of blocks",
        ),
        "decode": Answer(
            decode,
            "regret to each query's own best drafter, length loss; delays of the learner's own decode run. Times the "
            f"regret without delay: {factors}",
        ),
        "bold": Answer(
            bold, beside + ". On real text the delays are those of the learner's run without BOLD; in the pools its own"
        ),
        "padding": Answer(_padding(results, asked["padding"]), "2k copies of the learner take turns"),
        "partial": Answer(partial, moved),
    }
