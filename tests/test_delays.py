"""Delays: their counts, what a decode loop makes of them, and what goes wrong with late losses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgelab as hl
from hedgelab import bounds, delays, worlds
from hedgelab.algorithms.normalhedge import init as init_normalhedge
from hedgelab.algorithms.normalhedge import observe as observe_normalhedge
from hedgelab.algorithms.normalhedge import play as play_normalhedge


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_missing_by_counting(given_delays):
    t = len(given_delays)
    naive = [sum(1 for s in range(now) if s + given_delays[s] >= now) for now in range(t)]
    assert delays.missing(np.array(given_delays), t).tolist() == naive
    assert delays.most_outstanding(np.array(given_delays), t) == max(naive)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
def test_decode_delays_by_definition(k, seed, length):
    committed = np.random.default_rng(seed).integers(1, k + 2, 12)
    starts = np.concatenate([[0], np.cumsum(committed)])
    rows, objective = int(starts[-1]), "length" if length else "acceptance"
    lag = k if length else 1
    expected = []
    for row in range(rows - lag + 1):
        end = next(e for e in starts[1:] if e > row + lag - 1)  # where the round ends that commits the last row needed
        expected.append(end - row - 1)
    found = delays.decode(committed, k, objective=objective)
    assert found.tolist() == expected
    low, high = (k - 1, 2 * k - 1) if length else (0, k)
    assert all(low <= d <= high for d in expected)


def test_mean_delay_of_decoding():
    # theory: for acceptance E Y(Y-1) / (2 E Y), for length k - 1 more
    rng = np.random.default_rng(0)
    k, committed = 4, rng.integers(1, 6, 200_000)
    mean = (committed * (committed - 1)).mean() / (2 * committed.mean())
    assert delays.decode(committed, k, objective="acceptance").mean() == pytest.approx(mean, rel=1e-9)
    # row t + k - 1 lies at a random place of its round: the same mean, up to the ends of the sequence
    assert delays.decode(committed, k).mean() == pytest.approx(mean + k - 1, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: delays.per_round([1, -2], 2), "negative, got -2 in round 1"),
        (lambda: delays.per_round([[1]], 1), "whole number"),
        (lambda: delays.per_round(2**62, 1), "less than"),
        (lambda: delays.decode([0, 1], 2), "committed must be"),
        (lambda: delays.decode([4], 2), "committed must be"),
        (lambda: delays.decode([1], 0), "k must be"),
        (lambda: delays.decode([1], 2, objective="speed"), "objective must be"),
        (lambda: delays.stale_hedge(0, 2), "rounds >= 1"),
        (lambda: delays.outstanding_in_decoding(0), "k must be"),
        (lambda: delays.outstanding_in_decoding(True), "k must be"),
        (lambda: delays.outstanding_in_decoding(1.5), "k must be"),
    ],
)
def test_bad_arguments(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("delay", [4, 13])
@pytest.mark.parametrize("n", [2, 16])
def test_stale_hedge_needs_its_own_rate(n, delay):
    # blocks of delay + 1 rounds that punish the heavier half: a rate tuned to T alone breaks the bound without delay
    # by far; the rate tuned to the delay keeps its own bound
    t = 2000
    world = worlds.block(t, n, delay + 1)
    own = hl.play(world, delays.stale_hedge(t, n, delay=delay), delay=delay)
    assert own.regret <= bounds.hedge(t, n, delay=delay)
    tuned_to_t = hl.play(world, hl.learner("hedge", learning_rate=math.sqrt(8 * math.log(n) / t)), delay=delay)
    assert tuned_to_t.regret > own.regret
    if n == 2 and delay == 13:
        assert tuned_to_t.regret > bounds.hedge(t, n, delay=delay)  # so the test can see
    padded = hl.play(
        world,
        hl.learner("hedge", learning_rate=math.sqrt(8 * math.log(n) * (delay + 1) / t)),
        delay=delay,
        delay_mode="padded",
    )
    assert padded.regret <= math.sqrt((delay + 1) * (t + delay) * math.log(n) / 2)


def _observe_own(params, state, context, probs, pick, losses):
    """NormalHedge that adds up the regret of what it would play now, in place of what was played."""
    now = np.empty(losses.shape[0])
    play_normalhedge(params, state, context, None, now)
    observe_normalhedge(params, state, context, now, pick, losses)


def test_normalhedge_with_other_weights_than_those_played():
    # an adversary that repeats its choice for delay + 1 rounds: fed the regret of its present weights, NormalHedge pays
    # about (d + 1) sqrt T; fed that of the weights played, sqrt((d + 1) T)
    own_weights = hl.Learner("normalhedge-virtual", init_normalhedge, play_normalhedge, _observe_own)
    t, delay = 2000, 13
    world = worlds.block(t, 2, delay + 1)
    played = hl.play(world, "normalhedge", delay=delay).regret
    virtual = hl.play(world, own_weights, delay=delay, jit=False).regret
    unit = math.sqrt((delay + 1) * t)
    assert played < 1.2 * unit
    assert virtual > 1.5 * played


def test_rate_of_stale_hedge():
    # D = 0 + 1 + 2 + 2 + 2 = 7
    policy = delays.stale_hedge(5, 3, delay=2, loss_range=0.5)
    assert policy.values["learning_rate"] == pytest.approx(2 * math.sqrt(8 * math.log(3) / (5 + 14)))
