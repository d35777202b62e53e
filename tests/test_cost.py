"""Modelled seconds of a replay against a slow twin, and the file that holds the costs of calls."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import hedgelab as hl
from hedgelab.cli import app
from hedgelab.comparison import compare
from hedgelab.cost import (
    Costs,
    CostsError,
    DrafterCost,
    LearnerCost,
    Machine,
    Points,
    Seconds,
    TargetCost,
    bill,
    fixed_bills,
    unknown,
)
from hedgelab.cost_table import calls, speedups
from hedgelab.storage.manifest import Model
from hedgelab.storage.typed_json import seal

K = 3
KINDS = [
    ("a", "ngram", "chain", 1),
    ("b", "lookup", "one_hot", K),
    ("c", "tree", "tree", K),
    ("d", "causal", "chain", 1),
]
LEARNERS = ("fixed", "uniform", "hedge", "ucb1", "normalhedge")


def exactly(value):
    return Seconds(value, value, value)


def points(*pairs):
    return Points(tuple(n for n, _ in pairs), tuple(exactly(value) for _, value in pairs))


def costs_of(rng, over="d", evaluated=4):
    """Costs that are small dyadic numbers, so that sums in any order are the same."""

    def one():
        return float(rng.integers(1, 1 << 10)) / 1024

    def table(*tokens):
        return points(*zip(tokens, np.cumsum([one() for _ in tokens]).tolist(), strict=True))

    drafters = {}
    for name, kind, rule, depth in KINDS:
        draft = tuple(exactly(one()) for _ in range(K))
        nodes = (2.0, 4.0, 7.0) if kind == "tree" else None
        evaluate = table(1, evaluated) if depth == 1 else table(1)
        drafters[name] = DrafterCost(kind, rule, depth, draft, nodes, evaluate, over if kind == "tree" else None)
    return Costs(
        format_version=1, measured="2026-01-01", machine=Machine("abacus", 1, "stone", ""), device="cpu", threads=1,
        dtype="float32", k=K, prefix=200, repeats=1, versions={}, drafters=drafters,
        target=TargetCost(Model("t", "", "", "", "float32", ""), exactly(one()), table(1, 2, 4, 8)),
        learners={name: LearnerCost(exactly(one()), exactly(one())) for name in LEARNERS},
    )  # fmt: skip


def trace_of(rng, lengths, keep=range(4)):
    """A random trace of the drafters of KINDS."""
    rows, kinds = sum(lengths), [KINDS[i] for i in keep]
    alpha = rng.random((rows, K, len(kinds))).astype(np.float32)
    trace = hl.Trace.from_arrays(
        token=np.zeros(rows, np.int32), alpha=alpha, gamma=alpha, offsets=np.cumsum([0, *lengths]),
        domains=[*"xy" * (len(lengths) // 2), *"x" * (len(lengths) % 2)], drafters=[name for name, *_ in kinds], k=K,
    )  # fmt: skip
    named = tuple(
        dataclasses.replace(said, kind=kind, rule=rule)
        for said, (_, kind, rule, _) in zip(trace.manifest.drafters, kinds, strict=True)
    )
    trace.manifest = dataclasses.replace(trace.manifest, drafters=named)
    return trace


def naive_line(table, n):
    """Seconds of n tokens between measured numbers of them, in blocks beyond the last."""
    most = table.tokens[-1]
    if n > most:
        return table_at(table, most) + naive_line(table, n - most)
    return table_at(table, n)


def table_at(table, n):
    known = {0: Fraction(0)} | {t: Fraction(s.median) for t, s in zip(table.tokens, table.seconds, strict=True)}
    if n in known:
        return known[n]
    low, high = max(t for t in known if t < n), min(t for t in known if t > n)
    return known[low] + (known[high] - known[low]) * Fraction(n - low, high - low)


def naive_seconds(run, costs, every, turn):
    """Round by round, drafter by drafter, with what each has not been scored on."""
    names, k = run.trace.drafters, run.settings["k"]
    learner = costs.learners[run.learner.name]
    found, r = [], 0
    for count in run.sequence_rounds.tolist():
        owed, turns = dict.fromkeys(names, 0), 0
        for within in range(count):
            pick, committed = names[run.picks[r]], int(run.committed[r])
            chosen = costs.drafters[pick]
            total = Fraction(chosen.draft[k - 1].median)
            drafted = int(run.proposed[r]) if chosen.nodes is None else int(chosen.nodes[k - 1])
            total += table_at(costs.target.verify, drafted + 1)
            for name in names:
                shown = min(committed, k) if name == pick and chosen.depth == 1 else 0
                owed[name] += committed - shown
            if every and (within + 1) % every == 0:
                groups = [names[i : i + turn] for i in range(0, len(names), turn)]
                for name in groups[turns % len(groups)]:
                    total += naive_line(costs.drafters[name].evaluate, owed[name])
                    over = costs.drafters[name].over
                    if over is not None and over not in names:
                        total += naive_line(costs.drafters[over].evaluate, owed[name])
                    owed[name] = 0
                turns += 1
            total += Fraction(learner.play.median)
            times = 1 if run.settings["feedback"] == "bandit" else committed
            found.append(total + times * Fraction(learner.observe.median))
            r += 1
    return found


@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.sampled_from(LEARNERS[1:]),
    st.integers(1, K),
    st.integers(0, 4),
    st.integers(1, 4),
    st.sampled_from([(0, 1, 2, 3), (0, 1, 2), (2,), (1, 0, 3)]),
)
def test_seconds_equal_a_slow_twin(seed, lengths, learner, k, every, turn, keep):
    rng = np.random.default_rng(seed)
    trace, costs = trace_of(rng, lengths, keep), costs_of(rng)
    run = hl.replay(trace, learner, k=k, seed=seed % 1000)
    found = bill(run, costs, every=every, drafters=min(turn, len(keep)))
    expected = naive_seconds(run, costs, every, min(turn, len(keep)))
    own = found.draft + found.verify + found.evaluate + found.learn
    np.testing.assert_allclose(own, [float(value) for value in expected], rtol=1e-12)
    total = float(sum(expected))
    assert math.isclose(found.seconds, total, rel_tol=1e-12)
    assert math.isclose(found.tokens_per_second, trace.rows / total, rel_tol=1e-12)
    assert math.isclose(found.speedup, trace.rows * costs.target.step.median / total, rel_tol=1e-12)
    by_sequence = np.split(own, np.cumsum(run.sequence_rounds)[:-1])
    np.testing.assert_allclose(found.by_sequence, [part.sum() for part in by_sequence], rtol=1e-12)


def test_full_information_pays_for_every_drafter_and_bandits_for_none():
    rng = np.random.default_rng(0)
    trace, costs = trace_of(rng, [9, 12]), costs_of(rng)
    full, bandit = (hl.replay(trace, name, k=K) for name in ("hedge", "ucb1"))
    assert bill(full, costs).evaluate.min() > 0
    assert not bill(bandit, costs).evaluate.any()
    np.testing.assert_array_equal(bill(full, costs).evaluate, bill(full, costs, every=1, drafters=4).evaluate)


def test_laws_that_two_readings_share_are_paid_once():
    rng = np.random.default_rng(7)
    costs, trace = costs_of(rng), trace_of(rng, [10, 14], (2, 0))
    free = dataclasses.replace(costs.drafters["c"], evaluate=points((1, 0.0)))
    # two trees that read the laws of d, at no cost of their own
    names = [dataclasses.replace(said, kind="tree", rule="tree") for said in trace.manifest.drafters]
    trace.manifest = dataclasses.replace(trace.manifest, drafters=tuple(names))
    run = hl.replay(trace, hl.learner("fixed", drafter="c"), k=K)
    twice = bill(run, dataclasses.replace(costs, drafters={**costs.drafters, "a": free, "c": free}), every=1)
    laws = costs.drafters["d"].evaluate
    np.testing.assert_allclose(twice.evaluate, [float(naive_line(laws, n)) for n in run.committed.tolist()])


def test_a_drafter_of_most_layers_is_slower_than_plain_decoding():
    # every draft accepted: k + 1 tokens a round, the most there can be
    trace = hl.Trace.from_arrays(
        token=np.zeros(70, np.int32), alpha=np.ones((70, 1)), gamma=np.ones((70, 1)), offsets=[0, 70], domains=["x"],
        drafters=["a"], k=6,
    )  # fmt: skip
    trace.manifest = dataclasses.replace(
        trace.manifest, drafters=(dataclasses.replace(trace.manifest.drafters[0], kind="truncated", rule="chain"),)
    )
    layers = 23 / 30
    deep = DrafterCost(
        "truncated", "chain", 1, tuple(exactly(layers * (j + 1)) for j in range(6)), None, points((1, 0))
    )
    costs = dataclasses.replace(
        costs_of(np.random.default_rng(1)), k=6, drafters={"a": deep},
        target=TargetCost(Model("t", "", "", "", "float32", ""), exactly(1.0), points((1, 1.0), (7, 2.5))),
    )  # fmt: skip
    ((only, *_),) = fixed_bills(trace, costs, k=6).values()
    assert only.speedup == pytest.approx(7 / (6 * layers + 2.5))
    assert only.speedup < 1
    assert not only.learn.any()


def test_costs_that_are_not_known_are_named():
    rng = np.random.default_rng(2)
    trace, costs = trace_of(rng, [8, 8]), costs_of(rng)
    few = dataclasses.replace(costs, drafters={name: cost for name, cost in costs.drafters.items() if name != "d"})
    assert unknown(trace, few) == {"c": "reads 'd', which was not measured", "d": "not measured"}
    with pytest.raises(CostsError, match=r"no cost is known of c \(reads 'd'.*\); d \(not measured\)"):
        bill(hl.replay(trace, "hedge", k=K), few)
    fixed = hl.replay(trace, hl.learner("fixed", drafter="a"), k=K)
    assert bill(fixed, few).seconds > 0  # asks for what it uses alone
    with pytest.raises(CostsError, match="k is 3; costs were measured for drafts of at most 2"):
        bill(fixed, dataclasses.replace(costs, k=2))
    with pytest.raises(CostsError, match="learner squint"):
        bill(hl.replay(trace, "squint", k=K), costs)
    undrafted = dataclasses.replace(costs.drafters["a"], draft=None, note="too many tokens")
    with pytest.raises(CostsError, match=r"a \(drafting was not measured: too many tokens\)"):
        bill(fixed, dataclasses.replace(costs, drafters={**costs.drafters, "a": undrafted}))
    other = dataclasses.replace(costs.drafters["a"], kind="causal")
    assert (
        "measured as causal" in unknown(trace, dataclasses.replace(costs, drafters={**costs.drafters, "a": other}))["a"]
    )
    elsewhere = dataclasses.replace(costs.target, model=Model("other", "", "", "f" * 64, "", ""))
    assert set(unknown(trace, dataclasses.replace(costs, target=elsewhere))) == set("abcd")
    for arguments, words in (({"every": -1}, "every must be"), ({"drafters": 5}, r"drafters must be .* \[1, 4\]")):
        with pytest.raises(ValueError, match=words):
            bill(fixed, costs, **arguments)


def test_more_tokens_than_were_measured_at_once_are_refused_for_the_target_alone():
    table = points((1, 1.0), (3, 2.0))
    with pytest.raises(CostsError, match="4 tokens at once; measured: 1 to 3"):
        table.at(4)
    assert table.in_blocks([0, 2, 3, 7]).tolist() == [0.0, 1.5, 2.0, 5.0]


# ------------------------------------------------------------------ the file


def test_costs_are_the_same_after_a_round_trip(tmp_path):
    costs = costs_of(np.random.default_rng(3))
    costs.save(tmp_path / "costs.json")
    assert Costs.load(tmp_path / "costs.json") == costs
    raw = (tmp_path / "costs.json").read_bytes()
    (tmp_path / "costs.json").write_bytes(raw.replace(b'"prefix": 200', b'"prefix": 201'))
    with pytest.raises(CostsError, match="do not match its own sha256"):
        Costs.load(tmp_path / "costs.json")
    with pytest.raises(CostsError, match="cannot be read"):
        Costs.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("format_version",), 2, "format_version is 2; accepted: 1"),
        (("threads",), 0, "threads: is 0; allowed"),
        (("machine", "processor"), 3, "machine.processor: is an integer"),
        (("target", "step", "median"), -1.0, "target.step.median: is -1.0"),
        (("drafters", "a", "draft"), [], "drafters.a.draft: has 0 entries; allowed: k = 3"),
        (("drafters", "c", "nodes"), [1.0], "drafters.c.nodes: has 1 entries"),
        (("drafters", "c", "draft"), None, "drafters.c.nodes: is given without draft"),
        (("drafters", "a", "rule"), "luck", "drafters.a.rule: is 'luck'"),
        (("target", "verify", "tokens"), [1, 4, 2, 8], "target.verify.tokens: do not ascend"),
        (("target", "verify", "tokens"), [1], "target.verify: has 1 tokens, 4 seconds"),
        (("drafters", "b", "evaluate"), {"tokens": [], "seconds": []}, "drafters.b.evaluate: has 0 tokens"),
    ],
)
def test_damaged_files_are_told_by_place(path, value, words):
    document = json.loads(costs_of(np.random.default_rng(4)).to_json())
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    del document["sha256"]
    with pytest.raises(CostsError, match=words.replace("[", r"\[").replace(".", r"\.")):
        Costs.from_json(seal(document))


def test_bundled_costs_know_the_bundled_traces():
    costs = Costs.load()
    for name in ("t06", "greedy", "t10"):
        assert set(unknown(hl.sample_trace(name), costs).values()) <= {"not measured"}
    assert costs.target.verify.tokens[0] == 1
    assert costs.machine.processor
    kinds = {cost.kind for cost in costs.drafters.values()}
    assert {"lookup", "ngram", "head", "truncated", "exit"} <= kinds


# ------------------------------------------------------------------ what is shown


def test_comparisons_show_speedups_where_costs_are_known():
    rng = np.random.default_rng(5)
    trace, costs = trace_of(rng, [20] * 8), costs_of(rng)
    policies = ["hedge", "ucb1", "squint"]
    table = compare(trace, policies, k=K, replicates=2, objective="length", costs=costs)
    numbers = table.summary()["all domains"]
    assert "speedup" not in numbers["squint"]
    assert "speedup" not in numbers["informed switching"]
    bills = [bill(hl.replay(trace, "hedge", k=K, replicate=each), costs) for each in range(2)]
    plain, seconds = trace.rows * costs.target.step.median, np.mean([each.seconds for each in bills])
    assert numbers["hedge"]["speedup"].estimate == pytest.approx(plain / seconds)
    assert numbers["hedge"]["speedup"].low < plain / seconds < numbers["hedge"]["speedup"].high
    alone = fixed_bills(trace, costs, k=K, replicates=2)[table.best_fixed]
    plays = trace.rows * costs.target.step.median / np.mean([each.seconds for each in alone])
    assert numbers["best fixed drafter"]["speedup"].estimate == pytest.approx(plays)
    assert "speedup" not in compare(trace, ["hedge"], k=K, replicates=1).summary()["all domains"]["hedge"]


def test_a_route_costs_what_its_drafters_cost_alone():
    rng = np.random.default_rng(7)
    trace, costs = trace_of(rng, [20] * 8), costs_of(rng)
    names, route = trace.drafters, np.array([0, 1, 2, 0, 1, 2, 0, 1])
    table = compare(trace, ["hedge"], k=K, replicates=2, routes={"route": route}, costs=costs)
    bills = fixed_bills(trace, costs, k=K, replicates=2)
    seconds = sum(each.by_sequence[s] for s, i in enumerate(route) for each in bills[names[i]]) / 2
    speedup = trace.rows * costs.target.step.median / seconds
    assert table.summary()["all domains"]["route"]["speedup"].estimate == pytest.approx(speedup)
    few = dataclasses.replace(costs, drafters={name: costs.drafters[name] for name in names[:2]})
    table = compare(trace, ["hedge"], k=K, replicates=2, routes={"route": route}, costs=few)
    assert "speedup" not in table.summary()["all domains"]["route"]


def test_longer_drafts_than_were_measured_are_refused():
    rng = np.random.default_rng(8)
    trace, costs = trace_of(rng, [20] * 8), costs_of(rng)
    short = dataclasses.replace(costs, k=K - 1)
    for ask in (lambda: compare(trace, ["hedge"], k=K, costs=short), lambda: speedups(trace, short, k=K)):
        with pytest.raises(CostsError, match=f"k is {K}; costs were measured for drafts of at most {K - 1}"):
            ask()


def test_tables_show_a_dash_where_nothing_is_known():
    rng = np.random.default_rng(6)
    trace, costs = trace_of(rng, [20] * 8), costs_of(rng)
    few = dataclasses.replace(costs, drafters={name: costs.drafters[name] for name in ("a", "b")})
    rows = {row[0]: row[2:] for row in speedups(trace, few, k=K).rows}
    assert rows["c"] == rows["d"] == ["-"] * 5
    bills = fixed_bills(trace, few, k=K)["a"]
    speedup = trace.rows * costs.target.step.median / np.mean([each.seconds for each in bills])
    assert rows["a"][-1].startswith(f"{speedup:.2f} [")
    undrafted = dataclasses.replace(costs.drafters["a"], draft=None)
    _, drafters, _ = calls(dataclasses.replace(few, drafters={"a": undrafted, "b": costs.drafters["b"]}))
    assert drafters.rows[0][2:5] == ["-", "-", "-"]
    level = (costs.drafters["b"].draft[-1].median + costs.target.verify.seconds[2].median) / costs.target.step.median
    assert drafters.rows[1][4] == f"{level:.2f}"


def test_the_command_line(tmp_path):
    trace = hl.sample_trace("t06").few_prompts(2)
    trace.save(tmp_path / "few")
    plain = CliRunner().invoke(app, ["replay", str(tmp_path / "few"), "--k", "5"])
    assert "speed-up" not in plain.output
    told = CliRunner().invoke(app, ["replay", str(tmp_path / "few"), "--k", "5", "--costs", "bundled"])
    assert told.exit_code == 0, told.output
    assert "modelled speed-up" in told.output
    table = CliRunner().invoke(app, ["costs", str(tmp_path / "few"), "--markdown", "--replicates", "1"])
    assert table.exit_code == 0, table.output
    rows = {line.split(" | ")[0].strip("| "): line for line in table.output.splitlines() if line.startswith("| ")}
    assert set(trace.drafters) <= set(rows)
    missing = CliRunner().invoke(app, ["replay", str(tmp_path / "few"), "--costs", "none.json"])
    assert missing.exit_code == 2
    assert "none.json: cannot be read" in missing.output
