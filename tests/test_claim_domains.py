"""Claim 6: an independent recount of its numbers, planted errors that must flip verdicts, and its figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hedgelab as hl
from experiments.claim import FAILS, HOLDS, Result, Results, findings
from experiments.claims import domains
from experiments.claims.domains import SPECIALISTS, judge, measure
from experiments.claims.domains.measure import CHOSEN, GRIDS, HOME, NEW, SINGLE
from experiments.policy_table import PolicyTable
from experiments.rounds import tuned
from hedgelab.routing import folds_of
from paper_figures import domains as figure
from tests.strategies_claims import changed, verdict

TINY = {"trace": "t06", "pool": SPECIALISTS, "k": 3, "replicates": 2, "prompts": 2}


KNOWN: list[Result] = []


@pytest.fixture(scope="module", autouse=True)
def _computed(quick: Callable[[str], Results]) -> None:
    KNOWN[:] = quick("domains")


def known() -> Results:
    """Return the results of the quick settings."""
    return Results(KNOWN)


def naive_rounds(trace: hl.Trace, k: int, replicates: int, drafter: str) -> np.ndarray:
    """Return (S,) mean rounds of a drafter alone, coin by coin."""
    i = trace.drafters.index(drafter)
    rounds = np.zeros(trace.sequences)
    accept = trace.alpha[:, 0, i].tolist()
    for s in range(trace.sequences):
        begin, end = trace.offsets[s : s + 2].tolist()
        for replicate in range(replicates):
            coin = hl.coins.uniforms(0, hl.coins.COIN, int(trace.sequence_id[s]), 0, end - begin, replicate).tolist()
            t = 0
            while t < end - begin:
                got = 0
                while got < k and t + got < end - begin and coin[t + got] < accept[begin + t + got]:
                    got += 1
                t += got + 1
                rounds[s] += 1
    return rounds / replicates


def test_every_question_is_answered_and_settings_are_distinct() -> None:
    found = findings("domains", domains, known())
    assert [each.name for each in found] == list(domains.CLAIM.questions)
    assert all(np.isfinite(each.effect).all() for each in found)
    assert len({str(setting) for setting in domains.SETTINGS}) == len(domains.SETTINGS)


def test_a_trace_without_the_pools_leaves_the_questions_open(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = hl.sample_trace("t06").among(["lookup", "ngram-python", "ngram-sql"]).few_prompts(2)
    monkeypatch.setattr(measure, "trace_of", lambda setting: trace)
    results = Results(
        [Result(setting, domains.run(setting, 0)) for setting in (TINY, TINY | {"pool": "head specialists"})]
    )
    assert {each.verdict for each in findings("domains", domains, results)} == {"cannot tell"}
    figure.draw(results)


def test_rounds_of_the_home_specialist_and_of_a_learner_that_has_no_choice() -> None:
    arrays = domains.run(TINY, 0)
    trace = hl.sample_trace("t06").few_prompts(2)
    assert arrays["domains"].tolist() == trace.domains.tolist()
    assert arrays["tokens"].tolist() == np.diff(trace.offsets).tolist()
    alone = {name: naive_rounds(trace, 3, 60, name) for name in arrays["drafters"].tolist()}
    home = np.array([alone[f"truncated-{domain}"][s] for s, domain in enumerate(trace.domains.tolist())])
    # an exact expectation against a mean over 60 replicates: rounds of a text have a deviation below 8
    # 14 texts at 5 standard errors: false alarm below 1e-5
    assert np.abs(arrays[f"rounds.{HOME}"] - home).max() < 5 * 8 / np.sqrt(60)
    totals = {name: rounds.sum() for name, rounds in alone.items()}
    assert arrays[f"rounds.{SINGLE}"].sum() == pytest.approx(min(totals.values()), rel=0.03)


def one_drafter(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Return rounds of every learner where there is a single drafter, so that coins alone make them."""
    trace = hl.sample_trace("t06").among(["truncated-sql"]).few_prompts(2)
    monkeypatch.setattr(measure, "trace_of", lambda setting: trace)
    monkeypatch.setattr(measure, "members", lambda *_: list(trace.drafters))
    found = domains.run(TINY, 0)
    exact = (SINGLE, CHOSEN, HOME, measure.ROUTER, measure.FASTEST, "best fixed per prompt", "informed switching")
    fixed = {f"rounds.{name}" for name in exact}
    rounds = {key: value for key, value in found.items() if key.startswith("rounds.") and key not in fixed}
    rounds["naive"] = naive_rounds(trace, 3, 2, "truncated-sql")
    return rounds


def test_all_policies_meet_the_same_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = one_drafter(monkeypatch)
    assert len(rounds) > 15
    assert {key for key, value in rounds.items() if not np.array_equal(value, rounds["naive"])} == set()


def test_coins_of_their_own_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from hedgelab import comparison

    honest = comparison.replay

    def other_coins(trace: hl.Trace, learner: hl.Learner, *, seed: int, **options: Any) -> hl.Replay:
        return honest(trace, learner, seed=seed + 7 * (learner.name == "ucbspec"), **options)

    monkeypatch.setattr(comparison, "replay", other_coins)
    rounds = one_drafter(monkeypatch)
    assert {key for key, value in rounds.items() if not np.array_equal(value, rounds["naive"])} == {"rounds.ucbspec"}


def test_swapping_normalhedge_and_uniform_makes_the_claim_fail() -> None:
    def swap(arrays: dict[str, Any]) -> None:
        arrays[f"rounds.{NEW}"], arrays["rounds.uniform"] = arrays["rounds.uniform"], arrays[f"rounds.{NEW}"]

    assert verdict("domains", known(), "faster") != FAILS
    assert verdict("domains", known(), "bandits_elsewhere") == HOLDS
    swapped = changed(known(), swap)
    assert verdict("domains", swapped, "faster") == FAILS
    assert verdict("domains", swapped, "bandits_elsewhere") == FAILS


def test_a_bandit_as_good_as_normalhedge_is_found_so() -> None:
    def same(arrays: dict[str, Any]) -> None:
        for name in measure.TUNED:
            arrays[f"rounds.{name}"] = arrays[f"rounds.{NEW}"] * 1.001

    assert verdict("domains", known(), "tuned_bandits") == FAILS
    assert verdict("domains", changed(known(), same), "tuned_bandits") == HOLDS


def test_thompson_as_good_as_normalhedge_is_no_matter_of_tuning() -> None:
    def same(arrays: dict[str, Any]) -> None:
        arrays[f"rounds.{measure.THOMPSON}"] = arrays[f"rounds.{NEW}"] * 0.9

    assert verdict("domains", changed(known(), same), "bandits_elsewhere") == FAILS
    assert verdict("domains", changed(known(), same), "tuned_bandits") == verdict("domains", known(), "tuned_bandits")


def test_the_single_specialist_is_the_best_of_other_prompts() -> None:
    arrays = domains.run(TINY, 0)
    trace = hl.sample_trace("t06").few_prompts(2)
    names, alone = arrays["drafters"].tolist(), arrays["alone"]
    for training, test in folds_of(trace, "prompt", 2, 0):
        best = alone[training].sum(axis=0).argmin()
        assert arrays[f"rounds.{CHOSEN}"][test].tolist() == alone[test, best].tolist()
        assert names[best] in arrays["chosen"].tolist()
    assert arrays[f"rounds.{CHOSEN}"].sum() >= arrays[f"rounds.{SINGLE}"].sum() * (1 - 1e-12)


def test_an_end_of_a_grid_is_named() -> None:
    said = judge._constants("explore-then-commit", (1, 16, 64))
    assert said == "rounds 1 (least tried) and 16 and 64 (most tried)"


def test_free_drafters_make_seconds_hold() -> None:
    def free(arrays: dict[str, Any]) -> None:
        arrays[f"seconds.{NEW}"] = arrays[f"seconds.{measure.FASTEST}"] / 6

    assert verdict("domains", known(), "seconds") == FAILS
    assert verdict("domains", changed(known(), free), "seconds") == HOLDS


def test_differences_are_those_of_a_naive_bootstrap() -> None:
    table = domains.tables(known())[0]
    effect = table.minus(NEW, "ucbspec", "sql")
    here = table.texts.domains == "sql"
    tokens, new, old = table.tokens[here], table.rounds(NEW)[here], table.rounds("ucbspec")[here]
    assert effect.estimate == pytest.approx(tokens.sum() / new.sum() - tokens.sum() / old.sum())
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(4000):
        pick = rng.integers(0, len(tokens), len(tokens) - 1)  # one draw fewer than prompts
        drawn.append(tokens[pick].sum() / new[pick].sum() - tokens[pick].sum() / old[pick].sum())
    student = {4: 3.182446}[len(tokens)] / 1.959964  # 0.975 quantile of 3 degrees of freedom, from a table
    low, high = effect.estimate + student * (np.quantile(drawn, [0.025, 0.975]) - effect.estimate)
    # ends of two bootstraps of 4000 and 20000: apart by a few hundredths of the width at most
    assert abs(effect.low - low) + abs(effect.high - high) < 0.1 * (high - low)


def test_constants_are_chosen_on_other_prompts() -> None:
    trace = hl.sample_trace("t06").few_prompts(4)
    (_, half), _ = folds_of(trace, "prompt", 2, 0)
    assert {(name, int((trace.domains[half] == name).sum())) for name in trace.manifest.domains} == {
        (name, 2) for name in trace.manifest.domains
    }
    # each constant is good on one half and bad on the other: who tunes on the texts scored would need 1 round each
    rounds = np.where([half, ~half], 1.0, 9.0)
    chosen = tuned(trace, [0.1, 0.2], rounds, 0)
    assert sorted(chosen.values) == [0.1, 0.2]
    assert (chosen.of(rounds) == 9).all()


def test_a_domain_of_one_prompt_has_no_interval() -> None:
    table = policies(["a", "b", "b"], ["x", "y", "z"], np.array([2.0, 3.0, 4.0]))
    assert np.isnan(table.mat("one").low)
    assert np.isnan(table.mat("one", "a").high)
    half = 0.5 * 12.706205 / 1.959964  # resamples of two texts are one of them; Student's tail of one degree of freedom
    assert table.mat("one", "b") == pytest.approx((3.5, 3.5 - half, 3.5 + half), abs=1e-5)
    assert np.isnan(table.minus("one", "not there")).all()


def policies(domains: list[str], prompts: list[str], tokens: np.ndarray) -> PolicyTable:
    """Return a table of a policy that needs one round a text."""
    labels = {"prompts": np.array(prompts), "homes": np.array(domains), "domains": np.array(domains)}
    return PolicyTable(TINY, {**labels, "tokens": tokens, "rounds.one": np.ones(len(tokens))})


def test_domains_are_resampled_each_on_its_own() -> None:
    texts = policies(list("aaabbb"), list("uvwxyz"), np.arange(1.0, 7.0)).texts
    first, second, pooled = (texts.draws(group) for group in texts.groups)
    assert (first.degrees, second.degrees, pooled.degrees) == (2, 2, 4)
    assert not np.array_equal(first.weights, second.weights)  # alike they would move a largest over domains together
    assert np.allclose(pooled.weights[:, :3].sum(axis=1), 3)
    some = texts.draws(among=texts.domains == "b")
    assert (some.weights.shape[1], some.degrees) == (3, 2)


def test_the_grids_hold_each_learners_default_or_surround_it() -> None:
    for base, key, values in GRIDS.values():
        default = hl.learner(base).parameters[key].default or 32
        assert min(values) <= default <= max(values)


def test_the_figure_shows_every_policy_and_the_published_ratios() -> None:
    drawn = figure.draw(known())
    assert len(drawn.axes) == 4
    texts = {text.get_text() for legend in drawn.legends for text in legend.get_texts()}
    assert {"ucbspec", "ftl", HOME, SINGLE} <= texts
    assert figure.CLAIM == "domains"
    assert figure.CAPTION
    ratios = drawn.axes[2].get_legend_handles_labels()[1]
    assert sum("published" in label for label in ratios) == 3
    assert figure.PUBLISHED["Llama-3.1-8B"]["HedgeSpec"] / figure.PUBLISHED["Llama-3.1-8B"]["EAGLE"] == pytest.approx(
        1.2566, abs=1e-4
    )
