"""Claim 3: its numbers by independent recomputation, planted errors, and that every question is answered."""

import dataclasses
import math

import numpy as np
import pytest

import hedgelab as hl
from experiments.claim import CANNOT_TELL, FAILS, HOLDS, Result, Results, findings
from experiments.claims import no_regret
from experiments.claims.no_regret import decoding, judge, measure
from experiments.claims.no_regret.asked import OBJECTIVES
from experiments.intervals import resample
from experiments.store import load, save
from paper_figures import regret
from tests.sizes import needs_jit

pytestmark = needs_jit  # a claim's quick settings are a matter of minutes in plain Python


@pytest.fixture(scope="module")
def quick(quick):
    return quick("no_regret")


def again(results, *kinds):
    """The results with those kinds run once more, under whatever was planted."""
    return Results(
        [
            Result(each.setting, no_regret.run(each.setting, 0)) if each.setting["kind"] in kinds else each
            for each in results
        ]
    )


def planted(results, change, **setting):
    """The results with `change(arrays)` added to the arrays of those whose settings have these values."""
    return Results(
        [
            Result(own, {**had, **change(had)}) if setting.items() <= own.items() else Result(own, had)
            for own, had in results
        ]
    )


def verdicts(results):
    return {found.name: found for found in findings("no_regret", no_regret, results)}


def test_every_question_is_answered(quick):
    found = verdicts(quick)
    assert list(found) == list(no_regret.CLAIM.questions)
    assert found["rate"].tally[HOLDS] + found["rate"].tally[FAILS] > 0
    for name, question in no_regret.CLAIM.questions.items():
        if question.comparisons > 1:
            count = len(found[name].answer.cases())
            assert count == question.comparisons or (name == "rate" and 10 < count < question.comparisons), name


def test_settings_are_plain_and_full_is_quick_in_large():
    for settings in (no_regret.SETTINGS, no_regret.QUICK):
        assert all(isinstance(value, str | int) for setting in settings for value in setting.values())
    assert len(no_regret.SETTINGS) == len(no_regret.QUICK)


# ------------------------------------------------------------------ independent recomputation

K = 2


@pytest.fixture
def tiny(monkeypatch):
    """Four texts of two domains and different lengths, three flat drafters, in the place of the bundled trace."""
    rng = np.random.default_rng(3)
    gamma = rng.uniform(0.1, 0.9, (23, 3))
    trace = hl.Trace.from_arrays(
        token=np.arange(23),
        alpha=(rng.random((23, 3)) < gamma).astype(float),
        gamma=gamma,
        offsets=[0, 7, 12, 20, 23],
        domains=["a", "a", "b", "b"],
        drafters=["x", "y", "z"],
        k=K,
    )
    monkeypatch.setattr(measure, "trace_of", lambda setting: trace)
    return trace


def naive_losses(trace):
    """1 - C / (k + 1) of each row with k rows left in its text, as lists by text; k = 2."""
    alpha, gamma = trace.alpha[:, 0].astype(float), trace.gamma[:, 0].astype(float)
    return [
        [1 - (1 + gamma[t] + alpha[t] * gamma[t + 1]) / 3 for t in range(first, last - 1)]
        for first, last in zip(trace.offsets[:-1], trace.offsets[1:], strict=True)
    ]


def naive_hedge(losses, times):
    """Regret of anytime Hedge, rate 2 sqrt(ln N / t), after each of `times` rounds."""
    total, own, found = np.zeros(3), 0.0, []
    for t, row in enumerate(losses, 1):
        w = np.exp(-2 * math.sqrt(math.log(3) / t) * total)
        own += float(w @ row / w.sum())
        total += row
        if t in times:
            found.append(own - total.min())
    return found


def test_streams_by_hand(tiny, monkeypatch):
    order = np.array([2, 0, 3, 1, 2, 2])
    monkeypatch.setattr(measure, "_orders", lambda *given: [order])
    setting = {"kind": "stream", "trace": "", "pool": "all", "k": K, "objective": "length", "learner": "hedge"}
    arrays = no_regret.run(setting | {"streams": 1, "tokens": 25}, 0)
    by_text = naive_losses(tiny)
    rows = [row for s in order for row in by_text[s]][:25]
    assert arrays["regret"][0] == pytest.approx(naive_hedge(rows, arrays["times"]), abs=1e-12)
    assert arrays["bound"][0] >= arrays["regret"][0, -1]
    assert arrays["best"].tolist() == ["xyz"[int(np.sum(rows, axis=0).argmin())]]


def test_streams_resample_prompts_within_domains(tiny):
    lengths = np.array([6, 4, 7, 2])
    for order, drawn in zip(
        measure._orders(tiny, lengths, 3000, 4, 0),
        resample(["p", "q", "r", "s"], ["a", "a", "b", "b"], resamples=4, seed=0).weights,
        strict=True,
    ):
        assert lengths[order].sum() >= 3000
        share = np.bincount(order, minlength=4) / len(order)
        # about 600 draws: each share within 0.12 of its own, six standard errors
        assert np.abs(share - drawn / drawn.sum()).max() < 0.12
        assert not (share[drawn == 0] > 0).any()


def test_decoding_by_hand(tiny):
    setting = {"kind": "decode", "trace": "", "pool": "all", "k": K, "objective": "length", "replicates": 3}
    arrays = no_regret.run(setting, 0)
    by_text = naive_losses(tiny)
    sums = np.array([np.sum(rows, axis=0) for rows in by_text])
    assert arrays["drafter_loss"] == pytest.approx(sums, abs=1e-7)
    assert arrays["plays"].tolist() == [6, 4, 7, 2]
    uniform = no_regret.POLICIES.index("uniform")
    for protocol in (0, 1):  # uniform's loss in each text knows no order: so the orders were undone
        assert arrays["own_loss"][protocol, uniform] == pytest.approx(sums.mean(axis=1), abs=1e-7)
    data = decoding.Decoded(Result(setting, arrays))
    own, plays = arrays["own_loss"], arrays["plays"].sum()
    assert data.regret("query")[0] == pytest.approx((own[0].sum(axis=1) - sums.min(axis=1).sum()) / plays)
    assert data.regret("stream")[0] == pytest.approx((own[1].sum(axis=1) - sums.sum(axis=0).min()) / plays)
    assert data.mat("query")[0, 0] == pytest.approx(23 / arrays["rounds"][0, 0].sum())
    assert data.best_mat("stream")[0, 0] == pytest.approx(23 / arrays["fixed_rounds"].sum(axis=0).min())
    winner = arrays["fixed_rounds"].sum(axis=0).argmin()
    assert data.best().startswith(f"{'xyz'[winner]} of 3 (MAT {23 / arrays['fixed_rounds'][:, winner].sum():.2f};")
    assert data.tokens_promised("stream") == pytest.approx(3 * math.sqrt(math.log(3) / (2 * 19)))


def specialists_by_hand(trace):
    """Truncated drafters trained on one domain, none of them another's tree."""
    found = [each for each in trace.manifest.drafters if each.kind == "truncated" and len(each.details["domains"]) == 1]
    return [each.name for each in found if "over" not in each.details]


def test_specialists_play_among_themselves(quick):
    pool = no_regret.POOLS[1]
    trace = hl.sample_trace("t10")
    names = specialists_by_hand(trace)
    assert len(names) == len(trace.manifest.domains) == 7
    for objective in OBJECTIVES:
        every, few = (quick.one(kind="decode", objective=objective, pool=each).arrays for each in no_regret.POOLS)
        assert few["names"].tolist() == names
        columns = [every["names"].tolist().index(name) for name in names]
        for key in ("drafter_loss", "fixed_rounds"):
            assert few[key] == pytest.approx(every[key][:, columns], abs=1e-9)
        uniform = no_regret.POLICIES.index("uniform")
        assert few["own_loss"][0, uniform] == pytest.approx(every["drafter_loss"][:, columns].mean(axis=1), abs=1e-6)
        for result in quick.where(kind="stream", objective=objective, pool=pool):
            assert int(result.arrays["drafters"]) == 7
            assert set(result.arrays["best"].tolist()) <= set(names)


def test_both_pools_stream_the_same_prompts(quick):
    # uniform's regret in a pool, from the regret of whoever leads it: no learner, so the same texts or another number
    trace = hl.sample_trace("t10")
    losses, begin = measure._losses(trace, 5, "length")
    few, begin_few = measure._losses(trace.among(specialists_by_hand(trace)), 5, "length")
    assert begin.tolist() == begin_few.tolist()
    setting = quick.one(kind="stream", objective="length", learner="uniform", pool="all").setting
    tokens, streams = setting["tokens"], setting["streams"]
    for pool, values in zip(no_regret.POOLS, (losses, few), strict=True):
        arrays = quick.one(kind="stream", objective="length", learner="uniform", pool=pool).arrays
        for s, order in enumerate(measure._orders(trace, np.diff(begin), tokens, streams, 0)):
            rows = np.concatenate([np.arange(begin[i], begin[i + 1]) for i in order])[:tokens]
            total = values[rows].sum(axis=0)
            assert arrays["regret"][s, -1] == pytest.approx(total.mean() - total.min(), rel=1e-6)


def test_a_trace_without_specialists_is_judged_by_all_its_drafters(tiny, quick, tmp_path):
    setting = {"kind": "decode", "trace": "t10", "pool": no_regret.POOLS[1], "k": K, "objective": "length"}
    task = ("no_regret", setting | {"replicates": 1}, 0)
    save(tmp_path, task, no_regret.run(task[1], 0))
    marked = load(tmp_path, task)
    assert list(marked) == ["absent"]
    without = [
        Result(each.setting, marked) if each.setting.get("pool") == no_regret.POOLS[1] else each for each in quick
    ]
    found = verdicts(Results(without))
    both = verdicts(quick)
    for name in ("small", "query", "rounds", "order", "acceptance"):
        assert 2 * len(found[name].answer.cases()) == len(both[name].answer.cases()), name
        assert all("specialists" not in case for case in found[name].answer.cases())
    regret.draw(Results(without))


def naive_fair_coins(t, n):
    """t/2 less the mean of the least of n Binomial(t, 1/2), by enumeration of totals."""
    mass = [math.comb(t, k) / 2**t for k in range(t + 1)]
    tail = [sum(mass[k:]) ** n for k in range(t + 2)]
    return t / 2 - sum(k * (tail[k] - tail[k + 1]) for k in range(t + 1))


def test_fair_coins_by_hand(quick):
    coins = quick.one(kind="coins")
    exact = naive_fair_coins(coins.setting["rounds"], coins.setting["drafters"])
    assert float(coins.arrays["exact"]) == pytest.approx(exact, rel=1e-9)
    # the mean of 150 runs, each with a standard deviation of about 0.4 of the mean: six standard errors
    assert np.abs(coins.arrays["regret"].mean(axis=1) / exact - 1).max() < 6 * 0.4 / math.sqrt(150)


@pytest.mark.parametrize(("power", "word"), [(-0.5, HOLDS), (-0.3, FAILS)])
def test_the_exponent_sees_the_rate(quick, power, word):
    # every curve replaced by T^(1 + power), with noise that three runs and 25 comparisons can still bear
    rng = np.random.default_rng(0)

    def curves(arrays):
        noise = np.exp(0.002 * rng.standard_normal(arrays["regret"].shape))
        return {"regret": arrays["times"] ** (1 + power) * noise}

    found = verdicts(planted(planted(quick, curves, kind="stream"), curves, kind="long"))["rate"]
    assert found.verdict == word
    assert found.effect.estimate == pytest.approx(power, abs=0.02)


def test_streams_of_one_prompt_a_domain_tell_nothing(quick):
    def single(arrays):
        return {"homes": arrays["prompts"]}

    found = verdicts(planted(quick, single, kind="stream"))
    assert found["small"].verdict == CANNOT_TELL
    assert found["small"].tally[CANNOT_TELL] == len(found["small"].answer.cases())
    assert not [case for case in found["rate"].answer.cases() if "stream" in case]


def test_saturated_streams_are_left_out_of_the_rate_and_said(quick):
    case = "squint: stream, length, all"

    def saturated(arrays):
        return {"regret": np.where(arrays["times"] < 500, 5.0, 0.5) * np.ones_like(arrays["regret"])}

    answer = verdicts(planted(quick, saturated, kind="stream", learner="squint"))["rate"].answer
    assert case not in answer.cases()
    assert f"{case}, 3 of 3 runs, in the mean after T = " in answer.note
    times = np.array([10**6 * 10 ** (-i / 5) for i in range(11)][::-1])
    curve = np.where(np.arange(11) < 5, 3.0 * times**0.1, -1.0)
    assert judge.exponent(times, curve) == pytest.approx(-0.9)
    assert math.isnan(judge.exponent(times, np.where(np.arange(11) < 4, curve, -1.0)))


def test_the_rate_is_asked_where_uniform_fails(quick):
    gap = {"kind": "long", "world": "gap"}
    idle = quick.one(**gap, learner="uniform").arrays
    found = verdicts(planted(quick, lambda arrays: idle, **gap, learner="squint"))["rate"]
    assert found.answer.cases()["squint: gap, N = 16"].estimate > -0.2
    assert found.verdict == FAILS


# ------------------------------------------------------------------ planted errors


def test_a_leaked_row_is_found(quick, monkeypatch):
    # the weights of round t + 1 in round t: a learner that saw the row before it played
    play = hl.play

    def leaky(losses, learner, *, times, **options):
        game = play(losses, learner, record=True, **options)
        own = (np.vstack([game.probs[1:], game.probs[-1:]]) * game.losses).sum(axis=1)
        regret = np.cumsum(own) - np.cumsum(game.losses, axis=0).min(axis=1)
        return dataclasses.replace(game, regret_at=regret[np.array(times) - 1])

    setting = {"kind": "coins", "drafters": 16, "rounds": 100, "seeds": 60}
    monkeypatch.setattr(hl, "play", leaky)
    found = verdicts(planted(quick, lambda arrays: no_regret.run(setting, 0), kind="coins"))["coins"]
    assert found.verdict == FAILS
    assert found.effect.high < 0.5
    assert found.answer.cases()["uniform"].low > 0.5  # which plays the same whatever it sees


def test_a_learner_that_does_not_learn_is_found(quick, monkeypatch):
    play, replay = hl.play, hl.replay
    monkeypatch.setattr(hl, "play", lambda losses, learner, **o: play(losses, _idle(learner), **o))
    monkeypatch.setattr(hl, "replay", lambda trace, learner, **o: replay(trace, _idle(learner), **o))
    found = verdicts(again(quick, "stream", "decode", "world"))
    for name in ("rate", "small", "bounded", "query", "rounds"):
        assert found[name].verdict == FAILS, name
        assert "adahedge" in found[name].case, name


@pytest.mark.parametrize("pool", no_regret.POOLS)
def test_a_learner_that_does_not_learn_in_one_pool_is_found_there(quick, pool):
    def idle(arrays):
        return {"regret": np.tile(0.1 * arrays["times"], (len(arrays["regret"]), 1))}

    before, after = verdicts(quick), verdicts(planted(quick, idle, pool=pool, learner="squint"))
    for name in ("rate", "small"):
        assert after[name].tally[FAILS] - before[name].tally[FAILS] == 2, name  # both objectives
        assert after[name].case.startswith("squint: stream")
        assert after[name].case.endswith(pool)
    assert after["bounded"].verdict == FAILS


def _idle(name):
    return "uniform" if name == "adahedge" else name


def test_rounds_counted_twice_are_found(quick):
    twice = planted(quick, lambda arrays: {"rounds": 2 * arrays["rounds"]}, kind="decode", objective="acceptance")
    assert verdicts(quick)["acceptance"].verdict != FAILS
    assert verdicts(twice)["acceptance"].verdict == FAILS


def test_an_order_turned_round_is_found(quick):
    def turned(arrays):
        return {"rounds": arrays["rounds"].max(axis=1, keepdims=True) + 10 - arrays["rounds"]}

    assert verdicts(planted(quick, turned, kind="decode"))["order"].verdict == FAILS


def test_figure(quick):
    figure = regret.draw(quick)
    assert regret.CLAIM == "no_regret"
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title[0] for title in titles if title] == list("abcde")
    for axes in figure.axes[:5]:
        assert all(np.isfinite(line.get_xydata()).all() for line in axes.lines)
    figure.canvas.draw()
