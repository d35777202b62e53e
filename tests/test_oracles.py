"""Oracles against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgelab as hl
from tests.test_decode_replay import coins_of, random_trace


def expected_rounds(alpha, k, t=0):
    """Rounds from row t to the end of alpha (T, D), by the outcomes of one round after another."""
    rows, depths = alpha.shape
    if t >= rows:
        return 0.0
    total, reach = 1.0, 1.0
    for d in range(k + 1):
        if t + d >= rows:
            return total  # every draft up to the end accepted
        accept = 0.0 if d == k else float(alpha[t + d, min(d, depths - 1)])
        total += reach * (1 - accept) * expected_rounds(alpha, k, t + d + 1)
        reach *= accept
    return total


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_expected_rounds(world, k):
    rng = np.random.default_rng(world)
    trace = random_trace(rng, lengths=rng.integers(1, 8, 3))
    table = hl.oracles.expected_fixed_rounds(trace, k=k)
    for s, (first, last) in enumerate(itertools.pairwise(trace.offsets)):
        for i in range(len(trace.drafters)):
            assert table.rounds[s, i] == pytest.approx(expected_rounds(trace.alpha[first:last, :, i], k), rel=1e-9)
    assert table.best == int(table.rounds.sum(axis=0).argmin())
    assert table.overall.sum() == pytest.approx(table.rounds.sum(axis=0).min())
    assert (table.per_query <= table.overall + 1e-12).all()


def test_expected_rounds_are_the_mean_over_coins():
    # 400 replicates of 6 sequences: within 5 standard errors, false alarm about 1e-6 per drafter (fixed seed)
    trace = random_trace(np.random.default_rng(8), drafters=3, lengths=[20] * 6, deep=True)
    exact = hl.oracles.expected_fixed_rounds(trace).rounds.sum(axis=0)
    drawn = np.array([hl.oracles.fixed_rounds(trace, replicate=r).rounds.sum(axis=0) for r in range(400)])
    assert (np.abs(drawn.mean(axis=0) - exact) < 5 * drawn.std(axis=0) / 20).all()
    assert drawn.std(axis=0).min() > 0


def fewest_rounds(trace, coins, k):
    """Breadth-first search over reachable rows."""
    out = []
    for first, last in itertools.pairwise(trace.offsets):
        reached, rounds = {first}, 0
        while last not in reached:
            rounds += 1
            following = set()
            for t in reached:
                for i in range(len(trace.drafters)):
                    d = 0
                    while (
                        d < k
                        and t + d < last
                        and coins[t + d] < trace.alpha[t + d, min(d, trace.alpha.shape[1] - 1), i]
                    ):
                        d += 1
                    following.add(min(t + d + 1, last))
            reached = following
        out.append(rounds)
    return out


@pytest.mark.parametrize("place", [{"seed": -1}, {"seed": 2**56}, {"replicate": -1}, {"seed": 1.5}])
def test_coins_that_there_are_not(place):
    trace = random_trace(np.random.default_rng(0))
    for oracle in (hl.oracles.fixed_rounds, hl.oracles.clairvoyant_rounds):
        with pytest.raises(ValueError, match=next(iter(place))):
            oracle(trace, **place)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_clairvoyant(world, k):
    rng = np.random.default_rng(world)
    trace = random_trace(rng)
    rounds = hl.oracles.clairvoyant_rounds(trace, k=k, seed=2)
    assert rounds.tolist() == fewest_rounds(trace, coins_of(trace, 2), k)
    for name in hl.learners():  # no policy beats it under the same coins
        assert (hl.replay(trace, name, k=k, seed=2).sequence_rounds >= rounds).all()
