"""Claim 7, pool size: every question is answered, numbers equal a naive recomputation, planted errors are seen."""

import dataclasses

import numpy as np
import pytest

import hedgelab as hl
from experiments.claim import CANNOT_TELL, FAILS, Result, Results, findings
from experiments.claims import pool_size
from experiments.claims.pool_size import measure
from experiments.claims.pool_size.asked import CLOSE, TRACES
from experiments.claims.pool_size.pools import tuned
from experiments.intervals import Draws
from experiments.settings import ClaimError, trace_of
from paper_figures import pool_size as figure
from tests.strategies_claims import verdict


@pytest.fixture(scope="module")
def results(quick):
    return quick("pool_size")


def test_every_question_is_answered(results):
    found = findings("pool_size", pool_size, results)
    assert [each.name for each in found] == list(pool_size.CLAIM.questions)
    for each in found:
        assert len(each.answer.cases()) <= each.question.comparisons
        assert np.isfinite([value for effect in each.answer.cases().values() for value in effect]).all()


@pytest.mark.parametrize("kind", ["real", "speed", "duplicates"])
def test_orders_are_split_without_gap_or_overlap(kind):
    for trace in TRACES[: 1 if kind == "duplicates" else 2]:
        some = [s for s in pool_size.SETTINGS if s["kind"] == kind and s["trace"] == trace]
        orders = [i for s in some for i in range(s["first"], s["first"] + s["orders"])]
        assert orders == list(range(len(orders)))
        assert len(orders) >= 16


def tiny():
    means = np.array([[0.9, 0.2, 0.5, 0.3], [0.3, 0.8, 0.5, 0.1]])
    return hl.worlds.pool(means, 14, sequences=2, k=3, softness=0.3, seed=2)


def naive_rounds(alpha, coins, k, choose):
    """Rounds of a text: alpha (rows, N), coins (rows,), choose() the drafter of a round."""
    t = rounds = 0
    while t < len(alpha):
        i, got = choose(), 0
        while got < k and t + got < len(alpha) and coins[t + got] < alpha[t + got, i]:
            got += 1
        t, rounds = t + got + 1, rounds + 1
    return rounds


def naive_expected(alpha, k, i, t=0):
    """Expected rounds from row t on, by the definition."""
    if t >= len(alpha):
        return 0.0
    total, reach = 1.0, 1.0
    for d in range(k):
        if t + d >= len(alpha):
            return total
        total += reach * (1 - alpha[t + d, i]) * naive_expected(alpha, k, i, t + d + 1)
        reach *= alpha[t + d, i]
    return total + reach * naive_expected(alpha, k, i, t + k + 1)


def test_run_equals_a_naive_decode_loop(monkeypatch):
    trace = tiny()
    monkeypatch.setattr(measure, "trace_of", lambda setting: trace)
    setting = {"kind": "real", "trace": "tiny", "k": 3, "first": 1, "orders": 2, "sizes": [2]}
    found = pool_size.run(setting, 4)
    assert found["sizes"].tolist() == [2, 4]
    alpha = [np.asarray(trace.alpha[a:b, 0], float) for a, b in zip(trace.offsets, trace.offsets[1:], strict=False)]
    alone = np.array([[naive_expected(text, 3, i) for i in range(4)] for text in alpha])
    for m, index in enumerate((1, 2)):
        order = np.random.Generator(np.random.PCG64([4, 0, index])).permutation(4)
        for j, size in enumerate((2, 4)):
            pool = sorted(order[:size].tolist())
            rng = np.random.Generator(np.random.PCG64([4, index]))
            rounds = [
                naive_rounds(
                    text[:, pool],
                    hl.coins.uniforms(4, hl.coins.COIN, s, 0, len(text), replicate=index),
                    3,
                    lambda n=size, rng=rng: int(rng.random() * n),
                )
                for s, text in enumerate(alpha)
            ]
            assert found["rounds"][measure.POLICIES.index("uniform"), m, j].tolist() == rounds
            best = min(pool, key=lambda i: alone[:, i].sum())
            assert found["best"][m, j] == pytest.approx(alone[:, best], rel=1e-6)
            assert set(found["pools"][:, m, j].tolist()) == {sum(2**i for i in pool)}


def test_change_and_regret_equal_sums_by_hand():
    rng = np.random.default_rng(0)
    cost = {name: rng.integers(5, 30, (3, 4, 5)).astype(float) for name in ("normalhedge", "best fixed drafter")}
    gain = rng.integers(20, 60, 5).astype(float)
    prompts, orders = rng.multinomial(5, np.ones(5) / 5, 200), rng.multinomial(3, np.ones(3) / 3, 200)
    drawn = [Draws(counts.astype(float), np.inf) for counts in (prompts, orders)]
    pools = pool_size.Pools(np.array([2, 7, 9, 12]), cost, gain, *drawn)

    def mat(p, s, m, j):
        texts, chains = [i for i in range(5) for _ in range(s[i])], [i for i in range(3) for _ in range(m[i])]
        rounds = sum(cost[p][o, j, i] for i in texts for o in chains) / len(chains)
        return sum(gain[i] for i in texts) / rounds

    all_texts, all_orders = np.ones(5, int), np.ones(3, int)
    found = pools.change("normalhedge", less="best fixed drafter")
    differences = [
        sum(sign * (mat(p, s, m, 3) - mat(p, s, m, 1)) for sign, p in ((1, "normalhedge"), (-1, "best fixed drafter")))
        for s, m in [(all_texts, all_orders), *zip(prompts, orders, strict=True)]
    ]
    assert found.estimate == pytest.approx(differences[0])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(differences[1:], [0.025, 0.975])))
    assert pools.regret("normalhedge")[2] == pytest.approx(
        sum((cost["normalhedge"] - cost["best fixed drafter"])[:, 2].ravel()) / 3
    )


def test_beta_is_chosen_on_the_other_prompts():
    rounds = np.full((len(measure.BETAS), 1, 1, 4), 10.0)
    rounds[1, ..., [0, 1]] = 1.0  # best on the first half: what the other is played with
    rounds[2, ..., [2, 3]] = 1.0
    found, betas = tuned(rounds, np.array([[True, True, False, False], [False, False, True, True]]))
    assert found.tolist() == [[[10.0] * 4]]
    assert betas == "0.05, 0.1"


def test_learners_on_different_pools_are_refused(results, monkeypatch):
    own = hl.replay

    def unpaired(trace, learner, **more):
        if getattr(learner, "name", learner) == "ucbspec" and len(trace.drafters) == 7:
            trace = trace.among(trace.drafters[1:])
        return own(trace, learner, **more)

    monkeypatch.setattr(hl, "replay", unpaired)
    setting = next(s for s in pool_size.QUICK if s["kind"] == "real") | {"orders": 1}
    others = [r for r in results if (r.setting["kind"], r.setting["trace"]) != ("real", setting["trace"])]
    wrong = Results([Result(setting, pool_size.run(setting, 0)), *others])
    with pytest.raises(ClaimError, match="ucbspec and normalhedge met different pools: order 0, size 7"):
        pool_size.check(wrong)


def shuffled(trace):
    """The trace with each row's columns in an order of its own: no drafter is better than another."""
    rng = np.random.default_rng(1)
    order = rng.permuted(np.tile(np.arange(len(trace.drafters)), (trace.rows, 1)), axis=1)
    known = (trace.alpha, np.nan_to_num(trace.gamma))
    return made_of(trace, *(np.take_along_axis(values, order[:, None, :], axis=2) for values in known))


def made_of(trace, alpha, gamma):
    """The trace with other acceptances."""
    return hl.Trace.from_arrays(
        token=trace.token,
        alpha=alpha,
        gamma=gamma,
        offsets=trace.offsets,
        domains=trace.domains.tolist(),
        drafters=trace.drafters,
        k=trace.k,
        sequence_id=trace.sequence_id,
    )


def test_columns_permuted_in_each_row_leave_nothing_to_gain(results, monkeypatch):
    setting = next(s for s in pool_size.QUICK if s["kind"] == "real")
    case = setting["trace"]
    honest = pool_size.real_pools(results, case)[0].change("normalhedge")
    assert honest.estimate > CLOSE
    trace = shuffled(trace_of(setting))
    monkeypatch.setattr(measure, "trace_of", lambda setting: trace)
    wrong = Results([Result(setting, pool_size.run(setting, 0))])
    found = pool_size.real_pools(wrong, case)[0].change("normalhedge")
    assert not found.low > 0
    assert abs(found.estimate) < honest.estimate / 4


def test_drafts_refused_in_the_whole_pool_flip_the_headline(results, monkeypatch):
    own = hl.replay

    def hampered(trace, learner, **more):
        whole = len(trace.drafters) == len(refusing.drafters)
        return own(refusing if whole else trace, learner, **more)

    quick = next(s for s in pool_size.QUICK if s["kind"] == "real")
    setting = quick | {"orders": 8, "sizes": [7]}  # four orders have three degrees of freedom
    trace = trace_of(setting)
    refusing = made_of(trace, np.zeros_like(trace.alpha), np.zeros_like(trace.alpha))
    monkeypatch.setattr(hl, "replay", hampered)
    others = [r for r in results if (r.setting["kind"], r.setting["trace"]) != ("real", setting["trace"])]
    wrong = Results([Result(setting, pool_size.run(setting, 0)), *others])
    assert verdict("pool_size", wrong, "rises") == FAILS


def test_copies_are_held_against_those_of_uniform_play():
    rounds = np.full((2, len(pool_size.ENLARGED), 16, 8), 40.0)
    rounds[1] -= 10.0  # all gain alike
    cost = {policy: rounds[:, p].swapaxes(0, 1) for p, policy in enumerate(pool_size.ENLARGED)}
    draws = Draws(np.ones((2000, 8)), np.inf), Draws(np.ones((2000, 16)), np.inf)
    pools = pool_size.Pools(np.array([7, 14]), cost, np.full(8, 120.0), *draws)
    assert pools.change("ucbspec") == pytest.approx((1.0, 1.0, 1.0))
    assert pools.change("ucbspec", less="uniform") == pytest.approx((0.0, 0.0, 0.0))


def test_speed_of_a_trace_without_costs_cannot_be_told(results, monkeypatch):
    monkeypatch.setattr(measure, "trace_of", lambda setting: tiny())
    setting = next(s for s in pool_size.QUICK if s["kind"] == "speed") | {"k": 3}
    bare = Results([Result(setting, pool_size.run(setting, 0))])
    assert pool_size.priced_pools(bare, setting["trace"]) is None
    monkeypatch.undo()
    rest = [each for each in results if each.setting["kind"] != "speed"]
    assert verdict("pool_size", Results([*rest, *bare]), "speed") == CANNOT_TELL


def test_enlarged_pools_begin_alike_and_hold_the_best():
    means = measure.acceptances(hl.sample_trace("t06"), 40, 0)
    assert (means[:, :20] == measure.acceptances(hl.sample_trace("t06"), 20, 0)).all()
    gamma = hl.sample_trace("t06").gamma[:, 0]
    assert means.mean(axis=0).argmax() == 0
    assert means[:, pool_size.PAPER :].max() < np.quantile(gamma.mean(axis=0), 0.3)


def test_figure_draws(results):
    drawn = figure.draw(results)
    assert figure.CLAIM == "pool_size"
    assert [axes.get_title(loc="left")[0] for axes in drawn.axes] == ["a", "b", "c"]
    assert all(len(axes.collections) for axes in drawn.axes)


def test_seven_drafters_or_fewer_have_grown_nowhere():
    cost = {name: np.ones((2, 2, 4)) for name in ("normalhedge", "ucbspec")}
    draws = [Draws(np.ones((400, many)), np.inf) for many in (4, 2)]
    drawn = pool_size.Pools(np.array([3, 5]), cost, np.full(4, 2.0), *draws)
    for sizes in ([3, 5], [3, 7], [8, 9]):
        pools = dataclasses.replace(drawn, sizes=np.array(sizes))
        effects = (pools.change("normalhedge"), pools.beyond("ucbspec", less="normalhedge"))
        assert all(np.isnan(end) for effect in effects for end in effect), sizes
    assert dataclasses.replace(drawn, sizes=np.array([7, 9])).change("normalhedge") == (0.0, 0.0, 0.0)
