r"""Claim 1: how likely a draft is accepted, for every kind of drafter, and what coins replay it.

Laws and replays are enumerated over token worlds (`hedgelab.token_worlds`): no sampling. On recorded text alpha and
gamma are held against each other: gamma is the mean of alpha given the prefix, so for every weight h that is known
before the token, sum h (alpha - gamma) over a text's rows is a martingale. Texts end at a stopping time, which leaves
its mean 0. A row's own gamma and the alpha of the row before are such weights; a record that had slipped by a row
would leave the mean of alpha as it is, but not these.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.claim import Answer, Arrays, Claim, Question, Result, Results, Setting, exactly, inside, trace_of
from experiments.intervals import FEWEST, Draws, exact, of_ratio, percentile, resample
from hedgelab.regret import Interval
from hedgelab.token_worlds import KINDS, TokenWorld, random_world, two_state_world

__all__ = ["BINS", "CLAIM", "QUICK", "SETTINGS", "acceptances", "check", "differences", "reliability", "run", "table"]

K = 3  # drafts a round of the enumerated replays
BINS = 10  # of gamma, in the calibration curves
TOLERANCE = 0.02  # of acceptance: half an interval of the acceptance matrix
ROUNDED = 8e-6  # what a compact record rounds by: hedgelab.storage.columns, fixed16 and deflate
RESAMPLES = 20_000
NOTHING = Interval(math.nan, math.nan, math.nan)  # where no trace has a case

# what the paper speaks of: a draft from q, one from a head fed by its own features, a certain draft, a tree's level
PUBLISHED = ("chain", "head", "one_hot", "tree")
# pairs of drafters among which a policy switches; where gamma is known off the tree, coins of gamma can be tried
PAIRS = ("chain chain", "head tree", "one_hot tree", "recursive without_replacement", "independent recursive")
KNOWN_GAMMA = ("chain chain", "one_hot head", "independent recursive")
POLICIES = ("fixed", "by outcome")

_KINDS, _DRAFTERS = 11, 47  # of the bundled traces: the comparisons that are announced

CLAIM = Claim(
    sentence=(
        "One draft from q is accepted with probability 1 - TV(p, q), one level of a draft tree with the mass that p "
        "gives to its children."
    ),
    source="Not-a-Bandit, arXiv 2510.20064; Leviathan, Kalman and Matias 2023, Theorem 3.5, for one draft",
    questions={
        "probability": Question(
            "The sampler accepts a draft with probability 1 - TV(p, q), a tree's level with the mass of its children.",
            exactly(0.0, 1e-12),
            "acceptance, largest difference over all prefixes of the worlds",
        ),
        "given_output": Question(
            "Whatever the rule, an output x was an accepted draft with probability alpha(x), so alpha has mean gamma.",
            exactly(0.0, 1e-12),
            "probability, largest difference over all prefixes, depths and tokens of the worlds",
        ),
        "replay": Question(
            "Coins of probability alpha on a recorded path have the joint law of text and accepted lengths of "
            "speculative sampling, also when the choice of drafter depends on what was accepted.",
            exactly(0.0, 1e-12),
            "total variation, largest over the worlds",
        ),
        "gamma_coins": Question(
            "Coins of probability gamma, the acceptance that the claim states, would have that law too.",
            exactly(0.0, 1e-12),
            "total variation, largest over the worlds",
        ),
        "mean": Question(
            "On sampled text the mean of alpha of a first draft is that of gamma, for each drafter.",
            exactly(0.0, TOLERANCE),
            "acceptance",
            comparisons=2 * _DRAFTERS,
        ),
        "martingale": Question(
            "On sampled text no weight that is known before the token tells alpha and gamma apart, for each kind: "
            "not the row's own gamma, not the alpha of the row before; nor do they differ at later drafts of a round.",
            exactly(0.0, TOLERANCE),
            "acceptance, weighted",
            comparisons=6 * _KINDS,
        ),
        "calibration": Question(
            "Alpha rises with gamma at slope 1, for each drafter.",
            inside(0.9, 1.1),
            "alpha per gamma, least squares over rows",
            comparisons=_DRAFTERS,
        ),
        "greedy": Question(
            "With a greedy target alpha is gamma at every row and depth.",
            exactly(0.0, ROUNDED),
            "acceptance, largest difference",
        ),
        "recorded": Question(
            "Every recorded gamma of a sampled draft is 1 - TV(p, q) of the recorded log-probabilities, as far as the "
            "tail allows.",
            exactly(0.0, ROUNDED),
            "acceptance outside the interval, largest",
        ),
    },
)

SETTINGS: Sequence[Setting] = (
    *({"part": "worlds", "vocabulary": v, "worlds": n, "depth": d} for v, n, d in ((2, 40, 4), (3, 20, 3), (5, 10, 2))),
    *({"part": "replay", "kinds": kinds, "coins": "alpha", "worlds": 3, "length": 4} for kinds in PAIRS),
    *({"part": "replay", "kinds": kinds, "coins": "gamma", "worlds": 3, "length": 4} for kinds in KNOWN_GAMMA),
    {"part": "two states", "k": 2},
    *({"part": "trace", "trace": name, "prompts": None, "calibrate": name == "t06"} for name in ("t06", "t10")),
    {"part": "trace", "trace": "greedy", "prompts": None, "calibrate": False},
    {"part": "logits", "trace": "logits"},
)
QUICK: Sequence[Setting] = (
    *({"part": "worlds", "vocabulary": v, "worlds": 2, "depth": 2} for v in (2, 3)),
    *({"part": "replay", "kinds": kinds, "coins": "alpha", "worlds": 1, "length": 3} for kinds in PAIRS),
    *({"part": "replay", "kinds": kinds, "coins": "gamma", "worlds": 1, "length": 3} for kinds in KNOWN_GAMMA),
    {"part": "two states", "k": 2},
    *({"part": "trace", "trace": name, "prompts": 3, "calibrate": name == "t06"} for name in ("t06", "t10")),
    {"part": "trace", "trace": "greedy", "prompts": 3, "calibrate": False},
    {"part": "logits", "trace": "logits"},
)


# ------------------------------------------------------------------ worlds: the sampler of one position


def published(rule: str, p: NDArray[np.float64], law: NDArray[Any]) -> float:
    """Return the acceptance that the claim states: 1 - TV(p, q), or the mass of the children `law` (V,) of a tree."""
    return float(p[law.astype(bool)].sum()) if rule == "tree" else float(1 - 0.5 * np.abs(p - law).sum())


def _worlds(setting: Setting, seed: int) -> Arrays:
    """Return by kind (kinds,) the largest differences that the first two questions ask about, and the cases looked at.

    probability : of the enumerated sampler's acceptance and what is published; given_output : of p(x) alpha(x) and the
    sampler's P(output x, accepted), and of gamma and its sum over x
    """
    names = tuple(KINDS)
    off = {"probability": np.full(len(names), np.nan), "given_output": np.zeros(len(names))}
    cases = np.zeros(len(names), np.int64)
    for w in range(setting["worlds"]):
        world = random_world(1000 * seed + w, names, setting["vocabulary"])
        for length in range(setting["depth"] + 1):
            for path in world.paths(length)[0]:
                prefix = tuple(int(token) for token in path)
                p = world.target(prefix)
                for i, name in enumerate(names):
                    drafter = world.drafters[i]
                    for d in range(length + 1 if drafter.deep else 1):
                        if not drafter.in_tree(prefix, d):
                            continue
                        joint = drafter.sampler(p, prefix, d)
                        pairs = [(x, drafter.acceptance(p, prefix, d, int(x))) for x in np.flatnonzero(p)]
                        gap = max(abs(p[x] * alpha - joint[x, 1]) for x, (alpha, _) in pairs)
                        gap = max(gap, *(abs(gamma - joint[:, 1].sum()) for _, (_, gamma) in pairs))
                        off["given_output"][i] = max(off["given_output"][i], gap)
                        if name in PUBLISHED:
                            gap = abs(joint[:, 1].sum() - published(drafter.rule, p, drafter.law(prefix, d)))
                            off["probability"][i] = np.fmax(off["probability"][i], gap)
                        cases[i] += 1
    return {"kinds": np.array(names), "cases": cases, **off}


# ------------------------------------------------------------------ worlds: whole decodings


def _switch(last: int | None) -> int:
    """Return the drafter of the next round: 0 after a round that accepted something, else 1."""
    return 0 if last else 1


@hl.kernel
def _play(params, state, context, rng, probs):
    probs[:] = 0.0
    probs[0 if state[0, 0] > 0.0 else 1] = 1.0


@hl.kernel
def _observe(params, state, context, probs, pick, losses):
    state[0, 0] = 1.0 if losses[pick] < 1.0 - 1e-9 else 0.0  # the reward is (Y - 1) / k


_BY_OUTCOME = hl.Learner("by-outcome", lambda params, n: np.zeros((1, n)), _play, _observe, feedback="bandit")

Replayed = list[tuple[tuple[int, ...], tuple[int, ...], float]]


def _replayed(world: TokenWorld, length: int, k: int, coins: str, policy: str, prefix: tuple[int, ...]) -> Replayed:
    """Replay every path of `length` tokens after the prefix under every set of coins that the engine can tell apart.

    coins : what they are compared with, "alpha" or "gamma". Returns [(text, accepted of each round, probability)].
    """
    texts, chances, values, uniforms = [], [], [], []
    for path, chance in zip(*world.paths(length, prefix), strict=True):
        both = dict(zip(("alpha", "gamma"), world.acceptance(path, k, prefix), strict=True))
        accepted = np.nan_to_num(both[coins])  # where no such round is: never read
        cells = []
        for row in accepted:
            edges = np.unique(np.concatenate([[0.0, 1.0], row.ravel()]))
            wide = [pair for pair in itertools.pairwise(edges) if pair[1] - pair[0] > 1e-14]  # not mere rounding
            cells.append([((low + high) / 2, high - low) for low, high in wide])
        for cell in itertools.product(*cells):
            coin, width = np.array(cell).T
            texts.append(path)
            chances.append(float(chance * width.prod()))
            values.append(accepted)
            uniforms.append(coin)
    trace = hl.Trace.from_arrays(
        token=np.concatenate(texts),
        alpha=np.concatenate(values),
        gamma=np.concatenate(values),
        offsets=np.arange(len(texts) + 1) * length,
        domains=["world"] * len(texts),
        drafters=[str(i) for i in range(len(world.drafters))],
        k=k,
    )
    learner = hl.learner("fixed", drafter=0) if policy == "fixed" else _BY_OUTCOME
    run = hl.replay(trace, learner, k=k, coins=np.concatenate(uniforms))
    rounds = np.split(run.accepted, np.cumsum(run.sequence_rounds)[:-1])
    return [
        (tuple(text.tolist()), tuple(each.tolist()), chance)
        for text, each, chance in zip(texts, rounds, chances, strict=True)
    ]


def total_variation(one: Mapping[Any, float], other: Mapping[Any, float]) -> float:
    """Return the total variation between two laws {outcome: probability}."""
    return 0.5 * sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys())


def _replay(setting: Setting, seed: int) -> Arrays:
    """Return (worlds, policies) total variation between real speculative sampling and its replay."""
    choices: dict[str, Callable[[int | None], int]] = {"fixed": lambda last: 0, "by outcome": _switch}
    distance = np.empty((setting["worlds"], len(POLICIES)))
    for w, (j, policy) in itertools.product(range(setting["worlds"]), enumerate(POLICIES)):
        world = random_world(1000 * seed + 500 + w, setting["kinds"].split())
        law: dict[Any, float] = defaultdict(float)
        for text, accepted, chance in _replayed(world, setting["length"], K, setting["coins"], policy, ()):
            law[text, accepted] += chance
        distance[w, j] = total_variation(world.decoding_law(setting["length"], K, choices[policy]), law)
    return {"distance": distance}


def _walked(steps: Mapping[int, list[tuple[int, int, float]]]) -> float:
    """Return the stationary mean of committed tokens, steps {token before: [(token after, committed, probability)]}."""
    move, length = np.zeros((len(steps), len(steps))), np.zeros(len(steps))
    for before, outcomes in steps.items():
        for after, committed, chance in outcomes:
            move[before, after] += chance
            length[before] += chance * committed
    values, vectors = np.linalg.eig(move.T)
    stay = np.real(vectors[:, np.argmax(values.real)])
    return float(stay @ length / stay.sum())


def _two_states(setting: Setting, seed: int) -> Arrays:
    """Return MAT of the two-state world: of real rounds, and with coins of alpha and of gamma."""
    world, k = two_state_world(), setting["k"]
    real = {
        before: [(tokens[-1], len(tokens), chance) for tokens, chance in world.round_law(0, k, (before,)).items()]
        for before in (0, 1)
    }
    found = {"real": np.array(_walked(real))}
    for coins in ("alpha", "gamma"):
        steps = {
            before: [
                (text[accepted[0]], accepted[0] + 1, chance)
                for text, accepted, chance in _replayed(world, k + 1, k, coins, "fixed", (before,))
            ]
            for before in (0, 1)
        }
        found[coins] = np.array(_walked(steps))
    return found


# ------------------------------------------------------------------ recorded text


def _before(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the row before, (T, N), 0 before the first row of each text."""
    shifted = np.zeros_like(values)
    shifted[1:] = values[:-1]
    shifted[offsets[:-1]] = 0.0
    return shifted


def acceptances(trace: hl.Trace) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return alpha and gamma of a trace, (T, D, N) float64."""
    return trace.alpha.astype(np.float64), trace.gamma.astype(np.float64)


def _trace(setting: Setting, seed: int) -> Arrays:
    """Return sums over each text's rows, (S, N), of the first draft's alpha a and gamma g.

    off : sum of a - g; off_gamma, off_before : weighted by g and by the a of the row before, whose sums are gamma and
    before; gg, ga : products; off_later, later : sum of a - g over the depths from 1 on, and how many of them a round
    can reach; largest : (N,) |a - g| at any depth. curve : (S, kinds, BINS, 3) rows, sums of g and of a, by g
    """
    trace = trace_of(setting)
    trace = trace if setting["prompts"] is None else trace.few_prompts(setting["prompts"])
    alpha, gamma = acceptances(trace)
    first = trace.offsets[:-1]
    a, g = alpha[:, 0], gamma[:, 0]
    before = _before(a, trace.offsets)
    deep = alpha[:, 1:] - gamma[:, 1:] if alpha.shape[1] > 1 else np.zeros((trace.rows, 0, len(trace.drafters)))
    reached = ~np.isnan(deep)
    reached[:, :, trace.flat_columns] = False  # the first draft over again
    for d in range(deep.shape[1]):  # no round began before the text
        reached[(first[:, None] + np.arange(d + 1)).clip(max=trace.rows - 1).ravel(), d] = False
    kinds = [drafter.kind for drafter in trace.manifest.drafters]
    names = list(dict.fromkeys(kinds))
    text = np.repeat(np.arange(trace.sequences), np.diff(trace.offsets))[:, None]
    member = np.array([names.index(kind) for kind in kinds])
    cell = (text * len(names) + member) * BINS + np.minimum((g * BINS).astype(np.int64), BINS - 1)
    size = trace.sequences * len(names) * BINS
    curve = np.stack([np.bincount(cell.ravel(), x.ravel(), size) for x in (np.ones_like(g), g, a)], axis=-1)

    def sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.add.reduceat(values, first, axis=0)

    return {
        "drafters": np.array(trace.drafters),
        "kinds": np.array(kinds),
        "domains": trace.home_domains,
        "prompts": trace.conversations,
        "sampled": np.array(trace.manifest.path == "own_sample" and trace.manifest.target_processing.temperature > 0),
        "greedy": np.array(trace.manifest.target_processing.temperature == 0),
        "temperature": np.array(trace.manifest.target_processing.temperature),
        "rows": np.diff(trace.offsets).astype(np.float64),
        "off": sums(a - g),
        "off_gamma": sums(g * (a - g)),
        "off_before": sums(before * (a - g)),
        "gamma": sums(g),
        "alpha": sums(a),
        "before": sums(before),
        "gg": sums(g * g),
        "ga": sums(g * a),
        "off_later": sums(np.where(reached, deep, 0.0).sum(axis=1)),
        "later": sums(reached.sum(axis=1).astype(np.float64)),
        "largest": np.nanmax(np.abs(alpha - gamma), axis=(0, 1)),
        "curve": curve.reshape(trace.sequences, len(names), BINS, 3),
    }


def _logits(setting: Setting, seed: int) -> Arrays:
    """Return for each recorded row and drafter (R, N): how far gamma lies outside its interval, and the interval's
    width; NaN where it is not that of a chain of recorded law."""
    trace = trace_of(setting)
    rows = trace.column("logit_row")
    of_q, tail = trace.column("logit_q"), trace.column("tail_q")
    chain = np.array([drafter.rule == "chain" for drafter in trace.manifest.drafters])
    gamma = trace.gamma[rows, 0].astype(np.float64)
    outside, width = np.full(gamma.shape, np.nan), np.full(gamma.shape, np.nan)
    for i in np.flatnonzero(chain):
        known = np.flatnonzero(~np.isnan(of_q[:, i]).any(axis=1) & ~np.isnan(tail[:, i]))
        if len(known):
            low, high = overlap(trace, of_q[known, i], tail[known, i], known)
            outside[known, i] = np.maximum(0.0, np.maximum(low - gamma[known, i], gamma[known, i] - high))
            width[known, i] = high - low
    return {"drafters": np.array(trace.drafters), "outside": outside, "width": width}


def overlap(
    trace: hl.Trace, of_q: NDArray[Any], tail: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the interval of 1 - TV(p, q) at recorded rows (R,), from q's log-probabilities (R, M) and tail (R,)."""
    return hl.acceptance.gamma_interval(trace.column("logit_p")[rows], of_q, trace.column("tail_p")[rows], tail)


_PARTS: Mapping[str, Callable[[Setting, int], Arrays]] = {
    "worlds": _worlds,
    "replay": _replay,
    "two states": _two_states,
    "trace": _trace,
    "logits": _logits,
}


def run(setting: Setting, seed: int) -> Arrays:
    """Return what the setting's part gives, see there; seed chooses the random worlds."""
    return _PARTS[setting["part"]](setting, seed)


# ------------------------------------------------------------------ aggregation


def table(result: Result, domain: str | None = None, comparisons: int = 1) -> Draws:
    """Return resamples of the texts of a trace's result, or of one domain's: prompts within domains."""
    prompts, domains = result.arrays["prompts"], result.arrays["domains"]
    here = slice(None) if domain is None else domains == domain
    return resample(prompts[here], domains[here], resamples=max(RESAMPLES, FEWEST * comparisons))


def _sampled(results: Results) -> list[Result]:
    return [result for result in results.where(part="trace") if result.arrays["sampled"]]


def members(arrays: Arrays) -> dict[str, NDArray[np.bool_]]:
    """Return {kind: its drafters (N,)} in the order of the trace."""
    return {str(kind): arrays["kinds"] == kind for kind in dict.fromkeys(arrays["kinds"].tolist())}


def differences(result: Result, counts: Draws, comparisons: int) -> dict[str, Interval]:
    """Return mean alpha - mean gamma of the first draft, by kind."""
    arrays = result.arrays
    return {
        kind: of_ratio(arrays["off"][:, which].sum(axis=1), arrays["rows"] * which.sum(), counts, comparisons)
        for kind, which in members(arrays).items()
    }


def reliability(result: Result, counts: Draws) -> dict[str, list[tuple[float, Interval]]]:
    """Return by kind [(mean gamma, mean alpha)] of the bins of gamma that at least a tenth of the texts have."""
    found: dict[str, list[tuple[float, Interval]]] = {}
    for j, kind in enumerate(members(result.arrays)):
        found[kind] = []
        for b in range(BINS):
            rows, gamma, alpha = result.arrays["curve"][:, j, b].T
            if (rows > 0).mean() >= 0.1 and ((counts @ rows) > 0).all():
                found[kind].append((float(gamma.sum() / rows.sum()), of_ratio(alpha, rows, counts)))
    return found


def _slope(arrays: Arrays, i: int, counts: Draws, comparisons: int) -> Interval:
    """Return the least-squares slope of alpha on gamma of drafter i."""
    columns = np.stack([arrays["rows"], *(arrays[name][:, i] for name in ("gamma", "alpha", "gg", "ga"))], axis=1)

    def slope(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        n, g, a, gg, ga = sums.T
        return (ga - g * a / n) / (gg - g * g / n)

    whole = float(slope(columns.sum(axis=0, keepdims=True))[0])
    return percentile(whole, slope(counts @ columns), comparisons, degrees=counts.degrees)


def _largest(found: Sequence[tuple[str, float]]) -> dict[str, Interval]:
    """Return {case: the largest of its values}."""
    most: dict[str, float] = {}
    for case, value in found:
        most[case] = max(most.get(case, 0.0), value)
    return {case: exact(value) for case, value in most.items()}


def check(results: Results) -> Mapping[str, Answer]:
    """Return the answers; intervals are bootstrap over prompts within domains."""
    answers: dict[str, Answer] = {}
    worlds = results.where(part="worlds")
    for name in ("probability", "given_output"):
        pairs = [pair for each in worlds for pair in zip(each.arrays["kinds"], each.arrays[name], strict=True)]
        looked = sum(int(each.arrays["cases"].sum()) for each in worlds)
        answers[name] = Answer(
            _largest([(str(kind), float(value)) for kind, value in pairs if not np.isnan(value)]),
            f"enumerated: {looked} pairs of a prefix and a depth of a draft after it",
        )
    mat = results.one(part="two states").arrays
    for name, coins in (("replay", "alpha"), ("gamma_coins", "gamma")):
        answers[name] = Answer(
            _largest(
                [
                    (f"{each.setting['kinds']}, {policy}", float(value))
                    for each in results.where(part="replay", coins=coins)
                    for j, policy in enumerate(POLICIES)
                    for value in each.arrays["distance"][:, j]
                ]
            ),
            f"two-state world: MAT {float(mat['real']):.4f}, with coins of {coins} {float(mat[coins]):.4f}",
        )
    answers |= _of_traces(results)
    greedy = [each for each in results.where(part="trace") if each.arrays["greedy"]]
    cases = [(f"{each.setting['trace']}", float(each.arrays["largest"].max())) for each in greedy]
    answers["greedy"] = Answer(_largest(cases) or NOTHING, "every row, depth and drafter where gamma is defined")
    logits = results.where(part="logits")
    outside = [
        (str(name), float(np.nanmax(each.arrays["outside"][:, i])))
        for each in logits
        for i, name in enumerate(each.arrays["drafters"])
        if not np.isnan(each.arrays["outside"][:, i]).all()
    ]
    width = np.concatenate([np.zeros(0), *(each.arrays["width"].ravel() for each in logits)])
    width = width[~np.isnan(width)]
    answers["recorded"] = Answer(
        _largest(outside) or NOTHING,
        f"{len(width)} laws of chains; the interval is {np.median(width):.2g} wide in the median, "
        f"{np.quantile(width, 0.95):.2g} at the 95th percentile, {width.max():.2g} at most"
        if len(width)
        else "no law of a chain is recorded",
    )
    return answers


def _of_traces(results: Results) -> dict[str, Answer]:
    sampled = _sampled(results)
    calibrated = [each for each in sampled if each.setting["calibrate"]]
    together = {
        "mean": sum(len(each.arrays["drafters"]) for each in sampled),
        "martingale": sum(3 * len(members(each.arrays)) for each in sampled),
        "calibration": sum(len(each.arrays["drafters"]) for each in calibrated),
    }
    together = {name: max(CLAIM.questions[name].comparisons, count) for name, count in together.items()}
    mean, weighted, slopes = {}, {}, {}
    for each in sampled:
        arrays, name, counts = each.arrays, each.setting["trace"], table(each, comparisons=max(together.values()))
        for i, drafter in enumerate(arrays["drafters"]):
            mean[f"{name} {drafter}"] = of_ratio(arrays["off"][:, i], arrays["rows"], counts, together["mean"])
            if each.setting["calibrate"]:
                slopes[f"{name} {drafter}"] = _slope(arrays, i, counts, together["calibration"])
        for kind, which in members(arrays).items():
            for weight, above, below in (
                ("by gamma", "off_gamma", "gamma"),
                ("by the alpha before", "off_before", "before"),
                ("later drafts", "off_later", "later"),
            ):
                top, bottom = arrays[above][:, which].sum(axis=1), arrays[below][:, which].sum(axis=1)
                if bottom.sum() > 0:
                    interval = of_ratio(top, bottom, counts, together["martingale"])
                    weighted[f"{name} {kind} {weight}"] = interval
    prompts = ", ".join(f"{each.setting['trace']}: {len(set(each.arrays['prompts']))} prompts" for each in sampled)

    def told(intervals: Mapping[str, Interval], value: float) -> str:
        apart = sum(not interval.low <= value <= interval.high for interval in intervals.values())
        if not intervals:
            return "no text of a sampled target"
        return f"{prompts}; {apart} of {len(intervals)} intervals leave out {value:g}"

    return {
        "mean": Answer(mean or NOTHING, told(mean, 0.0)),
        "martingale": Answer(weighted or NOTHING, told(weighted, 0.0)),
        "calibration": Answer(slopes or NOTHING, told(slopes, 1.0)),
    }
