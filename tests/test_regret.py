"""The token game of a run, regret by other measures, and the bootstrap."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgelab as hl
from hedgelab import worlds
from hedgelab._jit import uncompiled
from hedgelab.regret import (
    _tracking_best,
    bootstrap_counts,
    ratio_interval,
    second_order,
    stopping_time,
    token_game,
    tracking,
)
from tests.test_decode_replay import random_trace


@pytest.mark.parametrize("objective", ["length", "acceptance"])
@given(world=st.integers(0, 2**32 - 1))
def test_token_game(objective, world):
    trace = random_trace(np.random.default_rng(world))
    run = hl.replay(trace, "hedge", objective=objective, carry_over=True, token_game=True)
    losses = hl.feedback.losses(trace, objective=objective)
    known = ~np.isnan(run.expected_loss)
    assert known.tolist() == (~np.isnan(losses).any(axis=1)).tolist()  # every row whose loss is ever known is a play
    plays = np.arange(1, known.sum() + 1)
    naive = np.cumsum(run.expected_loss[known]) - np.cumsum(losses[known], axis=0).min(axis=1)
    game = token_game(run, [*plays, known.sum() + 10])
    assert game.plays.tolist() == plays.tolist()
    np.testing.assert_allclose(game.regret, naive, atol=1e-9)
    # Hedge's pathwise bound with the rates it used and the losses it lacked
    missing = plays - 1 - run.losses_seen[known]
    assert (missing >= 0).all()
    assert missing.max(initial=0) <= (2 * trace.k - 1 if objective == "length" else trace.k)
    if len(plays) and len(trace.drafters) > 1:
        rates = 2.0 * np.sqrt(np.log(len(trace.drafters)) / (run.losses_seen[known] + 1))
        width = hl.feedback.loss_range(objective, trace.k)
        assert (game.regret <= hl.bounds.hedge_path(rates, missing, len(trace.drafters), loss_range=width) + 1e-9).all()


def test_token_game_needs_one_game():
    trace = random_trace(np.random.default_rng(0), lengths=[9, 9])
    with pytest.raises(ValueError, match="token_game=True"):
        token_game(hl.replay(trace, "hedge", carry_over=True), [1])
    with pytest.raises(ValueError, match="carry_over=True"):
        token_game(hl.replay(trace, "hedge", token_game=True), [1])
    by_round = hl.replay(trace, "hedge", token_game=True, carry_over=True, granularity="round")
    bandit = hl.replay(trace, "ucb1", token_game=True, carry_over=True)
    for run in (by_round, bandit):
        with pytest.raises(ValueError, match="a play at every row"):
            token_game(run, [1])
    run = hl.replay(trace, "hedge", token_game=True, carry_over=True)
    with pytest.raises(ValueError, match="increasing"):
        token_game(run, [2, 2])


def test_bootstrap_draws_clusters_within_strata():
    clusters, strata = ["a", "a", "b", "c", "d", "d"], [0, 0, 0, 1, 1, 1]
    counts = bootstrap_counts(clusters, strata=strata, resamples=500)
    assert (counts[:, 0] == counts[:, 1]).all()
    assert (counts[:, 4] == counts[:, 5]).all()
    assert (counts[:, 0] + counts[:, 2] == 2).all()  # two clusters in the first stratum
    assert (counts[:, 3] + counts[:, 4] == 2).all()
    assert len(np.unique(counts, axis=0)) == 9
    with pytest.raises(ValueError, match="one length"):
        bootstrap_counts([1, 2], strata=[1])


def test_interval_covers():
    # 95% percentile intervals of a ratio, 60 prompts, 400 data sets: coverage below 0.90 or above 0.98 by chance in
    # less than one in 1e4 (binomial, true coverage 0.94; fixed seed)
    rng = np.random.default_rng(1)
    covered = 0
    counts = bootstrap_counts(np.arange(60), resamples=500)
    for _ in range(400):
        rounds = rng.integers(20, 60, 60)
        tokens = rounds * 2 + rng.normal(0, 8, 60)
        interval = ratio_interval(tokens, rounds, counts)
        assert interval.low <= interval.estimate <= interval.high
        covered += interval.low <= 2.0 <= interval.high
    assert 0.90 <= covered / 400 <= 0.98


@given(world=st.integers(0, 2**32 - 1), T=st.integers(1, 6), n=st.integers(1, 3), switches=st.integers(0, 7))
def test_tracking_equals_enumeration(world, T, n, switches):
    rng = np.random.default_rng(world)
    losses, own = rng.random((T, n)), rng.random(T)
    if world % 3 == 0:
        losses = np.round(losses)
    regret = tracking(losses, own, switches)
    assert regret.shape == (switches + 1,)
    for m in range(switches + 1):
        best = min(
            losses[np.arange(T), list(path)].sum()
            for path in itertools.product(range(n), repeat=T)
            if np.count_nonzero(np.diff(path)) <= m
        )
        assert regret[m] == pytest.approx(own.sum() - best, abs=1e-12)
    assert regret[0] == pytest.approx(own.sum() - losses.sum(axis=0).min(), abs=1e-12)
    assert (np.diff(regret) >= 0).all()


def test_tracking_equals_plain_python_and_knows_a_switching_world():
    world = worlds.switching(900, 5, 2, 0.5)
    losses, own = world.array(1), np.full(900, 0.5)
    best, plain = np.zeros((4, 5)), np.zeros((4, 5))
    _tracking_best(losses[:100], best)
    uncompiled(_tracking_best)(losses[:100], plain)
    assert plain.tolist() == best.tolist()
    # best drafters have loss 0: with two switches regret is 450 exactly, with fewer much less
    regret = tracking(losses, own, 3)
    assert regret[2] == regret[3] == 450
    assert regret[1] < 400
    assert regret[0] < 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1.0, 2.0], [1.0, 1.0], 1), "losses must be finite"),
        (([[np.nan]], [1.0], 1), "losses must be finite"),
        (([[1.0]], [1.0, 1.0], 1), "own must be finite"),
        (([[1.0]], [1.0], -1), "switches must be"),
        (([[1.0]], [1.0], 1.5), "switches must be"),
    ],
)
def test_tracking_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        tracking(*arguments)


def law_of_lengths(accept, k):
    """P(Y = 1), ..., P(Y = k + 1) of a drafter whose drafts are accepted independently."""
    return np.array([accept**d * (1 - accept) for d in range(k)] + [accept**k])


def rounds_to(tokens, law):
    """Expected rounds until that many tokens are there, by recursion."""
    value = np.zeros(tokens + 1)
    for left in range(1, tokens + 1):
        value[left] = 1 + sum(p * value[max(left - y, 0)] for y, p in enumerate(law, 1))
    return value[tokens]


@pytest.mark.parametrize("tokens", [1, 7, 100, 400])
@pytest.mark.parametrize("k", [1, 4, 7])
def test_stopping_time_regret_of_random_choice_exactly(tokens, k):
    # a policy that draws drafters with fixed weights commits the mixed law, and uses drafter i in w_i of its rounds
    accept, weights = np.array([0.9, 0.6, 0.2]), np.array([0.2, 0.5, 0.3])
    laws = np.array([law_of_lengths(a, k) for a in accept])
    means = laws @ np.arange(1, k + 2)
    rounds = rounds_to(tokens, weights @ laws)
    regret = rounds - min(rounds_to(tokens, law) for law in laws)
    assert abs(regret - stopping_time(means, weights * rounds)) <= k / means.max()
    if tokens == 400:
        assert regret > 5 * k / means.max()  # so the identity says something


def test_stopping_time_regret_of_a_learner_by_simulation():
    # an adaptive policy (UCB1's index on Y), 600 runs to 300 tokens. Wald makes T + overshoot + sum Delta_i n_i - mu*
    # rounds a sum of martingale differences: its mean is 0, checked within 5 standard errors; then the identity up to
    # K / mu*, with the same allowance. False alarm below 1e-6 (fixed seed)
    k, tokens, runs = 4, 300, 600
    laws = np.array([law_of_lengths(a, k) for a in (0.8, 0.6, 0.3)])
    means = laws @ np.arange(1, k + 2)
    rng = np.random.default_rng(11)
    counts, over = np.zeros((runs, 3)), np.zeros(runs)
    done, sums = np.zeros(runs), np.zeros((runs, 3))
    while (alive := np.flatnonzero(done < tokens)).size:
        n = counts[alive]
        with np.errstate(divide="ignore", invalid="ignore"):
            index = sums[alive] / n + k * np.sqrt(2 * np.log(n.sum(axis=1, keepdims=True)) / n)
        pick = np.where((n == 0).any(axis=1), (n == 0).argmax(axis=1), np.nan_to_num(index, nan=0.0).argmax(axis=1))
        y = 1 + (rng.random(len(alive))[:, None] > np.cumsum(laws, axis=1)[pick, :-1]).sum(axis=1)
        counts[alive, pick] += 1
        sums[alive, pick] += y
        done[alive] += y
    over = done - tokens
    assert ((over >= 0) & (over <= k)).all()
    martingale = tokens + over + counts @ (means.max() - means) - means.max() * counts.sum(axis=1)
    assert martingale.std() > 1
    assert abs(martingale.mean()) < 5 * martingale.std() / np.sqrt(runs)
    regret = counts.sum(axis=1).mean() - min(rounds_to(tokens, law) for law in laws)
    error = 5 * martingale.std() / np.sqrt(runs) / means.max()
    assert abs(regret - stopping_time(means, counts).mean()) <= k / means.max() + error
    assert regret > 3 * (k / means.max() + error)
    with pytest.raises(ValueError, match="means must be"):
        stopping_time([0.5], [1])
    with pytest.raises(ValueError, match="counts must be"):
        stopping_time([2.0, 3.0], [1])


@given(world=st.integers(0, 2**32 - 1), T=st.integers(1, 20), n=st.integers(1, 5))
def test_second_order_equals_loops(world, T, n):
    rng = np.random.default_rng(world)
    losses = rng.random((T, n))
    probs = rng.dirichlet(np.ones(n), T)
    facts = second_order(losses, probs)
    variance = variation = 0.0
    squares, absolute, regret, before = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    for row, w in zip(losses, probs, strict=True):
        mean = sum(w[i] * row[i] for i in range(n))
        variance += sum(w[i] * row[i] ** 2 for i in range(n)) - mean**2
        squares += (mean - row) ** 2
        absolute += abs(mean - row)
        regret += mean - row
        variation += (max(row - before) - min(row - before)) ** 2
        before = row
    assert facts.variance == pytest.approx(variance, abs=1e-9)
    assert facts.variation == pytest.approx(variation)
    assert facts.regret == pytest.approx(regret.max(), abs=1e-9)
    assert facts.best_loss == pytest.approx(losses.sum(axis=0).min())
    np.testing.assert_allclose(facts.squares, squares, atol=1e-9)
    np.testing.assert_allclose(facts.absolute, absolute, atol=1e-9)
    assert facts.variance <= T / 4 + 1e-9
    with pytest.raises(ValueError, match="shape of losses"):
        second_order(losses, probs[:, :0])
    with pytest.raises(ValueError, match="a distribution"):
        second_order(losses, 2 * probs)


def test_student_interval():
    # 97.5% quantiles from tables
    for degrees, quantile in ((1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (29, 2.04523), (200, 1.97190)):
        assert hl.regret.student_quantile(degrees) == pytest.approx(quantile, abs=1e-4)
    assert hl.regret.student_quantile(3, 0.005) == pytest.approx(5.84091, abs=1e-4)
    assert hl.regret.student_quantile(10, 0.05) == pytest.approx(1.81246, abs=1e-4)
    assert hl.regret.student_quantile(4, 0.5) == pytest.approx(0, abs=1e-9)
    assert 2.22814 < hl.regret.student_quantile(9.5) < 2.26216  # between 9 and 10 degrees
    rows = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0]])
    mean, low, high = hl.regret.mean_interval(rows)
    assert mean.tolist() == [3, 5]
    assert (high - mean).tolist() == pytest.approx([4.30265 * 2 / 3**0.5, 0], abs=1e-4)
    assert (mean - low).tolist() == pytest.approx((high - mean).tolist())
    assert np.isnan(hl.regret.mean_interval(rows[:1])[1]).all()
