"""Bandits: estimates by enumeration, regret below the stated bounds, posteriors, committing and elimination."""

import math

import numba
import numpy as np
import pytest
from numba import float64, int64

from experiments import twins
from hedgelab._jit import uncompiled
from hedgelab.algorithms import learner
from hedgelab.algorithms.exp3_ix import rate as exp3_ix_rate
from hedgelab.algorithms.exp3_p import tuning as exp3_p_tuning
from hedgelab.algorithms.successive_elimination import radius
from hedgelab.contract import OBSERVE, PLAY, RNG

SLOW = numba.config.DISABLE_JIT
NOTHING = np.empty(0)
NAMES = (
    "exp3-ix",
    "exp3-p",
    "tsallis-inf",
    "thompson-beta",
    "thompson-gauss",
    "explore-then-commit",
    "successive-elimination",
)


@numba.njit(
    int64(
        PLAY,
        OBSERVE,
        float64[::1],
        float64[:, ::1],
        RNG,
        RNG,
        float64[:, ::1],
        int64,
        int64,
        float64[::1],
        int64[::1],
        float64[::1],
    )
)
def drive(play, observe, params, state, rng, picker, losses, rounds, delay, context, picks, totals):
    """Play `rounds` rounds, losses row t modulo their number revealed `delay` plays later.

    Counts `picks` (n,), sets totals = (expected loss, loss of the picks) and returns how many plays were no
    distribution.
    """
    n = losses.shape[1]
    slots = delay + 1
    ring_probs = np.zeros((slots, n))
    ring_pick = np.zeros(slots, np.int64)
    seen = np.full(n, np.nan)
    faults = 0
    for t in range(rounds):
        slot = t % slots
        probs = ring_probs[slot]
        play(params, state, context, rng, probs)
        row = t % losses.shape[0]
        total = expected = 0.0
        uniform = picker.random()
        pick = -1
        sound = True
        for i in range(n):
            total += probs[i]
            expected += probs[i] * losses[row, i]
            sound = sound and 0.0 <= probs[i] <= 1.0
            if pick < 0 and uniform < total:
                pick = i
        if not (sound and abs(total - 1.0) < 1e-12):
            faults += 1
        if pick < 0:
            pick = n - 1
        ring_pick[slot] = pick
        picks[pick] += 1
        totals[0] += expected
        totals[1] += losses[row, pick]
        if t >= delay:
            late = (t - delay) % slots
            pick = ring_pick[late]
            seen[pick] = losses[(t - delay) % losses.shape[0], pick]
            observe(params, state, context, ring_probs[late], pick, seen)
            seen[pick] = np.nan
    return faults


class Bandit:
    """A learner and its state."""

    def __init__(self, name, n, jit=True, seed=0, **values):
        policy = learner(name, **values)
        self.n, self.params = n, policy.params()
        self.state = policy.init(self.params, n)
        self.rng, self.picker = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
        if not jit:
            self.functions = uncompiled(policy.play), uncompiled(policy.observe)
        else:
            self.functions = (policy.play, policy.observe) if SLOW else policy.compiled()

    def play(self):
        probs = np.full(self.n, np.nan)
        self.functions[0](self.params, self.state, NOTHING, self.rng, probs)
        return probs

    def observe(self, probs, pick, loss):
        losses = np.full(self.n, np.nan)
        losses[pick] = loss
        self.functions[1](self.params, self.state, NOTHING, probs, pick, losses)

    def run(self, losses, rounds=None, delay=0):
        """Return (expected loss, loss of the picks, picks of each)."""
        picks, totals = np.zeros(self.n, np.int64), np.zeros(2)
        rounds = len(losses) if rounds is None else rounds
        assert not drive(
            *self.functions,
            self.params,
            self.state,
            self.rng,
            self.picker,
            losses,
            rounds,
            delay,
            NOTHING,
            picks,
            totals,
        )
        assert not np.isnan(self.state).any()
        return totals[0], totals[1], picks


def stochastic(t, n, gap, seed):
    return (np.random.default_rng([seed, 2]).random((t, n)) < np.where(np.arange(n) == n // 2, 0.5 - gap, 0.5)) * 1.0


def switching(t, n, seed):
    """The leader of the first third is the worst of the rest: losses fixed in advance, no noise."""
    losses = np.full((t, n), 0.5)
    losses[: t // 3, 0], losses[t // 3 :, 0] = 0.0, 1.0
    losses[t // 3 :, n - 1] = 0.0
    return losses


def alternating(t, n, seed):
    return ((np.arange(t)[:, None] + np.arange(n)) % 2) * np.where(np.arange(n) == n - 1, 0.8, 1.0)


# ---- against the twins and plain Python


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("exp3-ix", {}),
        ("exp3-ix", {"horizon": 500}),
        ("exp3-p", {}),
        ("exp3-p", {"horizon": 500}),
        ("exp3-p", {"horizon": 400, "delta": 0.01}),
        ("exp3-p", {"delta": 0.5}),
        ("tsallis-inf", {}),
        ("tsallis-inf", {"reduced_variance": 1}),
        ("thompson-beta", {}),
        ("thompson-gauss", {}),
        ("explore-then-commit", {"rounds": 7}),
        ("explore-then-commit", {"horizon": 500}),
        ("successive-elimination", {"delta": 0.9}),
    ],
)
@pytest.mark.parametrize(("n", "delay"), [(1, 0), (2, 0), (5, 0), (5, 6)])
def test_variants_equal_their_twins_and_plain_python(name, values, n, delay):
    rounds = 900 if name == "successive-elimination" else 60 if SLOW else 300  # it takes long to drop one
    bandit, plain = (Bandit(name, n, jit, **values) for jit in (True, False))
    twin, twin_rng = twins.LEARNERS[name](n, **values), np.random.default_rng([0, 0])
    losses = stochastic(rounds, n, 0.4, 1) if name == "thompson-beta" else np.random.default_rng(1).random((rounds, n))
    losses[:, n // 2] *= 0.1
    waiting = []
    for row in losses:
        probs = bandit.play()
        assert plain.play().tolist() == probs.tolist()
        np.testing.assert_allclose(probs, twin.play(twin_rng), atol=1e-10, rtol=1e-8)
        pick = int(bandit.picker.choice(n, p=probs / probs.sum()))
        waiting.append((probs, pick, row))
        if len(waiting) > delay:
            probs, pick, row = waiting.pop(0)
            bandit.observe(probs, pick, row[pick])
            plain.observe(probs, pick, row[pick])
            twin.observe(probs, pick, np.where(np.arange(n) == pick, row, np.nan))
    assert bandit.state.tolist() == plain.state.tolist()
    if name == "successive-elimination" and n > 1:
        assert bandit.state[0].sum() < n


# ---- estimates, by enumeration of the pick


def estimates(name, values, probs, losses, before):
    """Return (n picks, n drafters): what each pick adds to the sums of the estimates after `before` losses."""
    n = len(probs)
    added = np.empty((n, n))
    for pick in range(n):
        bandit = Bandit(name, n, **values)
        for _ in range(before):
            bandit.observe(np.full(n, 1 / n), 0, 0.5)
        start = bandit.state[0].copy()
        bandit.observe(probs, pick, losses[pick])
        added[pick] = bandit.state[0] - start
    return added


PROBS = np.array([0.02, 0.28, 0.5, 0.2])
LOSSES = np.array([0.9, 0.0, 1.0, 0.35])


@pytest.mark.parametrize("reduced", [0, 1])
@pytest.mark.parametrize("before", [0, 63, 200])
def test_tsallis_estimates_are_unbiased(reduced, before):
    added = estimates("tsallis-inf", {"reduced_variance": reduced}, PROBS, LOSSES, before)
    np.testing.assert_allclose(PROBS @ added, LOSSES, atol=1e-12)
    # of the second moments, a baseline lowers those where it is used: w >= eta^2 = 16/64 here
    second = PROBS @ added**2
    if before == 63 and reduced:
        assert second[[1, 2]] == pytest.approx(
            [w * ((y - 0.5) / w + 0.5) ** 2 + (1 - w) / 4 for w, y in ((0.28, 0.0), (0.5, 1.0))]
        )
        assert second[3] == pytest.approx(0.35**2 / 0.2)  # 0.2 < 0.25: plain importance weighting


@pytest.mark.parametrize("values", [{}, {"horizon": 300}])
def test_exp3_ix_estimates_have_the_stated_bias(values):
    added = estimates("exp3-ix", values, PROBS, LOSSES, 20)
    gamma = 0.5 * math.sqrt(2 * math.log(4) / (4 * 300) if values else math.log(4) / (4 * 21))
    assert exp3_ix_rate(learner("exp3-ix", **values).params(), 20.0, 4) == pytest.approx(2 * gamma)
    np.testing.assert_allclose(PROBS @ added, LOSSES * PROBS / (PROBS + gamma), rtol=1e-12)


@pytest.mark.parametrize("values", [{}, {"horizon": 300}, {"horizon": 300, "delta": 0.05}])
def test_exp3_p_estimates_have_the_stated_bias(values):
    rewards = -estimates("exp3-p", values, PROBS, LOSSES, 20)
    beta = math.sqrt(math.log(4 / values.get("delta", 1)) / (4 * values.get("horizon", 21)))
    assert exp3_p_tuning(learner("exp3-p", **values).params(), 20.0, 4)[2] == pytest.approx(beta)
    np.testing.assert_allclose(PROBS @ rewards, 1 - LOSSES + beta / PROBS, rtol=1e-10)


def test_exp3_p_explores():
    bandit = Bandit("exp3-p", 4, horizon=10_000)
    bandit.state[0] = [0.0, 1e6, 1e6, 1e6]
    gamma = 1.05 * math.sqrt(4 * math.log(4) / 10_000)
    assert bandit.play() == pytest.approx([1 - 3 * gamma / 4] + [gamma / 4] * 3)
    assert Bandit("exp3-p", 4, horizon=3).play().tolist() == [0.25] * 4  # gamma is cut at 1


# ---- the normalisation of Tsallis-INF


def normalised(above, eta):
    """The weights 4 / (eta (L - x))^2 by bisection on min L - x, and by how much their sum misses 1."""
    low, high = 2 / eta, 2 * math.sqrt(len(above)) / eta
    for _ in range(60):
        middle = (low + high) / 2
        total = (4 / (eta * (above + middle)) ** 2).sum()
        low, high = (middle, high) if total > 1 else (low, middle)
    return 4 / (eta * (above + middle)) ** 2, abs(total - 1)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 256] if SLOW else [1, 2, 3, 17, 256, 4096])
@pytest.mark.parametrize("seen", [0, 40, 10**6])
def test_tsallis_solver_at_every_scale(n, seen):
    rng = np.random.default_rng(n + seen)
    bandit = Bandit("tsallis-inf", n)
    shapes = [
        rng.random(n),
        rng.exponential(size=n) ** 4,
        np.where(np.arange(n) == 0, 0.0, 1.0),
        np.where(np.arange(n) == 0, 1.0, 0.0),
        10.0 ** rng.uniform(-12, 0, n),
        np.ones(n),
        np.zeros(n),
    ]
    scales = [1e-12, 1e-3, 1.0, 30.0, 1e3, 1e12]
    cases = [scale * shape for scale in scales for shape in shapes]
    for case in rng.permutation(len(cases)):  # each starts from the root of an unrelated one
        bandit.state[0], bandit.state[3, 0] = cases[case], seen
        probs = bandit.play()
        assert abs(math.fsum(probs) - 1) < 1e-12
        expected, miss = normalised(cases[case] - cases[case].min(), 2 / math.sqrt(seen + 1))
        assert miss < 1e-13 * max(n, 10)
        np.testing.assert_allclose(probs, expected, rtol=1e-11)


def test_tsallis_golden():
    # eta = 2 at t = 1: weights (4/5, 1/5) = (d^-2, (a + d)^-2) at the gap a = sqrt(5) - sqrt(5)/2
    bandit = Bandit("tsallis-inf", 2)
    bandit.state[0] = [3.0, 3.0 + math.sqrt(5) / 2]
    assert bandit.play() == pytest.approx([0.8, 0.2], rel=1e-14)
    assert Bandit("tsallis-inf", 3).play() == pytest.approx([1 / 3] * 3, rel=1e-15)


# ---- regret


def regrets(name, make, t, n, seeds, **values):
    """Return (seeds, 2) regret of the distributions and of the picks."""
    results = []
    for seed in range(seeds):
        losses = make(t, n, seed)
        expected, picked, _ = Bandit(name, n, seed=seed, **values).run(losses)
        best = losses.sum(axis=0).min()
        results.append((expected - best, picked - best))
    return np.array(results)


def exp3_ix_bound(t, n, log, fixed):
    scale = math.sqrt(n * t / (2 * math.log(n))) if fixed else math.sqrt(n * t / math.log(n))
    return (2 * math.sqrt(2) if fixed else 4) * math.sqrt(n * t * math.log(n)) + (scale + 1) * log


def exp3_p_bound(t, n, log):
    return 5.15 * math.sqrt(n * t * math.log(n)) + math.sqrt(n * t / math.log(n)) * log


T, N = (300, 4) if SLOW else (4000, 8)
IN_EXPECTATION = [
    ("tsallis-inf", {}, 4 * math.sqrt(N * T) + 1),
    ("tsallis-inf", {"reduced_variance": 1}, 2 * math.sqrt(N * T) + 14 * N * math.log(T) + 16),
    ("exp3-ix", {}, exp3_ix_bound(T, N, 1 + math.log(2), False)),
    ("exp3-ix", {"horizon": T}, exp3_ix_bound(T, N, 1 + math.log(2), True)),
    ("exp3-p", {"horizon": T}, exp3_p_bound(T, N, 1)),
]
STREAMS = {
    "stochastic": lambda t, n, seed: stochastic(t, n, 0.3, seed),
    "switching": switching,
    "alternating": alternating,
}


@pytest.mark.parametrize(("name", "values", "bound"), IN_EXPECTATION)
@pytest.mark.parametrize("stream", STREAMS)
def test_expected_regret_is_below_the_bound(name, values, bound, stream):
    # false alarms: the mean lies more than ten standard errors below each bound that holds, so below 1e-20
    seeds = 4 if SLOW else 30
    regret = regrets(name, STREAMS[stream], T, N, seeds, **values)[:, 0]
    assert regret.mean() + 4 * regret.std() / math.sqrt(seeds) < bound
    if not SLOW and stream == "stochastic":
        uniform = 0.3 * T * (N - 1) / N
        assert regret.mean() < uniform / 2  # the bounds alone would let a learner pass that learns little


@pytest.mark.parametrize(
    ("name", "values", "bound"),
    [
        ("exp3-ix", {}, lambda delta: exp3_ix_bound(T, N, math.log(2 / delta), False)),
        ("exp3-ix", {"horizon": T}, lambda delta: exp3_ix_bound(T, N, math.log(2 / delta), True)),
        ("exp3-p", {"horizon": T}, lambda delta: exp3_p_bound(T, N, math.log(1 / delta))),
        ("exp3-p", {"horizon": T, "delta": 0.1}, lambda delta: 5.15 * math.sqrt(N * T * math.log(N / 0.1))),
    ],
)
def test_regret_of_the_picks_with_high_probability(name, values, bound):
    # above the bound in at most a tenth of the seeds; at exactly a tenth 14 of 40 and more have probability 2e-5
    regret = regrets(name, switching, T, N, 4 if SLOW else 40, **values)[:, 1]
    assert (regret > bound(0.1)).sum() < 14


@pytest.mark.parametrize("name", ["thompson-beta", "thompson-gauss", "successive-elimination", "explore-then-commit"])
def test_stochastic_learners_find_the_best(name):
    # uniform play would lose .43 a round; measured at most .114 (elimination), standard error .0012
    seeds, rounds = 2 if SLOW else 20, 4000
    regret = regrets(name, lambda t, n, seed: stochastic(t, n, 0.49, seed), rounds, 8, seeds)[:, 1]
    assert regret.mean() / rounds < 0.15


# ---- Thompson sampling


def frequency(name, state, rounds):
    """Return how often drafter 0 is played from a state that does not change."""
    bandit, idle = Bandit(name, 2), Bandit("uniform", 2)
    assert sorted(bandit.play()) == [0, 1]
    bandit.state, bandit.functions = state.copy(), (bandit.functions[0], idle.functions[1])
    return bandit.run(np.zeros((1, 2)), rounds)[2][0] / rounds


@pytest.mark.parametrize(
    ("a", "b"), [((1, 1), (1, 1)), ((3.5, 2), (1.25, 4)), ((30, 28), (12, 10.5)), ((1, 1.5), (9, 1))]
)
def test_thompson_beta_plays_by_posterior_probability(a, b):
    # P(theta_0 > theta_1) by the midpoint rule; 4.5 standard deviations: false alarm 7e-6 each
    x = (np.arange(200_000) + 0.5) / 200_000
    density = [np.exp((p - 1) * np.log(x) + (q - 1) * np.log1p(-x)) for p, q in zip(a, b, strict=True)]
    density = [f / f.sum() for f in density]
    expected = float(density[0] @ (np.cumsum(density[1]) - density[1] / 2))
    rounds = 1000 if SLOW else 100_000
    deviation = math.sqrt(expected * (1 - expected) / rounds)
    assert abs(frequency("thompson-beta", np.array([a, b], float), rounds) - expected) < 4.5 * deviation


@pytest.mark.parametrize("scale", [1, 30, 1e6])
@pytest.mark.parametrize("name", ["thompson-beta", "thompson-gauss"])
def test_samples_are_numpys_to_the_bit(name, scale):
    # one draw per drafter in their order, as one vector call makes them; the generator ends in the same state
    n, rng = 4096, np.random.default_rng(4)
    for fractional in (False, True):
        bandit, numpys = Bandit(name, n), np.random.default_rng([0, 0])
        draws = scale * rng.random((2, n))
        draws = draws if fractional else np.floor(draws)
        if name == "thompson-beta":
            bandit.state += draws
            samples = numpys.beta(1 + draws[0], 1 + draws[1])
        else:
            bandit.state[:2] = draws
            samples = draws[0] + draws[1] * numpys.standard_normal(n)
        assert bandit.play().argmax() == samples.argmax()
        assert bandit.rng.bit_generator.state == numpys.bit_generator.state


def test_thompson_beta_counts_reward_and_loss():
    bandit = Bandit("thompson-beta", 3)
    bandit.observe(bandit.play(), 1, 0.25)
    bandit.observe(bandit.play(), 1, 1.0)
    assert bandit.state.tolist() == [[1, 1.75, 1], [1, 2.25, 1]]


def test_thompson_gauss_plays_by_posterior_probability():
    # rewards 1, .5 of drafter 0 and 1 of drafter 1: N(1.5/3, 1/3) against N(1/2, 1/2), then more of drafter 0
    bandit = Bandit("thompson-gauss", 2)
    for pick, loss in ((0, 0.0), (0, 0.5), (1, 0.0)):
        bandit.observe(np.array([0.5, 0.5]), pick, loss)
    rounds = 1000 if SLOW else 100_000
    for _ in range(2):
        mean, deviation = bandit.state[0], bandit.state[1]
        z = (mean[0] - mean[1]) / math.hypot(*deviation)
        expected = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        # 4.5 standard deviations: false alarm 7e-6 each
        limit = 4.5 * math.sqrt(expected * (1 - expected) / rounds)
        assert abs(frequency("thompson-gauss", bandit.state, rounds) - expected) < limit
        for _ in range(4):
            bandit.observe(np.array([0.5, 0.5]), 0, 0.1)
    assert bandit.state[:2].T.tolist() == [[pytest.approx(8.7 / 11), 1 / math.sqrt(11)], [0.5, 1 / math.sqrt(2)]]


# ---- explore-then-commit


@pytest.mark.parametrize(
    ("n", "values", "looks"),
    [
        (4, {}, 32),
        (4, {"rounds": 5}, 5),
        (4, {"horizon": 4000}, 203),  # 100 (ln 4000)^(1/3) = 202.4
        (4, {"horizon": 4000, "rounds": 3}, 3),
        (4, {"horizon": 1}, 1),
    ],
)
def test_explore_then_commit_commits(n, values, looks):
    bandit = Bandit("explore-then-commit", n, **values)
    means = np.array([0.5, 0.75, 0.25, 0.25])
    for t in range(n * looks):
        probs = bandit.play()
        fewest = bandit.state[0] == t // n
        assert probs.tolist() == (fewest / fewest.sum()).tolist()
        pick = int(bandit.picker.choice(n, p=probs))
        bandit.observe(probs, pick, means[pick])
    assert bandit.state[0].tolist() == [looks] * n
    assert bandit.play().tolist() == [0, 0, 0.5, 0.5]  # exactly tied
    for pick in (2, 3, 2, 0):  # whatever is seen later
        bandit.observe(bandit.play(), pick, 1.0 if pick else 0.0)
    assert bandit.play().tolist() == [0, 0, 0.5, 0.5]


@pytest.mark.parametrize("delay", [1, 20, 200])
def test_explore_then_commit_ends_exploring_under_delay(delay):
    bandit = Bandit("explore-then-commit", 5, rounds=10)
    losses = stochastic(600, 5, 0.5, 7)  # drafter 2 never loses
    bandit.run(losses, delay=delay)
    counts = bandit.state[0]
    assert counts.min() == 10
    assert counts.sum() <= 5 * 10 + 4 * delay + 4  # a drafter gets at most `delay` looks too many
    assert bandit.play().tolist() == [0, 0, 1, 0, 0]


# ---- successive elimination


def test_successive_elimination_keeps_the_best_and_drops_the_rest():
    # The best is dropped, or another is seen beyond min{n : 4 r(n) < gap}, with probability at most delta: 300 seeds,
    # delta = .1: more than 53 such seeds (4.5 standard deviations) have probability 2e-5 at most.
    n, delta, rounds = 4, 0.1, 6000
    gaps = np.array([0.4, 0.5, 0.0, 0.45])
    latest = [next(m for m in range(1, rounds) if 4 * radius(m, n, delta) < gap) if gap else rounds for gap in gaps]
    seeds = 2 if SLOW else 300
    failures = 0
    for seed in range(seeds):
        bandit = Bandit("successive-elimination", n, seed=seed, delta=delta)
        losses = (np.random.default_rng([seed, 3]).random((rounds, n)) < 0.3 + gaps) * 1.0
        _, _, picks = bandit.run(losses)
        failures += not (bandit.state[0].tolist() == [0, 0, 1, 0] and (picks <= latest).all())
    assert failures <= 53 * seeds / 300


def test_successive_elimination_radius_fails_with_probability_delta():
    # c = pi^2 / 3: two-sided Hoeffding failures of n drafters, summed over all counts
    n, delta = 4, 0.1
    counts = np.arange(1, 100_001)
    widths = np.array([radius(float(count), n, delta) for count in counts])
    total = n * (2 * np.exp(-2 * counts * widths**2)).sum()
    assert total < delta < total + 2 * 3 * delta / np.pi**2 / 100_000 * 1.01  # the tail of sum 1/k^2 beyond m is 1/m


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_equal_losses_are_never_told_apart(level):
    bandit = Bandit("successive-elimination", 3, delta=1.0)
    rounds = 300 if SLOW else 100_000
    _, _, picks = bandit.run(np.full((1, 3), level), rounds)
    assert bandit.state[0].tolist() == [1, 1, 1]
    assert picks.max() - picks.min() <= 1


def test_the_last_drafter_stays_and_late_losses_are_ignored():
    bandit = Bandit("successive-elimination", 2, delta=1.0)
    while bandit.state[0].sum() == 2:
        pick = int(bandit.play().argmax())
        bandit.observe(bandit.play(), pick, float(pick))
    assert bandit.play().tolist() == [1, 0]
    seen = bandit.state[1, 1]
    for _ in range(50):
        bandit.observe(np.array([1.0, 0.0]), 1, 0.0)  # late: would have been a perfect drafter
    assert bandit.state[1, 1] == seen
    for _ in range(500):
        bandit.observe(bandit.play(), 0, 1.0)  # and the one that is left turns bad
    assert bandit.play().tolist() == [1, 0]
