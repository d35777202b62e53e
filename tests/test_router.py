"""The offline router: features and probabilities against plain Python, labels against replay, no leak, its file."""

import dataclasses
import hashlib
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

import hedgelab as hl
from experiments import twins
from hedgelab import routing
from hedgelab.algorithms.router import LEARNER
from hedgelab.cli import app
from hedgelab.comparison import compare
from hedgelab.matrix import Role, role_of
from hedgelab.pools import pool
from hedgelab.regret import bootstrap_counts
from hedgelab.router import FORMAT_VERSION, Router, RouterError, grams_of, load_router
from hedgelab.routing import best_drafters, evaluate, folds_of, groups_of, train, validate
from hedgelab.storage.blocks import Block
from hedgelab.storage.typed_json import seal
from hedgelab.trace import Trace, TraceError, open_trace
from tests import strategies
from tests.test_matrix import with_drafters
from tests.test_oracles import expected_rounds

ROOT = Path(__file__).parents[1]
DOMAINS = ("sql", "math", "chat")
V = 1000


def with_prompts(trace, prompts, names=None, vocabulary=V, first_token=None):
    """The same trace with these prompts; names : of each, by default its place."""
    names = [f"prompt {i}" for i in range(len(prompts))] if names is None else names
    prompts = [np.array(ids, np.int32) for ids in prompts]
    ids = [name.encode() for name in names]
    columns = {
        "prompt_token": np.concatenate(prompts),
        "prompt_offsets": strategies.cumulated([len(prompt) for prompt in prompts]),
        "prompt_sha256": np.array([list(hashlib.sha256(prompt.tobytes()).digest()) for prompt in prompts], np.uint8),
        "prompt_id": np.frombuffer(b"".join(ids), np.uint8),
        "prompt_id_offsets": strategies.cumulated([len(name) for name in ids]),
    }
    if first_token is not None:
        columns["first_token"] = np.full(len(prompts), first_token, np.int32)
    manifest = dataclasses.replace(trace.manifest, vocabulary=vocabulary)
    (block,) = trace._blocks
    sizes = {**block._sizes, **manifest.sizes, "P": len(columns["prompt_token"]), "B": len(columns["prompt_id"])}
    made = Trace(manifest, [Block(manifest, "", {**block.stored, **columns}, sizes, block.sequences)], None)
    made.validate_values()
    return made


def toy(sequences=12, seed=0, *, told=True, home=0.9, away=0.2, names=None):
    """Specialists of three domains that win at home; prompts whose words tell the domain, or, not told, are shuffled.

    Every prompt is template ids 1, 2, then six ids of the twelve that its domain has, then an id of its own.
    """
    columns = [[home if i == j else away for j in range(3)] for i in range(3)]
    trace = pool(
        np.array(columns), 40, sequences=sequences, k=4, domains=DOMAINS, drafters=DOMAINS, softness=0.5, seed=seed
    )
    trace = with_drafters(trace, [("ngram", {"domains": [domain]}) for domain in DOMAINS])
    rng = np.random.default_rng(seed)
    words = [10 + 12 * DOMAINS.index(domain) + rng.choice(12, 6, replace=False) for domain in trace.domains]
    if not told:
        words = [words[i] for i in rng.permutation(len(words))]
    own = 100 + 100 * (seed % 9) + np.arange(len(words))
    prompts = [[1, 2, *ids.tolist(), int(last)] for ids, last in zip(words, own, strict=True)]
    return with_prompts(trace, prompts, names or [f"{seed}/{i}" for i in range(len(prompts))])


@pytest.fixture(scope="module")
def trained():
    return train(toy())


# ------------------------------------------------------------------ features and probabilities


def naive_scales(prompts):
    """{gram: ln((1 + n) / (1 + n_g))} of the training prompts; a gram is a tuple of one or two ids."""
    sets = [{(a,) for a in ids} | set(itertools.pairwise(ids)) for ids in prompts]
    counts = {}
    for grams in sets:
        for gram in grams:
            counts[gram] = counts.get(gram, 0) + 1
    return {g: math.log((1 + len(sets)) / (1 + c)) for g, c in counts.items() if 2 <= c < len(sets)}


def naive_features(ids, scales):
    there = {g: scales[g] for g in {(a,) for a in ids} | set(itertools.pairwise(ids)) if g in scales}
    norm = math.sqrt(sum(x * x for x in there.values()))
    return {g: x / norm for g, x in there.items()}


def number(gram, vocabulary=V):
    return gram[0] if len(gram) == 1 else vocabulary + gram[0] * vocabulary + gram[1]


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8), st.integers(2**31, 2**31))
@example([2**31 - 1, 2**31 - 1, 0], 2**31)
@example([0, 0, 1, 0], 2)
def test_grams_are_numbered_one_to_one(ids, vocabulary):
    grams = {(a,) for a in ids} | set(itertools.pairwise(ids))
    found = grams_of(np.array(ids), vocabulary).tolist()
    assert found == sorted(number(gram, vocabulary) for gram in grams)
    assert len(found) == len(grams)


def test_features_equal_plain_python(trained):
    trace = toy()
    prompts = [trace.prompt_tokens(s).tolist() for s in range(trace.sequences)]
    scales = naive_scales(prompts)
    assert trained.grams.tolist() == sorted(map(number, scales))
    assert number((1,)) not in trained.grams  # the template, in all prompts
    for ids in [*prompts, [999], [1], [10, 999, 10, 11]]:
        index, x = trained.features(np.array(ids))
        expected = {number(gram): value for gram, value in naive_features(ids, scales).items()}
        found = dict(zip(trained.grams[index].tolist(), x.tolist(), strict=True))
        assert found == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from([0.1, 1.0, 300.0]))
def test_probabilities_are_the_softmax_of_plain_python(seed, classes, spread):
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 6, rng.integers(1, 9)).tolist() for _ in range(5)]
    scales = naive_scales(prompts)
    order = sorted(scales, key=number)
    weights = (spread * rng.standard_normal((classes, len(order)))).astype(np.float32)
    bias = (spread * rng.standard_normal(classes)).astype(np.float32)
    names = tuple(f"d{i}" for i in range(classes))
    router = Router(
        routing.About(1, names, names, "d0", V, "", 3, 1.0, "t", "0" * 64, "0" * 64),
        np.array([number(gram) for gram in order], np.int64),
        np.array([scales[gram] for gram in order], np.float32),
        weights,
        bias,
        np.zeros((0, 32), np.uint8),
    )
    for ids in prompts:
        x = naive_features(ids, scales)
        scores = [
            float(bias[c]) + math.fsum(float(weights[c, order.index(gram)]) * value for gram, value in x.items())
            for c in range(classes)
        ]
        odds = [math.exp(score - max(scores)) for score in scores]
        expected = [value / math.fsum(odds) for value in odds]
        assert router.probabilities(np.array(ids)).tolist() == pytest.approx(expected, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("count", [2, 3])
def test_probabilities_are_those_of_the_regression(count):
    from sklearn.linear_model import LogisticRegression

    trace = toy()
    trace = trace.select(np.isin(trace.domains, DOMAINS[:count]))  # two classes have one row of coefficients
    router = train(trace, penalty=3.0)
    assert len(router.about.classes) == count
    prompts = [trace.prompt_tokens(s).tolist() for s in range(trace.sequences)]
    scales = naive_scales(prompts)
    order = sorted(scales, key=number)
    x = np.array([[naive_features(ids, scales).get(gram, 0.0) for gram in order] for ids in prompts])
    model = LogisticRegression(C=3.0, max_iter=10_000).fit(x, best_drafters(trace))
    found = np.array([router.probabilities(np.array(ids)) for ids in prompts])
    assert found == pytest.approx(model.predict_proba(x), abs=1e-3)
    assert found.min() < 0.2


# ------------------------------------------------------------------ labels


@given(strategies.traces(), st.integers(1, 5), st.booleans())
def test_labels_are_the_fewest_rounds_by_brute_force(trace, k, shared):
    if len(trace.deep_columns):
        k = min(k, trace.k)
    prompts = [[s // 2 if shared else s] for s in range(trace.sequences)]
    trace = with_prompts(trace, prompts)
    found = best_drafters(trace, k)
    for s in range(trace.sequences):
        same = [r for r in range(trace.sequences) if prompts[r] == prompts[s]]
        rounds = [
            sum(expected_rounds(trace.alpha[trace.offsets[r] : trace.offsets[r + 1], :, i], k) for r in same)
            for i in range(len(trace.drafters))
        ]
        assert rounds[found[s]] == pytest.approx(min(rounds), rel=1e-9)
        assert found[s] == found[same[0]]


def test_labels_are_the_drafters_that_replay_fastest():
    # 0/1 acceptances: no luck is left, a replay is the expectation; equals go to the first
    rng = np.random.default_rng(3)
    alpha = (rng.random((120, 3)) < 0.6).astype(float)
    alpha[:, 2] = alpha[:, 1]
    offsets = np.arange(0, 121, 12)
    trace = hl.Trace.from_arrays(
        token=np.zeros(120, int), alpha=alpha, gamma=alpha, offsets=offsets, domains=["a"] * 10,
        drafters=["x", "y", "z"], k=3,
    )  # fmt: skip
    trace = with_prompts(trace, [[i] for i in range(10)])
    rounds = np.array([hl.replay(trace, hl.learner("fixed", drafter=i), k=3).sequence_rounds for i in range(3)])
    assert best_drafters(trace, 3).tolist() == rounds.argmin(axis=0).tolist()
    assert {0, 1} <= set(best_drafters(trace, 3).tolist())


# ------------------------------------------------------------------ learning


def test_separable_prompts_are_learnt(trained):
    fresh = toy(seed=1)
    found = evaluate(trained, fresh, replicates=2)
    assert (found.route == found.best).mean() == 1.0
    assert fresh.drafters[found.route[0]] == fresh.domains[0]
    assert not found.foreign().any()
    best = hl.oracles.expected_fixed_rounds(toy()).rounds.sum(axis=0).argmin()
    assert set(found.default.tolist()) == {best}
    assert trained.about.default == fresh.drafters[best]
    mats = {name: numbers["mat"].estimate for name, numbers in found.comparison.summary()["all domains"].items()}
    assert mats["router"] == pytest.approx(mats["best fixed per prompt"])
    assert mats["router"] > mats["normalhedge"] > mats["best on training"]
    differences = found.differences()
    assert differences["normalhedge"].low > 0
    assert differences["best on training"].estimate == pytest.approx(mats["router"] - mats["best on training"])
    assert validate(toy(), replicates=1).shares()["all domains"]["accuracy"].estimate == 1.0


def test_shuffled_prompts_are_not():
    # 90 prompts without a bearing on 3 equally frequent labels, 1/3 right by chance. Of Binomial(90, 1/3), 45 or more
    # have probability 8e-4 (the folds' routers are not quite independent); the seed is fixed
    found = validate(toy(30, told=False), replicates=1)
    assert np.bincount(found.best).tolist() == [30, 30, 30]
    assert 15 < (found.route == found.best).sum() < 45


def test_a_domain_left_out_is_sent_abroad():
    found = validate(toy(), by="domain", replicates=1)
    assert found.shares()["all domains"]["foreign"].estimate == 1.0
    assert found.shares()["sql"]["misrouted"].estimate == 1.0
    for domain in DOMAINS:  # what is best on the training texts of each fold
        trace = toy()
        left = hl.oracles.expected_fixed_rounds(trace.select(trace.domains != domain)).best
        assert set(found.default[trace.domains == domain].tolist()) == {left}
    assert found.differences()["normalhedge"].high < 0


def test_one_best_drafter_for_all_prompts():
    trace = pool(np.array([[0.9, 0.1]]), 30, sequences=6, k=3)
    router = train(with_prompts(trace, [[1, i, 5 + i % 2] for i in range(6)]))
    assert router.about.classes == ("drafter0",)
    assert router.probabilities(np.array([999])).tolist() == [1.0]


def test_shares_by_hand():
    trace = toy(4)
    route = np.array([0] * 4 + [0, 1, 1, 1] + [2, 1, 0, 2])  # sql, math, chat
    found = routing._evaluation(trace, "by hand", route, np.zeros(12, int), 4, ["hedge"], 1, 0, lambda _: None)
    assert [role_of(drafter) for drafter in trace.manifest.drafters] == [Role("specialist", name) for name in DOMAINS]
    shares = found.shares()
    assert {name: shares["chat"][name].estimate for name in ("accuracy", "misrouted", "foreign")} == {
        "accuracy": 0.5,
        "misrouted": 0.5,
        "foreign": 0.5,
    }
    assert shares["all domains"]["accuracy"].estimate == pytest.approx(9 / 12)
    assert shares["all domains"]["default_accuracy"].estimate == pytest.approx(4 / 12)
    assert shares["math"]["accuracy"].low < 0.75 < shares["math"]["accuracy"].high
    # a generalist is nobody's specialist
    general = with_drafters(trace, [("ngram", {"domains": list(DOMAINS)})] * 3)
    assert not routing._evaluation(general, "", route, route, 4, ["hedge"], 1, 0, lambda _: None).foreign().any()
    single = routing._evaluation(trace.few_prompts(1), "", route[:3], route[:3], 4, [], 1, 0, lambda _: None)
    assert math.isnan(single.shares()["sql"]["accuracy"].low)
    assert single.document()["shares"]["sql"]["accuracy"]["low"] is None
    assert single.document()["router_minus"]["best on training"]["low"] is None


# ------------------------------------------------------------------ as a policy


@given(st.integers(0, 2**32 - 1))
def test_routed_rounds_are_those_of_replay_under_the_same_coins(seed):
    rng = np.random.default_rng(seed)
    trace = toy(2)
    route = rng.integers(0, 3, trace.sequences)
    run = hl.replay(trace, LEARNER, k=3, context=np.eye(3)[route], seed=5)
    assert run.picks.tolist() == np.repeat(route, run.sequence_rounds).tolist()
    assert run.settings["context"] == "given"
    assert run.caveats == ()
    alone = [hl.replay(trace, hl.learner("fixed", drafter=i), k=3, seed=5).sequence_rounds for i in range(3)]
    assert run.sequence_rounds.tolist() == [alone[i][s] for s, i in enumerate(route)]
    plain = hl.replay(trace, LEARNER, k=3, context=np.eye(3)[route], seed=5, jit=False)
    assert plain.picks.tolist() == run.picks.tolist()
    # a part of the sequences, in another order, meets the same coins
    order = rng.permutation(trace.sequences)[:3]
    some = hl.replay(trace.select(order), LEARNER, k=3, context=np.eye(3)[route[order]], seed=5)
    assert some.sequence_rounds.tolist() == run.sequence_rounds[order].tolist()


def test_a_context_may_hold_any_distribution():
    # each pick is drawn: 40 rows of 3 sequences, mixture 1/2; frequency within 5 standard errors of it
    trace = toy(20)
    run = hl.replay(trace, LEARNER, context=np.tile([0.5, 0.0, 0.5], (trace.sequences, 1)))
    assert set(run.picks.tolist()) == {0, 2}
    assert abs((run.picks == 0).mean() - 0.5) < 5 * 0.5 / math.sqrt(run.rounds)
    twin = twins.LEARNERS["fixed"](3, 1)
    one = hl.replay(trace, LEARNER, context=np.tile(twin.play(None), (trace.sequences, 1)))
    assert set(one.picks.tolist()) == {1}


def test_wrong_contexts():
    trace = toy(2)
    for context, words in (
        (np.eye(3), r"shape \(6, C\), got float64 of shape \(3, 3\)"),
        ("yes", "True, False or an array"),
        (np.full((6, 3), "a"), "real numbers"),
        (np.zeros(6), r"of shape \(6,\)"),
    ):
        with pytest.raises(ValueError, match=words):
            hl.replay(trace, LEARNER, context=context)
    twice = trace.select([0, 1, 0])
    with pytest.raises(ValueError, match="selected twice"):
        hl.replay(twice, LEARNER, context=np.eye(3))
    assert hl.replay(twice, LEARNER, context=np.eye(3)[[0, 1, 0]]).rounds
    for nothing in (False, np.ones((6, 2)), np.full((6, 3), 0.2)):
        with pytest.raises(ValueError, match="did not write a distribution"):
            hl.replay(trace, LEARNER, context=nothing)


def test_routes_in_a_comparison():
    trace = toy(3)
    route = np.arange(9) % 3
    table = compare(trace, ["uniform"], k=3, replicates=2, routes={"router": route})
    expected = hl.oracles.expected_fixed_rounds(trace, k=3).rounds
    (policy,) = [policy for policy in table.policies if policy.name == "router"]
    assert policy.rounds.tolist() == [expected[s, i] for s, i in enumerate(route)]
    assert (policy.kind, policy.feedback) == ("learner", "none")
    # the mean over many coins: 400 replays, within 5 standard errors
    totals = [hl.replay(trace, LEARNER, k=3, context=np.eye(3)[route], replicate=r).rounds for r in range(400)]
    assert abs(np.mean(totals) - policy.rounds.sum()) < 5 * np.std(totals) / 20
    for wrong in (route[:4], route - 1, route + 1, route.astype(float)):
        with pytest.raises(ValueError, match=r"route 'router': a drafter in \[0, 2\]"):
            compare(trace, [], routes={"router": wrong})
    with pytest.raises(ValueError, match="two called 'uniform'"):
        compare(trace, ["uniform"], routes={"uniform": route})


def test_difference_of_two_policies_by_hand():
    trace = toy(5)
    table = compare(trace, ["uniform", "hedge"], k=3, replicates=1)
    rounds = {policy.name: policy.rounds for policy in table.policies}
    tokens = np.diff(trace.offsets)
    draws = [
        sum(c * t for c, t in zip(count, tokens, strict=True))
        * (1 / sum(count * rounds["hedge"]) - 1 / sum(count * rounds["uniform"]))
        for count in bootstrap_counts(trace.conversations, strata=trace.domains)
    ]
    found = table.difference("hedge", "uniform")
    assert found.estimate == pytest.approx(
        tokens.sum() / rounds["hedge"].sum() - tokens.sum() / rounds["uniform"].sum()
    )
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])))
    reverse = table.difference("uniform", "hedge")
    assert reverse == pytest.approx((-found.estimate, -found.high, -found.low))
    with pytest.raises(ValueError, match="no policy 'ftl'"):
        table.difference("hedge", "ftl")


# ------------------------------------------------------------------ nothing leaks


def test_folds_part_prompts_and_conversations():
    # prompt 3 goes on with the answer to prompt 2; prompts 0 and 7 are one text under two names
    trace = toy(4)
    prompts = [trace.prompt_tokens(s).tolist() for s in range(12)]
    path = trace.token[trace.offsets[2] : trace.offsets[3]].tolist()
    prompts[3] = [*prompts[2], 9, *path, 5]
    prompts[7] = prompts[0]
    trace = with_prompts(trace, prompts, vocabulary=2000, first_token=9)
    groups = groups_of(trace)
    assert trace.conversations[3] == trace.prompt_ids[2]
    assert groups[3] == groups[2] != groups[0] == groups[7]
    assert len(set(groups)) == 10
    for by, folds in (("prompt", 2), ("prompt", 5), ("domain", 5)):
        tested = np.zeros(12, int)
        for training, test in folds_of(trace, by, folds, 0):
            tested += test
            assert not set(groups[training]) & set(groups[test])
            assert not set(trace.prompt_ids[training]) & set(trace.prompt_ids[test])
            hashes = [{row.tobytes() for row in trace.column("prompt_sha256")[mask]} for mask in (training, test)]
            assert not hashes[0] & hashes[1]
            if by == "domain":
                assert len(set(trace.domains[test])) == 1
                assert not set(trace.domains[test]) & set(trace.domains[training])
        assert tested.tolist() == [1] * 12


def test_folds_hold_every_domain_and_follow_the_seed():
    trace = toy(10)
    first, other = ([test.tolist() for _, test in folds_of(trace, "prompt", 5, seed)] for seed in (0, 1))
    assert first == [test.tolist() for _, test in folds_of(trace, "prompt", 5, 0)] != other
    for test in first:
        assert [int((trace.domains[test] == name).sum()) for name in DOMAINS] == [2, 2, 2]


def test_groups_join_through_chains_of_shared_prompts():
    chain = with_prompts(toy(2), [[1], [2], [3], [1], [2], [1]], ["a", "b", "c", "b", "d", "e"])
    assert groups_of(chain).tolist() == ["a", "a", "c", "a", "a", "a"]


def test_validation_never_shows_a_router_its_test_prompts(monkeypatch):
    trained_on, routed = [], []

    def spying(trace, *args, **options):
        trained_on.append(set(trace.prompt_ids))
        return train(trace, *args, **options)

    route = Router.route
    monkeypatch.setattr(routing, "train", spying)
    monkeypatch.setattr(Router, "route", lambda self, trace: routed.append(set(trace.prompt_ids)) or route(self, trace))
    trace = toy()
    validate(trace, replicates=1)
    assert len(trained_on) == len(routed) == 5
    for training, test in zip(trained_on, routed, strict=True):
        assert not training & test
        assert training | test == set(trace.prompt_ids)


def test_a_router_is_not_evaluated_on_its_own_prompts(trained):
    own = toy()
    mixed = with_prompts(toy(seed=1), [own.prompt_tokens(0), *(toy(seed=1).prompt_tokens(s) for s in range(1, 36))])
    assert trained.seen(mixed).tolist() == [True] + [False] * 35
    for trace, count in ((own, 36), (mixed, 1)):
        with pytest.raises(RouterError, match=f"{count} of the 36 texts .* trained on"):
            evaluate(trained, trace)
    assert "36 of 36 texts seen" in evaluate(trained, own, include_seen=True, replicates=1).how
    # a later turn of a conversation that began with a prompt trained on
    fresh = toy(seed=1)
    path = fresh.token[: fresh.offsets[1]].tolist()
    prompts = [fresh.prompt_tokens(s).tolist() for s in range(36)]
    prompts[0] = own.prompt_tokens(0).tolist()
    prompts[1] = [*prompts[0], 9, *path, 5]
    assert trained.seen(with_prompts(fresh, prompts, first_token=9)).tolist() == [True] * 2 + [False] * 34


# ------------------------------------------------------------------ what fits what


def test_a_router_needs_its_tokenizer_and_drafters(trained):
    trace = toy(seed=1)
    other = dataclasses.replace(trace.manifest, tokenizer_sha256="ab" * 32)
    with pytest.raises(RouterError, match="tokenizer sha256 unknown with 1000 ids; trace 'arrays' has abababababab"):
        trained.route(Trace(other, trace._blocks, None))
    larger = dataclasses.replace(trace.manifest, vocabulary=V + 1)
    with pytest.raises(RouterError, match="with 1001"):
        evaluate(trained, Trace(larger, trace._blocks, None))
    with pytest.raises(RouterError, match="has not: math; it has sql, chat"):
        trained.route(trace.among(["sql", "chat"]))


def test_more_drafters_in_another_order_are_no_matter(trained):
    trace = toy(seed=1)
    means = [[0.1, 0.2, 0.95, 0.2, 0.9], [0.1, 0.2, 0.95, 0.9, 0.2], [0.1, 0.9, 0.95, 0.2, 0.2]]
    names = ["extra", "chat", "winner", "math", "sql"]
    more = pool(np.array(means), 40, sequences=12, k=4, domains=DOMAINS, drafters=names, seed=1)
    more = with_prompts(more, [trace.prompt_tokens(s) for s in range(36)])
    assert [names[i] for i in trained.route(more)] == list(more.domains)
    found = evaluate(trained, more, replicates=1)  # nobody may choose the winner, which the router does not know
    assert found.trace.drafters == ("chat", "math", "sql")
    assert (found.route == found.best).all()
    assert trained.contexts(more).argmax(axis=1).tolist() == trained.route(more).tolist()


def test_what_cannot_be_trained():
    trace = pool(np.full((2, 2), 0.5), 20, sequences=3)
    with pytest.raises(RouterError, match="without a prompt"):
        train(trace)
    with pytest.raises(RouterError, match="without a prompt"):
        validate(trace)
    with pytest.raises(RouterError, match="no token is shared by at least two of the 6"):
        train(with_prompts(trace, [[i] for i in range(6)]))
    with pytest.raises(RouterError, match="penalty"):
        train(toy(), penalty=0.0)
    for options, words in (
        ({"by": "text"}, "prompt, domain"),
        ({"folds": 1}, "at least 2"),
        ({"folds": True}, "folds"),
    ):
        with pytest.raises(ValueError, match=words):
            validate(toy(), **options)
    lonely = toy()
    with pytest.raises(RouterError, match="nothing is left to train on"):
        validate(lonely.select(lonely.domains == "sql"), by="domain")


# ------------------------------------------------------------------ the file


def test_a_file_holds_the_router(trained, tmp_path):
    trained.save(tmp_path / "a.safetensors")
    again = load_router(tmp_path / "a.safetensors")
    assert again.about == trained.about
    fresh = toy(seed=1)
    for s in range(fresh.sequences):
        ids = fresh.prompt_tokens(s)
        assert again.probabilities(ids).tolist() == trained.probabilities(ids).tolist()
    train(toy()).save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def rewritten(router, file, *, key="router", resealed=True, drop=(), **changes):
    """Write a router's file with other entries or arrays, sealed and hashed anew."""
    arrays = {name: getattr(router, name) for name in ("grams", "scale", "weights", "bias", "trained_on")}
    arrays |= {name: changes.pop(name) for name in tuple(changes) if name in arrays or name == "extra"}
    arrays = {name: array for name, array in arrays.items() if name not in drop}
    about = {**vars(router.about), **changes}
    if resealed and set(arrays) == {"grams", "scale", "weights", "bias", "trained_on"}:
        about["arrays_sha256"] = routing.arrays_hash(arrays)
    about = {name: list(value) if isinstance(value, tuple) else value for name, value in about.items()}
    file.write_bytes(safetensors.numpy.save(arrays, {key: seal(about).decode()}))
    return file


def test_an_honest_rewriting_is_read(trained, tmp_path):
    assert load_router(rewritten(trained, tmp_path / "r")).about == trained.about


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 2}, "format_version: is 2; this hedgelab reads 1"),
        ({"format_version": True}, "format_version: is True"),
        ({"k": 0}, r"k: is 0; allowed: in \[1, 32767\]"),
        ({"unheard": 1}, "unheard: unknown field"),
        ({"drafters": ("sql", "math")}, "'chat' is none of its drafters"),
        ({"default": "nobody"}, "'nobody' is none of its drafters"),
        ({"classes": ("sql", "sql", "chat")}, "classes: must be different names"),
        ({"bias": np.zeros(2, np.float32)}, r"bias: is float32 of shape \(2,\); allowed: float32 of shape \(3,\)"),
        ({"bias": np.zeros(3)}, "bias: is float64"),
        ({"bias": np.full(3, np.nan, np.float32)}, "must be finite"),
        ({"drop": ("bias",)}, "holds arrays grams, scale, trained_on, weights; allowed"),
        ({"extra": np.zeros(1)}, "holds arrays bias, extra"),
        ({"bias": np.zeros(3, np.float32), "resealed": False}, "do not match the hash"),
        ({"key": "other"}, "is no router"),
    ],
)
def test_wrong_files(trained, tmp_path, changes, words):
    with pytest.raises(RouterError, match=words):
        load_router(rewritten(trained, tmp_path / "r", **changes))


def test_wrong_bytes(trained, tmp_path):
    file = tmp_path / "r"
    with pytest.raises(RouterError, match="is missing"):
        load_router(file)
    file.write_bytes(b"not a router")
    with pytest.raises(RouterError, match="r: cannot be read"):
        load_router(file)
    with pytest.raises(RouterError, match="not a regular file"):
        load_router(tmp_path)
    rewritten(trained, file, grams=trained.grams[::-1].copy())
    with pytest.raises(RouterError, match="must ascend"):
        load_router(file)
    trained.save(file)
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 40):  # a changed bit is never read as a router
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(damaged))
        with pytest.raises(RouterError):
            load_router(file)


def test_the_version_that_is_written_is_read():
    assert FORMAT_VERSION == 1


# ------------------------------------------------------------------ some of the drafters


@given(strategies.trace_arguments(), st.data())
def test_among_is_the_trace_recorded_with_fewer_drafters(arguments, data):
    trace = Trace.from_arrays(**arguments)
    n = len(trace.drafters)
    kept = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    few = trace.among([trace.drafters[i] for i in reversed(kept)])
    few.validate_values()
    assert few.drafters == tuple(trace.drafters[i] for i in kept)
    rounds = hl.oracles.expected_fixed_rounds(trace).rounds
    assert hl.oracles.expected_fixed_rounds(few).rounds.tolist() == rounds[:, kept].tolist()
    assert few.proposed.tolist() == trace.proposed[:, kept].tolist()
    assert np.array_equal(few.confidence, trace.confidence[:, kept], equal_nan=True)
    depth = few.alpha.shape[1]
    assert np.array_equal(few.gamma, trace.gamma[:, :depth, kept], equal_nan=True)
    assert few.sha256 != trace.sha256 or kept == list(range(n))
    some = trace.select([trace.sequences - 1]).among([trace.drafters[kept[0]]])
    assert some.token.tolist() == trace.token[trace.offsets[-2] :].tolist()


def test_among_of_a_trace_on_disk(tmp_path):
    trace = hl.sample_trace("logits")
    few = trace.among(["ngram-sql", "eagle-sql", "lookup"])
    assert few.drafters == ("lookup", "ngram-sql", "eagle-sql")
    assert few.sha256 == trace.among(["lookup", "eagle-sql", "ngram-sql"]).sha256
    assert few.sha256 != trace.among(["lookup", "eagle-sql"]).sha256 != trace.sha256
    few.save(tmp_path / "few", encodings="compact")
    again = open_trace(tmp_path / "few")
    assert again.check() == []
    place = [trace.drafters.index(name) for name in few.drafters]
    assert np.array_equal(again.column("logit_q"), trace.column("logit_q")[:, place], equal_nan=True)
    assert again.prompt_ids.tolist() == trace.prompt_ids.tolist()
    for wrong, words in ((["nobody"], "among: no drafter 'nobody'; there are lookup"), ([], "no drafter is named")):
        with pytest.raises(TraceError, match=words):
            trace.among(wrong)


# ------------------------------------------------------------------ the command line


def run(*arguments, status=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == status, result.output + result.stderr
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("router")
    toy().save(folder / "train")
    toy(seed=1).save(folder / "test")
    run("router", "train", folder / "train", "--out", folder / "new" / "r.safetensors")
    return folder


def test_commands(home):
    file = home / "new" / "r.safetensors"
    text = run("router", "evaluate", file, home / "test", "--replicates", 1).stdout
    for words in ("sent to the best", "router minus it", "best on training", "1.00 [1.00, 1.00]", "trained on arrays"):
        assert words in text
    document = json.loads(run("router", "evaluate", file, home / "test", "--learner", "hedge", "--json").stdout)
    assert document["shares"]["all domains"]["accuracy"] == {"estimate": 1.0, "low": 1.0, "high": 1.0}
    assert set(document["router_minus"]) > {"hedge", "best fixed per prompt"}
    refused = run("router", "evaluate", file, home / "train", status=2).stderr
    assert "trained on" in refused
    run("router", "evaluate", file, home / "train", "--include-seen", "--replicates", 1)
    by_domain = json.loads(run("router", "validate", home / "train", "--by", "domain", "--json").stdout)
    assert by_domain["shares"]["all domains"]["foreign"]["estimate"] == 1.0
    few = json.loads(run("router", "validate", home / "train", "--among", "s*", "--among", "chat", "--json").stdout)
    assert few["drafters"] == ["sql", "chat"]
    assert "matches none" in run("router", "validate", home / "train", "--among", "x*", status=2).stderr
    assert "is missing" in run("router", "evaluate", home / "nothing", home / "test", status=2).stderr


def test_the_router_stands_beside_learners(home, tmp_path):
    file = home / "new" / "r.safetensors"
    document = json.loads(run("replay", home / "test", "--router", file, "--json").stdout)
    assert document["policies"]["router"] == {"kind": "learner", "feedback": "none"}
    assert document["router"]["classes"] == list(DOMAINS)
    pooled = document["results"]["all domains"]
    assert pooled["router"]["mat"] == pooled["best fixed per prompt"]["mat"]
    demo = run("demo", "--trace", home / "test", "--router", file, "--replicates", 1, "--figure", tmp_path / "f.png")
    assert "router" in demo.stdout
    assert "trained on" in run("replay", home / "train", "--router", file, status=2).stderr
    assert "has not: chat" in run("replay", home / "test", "--among", "[!c]*", "--router", file, status=2).stderr
    assert "router" not in json.loads(run("replay", home / "test", "--json").stdout)["policies"]
    run("router", "train", home / "train", "--among", "sql", "--among", "chat", "--out", tmp_path / "two")
    note = run("replay", home / "test", "--router", tmp_path / "two").stderr
    assert "note: the router chooses among 2 of 3 drafters" in note


def test_without_scikit_learn(home, tmp_path):
    """Everything but training works where the package is not installed; training says what to install."""
    script = f"""
import sys
sys.modules["sklearn"] = None  # as if it were not installed
import hedgelab as hl
from hedgelab.router import load_router
from typer.testing import CliRunner
from hedgelab.cli import app
router, trace = load_router({str(home / "new" / "r.safetensors")!r}), hl.open_trace({str(home / "test")!r})
assert [trace.drafters[i] for i in router.route(trace)] == list(trace.domains)
arguments = ["router", "train", {str(home / "train")!r}, "--out", {str(tmp_path / "no")!r}]
result = CliRunner().invoke(app, arguments)
assert result.exit_code == 2, result.output
assert "scikit-learn: pip install -e '.[router]'" in " ".join(result.stderr.split()), result.stderr
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
    assert not (tmp_path / "no").exists()


# ------------------------------------------------------------------ real traces


def test_specialists_of_the_bundled_trace():
    """What the offline router can do and what not: nearly every prompt to its best specialist, none of a new domain."""
    trace = hl.sample_trace("t06")
    names = [
        name for name in trace.drafters if name.startswith("truncated-") and name.rpartition("-")[2] in trace.domains
    ]
    specialists = trace.among(names)
    assert len(names) == 7
    inside = validate(specialists, k=5, replicates=1)
    assert inside.shares()["all domains"]["accuracy"].low > 0.85
    assert inside.differences()["best fixed drafter"].low > 0.3
    outside = validate(specialists, by="domain", k=5, replicates=1)
    assert outside.shares()["all domains"]["accuracy"].high < 0.05
    assert outside.differences()["normalhedge"].high < -0.3


def test_the_configuration_of_the_training_trace():
    from traces.config import load_config

    config, _ = load_config(ROOT / "traces" / "configs" / "router-train.yaml")
    pool_of, _ = load_config(ROOT / "traces" / "configs" / "t06.yaml")
    assert (config.prompts.split, config.prompts.count, config.k, config.max_new_tokens) == ("train", 16, 6, 96)
    assert config.drafters == pool_of.drafters
    assert config.processing.temperature == 0.6
