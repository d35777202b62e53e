"""Claim 8: an independent recount of its numbers, planted errors that must flip verdicts, and its figure."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hedgelab as hl
from experiments.claim import CANNOT_TELL, FAILS, HOLDS, Result, Results, findings
from experiments.claims import out_of_distribution as claim
from experiments.claims.out_of_distribution import Table, measure, of_kind
from experiments.claims.out_of_distribution.asked import SPECIALISTS
from experiments.claims.out_of_distribution.splices import BEFORE, LEARNERS, LINES, NEW, ROUTER, groups_of, splice
from experiments.rounds import members
from hedgelab import routing
from paper_figures import router as figure
from tests.strategies_claims import changed, verdict

ROUTES = {"what": "routes", "trace": "t06", "pool": SPECIALISTS, "by": "domain", "k": 3, "replicates": 2, "prompts": 4}


KNOWN: list[Result] = []


@pytest.fixture(scope="module", autouse=True)
def _computed(quick: Callable[[str], Results]) -> None:
    KNOWN[:] = quick("out_of_distribution")


def known() -> Results:
    """Return the results of the quick settings."""
    return Results(KNOWN)


@functools.cache
def pool(prompts: int) -> hl.Trace:
    trace = hl.sample_trace("t06").few_prompts(prompts)
    return trace.among(members(trace, SPECIALISTS))


def naive_expected_rounds(accept: list[float], k: int) -> float:
    """Return the rounds that a flat drafter needs on average, walking forward over where rounds begin."""
    length = len(accept)
    begins = [1.0] + [0.0] * length  # probability that a round begins at a row
    for t in range(length):
        alive = begins[t]
        for d in range(k):
            if t + d >= length:
                break
            if t + d + 1 < length:
                begins[t + d + 1] += alive * (1 - accept[t + d])
            alive *= accept[t + d]
        if t + k + 1 < length:
            begins[t + k + 1] += alive
    return sum(begins[:length])


def test_every_question_is_answered_and_settings_are_distinct() -> None:
    found = findings("out_of_distribution", claim, known())
    assert [each.name for each in found] == list(claim.CLAIM.questions)
    assert all(np.isfinite(each.effect).all() for each in found)
    assert len({str(setting) for setting in claim.SETTINGS}) == len(claim.SETTINGS)


def test_routes_and_their_best_are_those_of_a_naive_count() -> None:
    arrays, trace = claim.run(ROUTES, 0), pool(4)
    rounds = np.array(
        [
            [naive_expected_rounds(trace.alpha[a:b, 0, i].tolist(), 3) for i in range(7)]
            for a, b in itertools.pairwise(trace.offsets.tolist())
        ]
    )
    assert arrays["best"].tolist() == rounds.argmin(axis=1).tolist()
    texts = np.arange(len(rounds))
    assert arrays[f"rounds.{ROUTER}"] == pytest.approx(rounds[texts, arrays["route"]])
    table = Table(ROUTES, arrays)
    assert table.share(table.misrouted).estimate == pytest.approx((arrays["route"] != rounds.argmin(axis=1)).mean())
    # reachable: the best of the drafters that were best on some text of another domain
    for s, domain in enumerate(trace.domains.tolist()):
        seen = sorted(set(rounds.argmin(axis=1)[trace.domains != domain].tolist()))
        assert arrays["reachable"][s] == min(seen, key=lambda i, s=s: rounds[s, i])
        assert arrays["route"][s] in seen


def test_a_router_that_is_shown_the_test_prompts_is_not_out_of_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = {**claim.QUICK[1], "prompts": 12}  # fewer could all be misrouted by chance if nine in ten were
    assert setting["by"] == "domain"
    honest = Results([Result(setting, claim.run(setting, 0))])
    assert verdict("out_of_distribution", honest, "out_of_domain") == HOLDS
    split = routing.folds_of

    def leaky(trace: hl.Trace, by: str, folds: int, seed: int) -> list[tuple[Any, Any]]:
        return [(np.full(trace.sequences, True), test) for _, test in split(trace, by, folds, seed)]

    monkeypatch.setattr(routing, "folds_of", leaky)
    leaked = Results([Result(setting, claim.run(setting, 0))])
    assert verdict("out_of_distribution", leaked, "out_of_domain") == FAILS
    assert verdict("out_of_distribution", leaked, "reachable") == FAILS


def test_routing_to_the_best_by_hand_flips_the_headline() -> None:
    def right(arrays: dict[str, Any]) -> None:
        if "route" in arrays:
            arrays["route"] = arrays["best"]

    assert verdict("out_of_distribution", known(), "out_of_domain") != FAILS
    assert verdict("out_of_distribution", changed(known(), right), "out_of_domain") == FAILS


def test_a_router_of_no_use_makes_the_ratio_hold() -> None:
    def slow(arrays: dict[str, Any]) -> None:
        if "route" in arrays:
            arrays[f"rounds.{ROUTER}"] = arrays[f"rounds.{NEW}"] * 3

    assert verdict("out_of_distribution", known(), "ratio") == FAILS
    assert verdict("out_of_distribution", changed(known(), slow), "ratio") == HOLDS
    assert verdict("out_of_distribution", changed(known(), slow), "in_distribution") == FAILS
    table = of_kind(known(), "routes")[1]
    by_domain = [
        table.rounds(ROUTER)[table.texts.domains == name].sum() / table.rounds(NEW)[table.texts.domains == name].sum()
        for name in set(table.texts.domains.tolist())
    ]
    assert table.largest_ratio().estimate == pytest.approx(max(by_domain))


def test_a_router_trained_on_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hl.sample_trace("t06").few_prompts(4)
    (training, test), *_ = routing.folds_of(whole, "prompt", 2, 0)
    traces = {"evaluated": whole.select(test), "trained on": whole.select(training)}
    monkeypatch.setattr(measure, "trace_of", lambda setting: traces[setting["trace"]])
    setting = ROUTES | {"trace": "evaluated", "by": "other", "train": "trained on"}
    arrays = claim.run(setting, 0)
    assert (arrays["reachable"] == -1).all()
    table = Table(ROUTES, arrays)
    assert 0 <= table.share(table.misrouted).estimate < 0.9  # it knows the domains
    with pytest.raises(hl.router.RouterError, match="trained on"):
        claim.run(setting | {"train": "evaluated"}, 0)


@pytest.mark.parametrize("pieces", [2, 3])
def test_splices_hold_the_parts_of_texts_of_different_domains(pieces: int) -> None:
    trace = pool(3)
    groups = groups_of(trace, pieces, 10, 0)
    used = [s for group in groups for s in group]
    assert len(groups) == sum(np.diff(trace.offsets) >= 10 * pieces) // pieces
    assert len(set(used)) == len(used)
    assert all(len(set(trace.domains[group].tolist())) == pieces for group in groups)
    spliced, rows = splice(trace, groups)
    assert spliced.sequences == len(used)
    for x, row in enumerate(rows):
        group = groups[x // pieces]
        begin, end = spliced.offsets[x : x + 2]
        assert np.array_equal(spliced.token[begin:end], trace.token[row])
        assert np.array_equal(spliced.alpha[begin:end], trace.alpha[row])
        owner = np.searchsorted(trace.offsets, row, side="right") - 1
        turn = [group[(x + j) % pieces] for j in range(pieces)]
        assert list(dict.fromkeys(owner.tolist())) == turn
    # every row of every text is in one splice
    assert sorted(np.concatenate(rows).tolist()) == sorted(
        row for s in used for row in range(trace.offsets[s], trace.offsets[s + 1])
    )


def naive_fixed_share(losses: np.ndarray) -> float:
    """Return the loss of Fixed-Share with its anytime rates."""
    n = losses.shape[1]
    weight, total = np.full(n, 1 / n), 0.0
    for t, loss in enumerate(losses, start=1):
        total += float(weight @ loss)
        weight = weight * np.exp(-2 * math.sqrt(math.log(n * t) / t) * loss)
        weight = t / (t + 1) * weight / weight.sum() + 1 / (t + 1) / n
    return total


def test_tracking_regret_is_that_of_every_sequence_tried() -> None:
    setting, arrays = next((s, a) for s, a in known() if s["what"] == "splices" and s["pieces"] == 2)
    trace, k = pool(setting["prompts"]), setting["k"]
    spliced, _ = splice(trace, groups_of(trace, 2, 2 * k, 0))
    table = hl.feedback.losses(spliced, k=k)
    for x in (0, 5):
        losses = table[spliced.offsets[x] : spliced.offsets[x + 1] - k + 1]
        before = np.concatenate([np.zeros((1, 7)), np.cumsum(losses, axis=0)])
        best = min((before[t].min() + (before[-1] - before[t]).min()) for t in range(len(losses) + 1))
        own = naive_fixed_share(losses)
        regret = arrays["regret"][LEARNERS.index("fixed-share"), x]
        assert regret[0] == pytest.approx(own - before[-1].min())
        assert regret[1] == pytest.approx(own - best)
        assert arrays["bound"][x, 1] == pytest.approx(hl.bounds.fixed_share_anytime(len(losses), 7, 1))


def test_a_regret_beyond_the_bound_is_found() -> None:
    def worse(arrays: dict[str, Any]) -> None:
        if "regret" in arrays:
            arrays["regret"] = arrays["regret"] + arrays["bound"]

    assert verdict("out_of_distribution", known(), "tracking_bound") == HOLDS
    assert verdict("out_of_distribution", changed(known(), worse), "tracking_bound") == FAILS


def test_streams_take_turns_and_carrying_is_compared_on_the_same_texts() -> None:
    domains = np.array(["a"] * 5 + ["b"] * 3)
    order = measure.stream(domains, 2, np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(8))
    assert "".join(domains[order].tolist()) == "aabbaaba"

    def idle(arrays: dict[str, Any]) -> None:
        if f"rounds.{NEW}, carried" in arrays:
            arrays[f"rounds.{NEW}, carried"] = arrays[f"rounds.{NEW}"]

    assert verdict("out_of_distribution", known(), "carried") == HOLDS
    assert verdict("out_of_distribution", changed(known(), idle), "carried") == FAILS  # no difference costs nothing
    arrays = known().one(what="streams").arrays
    assert not np.array_equal(arrays[f"rounds.{NEW}, carried"], arrays[f"rounds.{NEW}"])
    assert arrays["tokens"].tolist() == np.diff(hl.sample_trace("t06").few_prompts(6).offsets).tolist()


def test_profiles_are_means_on_either_side_of_the_seam() -> None:
    table = next(each for each in of_kind(known(), "splices") if each.setting["pieces"] == 2)
    x, effects = table.profile(ROUTER, 6)
    values = table.arrays["profile"][LINES.index(ROUTER)].astype(np.float64)
    for centre, effect in zip(x.tolist(), effects, strict=True):
        start = BEFORE + round(centre - 2.5)
        assert effect.estimate == pytest.approx(np.nanmean(values[:, start : start + 6]))
    assert not any(edge < 0 < edge + 5 for edge in (x - 2.5).tolist())
    assert (np.abs(values[np.isfinite(values)]) <= table.setting["k"]).all()


def test_the_profile_of_the_frozen_router_is_its_drafters_length_minus_the_best() -> None:
    setting, arrays = next((s, a) for s, a in known() if s["what"] == "splices" and s["pieces"] == 2)
    trace, k = pool(setting["prompts"]), setting["k"]
    groups = groups_of(trace, 2, 2 * k, 0)
    spliced, rows = splice(trace, groups)
    route = routing.validate(trace, k=k, learners=(), replicates=1, seed=0).route
    first, sent = groups[0][0], route[groups[0][0]]
    seam = math.ceil((trace.offsets[first + 1] - trace.offsets[first]) / 2)
    alpha, gamma = (block[rows[0], 0].astype(float) for block in (trace.alpha, trace.gamma))
    length = np.array(
        [1 + sum(np.prod(alpha[t : t + j], axis=0) * gamma[t + j] for j in range(k)) for t in range(len(alpha) - k + 1)]
    )
    best = length[seam:].sum(axis=0).argmax()
    shown = arrays["profile"][LINES.index(ROUTER), 0, BEFORE:]
    own = (length[:, sent] - length[:, best])[seam:]
    assert shown[: len(own)] == pytest.approx(own[: len(shown)], abs=1e-5)
    assert own.std() > 0.1
    assert np.isnan(shown[len(own) :]).all()
    assert spliced.sequences == len(rows)


def test_shares_of_none_or_all_have_binomial_ends() -> None:
    table = Table(ROUTES, claim.run(ROUTES, 0))
    n = len(set(table.texts.prompts.tolist()))
    every, none = table.share(np.full(28, True)), table.share(np.full(28, False))
    assert every == (1.0, pytest.approx(0.025 ** (1 / n)), 1.0)
    assert none == (0.0, 0.0, pytest.approx(1 - 0.025 ** (1 / n)))


def one_domain(prompts: list[str]) -> dict[str, np.ndarray]:
    """Return the labels of texts of one domain."""
    return {"prompts": np.array(prompts), "homes": np.full(len(prompts), "a"), "domains": np.full(len(prompts), "a")}


def test_texts_of_a_conversation_count_once() -> None:
    def table(prompts: list[str]) -> Table:
        return Table(ROUTES, {**one_domain(prompts), "tokens": np.ones(6)})

    hits = np.array([True, False, True, True, False, False])
    pairs = table(list("uuvvww")).share(hits)
    # 1 and 1/2 of 3: P(X >= 1) = 1 - q^3 and P(X <= 2) = 1 - p^3, solved by hand for 0.025
    assert pairs == (0.5, pytest.approx(1 - 0.975 ** (1 / 3)), pytest.approx(0.975 ** (1 / 3)))
    single = table(list("abcdef")).share(hits)
    assert single.estimate == 0.5
    assert 0 < pairs.low < single.low < single.high < pairs.high < 1


def test_133_of_140_do_not_show_nine_in_ten() -> None:
    labels = one_domain(list(map(str, range(140))))
    best = np.zeros(140, int)
    rounds = {f"rounds.{NEW}": np.ones(140), f"rounds.{ROUTER}": np.full(140, 2.0)}
    for wrong, word in ((133, CANNOT_TELL), (138, HOLDS), (100, FAILS)):
        arrays = {**labels, "tokens": np.ones(140), "best": best, "reachable": best, **rounds}
        arrays["route"] = (np.arange(140) < wrong).astype(int)
        assert verdict("out_of_distribution", Results([Result(ROUTES, arrays)]), "out_of_domain") == word


def test_a_trace_without_specialists_leaves_the_questions_open(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = hl.sample_trace("t06").among(["lookup", "ngram-python"]).few_prompts(2)
    monkeypatch.setattr(measure, "trace_of", lambda setting: trace)
    results = Results([Result(ROUTES, claim.run(ROUTES, 0))])
    assert {each.verdict for each in findings("out_of_distribution", claim, results)} == {CANNOT_TELL}
    figure.draw(results)


def test_two_traces_of_one_folder_name_are_two_cases() -> None:
    first = [result for result in known() if result.setting["what"] == "routes"]
    folders = ("/a/trace", "/b/trace")
    both = [Result({**each.setting, "trace": folder}, each.arrays) for folder in folders for each in first]
    (found,) = (each for each in findings("it", claim, Results(both)) if each.name == "reachable")
    assert sorted(found.answer.cases()) == list(folders)


def test_what_a_router_could_have_reached_is_said_where_it_is_known() -> None:
    table = next(each for each in of_kind(known(), "routes") if each.setting["by"] == "domain")
    none = Table(table.setting, {**table.arrays, "reachable": np.full(len(table.texts), -1)})
    assert math.isnan(none.beyond_reach().estimate)
    some = np.where(np.arange(len(table.texts)) % 2, -1, table.arrays["route"])
    assert Table(table.setting, {**table.arrays, "reachable": some}).beyond_reach().estimate == 0.0


def test_the_figure_shows_routes_differences_and_the_seam() -> None:
    drawn = figure.draw(known())
    assert len(drawn.axes) == 3
    lines = drawn.axes[2].get_legend_handles_labels()[1]
    assert lines == ["NormalHedge", "Hedge", "Fixed-Share", "follow the leader", "router"]
    assert figure.CLAIM == "out_of_distribution"
    assert figure.CAPTION
