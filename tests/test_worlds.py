"""Worlds: laws, reproducibility, adversaries; pools: calibration. Statistical tests have fixed seeds."""

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgelab as hl
from hedgelab import adversaries, bounds, worlds
from hedgelab._jit import uncompiled
from hedgelab.contract import ADVERSARY
from hedgelab.worlds import World

PLAIN = not hasattr(adversaries.heaviest_half, "py_func")  # NUMBA_DISABLE_JIT: everything is slow

MAKE = {
    "fair_coins": lambda T, N: worlds.fair_coins(T, N),
    "bernoulli": lambda T, N: worlds.iid(T, np.linspace(0, 1, N)),
    "beta": lambda T, N: worlds.iid(T, np.linspace(0, 1, N), kind="beta", concentration=2.0),
    "gap": lambda T, N: worlds.gap(T, N, 0.2),
    "gap, best given": lambda T, N: worlds.gap(T, N, 0.2, best=N - 1),
    "drifting": lambda T, N: worlds.drifting(T, N, 0.01),
    "domains": lambda T, N: worlds.domains(T, np.linspace(0, 1, 3 * N).reshape(3, N), 7),
    "alternating": lambda T, N: worlds.alternating(T, N),
}
SWITCHING = {
    "even": lambda T, N: worlds.switching(T, N, 3 if N > 1 else 0, 0.4),
    "random": lambda T, N: worlds.switching(T, N, 3 if N > 1 else 0, 0.4, at="random"),
}


# ------------------------------------------------------------------ losses that are there beforehand


@pytest.mark.parametrize("name", [*MAKE, *SWITCHING])
@pytest.mark.parametrize("n", [1, 2, 5, 300])
def test_losses_are_a_function_of_seed_and_round(name, n):
    rounds = 1000 if n == 300 else 9000  # several blocks
    world = {**MAKE, **SWITCHING}[name](rounds, n)
    whole = world.array(seed=3)
    assert whole.shape == (rounds, n)
    assert ((whole >= 0) & (whole <= 1)).all()
    pieces = list(world.blocks(3))
    assert len(pieces) > 1
    assert all(piece.flags.c_contiguous and piece.dtype == np.float64 for piece in pieces)
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    for start in (1, 700, rounds - 1):
        np.testing.assert_array_equal(np.concatenate(list(world.blocks(3, start=start))), whole[start:])
    if name in MAKE:  # a short world is the beginning of a long one
        np.testing.assert_array_equal(MAKE[name](500, n).array(seed=3), whole[:500])
    if name != "alternating" and n > 2:
        assert (world.array(seed=4) != whole).any()
        shortest = min(len(pieces[0]), len(pieces[1]))
        assert (pieces[0][:shortest] != pieces[1][:shortest]).any()  # every block has its own generator
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(world)).array(seed=3), whole)


def test_long_and_wide_worlds_need_one_block():
    world = worlds.gap(10**8, 10**4, 0.1)
    first = next(world.blocks(0))
    assert first.shape[1] == 10**4
    assert first.nbytes < 2**23
    assert len(next(world.blocks(0, start=10**8 - 1))) == 1


@pytest.mark.parametrize("name", [name for name in [*MAKE, *SWITCHING] if name != "alternating"])
def test_means(name):
    # 60 sums over about 1000 rounds, each within 5 standard errors (variance at most 1/4): false alarm below 1e-4
    world = {**MAKE, **SWITCHING}[name](20_000, 3)
    losses, means = world.array(seed=1), world.mean_losses(1, 0, 20_000)
    assert means.shape == losses.shape
    if world.means is not None:
        assert (means == world.means).all()
    edges = np.linspace(0, 20_000, 21).astype(int)
    for low, high in itertools.pairwise(edges):
        error = np.abs((losses[low:high] - means[low:high]).mean(axis=0))
        assert (error <= 5 * np.sqrt((means * (1 - means))[low:high].mean(axis=0) / (high - low)) + 1e-12).all()
    if name not in ("domains", "drifting", "even", "random"):
        # independent over rounds and drafters: lagged and crossed covariances of 20,000, again 5 standard errors
        z = losses - means
        for product in (z[1:] * z[:-1], z[:, [0, 1, 2]] * z[:, [1, 2, 0]]):
            assert np.abs(product.mean(axis=0)).max() < 5 * 0.25 / math.sqrt(19_999)


def test_uniforms_are_paired_over_gaps():
    small, large = worlds.gap(500, 4, 0.1, best=2).array(), worlds.gap(500, 4, 0.3, best=2).array()
    np.testing.assert_array_equal(small[:, [0, 1, 3]], large[:, [0, 1, 3]])
    assert (large[:, 2] <= small[:, 2]).all()
    assert (large[:, 2] < small[:, 2]).any()


def test_beta_variance():
    # m = 1/2, c = 3: variance 1/16; its estimate from 20,000 draws has standard error below 5e-4: 6 of them
    losses = worlds.iid(20_000, [0.5], kind="beta", concentration=3.0).array()
    assert abs(losses.var() - 1 / 16) < 3e-3
    assert ((losses > 0) & (losses < 1)).mean() > 0.99


def test_fair_coins_have_the_known_regret_to_the_realised_best():
    # E max_i sum (1/2 - l) is (sqrt T / 2) m_N up to 3%, m_8 = 1.4236; 400 games of standard deviation about 0.32 sqrt
    # T: within 5 standard errors and 3%, false alarm below 1e-6
    T, games = 400, 400
    best = [(T / 2 - worlds.fair_coins(T, 8).array(seed).sum(axis=0)).max() for seed in range(games)]
    exact = math.sqrt(T) / 2 * 1.4236
    assert abs(np.mean(best) - exact) < 0.03 * exact + 5 * np.std(best) / math.sqrt(games)


def test_gap_draws_its_best_by_the_seed():
    world = worlds.gap(5, 4, 0.3)
    assert world.means is None
    best = [int(world.mean_losses(seed, 0, 1)[0].argmin()) for seed in range(400)]
    counts = np.bincount(best, minlength=4)
    assert counts.min() > 50  # mean 100, standard deviation 8.7: false alarm below 1e-7
    np.testing.assert_allclose(np.sort(world.mean_losses(9, 3, 1)[0]), [0.2, 0.5, 0.5, 0.5])


@given(T=st.integers(2, 60), n=st.integers(2, 5), data=st.data())
def test_switches_are_as_many_as_asked(T, n, data):
    switches = data.draw(st.integers(0, T - 1))
    for at in ("even", "random"):
        means = worlds.switching(T, n, switches, 0.3, at=at).mean_losses(data.draw(st.integers(0, 99)), 0, T)
        best = means.argmin(axis=1)
        assert (np.sort(means, axis=1) == np.array([0.2] + [0.5] * (n - 1))).all()
        changes = np.flatnonzero(np.diff(best)) + 1
        assert len(changes) == switches
        if at == "even":
            lengths = np.diff([0, *changes, T])
            assert lengths.max() - lengths.min() <= 1


def test_drift_is_as_fast_as_said():
    means = worlds.drifting(5000, 3, 0.002, mean=0.4, amplitude=0.3).mean_losses(0, 0, 5000)
    assert 0.0019 < np.abs(np.diff(means, axis=0)).max() <= 0.002 * (1 + 1e-9)
    assert 0.0999 < means.min() < 0.105
    assert 0.695 < means.max() < 0.7001
    still = worlds.drifting(10, 3, 0).mean_losses(0, 0, 10)
    assert (still == still[0]).all()


def test_domains_last_as_long_as_said():
    table = np.array([[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]])
    means = worlds.domains(3000, table, 10).mean_losses(2, 0, 3000)
    rows = means.reshape(300, 10, 2)
    assert (rows == rows[:, :1]).all()
    counts = [(rows[:, 0] == row).all(axis=1).sum() for row in table]
    assert sum(counts) == 300
    assert min(counts) > 55  # mean 100, standard deviation 8.2: false alarm below 1e-6
    np.testing.assert_array_equal(worlds.domains(3000, table, 10).mean_losses(2, 1234, 77), means[1234:1311])


def test_alternating_punishes_the_leader():
    for n in (2, 3, 7):
        losses = worlds.alternating(500, n).array()
        totals = np.cumsum(losses, axis=0)
        for t in range(1, 500):
            leaders = np.flatnonzero(totals[t - 1] == totals[t - 1].min())
            assert len(leaders) == 1
            assert losses[t].tolist() == np.eye(n)[leaders[0]].tolist()
        assert totals[-1].max() <= math.ceil(499 / n) + 1
    ftl = Run(worlds.alternating(200, 2), hl.learner("ftl"))
    assert ftl.regret >= 200 / 2 - 2
    assert worlds.alternating(2, 1).array().tolist() == [[0.0], [1.0]]


# ------------------------------------------------------------------ adversaries


class Run:
    """A game against a world, by hand: expected losses, losses, distributions; losses seen `delay` rounds late."""

    def __init__(self, world, policy, *, delay=0, seed=0, jit=True):
        T, n = world.rounds, world.drafters
        rng = np.random.Generator(np.random.PCG64(seed))
        params = policy.params()
        state = policy.init(params, n)
        compiled = jit and policy.jitted
        play, observe = policy.compiled() if compiled else (uncompiled(policy.play), uncompiled(policy.observe))
        memory = np.zeros((world.memory, n))
        adversary = world.adversary if jit or world.adversary is None else uncompiled(world.adversary)
        given = None if world.blocks is None else world.array(seed)
        self.own, self.losses, self.probs = np.empty(T), np.zeros((T, n)), np.full((T, n), np.nan)
        totals = np.zeros(n)
        for t in range(T):
            play(params, state, np.empty(0), rng, self.probs[t])
            if given is None:
                adversary(world.settings, memory, t, self.probs[t], totals, rng, self.losses[t])
            else:
                self.losses[t] = given[t]
            self.own[t] = self.probs[t] @ self.losses[t]
            totals += self.losses[t]
            if t >= delay:
                s = t - delay
                observe(params, state, np.empty(0), self.probs[s], 0, self.losses[s])
        self.regret = self.own.sum() - totals.min()


ADVERSARIES = {
    "greedy": worlds.greedy,
    "block": lambda T, N: worlds.block(T, N, 3),
    "breakaway": lambda T, N: worlds.breakaway(T, N),
}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_adversaries_compile_and_equal_plain_python(name):
    if not PLAIN:
        ADVERSARIES[name](1, 1).adversary.compile(ADVERSARY.signature)
    for n in (1, 2, 5, 8):
        compiled, plain = (Run(ADVERSARIES[name](60, n), hl.learner("hedge"), jit=jit) for jit in (True, False))
        assert plain.losses.tolist() == compiled.losses.tolist()
        assert plain.own.tolist() == compiled.own.tolist()
        assert set(np.unique(compiled.losses)) <= {0.0, 1.0}


@given(values=st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.25, 1.0, 2.5]) | st.floats(0, 1), min_size=1, max_size=30))
def test_select_largest(values):
    ordered = sorted(values, reverse=True)
    for rank in range(1, len(values) + 1):
        scratch = np.array(values)
        assert adversaries.select_largest(scratch, rank) == ordered[rank - 1]
        assert sorted(scratch.tolist(), reverse=True) == ordered


@given(
    probs=st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3]), min_size=1, max_size=12),
    seed=st.integers(0, 2**32 - 1),
)
def test_greedy_hits_the_heaviest_half(probs, seed):
    p, n = np.array(probs), len(probs)
    losses = np.full(n, np.nan)
    rng = np.random.default_rng(seed)
    adversaries.heaviest_half(np.empty(0), np.zeros((1, n)), 0, p, np.zeros(n), rng, losses)
    assert losses.sum() == max(1, n // 2)
    assert set(losses.tolist()) <= {0.0, 1.0}
    if 0 < losses.sum() < n:
        assert p[losses == 1].min() >= p[losses == 0].max()


def test_greedy_breaks_ties_uniformly():
    # 6000 draws of 1 of the last 3 equal entries (the first is above): 5 standard errors, false alarm about 1e-6
    rng, losses, hits = np.random.default_rng(0), np.empty(4), np.zeros(4)
    for _ in range(6000):
        adversaries.heaviest_half(
            np.empty(0), np.zeros((1, 4)), 0, np.array([0.4, 0.2, 0.2, 0.2]), np.zeros(4), rng, losses
        )
        hits += losses
    assert hits[0] == 6000
    assert np.abs(hits[1:] - 2000).max() < 5 * math.sqrt(6000 * 2 / 9)


def test_block_repeats_the_greedy_choice():
    run = Run(worlds.block(40, 5, 3), hl.learner("hedge"))
    for t in range(40):
        assert run.losses[t].tolist() == run.losses[t - t % 3].tolist()
        if t % 3 == 0:
            hit = run.losses[t] == 1
            assert run.probs[t][hit].min() >= run.probs[t][~hit].max()


@pytest.mark.parametrize("name", ADVERSARIES)
@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_hedge_keeps_its_bound(name, n):
    T = 300
    rate = math.sqrt(8 * math.log(n) / T)
    assert Run(ADVERSARIES[name](T, n), hl.learner("hedge", learning_rate=rate)).regret <= bounds.hedge(T, n) + 1e-9
    assert Run(ADVERSARIES[name](T, n), hl.learner("hedge")).regret <= bounds.hedge_anytime(T, n) + 1e-9


@pytest.mark.skipif(PLAIN, reason="long game")
@pytest.mark.parametrize("n", [2, 8, 64])
def test_breakaway_nearly_reaches_hedges_bound(n):
    T = 4000
    rate, bound = math.sqrt(8 * math.log(n) / T), bounds.hedge(T, n)
    greedy, away = (
        Run(w(T, n), hl.learner("hedge", learning_rate=rate)).regret for w in (worlds.greedy, worlds.breakaway)
    )
    assert greedy == pytest.approx(bound / 2, rel=0.01)  # sum eta / 8: what varies
    assert 0.92 * bound < away <= bound  # and ln N / eta: what the weights lag behind
    assert Run(worlds.breakaway(T, n), hl.learner("hedge")).regret > 1.2 * bound  # anytime: at most sqrt 2 of them


@pytest.mark.skipif(PLAIN, reason="long game")
def test_block_breaks_hedge_that_ignores_its_delay():
    T, n, delay = 2000, 2, 13
    bound = bounds.hedge(T, n, delay=delay)
    world = worlds.block(T, n, delay + 1)
    naive = math.sqrt(8 * math.log(n) / T)
    missing = sum(min(t, delay) for t in range(T))
    tuned = math.sqrt(8 * math.log(n) / (T + 2 * missing))
    assert Run(world, hl.learner("hedge", learning_rate=naive), delay=delay).regret > 1.2 * bound
    assert Run(world, hl.learner("hedge", learning_rate=tuned), delay=delay).regret <= bound


def normalhedge_pair(r, s):
    """NormalHedge's weight of the first of two drafters of regrets r and s, by bisection."""
    a, b = np.maximum(r, 0.0), np.maximum(s, 0.0)
    top = np.maximum(np.maximum(a, b), 1e-9)
    low, high = 1 / top**2, (1 + math.log(2)) / top**2
    for _ in range(50):
        u = (low + high) / 2
        over = np.exp(u * a * a) + np.exp(u * b * b) > 2 * math.e
        low, high = np.where(over, low, u), np.where(over, u, high)
    x, y = a * np.exp(u * (a * a - top**2)), b * np.exp(u * (b * b - top**2))
    return np.where(np.maximum(r, s) <= 0, 0.5, x / np.maximum(x + y, 1e-300))


def worst_for_normalhedge(T):
    """The most regret that losses 0 and 1 can cause at N = 2, by recursion over mean regret and L_0 - L_1."""
    mean = np.arange(-3 * math.sqrt(T), 2.2 * math.sqrt(T), 0.05)
    behind = np.arange(-int(4 * math.sqrt(T)), int(4 * math.sqrt(T)) + 1)[:, None]
    weight = normalhedge_pair(mean - behind / 2, mean + behind / 2)
    value = mean + np.abs(behind) / 2
    for _ in range(T):
        hit = np.full_like(value, -np.inf)
        for d in range(len(behind)):
            if d + 1 < len(behind):
                hit[d] = np.interp(mean + weight[d] - 0.5, mean, value[d + 1])
            if d > 0:
                hit[d] = np.maximum(hit[d], np.interp(mean + 0.5 - weight[d], mean, value[d - 1]))
        value = np.maximum(value, hit)
    return np.interp(0.0, mean, value[len(behind) // 2])


@pytest.mark.skipif(PLAIN, reason="long game")
def test_adversaries_of_normalhedge():
    # deterministic up to who is hit among equals, which at N = 2 changes nothing
    for T, greedy, breakaway in ((200, 1.44, 1.729), (800, 1.46, 1.769)):
        scale = math.sqrt(T * math.log(2) / 2)
        assert Run(worlds.greedy(T, 2), hl.learner("normalhedge")).regret / scale == pytest.approx(greedy, abs=0.02)
        away = Run(worlds.breakaway(T, 2), hl.learner("normalhedge")).regret / scale
        assert away == pytest.approx(breakaway, abs=0.002)
        if T == 200:
            worst = worst_for_normalhedge(T) / scale
            assert worst == pytest.approx(1.731, abs=0.002)
            assert away <= worst + 0.002  # the grid's error


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: worlds.fair_coins(0, 2), "T must be a whole number"),
        (lambda: worlds.fair_coins(3, 0), "N must be a whole number"),
        (lambda: worlds.fair_coins(3, True), "N must be"),
        (lambda: worlds.fair_coins(1.5, 2), "T must be"),
        (lambda: worlds.iid(3, [0.5, 1.5]), r"means must be \(N,\) in \[0, 1\]"),
        (lambda: worlds.iid(3, [math.nan]), "means must be"),
        (lambda: worlds.iid(3, []), "means must be"),
        (lambda: worlds.iid(3, [0.5], kind="normal"), "kind must be bernoulli or beta"),
        (lambda: worlds.iid(3, [0.5], kind="beta", concentration=0), "concentration"),
        (lambda: worlds.gap(3, 2, 0.6), r"gap must be a number in \[0, 0.5\]"),
        (lambda: worlds.gap(3, 2, 0.1, best=2), "best must be"),
        (lambda: worlds.gap(3, 2, 0.1, mean=2), "mean must be"),
        (lambda: worlds.drifting(3, 2, -0.1), "speed must be"),
        (lambda: worlds.drifting(3, 2, 0.1, amplitude=0.6), "amplitude must lie in"),
        (lambda: worlds.drifting(3, 2, 0.1, amplitude=0), "amplitude must lie in"),
        (lambda: worlds.switching(3, 2, 3, 0.1), r"switches must be a whole number in \[0, 2\]"),
        (lambda: worlds.switching(3, 1, 1, 0.1), "switches"),
        (lambda: worlds.switching(3, 2, 1, 0.9), "gap"),
        (lambda: worlds.switching(3, 2, 1, 0.1, at="noon"), "at must be even or random"),
        (lambda: worlds.domains(3, [0.5], 2), r"means must be \(domains, N\)"),
        (lambda: worlds.domains(3, [[0.5]], 0), "length"),
        (lambda: worlds.block(3, 2, 0), "length"),
        (lambda: worlds.breakaway(3, 2, last=4), "last must be"),
        (lambda: worlds.greedy(3, -1), "N must be"),
        (lambda: worlds.fair_coins(3, 2).array(-1), "seed must be"),
        (lambda: worlds.fair_coins(3, 2).array(1.5), "seed must be"),
        (lambda: worlds.greedy(3, 2).array(), "depend on the learner"),
        (lambda: World("x", 3, 2), "either blocks or an adversary"),
        (lambda: World("x", 3, 2, adversary=len, settings=[[1.0]]), "settings must be a vector"),
        (lambda: World("x", 3, 2, adversary=len, means=[0.5]), "means must have shape"),
        (lambda: World("x", 3, 2, blocks=lambda seed: iter([np.zeros((2, 2))])).array(), "2 rounds of 3"),
    ],
)
def test_arguments_are_checked(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_repr_is_short():
    assert repr(worlds.gap(1000, 8, 0.1)) == "<World 'gap': 1000 rounds, 8 drafters>"
    with pytest.raises(ValueError, match="read-only"):
        worlds.fair_coins(3, 2).means[0] = 0


# ------------------------------------------------------------------ pools


ACCEPTANCE = np.array([[0.9, 0.5, 0.05], [0.0, 0.5, 1.0]])


@pytest.mark.parametrize("softness", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("shared", [0.0, 0.7, 1.0])
def test_pool_is_calibrated(softness, shared):
    # 8,000 independent rows a domain. Var gamma = m (1 - m) / (c + 1), Var alpha <= m (1 - m); 9 settings x 12 means
    # within 5 standard errors: false alarm below 1e-4
    trace = worlds.pool(ACCEPTANCE, 1000, sequences=8, concentration=3.0, shared=shared, softness=softness, seed=5)
    for d, means in enumerate(ACCEPTANCE):
        rows = trace.select(trace.domains == f"domain{d}")
        alpha, gamma = rows.alpha[:, 0].astype(float), rows.gamma[:, 0].astype(float)
        error = np.sqrt(means * (1 - means) / 8000)
        assert (np.abs(gamma.mean(axis=0) - means) <= 5 * error / 2 + 1e-6).all()
        assert (np.abs(alpha.mean(axis=0) - means) <= 5 * error + 1e-6).all()
        np.testing.assert_allclose(gamma.var(axis=0), means * (1 - means) / 4, atol=0.006)
        # E[alpha | gamma] = gamma: the difference is orthogonal to functions of gamma
        for test in (np.ones_like(gamma), gamma, gamma > 0.5):
            difference = (alpha - gamma) * test
            assert (np.abs(difference.mean(axis=0)) <= 5 * difference.std(axis=0) / math.sqrt(8000) + 1e-6).all()
    if softness == 1.0:
        np.testing.assert_allclose(trace.alpha, trace.gamma, atol=1e-7)
    if softness == 0.0:
        assert set(np.unique(trace.alpha)) <= {0.0, 1.0}


def test_pool_correlation():
    # 30,000 rows: the standard error of a correlation is below 0.008 here; 6 of them
    means = [[0.3, 0.6, 0.6]]
    for shared in (0.0, 0.5, 1.0):
        trace = worlds.pool(means, 30_000, sequences=1, shared=shared, seed=1)
        table = np.corrcoef(trace.gamma[:, 0].astype(float).T)
        assert table[0, 1] == pytest.approx(shared * math.sqrt(0.3 * 0.4 / (0.6 * 0.7)), abs=0.05)
        assert table[1, 2] == pytest.approx(shared, abs=0.05)
        # where a row is shared one uniform decides: equal gammas have equal alphas
        assert np.corrcoef(trace.alpha[:, 0].astype(float).T)[1, 2] == pytest.approx(shared, abs=0.05)


def test_pool_commits_what_the_formula_says():
    # rounds to decode 60 tokens of independent rows: 200 sequences against the exact mean by recursion over rows,
    # within 5 standard errors: false alarm below 1e-5
    k, T, means = 3, 60, np.array([[0.8, 0.3]])
    trace = worlds.pool(means, T, sequences=200, k=k, shared=1.0, softness=0.3, seed=2)
    rounds = np.array([hl.replay(trace, hl.learner("fixed", drafter=i), seed=i).sequence_rounds for i in range(2)])
    for m, seen, expected in zip(means[0], rounds, hl.oracles.expected_fixed_rounds(trace).rounds.T, strict=True):
        value = np.zeros(T + k + 2)
        for left in range(1, T + 1):
            value[left] = 1 + sum((m**d) * (1 - m if d < k else 1) * value[max(left - d - 1, 0)] for d in range(k + 1))
        assert abs(seen.mean() - value[T]) < 5 * seen.std() / math.sqrt(200)
        assert abs(expected.mean() - value[T]) < 5 * expected.std() / math.sqrt(200)
        assert seen.std() > expected.std() > 0


def test_pool_is_a_function_of_seed_domain_and_sequence():
    few = worlds.pool(ACCEPTANCE, 30, sequences=2, seed=3)
    many = worlds.pool(ACCEPTANCE, 30, sequences=4, seed=3)
    same = many.select([0, 1, 4, 5])
    np.testing.assert_array_equal(same.alpha, few.alpha)
    np.testing.assert_array_equal(same.gamma, few.gamma)
    assert (worlds.pool(ACCEPTANCE, 30, sequences=2, seed=4).alpha != few.alpha).any()
    named = worlds.pool(ACCEPTANCE, 5, sequences=1, domains=["law", "art"], drafters="abc", k=2)
    assert (named.drafters, named.domains.tolist(), named.k) == (("a", "b", "c"), ["law", "art"], 2)
    for name in hl.learners():
        assert hl.replay(named, name).sequence_rounds.min() >= 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"acceptance": [0.5]}, r"acceptance must be \(domains, drafters\)"),
        ({"acceptance": [[1.5]]}, "acceptance"),
        ({"acceptance": [[math.nan]]}, "acceptance"),
        ({"rows": 0}, "rows must be"),
        ({"sequences": 0}, "sequences must be"),
        ({"k": 0}, "k must be"),
        ({"concentration": 0}, "concentration must be"),
        ({"shared": 1.5, "softness": -1}, "shared must be .*; softness must be"),
        ({"seed": -1}, "seed must be"),
        ({"domains": ["a", "b"]}, "domains must be 1 different names"),
        ({"drafters": ["a", "a"]}, "drafters must be 2 different names"),
    ],
)
def test_pool_arguments_are_checked(values, words):
    with pytest.raises(ValueError, match=words):
        worlds.pool(**{"acceptance": [[0.5, 0.5]], "rows": 3, **values})


def test_breakaway_turns_after_the_right_round():
    game = hl.play(worlds.breakaway(10, 4, last=3), "uniform", record=True)
    ones = game.losses.sum(axis=1)
    assert ones[:7].tolist() == [2] * 7  # half of the drafters
    assert ones[7:].tolist() == [3] * 3  # all but the leader
    totals = game.losses[:7].sum(axis=0)
    assert game.losses[7].argmin() == totals.argmin()  # the first of equals leads
