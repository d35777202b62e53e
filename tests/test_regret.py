"""The token game of a run, and the bootstrap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgelab as hl
from hedgelab.regret import bootstrap_counts, ratio_interval, token_game
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
