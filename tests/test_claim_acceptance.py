"""Claim 1 answers every question, agrees with a naive recomputation, and notices planted errors."""

import numpy as np
import pytest

import hedgelab as hl
from experiments.claim import CANNOT_TELL, FAILS, HOLDS, Result, Results, findings
from experiments.claims import acceptance
from experiments.claims.acceptance import judge, recorded, worlds
from paper_figures import acceptance as figure


@pytest.fixture(scope="module")
def quick(quick):
    return quick("acceptance")


def rerun(results, **values):
    """The results, with those of settings that have these values made again."""
    chosen = {id(result) for result in results.where(**values)}
    return Results([Result(r.setting, acceptance.run(r.setting, 0)) if id(r) in chosen else r for r in results])


def verdicts(results):
    return {found.name: found for found in findings("acceptance", acceptance, results)}


def test_quick_answers_every_question(quick):
    found = verdicts(quick)
    assert list(found) == list(acceptance.CLAIM.questions)
    for name in ("probability", "given_output", "replay", "greedy", "recorded"):
        assert found[name].verdict == HOLDS, name
    assert found["gamma_coins"].verdict == FAILS
    # the record is fixed, and honest: intervals of each question miss with probability 5% together
    for name in ("mean", "martingale", "calibration"):
        assert found[name].verdict != FAILS, name
    assert "2.2143" in found["gamma_coins"].answer.note
    assert "2.3125" in found["gamma_coins"].answer.note


def test_two_states_by_hand(quick):
    """After 0 the drafter is the target, after 1 certain of 0; the token is fair. MAT by its Markov chain."""
    arrays = quick.one(part="two states").arrays
    assert float(arrays["real"]) == pytest.approx(31 / 14, abs=1e-12)
    assert float(arrays["alpha"]) == pytest.approx(31 / 14, abs=1e-12)
    after_0, after_1 = 1 + 1 + (1 + 0.5) / 2, 1 + 0.5 + 0.5 * (1 + 0.5) / 2  # coins of gamma: 1 after 0, 1/2 after 1
    assert float(arrays["gamma"]) == pytest.approx((after_0 + after_1) / 2, abs=1e-12)


def test_sums_are_those_of_loops(monkeypatch):
    trace = hl.sample_trace("t06").few_prompts(1)
    monkeypatch.setattr(recorded, "trace_of", lambda setting: trace)
    arrays = acceptance.run({"part": "trace", "trace": "t06", "prompts": None}, 0)
    alpha, gamma = trace.alpha.astype(float), trace.gamma.astype(float)
    for s, i in ((0, 0), (3, 9), (6, 29), (2, 13), (5, 37)):
        begin, end = trace.offsets[s], trace.offsets[s + 1]
        off = off_gamma = off_before = later = off_later = 0.0
        for t in range(begin, end):
            gap = alpha[t, 0, i] - gamma[t, 0, i]
            off += gap
            off_gamma += gamma[t, 0, i] * gap
            off_before += 0 if t == begin else alpha[t - 1, 0, i] * gap
            for d in range(1, trace.k):
                if i in trace.deep_columns and t - d >= begin and not np.isnan(gamma[t, d, i]):
                    later += 1
                    off_later += alpha[t, d, i] - gamma[t, d, i]
        named = {"off": off, "off_gamma": off_gamma, "off_before": off_before, "later": later, "off_later": off_later}
        for name, value in named.items():
            assert arrays[name][s, i] == pytest.approx(value, abs=1e-9), (name, s, i)
    x, y = gamma[:, 0, 13], alpha[:, 0, 13]
    slope = judge._slope(arrays, 13)
    assert slope.estimate == pytest.approx(np.polyfit(x, y, 1)[0], abs=1e-9)
    rows, gammas, alphas = arrays["curve"].sum(axis=(0, 1, 2))
    assert rows == trace.rows * len(trace.drafters)
    assert (gammas, alphas) == (pytest.approx(gamma[:, 0].sum()), pytest.approx(alpha[:, 0].sum()))


def test_wrong_coin(quick, monkeypatch):
    """A record of gamma in the place of alpha: the replay's law is another, and so is the sampler's."""
    original = hl.acceptance.chain

    def gamma_for_alpha(p, q, token):
        _, gamma = original(p, q, token)
        return gamma, gamma

    monkeypatch.setattr(hl.acceptance, "chain", gamma_for_alpha)
    found = verdicts(rerun(rerun(quick, coins="alpha", kinds="chain chain"), part="worlds"))
    assert found["replay"].verdict == FAILS
    assert found["given_output"].verdict == FAILS
    assert found["probability"].verdict == HOLDS  # of the sampler, which knows no alpha


def test_leaked_row(quick, monkeypatch):
    """Alpha of the row before: its mean stays, but what was known before the token tells alpha and gamma apart."""
    original = recorded.acceptances

    def shifted(trace):
        alpha, gamma = original(trace)
        return np.roll(alpha, 1, axis=0), gamma

    monkeypatch.setattr(recorded, "acceptances", shifted)
    found = verdicts(rerun(quick, trace="t06"))
    assert found["martingale"].verdict == FAILS
    assert found["calibration"].verdict == FAILS
    assert found["mean"].verdict != FAILS


def test_other_planted_errors(quick, monkeypatch):
    original = recorded.acceptances

    def flattered(trace):
        alpha, gamma = original(trace)
        return np.minimum(1, alpha + 0.1), gamma

    monkeypatch.setattr(recorded, "acceptances", flattered)
    monkeypatch.setattr(worlds, "published", lambda rule, p, law: 1 - 0.9 * np.abs(p - law).sum())
    monkeypatch.setattr(hl.acceptance, "gamma_interval", lambda p, q, *tails: (np.exp(q).sum(axis=1), np.ones(len(q))))
    found = verdicts(rerun(rerun(rerun(quick, part="trace"), part="worlds"), part="logits"))
    for name in ("probability", "mean", "greedy", "recorded"):
        assert found[name].verdict == FAILS, name


def test_without_a_case_nothing_is_told(quick):
    """Sampled traces in the place of all, then greedy ones; and no recorded law."""
    of_traces = {bool(each.arrays["sampled"]): each for each in quick.where(part="trace", calibrate=False)}
    rest = [each for each in quick if each.setting["part"] not in ("trace", "logits")]
    for sampled, untold in ((True, {"greedy"}), (False, {"mean", "martingale"})):
        found = verdicts(Results([*rest, of_traces[sampled]]))
        assert {name for name in ("greedy", "mean", "martingale") if found[name].verdict == CANNOT_TELL} >= untold
        assert found["recorded"].verdict == found["calibration"].verdict == CANNOT_TELL


def test_figure_draws(quick, tmp_path):
    drawn = figure.draw(quick)
    drawn.savefig(tmp_path / "acceptance.png", dpi=40)
    assert (tmp_path / "acceptance.png").stat().st_size > 10_000
    assert figure.CLAIM == "acceptance"
