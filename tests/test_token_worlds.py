"""Claims about committed length, held against the exact law of real rounds, by enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgelab import lengths
from hedgelab.token_worlds import (
    KINDS,
    TokenWorld,
    WorldDrafter,
    accepting_for_ever,
    random_world,
    sampler_law,
    two_state_world,
)


def estimates(world, k, prefix=(), length=None):
    """Return the paths, their probabilities (P,), and {"A", "B", "C": (P, N)} of a round from their first row.

    A is NaN where gamma is undefined.
    """
    tokens, chance = world.paths(length or k, prefix)
    found = {"A": [], "B": [], "C": []}
    for path in tokens:
        alpha, gamma = world.acceptance(path, k, prefix)
        found["B"].append(lengths.realised(alpha, k)[0])
        found["C"].append(lengths.rao_blackwell(alpha, gamma, k)[0])
        row = []
        for i in range(len(world.drafters)):
            try:
                row.append(lengths.plug_in(gamma[:, :, i : i + 1], k)[0, 0])
            except ValueError:
                row.append(np.nan)
        found["A"].append(row)
    return tokens, chance, {name: np.array(values) for name, values in found.items()}


def moments(chance, values):
    mean = chance @ values
    return mean, chance @ (values - mean) ** 2


def table(vocabulary, target, *laws):
    """A world of chain drafters from tables {prefix: law}; what is not listed is token 0 for certain."""
    certain = np.eye(vocabulary)[0]

    def look_up(rows):
        return lambda prefix, depth=0: np.array(rows.get(prefix, certain), float)

    return TokenWorld("table", vocabulary, look_up(target), tuple(WorldDrafter("chain", look_up(law)) for law in laws))


@given(seed=st.integers(0, 10**6), k=st.integers(1, 3), vocabulary=st.integers(2, 3))
@settings(max_examples=12, deadline=None)
def test_realised_and_rao_blackwell_are_unbiased(seed, k, vocabulary):
    """Every rule, D = 1 and D = K, against the sampler's own law: B, C exact in the mean; A, B, C in [1, k+1]."""
    for kinds in (("chain", "one_hot", "independent", "recursive", "without_replacement"), ("tree", "head", "chain")):
        world = random_world(seed, kinds, vocabulary)
        _, chance, found = estimates(world, k)
        assert chance.sum() == pytest.approx(1, abs=1e-12)
        for i, kind in enumerate(kinds):
            true = world.expected_length(i, k)
            assert 1 <= true <= k + 1
            assert chance @ found["B"][:, i] == pytest.approx(true, abs=1e-12), kind
            assert chance @ found["C"][:, i] == pytest.approx(true, abs=1e-12), kind
        for values in found.values():
            known = values[~np.isnan(values)]
            assert ((known >= 1 - 1e-12) & (known <= k + 1 + 1e-12)).all()
        if kinds[0] == "chain":
            assert not np.isnan(found["A"]).any()
        # where alpha is 0 or 1, C never varies more than B
        for i, kind in enumerate(kinds):
            if kind in ("one_hot", "tree"):
                assert moments(chance, found["C"][:, i])[1] <= moments(chance, found["B"][:, i])[1] + 1e-12


@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_plug_in_is_off_by_a_quarter_of_k_minus_1(k):
    world = accepting_for_ever()
    _, chance, found = estimates(world, k)
    assert world.expected_length(0, k) == 1 + k / 2
    assert chance @ found["B"] == 1 + k / 2
    assert chance @ found["C"] == 1 + k / 2
    assert chance @ found["A"] == 1 + k / 2 - (k - 1) / 4
    if k == 2:
        assert (world.expected_length(0, 2), (chance @ found["A"])[0]) == (2.0, 1.75)


@pytest.mark.parametrize("seed", range(3))
def test_greedy_targets_make_all_three_one(seed):
    world = random_world(seed, ["chain", "one_hot", "recursive", "without_replacement", "head"])
    greedy = TokenWorld("greedy", 3, lambda prefix: np.eye(3)[(sum(prefix) + len(prefix)) % 3], world.drafters)
    _, chance, found = estimates(greedy, 3)
    assert len(chance) == 1
    for values in found.values():
        np.testing.assert_allclose(values, [[greedy.expected_length(i, 3) for i in range(5)]], atol=1e-12)


HALF = (0.5, 0.5)


def test_plug_in_can_be_too_high():
    # the first draft is 0 for certain; after 0 nothing is accepted, after 1, where the round has ended, everything
    world = table(2, {(): HALF}, {(): (1, 0), (0,): (0, 1)})
    _, chance, found = estimates(world, 2)
    assert world.expected_length(0, 2) == 1.5
    assert [(chance @ found[e])[0] for e in "ABC"] == [1.75, 1.5, 1.5]


@pytest.mark.parametrize(
    ("variances", "first", "after_zero", "after_one"),
    [
        # alpha 1, 1/2 at the first token, then nothing is accepted after 0 and everything after 1: B is smallest
        ((0.140625, 0.0, 0.0625), (0.75, 0.25), (HALF, None), (HALF, HALF)),
        # gamma 1/2 everywhere, alpha 0 or 1: A is smallest
        ((0.0, 0.6875, 0.0625), (1, 0), (HALF, (1, 0)), (HALF, (1, 0))),
        # alpha 1, 1/2, then gamma 1/2, 1: their product is the same on all paths, C is smallest
        ((0.03515625, 0.1875, 0.0), (0.75, 0.25), (HALF, (1, 0)), (HALF, HALF)),
    ],
)
def test_variances_have_no_fixed_order(variances, first, after_zero, after_one):
    """Each of A, B and C can vary least, and each pair is ordered both ways. Two tokens, first fair, k = 2."""
    target, draft = {(): HALF}, {(): first}
    for place, (p, q) in (((0,), after_zero), ((1,), after_one)):
        # None: a draft that the target never has
        target[place], draft[place] = (p, q) if q is not None else ((1, 0), (0, 1))
    _, chance, found = estimates(table(2, target, draft), 2)
    np.testing.assert_allclose([moments(chance, found[e])[1][0] for e in "ABC"], variances, atol=1e-15)


def test_two_state_world_rounds_and_tokens():
    """MAT 31/14 by the chain of round starts; the mean over tokens is larger, for B and for A."""
    world, k = two_state_world(), 2
    mean, to_zero = [], []
    for before in (0, 1):
        law = world.round_law(0, k, (before,))
        mean.append(sum(len(tokens) * chance for tokens, chance in law.items()))
        to_zero.append(sum(chance for tokens, chance in law.items() if tokens[-1] == 0))
    starts_after_zero = to_zero[1] / (1 - to_zero[0] + to_zero[1])
    assert starts_after_zero * mean[0] + (1 - starts_after_zero) * mean[1] == pytest.approx(31 / 14, abs=1e-12)
    # tokens are i.i.d. and fair: the row before a typical token is either
    averages = {"A": 0.0, "B": 0.0, "C": 0.0}
    for before in (0, 1):
        _, chance, found = estimates(world, k, (before,))
        for estimator, values in found.items():
            averages[estimator] += 0.5 * (chance @ values)[0]
    assert averages == pytest.approx({"A": 2.3125, "B": 2.375, "C": 2.375}, abs=1e-12)


def censored_means(world, k, chosen, estimator):
    """Mean over paths and over the coins of the chosen drafter's round, (N,): the estimate that its chunk shows."""
    tokens, chance = world.paths(k)  # the row of the bonus token tells nothing
    total = np.zeros(len(world.drafters))
    for path, weight in zip(tokens, chance, strict=True):
        alpha, gamma = world.acceptance(path, k)
        accept = [alpha[d, min(d, alpha.shape[1] - 1), chosen] for d in range(k)]
        for accepted in range(k + 1):
            happens = np.prod(accept[:accepted]) * (1 - accept[accepted] if accepted < k else 1)
            if happens > 0:
                ends = np.clip(accepted + 1, np.arange(1, k + 1), k)
                total += weight * happens * lengths.censored(alpha, gamma, k, ends, estimator=estimator)[0]
    return total


@pytest.mark.parametrize("estimator", ["B", "C"])
@pytest.mark.parametrize("seed", range(2))
def test_censored_estimates_are_biased_low(estimator, seed):
    k, kinds = 3, ("chain", "one_hot", "tree")
    world = random_world(seed, kinds, 2 if seed % 2 else 3)
    true = np.array([world.expected_length(i, k) for i in range(3)])
    for chosen, kind in enumerate(kinds):
        mean = censored_means(world, k, chosen, estimator)
        assert (mean <= true + 1e-12).all()
        if kind != "chain":  # alpha 0 or 1: the chosen one's own estimate is whole
            assert mean[chosen] == pytest.approx(true[chosen], abs=1e-12)


def test_censored_estimates_of_a_fractional_drafter_and_of_the_others():
    world = table(2, {(): HALF, (0,): HALF, (1,): HALF}, {(): (0.75, 0.25), (0,): (0.75, 0.25), (1,): (0.75, 0.25)})
    # alpha is 1 after token 0 and 1/2 after 1; gamma 3/4: E a^2 g = .625 * .75 where E a g = .75 * .75
    assert world.expected_length(0, 2) == 1 + 0.75 + 0.75**2
    assert censored_means(world, 2, 0, "C") == pytest.approx(1 + 0.75 + 0.625 * 0.75, abs=1e-12)
    assert censored_means(world, 2, 0, "B") == pytest.approx(1 + 0.75 + 0.625 * 0.75, abs=1e-12)
    sure = table(2, {(): HALF, (0,): HALF, (1,): HALF}, {(): HALF, (0,): HALF, (1,): HALF}, {(): (0.75, 0.25)})
    # a chosen drafter that is always accepted hides nothing
    for estimator in "BC":
        truth = [sure.expected_length(i, 2) for i in range(2)]
        np.testing.assert_allclose(censored_means(sure, 2, 0, estimator), truth, atol=1e-12)


def test_censored_estimates_can_rank_the_chosen_drafter_above_a_better_one():
    # i.i.d. tokens with law (.45, .55); one drafter is certain of 0, the other of 1
    law, places = (0.45, 0.55), ((), (0,), (1,))
    world = table(2, dict.fromkeys(places, law), dict.fromkeys(places, (1, 0)), dict.fromkeys(places, (0, 1)))
    zero, one = (world.expected_length(i, 2) for i in range(2))
    assert one > zero
    for estimator in "BC":
        mean = censored_means(world, 2, 0, estimator)
        assert mean[0] == pytest.approx(zero, abs=1e-12)
        assert mean[1] < mean[0] - 0.1
        assert mean[1] == pytest.approx(1.55, abs=1e-12)  # its second draft is seen only where the first was 0


@given(seed=st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_rounds_leave_the_targets_law(seed):
    world = random_world(seed)
    for i in range(len(world.drafters)):
        law = world.round_law(i, 2)
        assert sum(law.values()) == pytest.approx(1, abs=1e-12)
        # the first token has the target's law whatever was drafted
        first = np.zeros(3)
        for tokens, chance in law.items():
            first[tokens[0]] += chance
        np.testing.assert_allclose(first, world.target(()), atol=1e-12)


def test_trace_holds_every_path():
    world = random_world(5, ["chain", "tree", "head", "one_hot"], 2)
    trace, chance = world.trace(4, k=3)
    tokens, same = world.paths(4)
    np.testing.assert_array_equal(chance, same)
    np.testing.assert_array_equal(trace.token.reshape(-1, 4), tokens)
    for s, path in enumerate(tokens):
        alpha, gamma = world.acceptance(path, 3)
        rows = slice(4 * s, 4 * s + 4)
        np.testing.assert_array_equal(trace.alpha[rows], alpha)  # exact in float32
        np.testing.assert_array_equal(trace.gamma[rows], gamma)
    assert np.isnan(trace.gamma[:, :, 1]).any()
    assert not np.isnan(trace.gamma[:, :, [0, 3]]).any()
    assert trace.check() == []


def test_tree_acceptance_follows_the_tree_of_the_round():
    def law(prefix, depth):  # a tree that holds the path 0, 1 alone
        return np.array([[True, False], [False, True]])[depth] if depth < 2 else np.zeros(2, bool)

    world = TokenWorld("tree", 2, lambda prefix: np.array(HALF), (WorldDrafter("tree", law, deep=True),))
    alpha, gamma = world.acceptance([0, 1, 0], 3)
    np.testing.assert_array_equal(alpha[:, :, 0], [[1, 0, 0], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(gamma[:, :, 0], [[0.5, np.nan, np.nan], [0.5, 0.5, np.nan], [0.5, np.nan, 0]])
    assert world.expected_length(0, 3) == 1.75


def test_what_worlds_refuse():
    with pytest.raises(ValueError, match="kinds must be some of"):
        random_world(0, ["chain", "eagle"])
    with pytest.raises(ValueError, match="vocabulary must be"):
        random_world(0, ["chain"], 1)
    with pytest.raises(ValueError, match="rule must be one of"):
        WorldDrafter("magic", lambda prefix, depth: np.ones(2))
    with pytest.raises(ValueError, match="deep must be True"):
        WorldDrafter("tree", lambda prefix, depth: np.ones(2, bool))
    with pytest.raises(ValueError, match="rule must be one of"):
        sampler_law("magic", HALF, HALF)
    assert set(KINDS) >= {"chain", "one_hot", "tree", "recursive"}
