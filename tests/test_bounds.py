"""Hedge's bounds against adversaries, with and without delay, and the conditions they need."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgelab import bounds


def stale_hedge(rates, delays, adversary, n, loss_range=1.0):
    """Play exponential weights on the losses that have arrived; return regrets after each play and the missing
    counts."""
    total, losses, own, regrets, missing = np.zeros(n), [], 0.0, [], []
    arrival = []
    for t, rate in enumerate(rates):
        seen = [s for s in range(t) if arrival[s] <= t]
        missing.append(t - len(seen))
        known = sum((losses[s] for s in seen), np.zeros(n))
        weights = np.exp(-rate * (known - known.min()))
        weights /= weights.sum()
        loss = loss_range * adversary(t, weights, total)
        own += weights @ loss
        total = total + loss
        losses.append(loss)
        arrival.append(t + 1 + delays[t])
        regrets.append(own - total.min())
    return np.array(regrets), np.array(missing)


def greedy(t, weights, total):
    """Loss 1 on the likelier half."""
    loss = np.zeros(len(weights))
    loss[np.argsort(-weights, kind="stable")[: max(1, len(weights) // 2)]] = 1.0
    return loss


def block_greedy(size):
    state = {}

    def adversary(t, weights, total):
        if t % size == 0:
            state["loss"] = greedy(t, weights, total)
        return state["loss"]

    return adversary


@pytest.mark.parametrize("delay", [0, 1, 4, 13])
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("width", [1.0, 0.1])
def test_tuned_rate(n, delay, width):
    horizon = 400
    late = sum(min(t, delay) for t in range(horizon))
    rate = math.sqrt(8 * math.log(n) / (horizon + 2 * late)) / width
    bound = bounds.hedge(horizon, n, delay=delay, loss_range=width)
    assert bound == pytest.approx(width * math.sqrt((horizon + 2 * late) * math.log(n) / 2))
    worst = max(
        stale_hedge([rate] * horizon, [delay] * horizon, adversary, n, width)[0][-1]
        for adversary in (greedy, block_greedy(delay + 1))
    )
    assert worst <= bound
    assert worst > 0.2 * bound  # the adversaries are strong enough to refute a bound five times smaller


def test_rate_tuned_without_the_delay_breaks_the_bound():
    # theory.md section 4: eta tuned to T alone pays 174 against a bound of 137 at N = 2, T = 2000, delay 13
    horizon, delay = 2000, 13
    rate = math.sqrt(8 * math.log(2) / horizon)
    regret = stale_hedge([rate] * horizon, [delay] * horizon, greedy, 2)[0][-1]
    assert regret > bounds.hedge(horizon, 2, delay=delay)


@given(
    n=st.integers(2, 5),
    seed=st.integers(0, 2**32 - 1),
    most=st.integers(0, 9),
    loss_range=st.sampled_from([1.0, 0.75, 0.1]),
    scale=st.sampled_from([0.3, 2.0, 5.0]),
)
def test_path_bound_holds_for_any_delays(n, seed, most, loss_range, scale):
    rng = np.random.default_rng(seed)
    horizon = 60
    delays = rng.integers(0, most + 1, horizon)
    rates = scale * np.sqrt(np.log(n) / np.arange(1, horizon + 1))
    kind = rng.integers(3)
    adversary = (greedy, block_greedy(most + 1), lambda t, w, total: rng.random(n))[kind]
    regrets, missing = stale_hedge(rates, delays, adversary, n, loss_range)
    assert (regrets <= bounds.hedge_path(rates, missing, n, loss_range=loss_range) + 1e-9).all()


def test_anytime():
    for n, horizon in ((2, 50), (7, 512), (64, 3000)):
        bound = bounds.hedge_anytime(horizon, n)
        assert bound <= math.sqrt(horizon * math.log(n)) + 1e-9  # (1/c + c/4) at c = 2
        assert bound > 0.9 * math.sqrt(horizon * math.log(n))
        assert bounds.hedge_anytime(horizon, n, delay=5) > bound
    assert bounds.hedge_anytime(10, 1) == bounds.hedge(10, 1) == 0.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bounds.hedge(0, 2), "T must be a whole number of at least 1"),
        (lambda: bounds.hedge_anytime(9, 2, scale=0), "scale must be positive"),
        (lambda: bounds.hedge_path([0.1, math.inf], [0, 0], 2), "finite"),
        (lambda: bounds.hedge_path([0.1], [math.nan], 2), "negative"),
        (lambda: bounds.hedge(10, 0, delay=-1), "N must be.*delay must be"),
        (lambda: bounds.hedge(10, 2, loss_range=2.0), "loss_range"),
        (lambda: bounds.hedge_path([0.1, 0.2], [0, 0], 2), "never rise"),
        (lambda: bounds.hedge_path([0.1], [0, 0], 2), "one length"),
        (lambda: bounds.hedge_path([0.1], [-1], 2), "negative"),
    ],
)
def test_conditions(call, words):
    with pytest.raises(ValueError, match=words):
        call()
