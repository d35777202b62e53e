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


def mixed_trace(rng):
    """A random trace of flat and deep drafters, whose acceptance differs from depth to depth."""
    lengths, k = rng.integers(1, 7, 3), 4
    depths = rng.permutation([1, 1, k, k, k])
    shape = (lengths.sum(), k, len(depths))
    alpha, gamma = rng.random(shape), rng.random(shape)
    alpha[:, :, depths > 1] *= rng.permutation([1.0, 0.2, 0.9, 0.0])[:, None]
    for values in (alpha, gamma):
        values[:, :, depths == 1] = values[:, :1, depths == 1]
    return hl.Trace.from_arrays(
        token=np.zeros(lengths.sum(), int), alpha=alpha, gamma=gamma, offsets=np.concatenate([[0], np.cumsum(lengths)]),
        domains=["x"] * 3, drafters=[str(i) for i in range(len(depths))], k=k, depths=depths.tolist(),
    )  # fmt: skip


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_all_oracles_where_acceptance_depends_on_depth(world, k):
    trace = mixed_trace(np.random.default_rng(world))
    assert len(trace.flat_columns) == 2
    assert len(trace.deep_columns) == 3
    brute = [
        [expected_rounds(trace.alpha[first:last, :, i], k) for i in range(len(trace.drafters))]
        for first, last in itertools.pairwise(trace.offsets)
    ]
    np.testing.assert_allclose(hl.oracles.expected_fixed_rounds(trace, k=k).rounds, brute, rtol=1e-9)
    np.testing.assert_allclose(hl.oracles.informed_rounds(trace, k=k), informed_rounds(trace, k), rtol=1e-9)
    coins = coins_of(trace, 3)
    assert hl.oracles.clairvoyant_rounds(trace, k=k, seed=3).tolist() == fewest_rounds(trace, coins, k)


def test_depth_decides_the_oracles():
    """With the acceptance of the first draft at every depth each oracle gives another answer."""
    trace = mixed_trace(np.random.default_rng(4))
    alpha = np.repeat(trace.alpha[:, :1], trace.k, axis=1)
    flat = hl.Trace.from_arrays(
        token=trace.token, alpha=alpha, gamma=trace.gamma, offsets=trace.offsets, domains=["x"] * 3,
        drafters=list(trace.drafters), k=trace.k, depths=[1 if i in trace.flat_columns else 4 for i in range(5)],
    )  # fmt: skip
    fixed, other = (hl.oracles.expected_fixed_rounds(each).rounds.sum(0) for each in (trace, flat))
    assert (np.abs(fixed - other)[trace.deep_columns] > 0.1).all()
    np.testing.assert_allclose(fixed[trace.flat_columns], other[trace.flat_columns], rtol=1e-12)
    assert hl.oracles.informed_rounds(trace).sum() > hl.oracles.informed_rounds(flat).sum() + 0.1
    fewest = [sum(hl.oracles.clairvoyant_rounds(each, seed=s).sum() for s in range(9)) for each in (trace, flat)]
    assert fewest[0] > fewest[1]


def informed_rounds(trace, k):
    """Rounds from every row on, by the outcomes of one round after another; (rows left, coins) in the clear."""
    out = []
    for first, last in itertools.pairwise(trace.offsets):
        alpha, gamma = trace.alpha[first:last].astype(float), trace.gamma[first:last].astype(float)

        def rounds(t, alpha=alpha, gamma=gamma):
            if t >= len(alpha):
                return 0.0
            i = int(np.argmax(gamma[t, 0]))
            total = 1.0
            for accepted in itertools.product([0, 1], repeat=min(k, len(alpha) - t)):  # every outcome of the coins
                chance, got = 1.0, 0
                for d, yes in enumerate(accepted):
                    a = alpha[t + d, min(d, alpha.shape[1] - 1), i]
                    chance *= a if yes else 1 - a
                while got < len(accepted) and accepted[got]:
                    got += 1
                if chance:
                    total += chance * rounds(t + got + 1)
            return total

        out.append(rounds(0))
    return out


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_informed(world, k):
    rng = np.random.default_rng(world)
    ties = bool(world % 2)
    trace = random_trace(rng, lengths=rng.integers(1, 6, 3), binary=ties, deep=False if ties else None)
    rounds = hl.oracles.informed_rounds(trace, k=k)
    assert rounds.tolist() == pytest.approx(informed_rounds(trace, k), rel=1e-9)
    assert ((rounds >= 1) & (rounds <= np.diff(trace.offsets))).all()


def walked(trace, coins, k):
    """Rounds of informed switching under given coins."""
    out = []
    for first, last in itertools.pairwise(trace.offsets):
        t, rounds = first, 0
        while t < last:
            i, d = int(np.argmax(trace.gamma[t, 0])), 0
            while d < k and t + d < last and coins[t + d] < trace.alpha[t + d, min(d, trace.alpha.shape[1] - 1), i]:
                d += 1
            t, rounds = t + d + 1, rounds + 1
        out.append(rounds)
    return np.array(out)


def test_informed_is_the_mean_over_coins_and_never_beats_the_clairvoyant():
    # 400 replicates of 6 sequences: within 5 standard errors, false alarm about 1e-6 (fixed seed)
    trace = random_trace(np.random.default_rng(9), drafters=3, lengths=[20] * 6, deep=True)
    totals = []
    for r in range(400):
        rounds = walked(trace, coins_of(trace, 0, r), trace.k)
        assert (hl.oracles.clairvoyant_rounds(trace, replicate=r) <= rounds).all()
        totals.append(rounds.sum())
    exact = hl.oracles.informed_rounds(trace).sum()
    assert abs(np.mean(totals) - exact) < 5 * np.std(totals) / 20
    assert np.std(totals) > 0


@given(st.integers(0, 2**32 - 1))
def test_informed_is_the_best_without_coins_for_one_draft_and_greedy_targets(world):
    rng = np.random.default_rng(world)
    lengths, n = rng.integers(1, 12, 3), int(rng.integers(1, 5))
    alpha = rng.random((lengths.sum(), n))
    trace = hl.Trace.from_arrays(
        token=np.zeros(lengths.sum(), int),
        alpha=alpha,
        gamma=alpha,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        domains=["x"] * 3,
        drafters=[str(i) for i in range(n)],
        k=1,
    )
    rounds = hl.oracles.informed_rounds(trace)
    for (first, last), got in zip(itertools.pairwise(trace.offsets), rounds, strict=True):
        value = np.zeros(last - first + 2)  # of the best choice in every row
        for t in range(last - first - 1, -1, -1):
            value[t] = min(
                1 + (1 - a) * value[t + 1] + a * value[t + 2] for a in trace.alpha[first + t, 0].astype(float)
            )
        assert got == pytest.approx(value[0], rel=1e-12)
    assert (rounds[:, None] <= hl.oracles.expected_fixed_rounds(trace).rounds + 1e-9).all()


def test_informed_can_be_worse_than_a_fixed_drafter():
    # k = 2: "once" is surer of its first draft and never has a second; "twice" is nearly as sure of both
    trace = hl.Trace.from_arrays(
        token=[1] * 30,
        alpha=np.tile([[[0.95, 0.9], [0.0, 0.9]]], (30, 1, 1)),
        gamma=np.tile([[[0.95, 0.9], [0.0, 0.9]]], (30, 1, 1)),
        offsets=[0, 30],
        domains=["x"],
        drafters=["once", "twice"],
        k=2,
    )
    informed, fixed = hl.oracles.informed_rounds(trace)[0], hl.oracles.expected_fixed_rounds(trace).rounds[0]
    assert informed == fixed[0] > fixed[1] + 3


def test_informed_needs_gamma():
    trace = hl.Trace.from_arrays(
        token=[1, 2],
        alpha=[[0.5, 0.5], [0.5, 0.5]],
        gamma=[[0.5, np.nan], [0.5, 0.5]],
        offsets=[0, 2],
        domains=["x"],
        drafters=["a", "b"],
        k=1,
        feedback="bandit",
    )
    with pytest.raises(ValueError, match="sequence 0: gamma of a first draft is NaN"):
        hl.oracles.informed_rounds(trace)
