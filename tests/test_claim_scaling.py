"""Claim 4, scaling: every question is answered, numbers equal a naive recomputation, planted errors are seen."""

import math

import numpy as np
import pytest

import hedgelab as hl
from experiments import growth
from experiments.claim import CANNOT_TELL, FAILS, HOLDS, Result, Results, findings
from experiments.claims import scaling
from experiments.claims.scaling import measure
from experiments.claims.scaling.asked import CONTROL, GRID, POOLS
from experiments.claims.scaling.curves import FIRST, Regrets
from paper_figures import scaling as figure
from tests.strategies_claims import verdict


@pytest.fixture(scope="module")
def results(quick):
    return quick("scaling")


def planted(results, name, setting):
    """The results with one learner's envelope replaced by what `setting` gives."""
    kept = [each for each in results if (each.setting["kind"], each.setting["learner"]) != ("envelope", name)]
    return Results([*kept, Result(setting, scaling.run(setting, 0))])


def verdicts(results, case):
    """{question: verdict of the case}, where a question has it."""
    found = findings("scaling", scaling, results)
    return {
        each.name: each.question.rule.verdict(each.answer.cases()[case])
        for each in found
        if case in each.answer.cases()
    } | {"headline": found[0].verdict}


def test_every_question_is_answered(results):
    found = findings("scaling", scaling, results)
    assert [each.name for each in found] == list(scaling.CLAIM.questions)
    assert set(found[0].answer.cases()) == {*scaling.FULL, *scaling.BANDIT}
    assert verdict("scaling", results, "control") == HOLDS


def test_settings_have_every_learner_and_all_sizes_together():
    for settings in (scaling.SETTINGS, scaling.QUICK):
        sizes = {}
        for setting in settings:
            if setting["kind"] == "envelope":
                sizes.setdefault(setting["learner"], []).extend(setting["drafters"])
        assert set(sizes) == {*scaling.FULL, *scaling.BANDIT, CONTROL}
        assert all(len(set(n)) == len(n) for n in sizes.values())
        assert all({*POOLS} <= set(n) for n in sizes.values())


def naive_picks(name, losses, seed):
    """Hedge with the rate of the horizon, and UCB1, written down once more; the engine's stream of picks."""
    rng = np.random.Generator(np.random.PCG64([seed, 0]))
    T, n = losses.shape
    total, plays, rewards, picks = [0.0] * n, [0] * n, [0.0] * n, []
    for t in range(T):
        if name == "hedge-fixed":
            weights = [math.exp(-math.sqrt(8 * math.log(n) / T) * value) for value in total]
        else:
            index = [
                rewards[i] / plays[i] + math.sqrt(2 * math.log(t) / plays[i]) if plays[i] else math.inf
                for i in range(n)
            ]
            weights = [float(value == max(index)) for value in index]
        u, reach, pick = rng.random() * sum(weights), 0.0, n - 1
        for i in range(n):
            reach += weights[i]
            if u < reach:
                pick = i
                break
        picks.append(pick)
        plays[pick] += 1
        rewards[pick] += 1 - losses[t, pick]
        total = [total[i] + losses[t, i] for i in range(n)]
    return picks


@pytest.mark.parametrize("name", ["hedge-fixed", "ucb1"])
def test_run_equals_a_naive_game(name):
    T, n, gaps = 80, 3, [0.4, 0.1]
    setting = {"kind": "envelope", "learner": name, "drafters": [n], "T": T, "gaps": gaps}
    found = scaling.run(setting | {"choosing": 2, "scoring": 3, "coins": 1}, 5)

    def regret(gap, seed):
        world = hl.worlds.gap(T, n, gap)
        best = list(world.mean_losses(seed, 0, 1)[0]).index(0.5 - gap)
        return gap * sum(pick != best for pick in naive_picks(name, world.array(seed), seed))

    seeds = [(5 * 4 + stage) * 10_000 for stage in (1, 2)]
    choose = [[regret(gap, seeds[0] + i) for i in range(2)] for gap in gaps]
    worst = max((0, 1), key=lambda g: sum(choose[g]))
    assert found[f"choose_{n}"].tolist() == pytest.approx(np.array(choose))
    assert int(found[f"gap_{n}"]) == worst
    assert found[f"score_{n}"].tolist() == pytest.approx([regret(gaps[worst], seeds[1] + i) for i in range(3)])


def test_fits_equal_numpy_and_closed_forms():
    rng = np.random.default_rng(3)
    n = np.array([8.0, 16, 64, 256])
    scores = [rng.gamma(20, 3 * size**0.3 / 20, 12) for size in n]
    regrets = Regrets(n, scores)
    means, variances = [s.mean() for s in scores], [s.var(ddof=1) / 12 for s in scores]
    weights = [m * m / v for m, v in zip(means, variances, strict=True)]
    expected = np.polyfit(np.log(n), np.log(means), 1, w=np.sqrt(weights))[0]
    assert regrets.exponent().estimate == pytest.approx(expected)
    law = np.polyfit(np.log(n), np.log(np.sqrt(np.log(n))), 1, w=np.sqrt(weights))[0]
    assert regrets.exponent("sqrt_log_n").estimate == pytest.approx(expected - law)

    def naive_aic(shape):
        top = sum(m * f / v for m, f, v in zip(means, shape, variances, strict=True))
        a = top / sum(f * f / v for f, v in zip(shape, variances, strict=True))
        return sum((m - a * f) ** 2 / v for m, f, v in zip(means, shape, variances, strict=True)) + 2

    for name, shape in (("sqrt_n", [math.sqrt(x) for x in n]), ("log_n", [math.log(x) for x in n])):
        assert float(regrets.aic(name)) == pytest.approx(naive_aic(shape))
    root, log = naive_aic([math.sqrt(x) for x in n]), naive_aic([math.log(x) for x in n])
    assert regrets.aic_beyond("sqrt_n", ("log_n",)).estimate == pytest.approx(root - log)


def test_exponents_interval_covers_the_truth():
    """A power law with b = 0.4, runs of relative spread 0.4. Fewer than 50 of 60 intervals cover with probability below
    1% where each covers with 93%; the seed is fixed."""
    rng = np.random.default_rng(0)
    n = np.array([8, 16, 32, 64])
    covered = 0
    for _ in range(60):
        interval = Regrets(n, [rng.gamma(6.25, size**0.4 / 6.25, 40) for size in n]).exponent()
        covered += interval.low <= 0.4 <= interval.high
    assert covered >= 50


BIG = {
    "kind": "envelope",
    "drafters": [7, 8, 12, 16, 21, 32, 47],
    "T": 6000,
    "gaps": list(GRID[::2]),
    "choosing": 2,
    "scoring": 8,
    "coins": 2,
}


def test_a_learner_that_hears_its_own_pick_alone_fails_the_headline(results, monkeypatch):
    setting = BIG | {"learner": "normalhedge"}
    honest = planted(results, "normalhedge", setting)
    assert verdicts(honest, "normalhedge")["exponents"] != FAILS
    own = measure.policy
    monkeypatch.setattr(measure, "policy", lambda name, *more: own("exp3" if name == "normalhedge" else name, *more))
    wrong = planted(results, "normalhedge", setting)
    found = verdicts(wrong, "normalhedge")
    assert found["exponents"] == found["full"] == found["headline"] == FAILS


def test_a_learner_that_learns_nothing_is_not_fitted(results, monkeypatch):
    own = measure.policy
    monkeypatch.setattr(measure, "policy", lambda name, *more: own("uniform" if name == "moss" else name, *more))
    wrong = planted(results, "moss", next(s for s in scaling.QUICK if s["learner"] == "moss"))
    found = scaling.envelope(wrong, "moss")
    assert not found.fits.any()
    assert found.share.min() > 0.9
    unable = verdicts(wrong, "moss")
    assert unable["exponents"] == unable["bandit"] == CANNOT_TELL
    # fitted all the same it would have passed for a learner of growing regret
    assert float(growth.slope(found.drafters, found.means, np.ones(len(found.drafters)))) < 0.25


@pytest.mark.parametrize(
    ("index", "score", "usable"), [(1, 5.0, True), (0, 5.0, False), (2, 0.5, False), (1, 9.0, False)]
)
def test_points_at_an_end_of_the_grid_or_with_nothing_learnt_are_not_fitted(index, score, usable):
    setting = {"kind": "envelope", "learner": "moss", "drafters": [16], "T": 100, "gaps": [0.2, 0.1, 0.01]}
    arrays = {
        "choose_16": np.full((3, 2), score),
        "gap_16": np.array(index),
        "score_16": np.full(4, 10 - score),  # scores have no say
        "coins_16": np.ones(1),
    }
    found = scaling.envelope(Results([Result(setting, arrays)]), "moss")
    assert found.fits.tolist() == [usable]


def test_settings_choose_gaps_on_enough_seeds_and_score_on_more():
    for setting in scaling.SETTINGS:
        if setting["kind"] == "envelope":
            most = max(setting["drafters"])
            assert setting["choosing"] >= (12 if min(setting["drafters"]) <= 64 else 8 if most <= 256 else 4)
            assert setting["scoring"] > setting["choosing"]


def test_note_gives_exponents_of_all_points_beside(results):
    note = findings("scaling", scaling, results)[0].answer.note
    found = scaling.envelope(results, "ucb1")
    assert f"ucb1 {found.among(found.drafters >= FIRST).exponent().estimate:.2f} [" in note


def test_figure_draws(results):
    drawn = figure.draw(results)
    assert figure.CLAIM == "scaling"
    assert [axes.get_title(loc="left")[0] for axes in drawn.axes] == ["a", "b", "c"]
    assert all(len(axes.collections) or len(axes.containers) for axes in drawn.axes)
