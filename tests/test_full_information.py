"""Full-information learners: golden cases, twins on long streams, published and derived bounds, and numerics."""

import math
from collections import namedtuple
from functools import cache

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba import float64, int64, void

from experiments.twins.full_information import LEARNERS as TWINS
from hedgelab._jit import config, uncompiled
from hedgelab.algorithms import learner
from hedgelab.algorithms.adahedge import mixability_gap
from hedgelab.algorithms.squint import evidence, quadrature
from hedgelab.contract import OBSERVE, PLAY, RNG
from hedgelab.special import erfcx, vexpm1, vlog1p

NAMES = [
    "hedge",
    "normalhedge-bh",
    "adahedge",
    "adanormalhedge",
    "squint",
    "ml-prod",
    "optimistic-hedge",
    "fixed-share",
    "ftpl",
]
NOTHING = np.empty(0)
JIT = not config.DISABLE_JIT


# a small engine: any learner against a stream or an adversary

MATRIX, PUNISH, BALANCE, FLIP = range(4)
LEARNER_LOSS, VARIANCE, BAD = range(3)


def _rounds(play, observe, params, state, source, kind, rng, rounds, loss, regret, size, square, sums, probs, row):
    """Play rounds: rows of `source`, or an adversary that sees the weights; add up what bounds need."""
    n, context = probs.shape[0], np.empty(0)
    for t in range(rounds):
        play(params, state, context, rng, probs)
        top = 0
        for i in range(n):
            if not 0.0 <= probs[i] <= 1.0 + 1e-12:
                sums[BAD] += 1.0
            top = i if probs[i] > probs[top] else top
        for i in range(n):
            if kind == MATRIX:
                row[i] = source[t % source.shape[0], i]
            elif kind == PUNISH:  # the favourite loses
                row[i] = 1.0 if i == top else 0.0
            elif kind == BALANCE:  # whoever is ahead of the mean loses
                row[i] = 1.0 if probs[i] * n > 1.0 else source[t % source.shape[0], i]
            else:  # the two halves take turns, ever more slowly
                row[i] = 1.0 if (int(math.sqrt(t)) + i) % 2 == 0 else 0.0
        expected = second = 0.0
        for i in range(n):
            expected += probs[i] * row[i]
            second += probs[i] * row[i] * row[i]
        sums[LEARNER_LOSS] += expected
        sums[VARIANCE] += max(second - expected * expected, 0.0)
        for i in range(n):
            r = expected - row[i]
            loss[i] += row[i]
            regret[i] += r
            size[i] += abs(r)
            square[i] += r * r
        observe(params, state, context, probs, 0, row)


_VECTOR, _MATRIX = float64[::1], float64[:, ::1]
_SIGNATURE = void(
    PLAY, OBSERVE, _VECTOR, _MATRIX, _MATRIX, int64, RNG, int64, *(_VECTOR,) * 5, _VECTOR, _VECTOR
)  # fmt: skip


@cache
def engine():
    return numba.njit(_SIGNATURE, error_model="numpy")(_rounds) if JIT else _rounds


Played = namedtuple("Played", "T N loss expected regret size square variance bad state params")


def functions(policy):
    return policy.compiled() if policy.jitted else (policy.play, policy.observe)


def game(policy, n, rounds, kind=MATRIX, seed=0, source=None):
    """Return what happened over `rounds` rounds, a tenth of them where nothing is compiled."""
    rounds = rounds if JIT else max(rounds // 500, 20)
    rng = np.random.default_rng(seed)
    source = rng.random((min(rounds, 4096), n)) if source is None else np.ascontiguousarray(source, dtype=float)
    params = policy.params()
    state = policy.init(params, n)
    loss, regret, size, square, sums, probs, row = (np.zeros(k) for k in (n, n, n, n, 3, n, n))
    own = np.random.default_rng([seed, 1])
    engine()(*functions(policy), params, state, source, kind, own, rounds, loss, regret, size, square, sums, probs, row)
    return Played(
        rounds, n, loss, sums[LEARNER_LOSS], regret, size, square, sums[VARIANCE], sums[BAD], state, params
    )  # fmt: skip


class ByHand:
    """A learner one call at a time."""

    def __init__(self, policy, n, seed=0):
        self.params, self.n = policy.params(), n
        self.state = policy.init(self.params, n)
        self.rng = np.random.default_rng(seed)
        self.functions = functions(policy)

    def play(self):
        probs = np.full(self.n, np.nan)
        self.functions[0](self.params, self.state, NOTHING, self.rng, probs)
        return probs

    def observe(self, probs, losses):
        self.functions[1](self.params, self.state, NOTHING, probs, 0, np.array(losses, dtype=float))


# special functions

ERFCX = [  # 30 digits, from exp(x^2) erfc(x) and its asymptotic series at 60 digits
    (0.0, "1.0"),
    (1e-300, "1.0"),
    (1e-8, "0.9999999887162084290448732727"),
    (0.001, "0.998872620081151408604450779386"),
    (0.1, "0.896456979969126636663388269308"),
    (0.25, "0.770346547730996743916739172337"),
    (0.5, "0.615690344192925874870793422684"),
    (0.75, "0.506937650293144805791431821539"),
    (1.0, "0.427583576155807004410750344491"),
    (1.5, "0.321585416454317502354322587723"),
    (2.0, "0.255395676310505743865088580909"),
    (2.5, "0.210806364061143580647112048407"),
    (3.0, "0.179001151181389950419294815314"),
    (4.0, "0.1369994576250613898894451714"),
    (5.0, "0.110704637733068626370212086492"),
    (6.5, "0.0858056701048946017778875861097"),
    (8.0, "0.069985166200880927722752249442"),
    (10.0, "0.0561409927438225858575173872205"),
    (15.0, "0.0375296063885057657460611781825"),
    (20.0, "0.0281743487410513193186491545345"),
    (27.0, "0.0208816079904209406740944901929"),
    (50.0, "0.0112815362653237725001838108522"),
    (100.0, "0.00564161378298943290355645700695"),
    (1000.0, "0.000564189301453387654199745028062"),
    (1e5, "0.00000564189583519546807774923059089"),
    (1e8, "0.00000000564189583547756258738600274173"),
    (1e100, "5.6418958354775627797583393914e-101"),
    (1e300, "5.64189583547756257325440628902e-301"),
]


@pytest.mark.parametrize(("x", "value"), ERFCX)
def test_erfcx_to_the_last_digits(x, value):
    assert erfcx(x) == pytest.approx(float(value), rel=1e-15, abs=0)


@given(st.floats(0, 5))
def test_erfcx_agrees_with_erfc(x):
    # exp(x^2) loses x^2 ulps, so this is a check of shape between the table's points
    assert erfcx(x) == pytest.approx(math.exp(x * x) * math.erfc(x), rel=2e-14, abs=0)
    assert erfcx(x) == uncompiled(erfcx)(x)


@given(st.floats(-800, 709) | st.floats(-1, 1) | st.floats(-1e-9, 1e-9))
def test_expm1(x):
    assert vexpm1(x) == pytest.approx(math.expm1(x), rel=1e-15, abs=0)
    assert vexpm1(x) == uncompiled(vexpm1)(x)


@given(st.floats(-0.5, 0.5) | st.floats(-1e-9, 1e-9) | st.floats(-1e-307, 1e-307))
@example(5e-324)
def test_log1p(y):
    assert vlog1p(y) == pytest.approx(math.log1p(y), rel=1e-15, abs=0)
    assert vlog1p(y) == uncompiled(vlog1p)(y)


# every learner


def stress(rng, rounds, n):
    """Return losses in phases: noise, a leader, another, all equal, turns, tiny, coins, all 1, one drafter at 0."""
    phases, each = [], rounds // 9
    for style in range(9):
        block = rng.random((each, n))
        if style in (1, 2):
            block[:, style % n] *= 0.3
        elif style == 3:
            block[:] = block[:, :1]
        elif style == 4:
            block = ((np.arange(each)[:, None] + np.arange(n)) % 2).astype(float)
        elif style == 5:
            block *= 1e-9
        elif style == 6:
            block = (block < 0.5).astype(float)
        elif style == 7:
            block = np.ones((each, n))
        elif style == 8:
            block = np.where(np.arange(n) == n - 1, 0.0, 1.0) * np.ones((each, 1))
        phases.append(block)
    return np.concatenate(phases)


@pytest.mark.parametrize("name", [*NAMES, "normalhedge"])
def test_twin_over_a_long_stream(name):
    rounds, n = (9000, 4) if JIT else (450, 4)
    hand, twin, noise = ByHand(learner(name), n), TWINS[name](n), np.random.default_rng(0)
    for t, losses in enumerate(stress(np.random.default_rng(7), rounds, n)):
        if name == "ftpl" or t % 23 == 0 or t % (rounds // 9) < 8:
            probs = hand.play()
            assert np.abs(probs - twin.play(noise)).max() < 1e-8
        hand.observe(probs, losses)
        twin.observe(probs, 0, losses)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("hedge", {"schedule": 1}),
        ("hedge", {"schedule": 1, "learning_rate": 0.3}),
        ("normalhedge-bh", {"start": 30.0}),
        ("optimistic-hedge", {"learning_rate": 0.3}),
        ("optimistic-hedge", {"scale": 0.5}),
        ("fixed-share", {"learning_rate": 0.7, "share": 0.02}),
        ("fixed-share", {"learning_rate": 1e6, "share": 1e-12}),
        ("fixed-share", {"share": 1.0}),
        ("ftpl", {"learning_rate": 0.3}),
    ],
)
def test_parameters_against_the_twin(name, values):
    hand, twin, noise = ByHand(learner(name, **values), 5), TWINS[name](5, **values), np.random.default_rng(0)
    for losses in stress(np.random.default_rng(8), 270, 5):
        probs = hand.play()
        assert np.abs(probs - twin.play(noise)).max() < 1e-9
        hand.observe(probs, losses)
        twin.observe(probs, 0, losses)


@pytest.mark.parametrize("name", NAMES)
def test_a_million_rounds_without_a_bad_number(name):
    # an adversary who sees the pick itself, as the one-hot weights of ftpl show it, beats any learner
    for n, kind in ((2, MATRIX if name == "ftpl" else BALANCE), (8, FLIP)):
        played = game(learner(name), n, 1_000_000, kind)
        assert played.bad == 0  # NaN would count
        assert np.isfinite(played.state).all()
        # nobody is far from sqrt(T ln N) here; a learner that is stuck has regret of the order T
        assert played.regret.max() < 4 * math.sqrt(played.T * math.log(n)) + 20
    calm = np.zeros((1, 3)) + 0.3
    assert game(learner(name), 3, 1000, source=calm).bad == 0


@pytest.mark.parametrize("name", NAMES)
def test_losses_that_arrive_late_and_in_heaps(name):
    hand, rng = ByHand(learner(name), 3), np.random.default_rng(9)
    waiting = []
    for t in range(3000 if JIT else 200):
        probs = hand.play()
        assert ((probs >= 0) & (probs <= 1)).all()
        assert probs.sum() == pytest.approx(1, abs=1e-12)
        waiting.append((probs, np.array([0.0, 0.5, 1.0]) if t % 400 < 200 else rng.random(3) < 0.5))
        if t % 37 == 0:
            for played, losses in waiting:
                hand.observe(played, losses)
            waiting = []


# bounds

ARENA = [(n, kind, seed) for n in (2, 16) for kind in (MATRIX, PUNISH, BALANCE, FLIP) for seed in (0, 1)]


def coins(n, rounds, seed):
    return (np.random.default_rng(seed).random((rounds, n)) < 0.5).astype(float)


def arena(policy, rounds=8192):
    for n, kind, seed in ARENA:
        yield game(policy, n, rounds, kind, seed)
    for n in (2, 16):
        yield game(policy, n, rounds, source=coins(n, rounds if JIT else 20, 3))


def test_adahedge_bounds():
    for played in arena(learner("adahedge")):
        gap = played.state[3, 0]
        log_n = math.log(played.N)
        assert played.regret.max() <= 2 * gap + 1e-7
        assert played.regret.max() <= 2 * math.sqrt(played.variance * log_n) + 4 / 3 * log_n + 2 + 1e-7


def test_adanormalhedge_bound():
    for played in arena(learner("adanormalhedge")):
        b = 1 + 1.5 * np.mean(1 + np.log1p(played.size))
        log_n = math.log(played.N)
        assert (played.regret <= np.sqrt(3 * played.size * (log_n + math.log(b)))).all()


def test_adanormalhedge_lemma():
    # Phi(R + r, C + |r|) <= Phi(R, C) + w r + 1.5 |r| / (C + 1): the proof's only inequality; the left side needs 0.23
    r = np.concatenate([np.linspace(-1, 1, 101), [1e-6, -1e-6]])[:, None]
    for c in np.concatenate([np.linspace(0, 3, 31), np.geomspace(3, 600, 30)]):
        regret = np.linspace(-c, c, 301)

        def potential(y, size):
            return np.exp(np.maximum(y, 0) ** 2 / (3 * np.maximum(size, 1e-300)))

        weight = (potential(regret + 1, c + 1) - potential(regret - 1, c + 1)) / 2
        rise = potential(regret + r, c + abs(r)) - potential(regret, c) - weight * r
        assert (rise <= 0.3 * abs(r) / (c + 1) * 1.5 + 1e-12 * potential(regret, c)).all()


def test_ml_prod_bound():
    for played in arena(learner("ml-prod")):
        log_n, square = math.log(played.N), played.square
        last = np.maximum(2, np.sqrt((1 + square) / log_n)) * math.log(1 + played.N / 2 * math.log1p(played.T))
        assert (played.regret <= 2 * np.sqrt(square * log_n) + 2 * log_n + last).all()


def test_squint_keeps_its_potential_below_zero():
    # mean_i integral_0^{1/2} (exp(eta R - eta^2 V) - 1) / eta d eta <= 0 after every round, from any weights' regrets
    eta, masses = TWINS["squint"].eta, np.exp(TWINS["squint"].log_mass)
    seen = []
    for played in arena(learner("squint"), rounds=2048):
        exponents = np.outer(played.regret, eta) - np.outer(played.square, eta**2)
        potential = (np.expm1(exponents) / eta) @ masses
        seen.append(potential.mean())
        assert seen[-1] <= 1e-9
        c = math.log(1 + played.N * (1 + math.log(played.T)) / math.log(2))
        assert (played.regret <= np.maximum(np.sqrt(16 / 3 * played.square * c), 16 / 3 * c)).all()
    assert len(seen) > 16


def test_optimistic_hedge_bound_and_what_the_hint_buys():
    policy = learner("optimistic-hedge")
    for played in arena(policy):
        variation = played.state[5, 0]
        assert 0 < variation <= 4 * played.T
        assert played.regret.max() <= math.sqrt((4 + variation) * math.log(played.N)) + 1e-7
    slow = 0.5 + 0.5 * np.sin(np.arange(4000)[:, None] / 400 + np.array([0.0, 3.1]))
    hinted, plain = (game(learner(name), 2, 4000, source=slow).regret.max() for name in ("optimistic-hedge", "hedge"))
    assert not JIT or hinted < 0.2 * plain


def switching(rounds, n, changes, seed):
    """Return losses of which one drafter's are lower, another one after each change."""
    rng = np.random.default_rng(seed)
    block = rng.random((rounds, n))
    best = np.repeat(rng.permutation(np.arange(changes + 1) % n), rounds // (changes + 1) + 1)[:rounds]
    block[np.arange(rounds), best] *= 0.4
    return block, best


@pytest.mark.parametrize(("n", "changes"), [(2, 3), (16, 7)])
def test_fixed_share_follows_changes(n, changes):
    rounds = 4096 if JIT else 64
    rate, share = math.sqrt(8 * (changes + 1) * math.log(n * rounds) / rounds), changes / rounds
    for seed in range(3):
        losses, best = switching(rounds, n, changes, seed)
        comparator = losses[np.arange(rounds), best].sum()
        m, t = np.count_nonzero(np.diff(best)), np.arange(1, rounds + 1)
        totals = {}
        for values in ({"learning_rate": rate, "share": share}, {}):
            twin_rounds = ByHand(learner("fixed-share", **values), n)
            total = 0.0
            for row in losses:
                probs = twin_rounds.play()
                total += probs @ row
                twin_rounds.observe(probs, row)
            if values:
                stay = (rounds - 1 - m) * math.log(1 / (1 - share))
                bound = ((m + 1) * math.log(n) + m * math.log(1 / share) + stay) / rate + rate * rounds / 8
            else:
                rates = 2 * np.sqrt(np.log(n * t) / t)
                bound = (m + 1) * math.log(n * rounds) / rates[-1] + (np.log(1 + 1 / t) / rates)[:-1].sum()
                bound += rates.sum() / 8
            assert total - comparator <= bound
            totals[bool(values)] = total
        if JIT:
            hedge = game(learner("hedge"), n, rounds, source=losses).expected
            assert max(totals.values()) - comparator < 0.6 * (hedge - comparator)


def test_doubling_trick_bound():
    for played in arena(learner("hedge", schedule=1)):
        bound = math.sqrt(2) / (math.sqrt(2) - 1) * math.sqrt(played.T * math.log(played.N) / 2)
        assert played.regret.max() <= bound
        assert played.state[3, 0] == 2 ** math.floor(math.log2(played.T + 1))  # it did restart


def test_normalhedge_bh_keeps_its_potential_and_its_regret_measured():
    worst = 0.0
    for start in (1.0, 50.0):
        for played in arena(learner("normalhedge-bh", start=start)):
            hand = ByHand(learner("normalhedge-bh", start=start), played.N)
            hand.state[:] = played.state
            hand.play()
            clock = 0.5 / hand.state[3, 0]
            y = np.maximum(hand.state[0], 0)
            assert np.exp(y**2 / (2 * clock)).mean() / math.sqrt(clock) == pytest.approx(start**-0.5, rel=1e-9)
            assert y.max() <= math.sqrt(clock * (2 * math.log(played.N) + math.log(clock / start))) * (1 + 1e-9)
            worst = max(worst, played.regret.max() / math.sqrt(played.T * math.log(played.N)))
    assert worst < (1.8 if JIT else 5)  # 1.66 measured; no bound is confirmed for these starts


# one learner at a time


def test_adahedge_golden_case():
    # losses of the learner itself; the weight of the *second* drafter in the third round
    stream = np.array([(1, 0), (1, 0), (0, 1), (1, 0)], dtype=float)
    hand, seen = ByHand(learner("adahedge"), 2), []
    for losses in stream:
        probs = hand.play()
        seen.append(probs @ losses)
        hand.observe(probs, losses)
    assert seen == pytest.approx([0.5, 0.2, 0.9151973229650137, 0.2551156349813308], rel=1e-13)
    assert seen == pytest.approx((adahedge_by_differences(stream) * stream).sum(axis=1), rel=1e-13)


def adahedge_by_differences(losses):
    """Return the weights of AdaHedge with its gap from M_t - M_{t-1}, M_t the mix loss of a *constant* rate up to t."""
    total, gap, plays = np.zeros(len(losses[0])), 0.0, []

    def mix(rate, total):
        if rate == math.inf:
            leads = total == total.min()
            return leads / leads.sum(), total.min()
        weights = np.exp(-rate * (total - total.min()))
        return weights / weights.sum(), total.min() - math.log(weights.mean()) / rate

    for row in np.asarray(losses, dtype=float):
        rate = math.log(len(row)) / gap if gap else math.inf
        weights, before = mix(rate, total)
        plays.append(weights)
        total += row
        gap += max(0.0, weights @ row - (mix(rate, total)[1] - before))
    return np.array(plays)


def test_adahedge_gap_is_the_published_one_without_delay():
    losses = stress(np.random.default_rng(10), 900, 3)[:850]
    hand = ByHand(learner("adahedge"), 3)
    for row, expected in zip(losses, adahedge_by_differences(losses), strict=True):
        probs = hand.play()
        np.testing.assert_allclose(probs, expected, atol=1e-9)
        hand.observe(probs, row)


def test_adahedge_does_not_feel_scale():
    hands = [ByHand(learner("adahedge"), 3) for _ in range(3)]
    for row in np.random.default_rng(11).random((300, 3)):
        plays = [hand.play() for hand in hands]
        np.testing.assert_allclose(plays[1], plays[0], atol=1e-10)
        np.testing.assert_allclose(plays[2], plays[0], atol=1e-10)
        for hand, probs, scale in zip(hands, plays, (1, 1e-6, 2**-900), strict=True):
            hand.observe(probs, row * scale)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 6),
    rate=st.sampled_from([1e-12, 1e-6, 1e-3, 0.1, 0.999, 1.0, 3.0, 50.0, 1e5, 1e300, math.inf]),
)
def test_mixability_gap_is_between_zero_and_what_hoeffding_allows(seed, n, rate):
    rng = np.random.default_rng(seed)
    probs, losses = rng.dirichlet(np.full(n, 0.3)), rng.random(n)
    gap = mixability_gap(probs, losses, rate, np.empty(n), np.empty(n))
    mean = probs @ losses
    assert -1e-12 <= gap <= min(rate / 8, mean - losses.min()) + 1e-12
    if rate < 1e-2:  # where the plain formula has lost all digits: variance / 2 times the rate, to first order
        assert gap / rate == pytest.approx(probs @ (losses - mean) ** 2 / 2, abs=2 * rate + 1e-3)


XI = [  # R, V, ln xi(R, V) from erfc or quadrature at 60 digits
    (0.0, 0.0, -0.6931471805599453094172),
    (1e-09, 1e-18, -0.6931471803099453094901),
    (-1e-09, 1e-18, -0.6931471808099453094901),
    (0.1, 0.05, -0.6722548690335613820478),
    (-0.2, 0.2, -0.7588727036256808488585),
    (0.24, 0.24, -0.6529877936876892432761),
    (0.6, 0.01, -0.5402960655148461370074),
    (-0.6, 0.01, -0.8401712733700090233151),
    (0.5, 1.0, -0.6513075959557221914511),
    (-1.0, 1.0, -1.003362205603345283908),
    (3.0, 1.5, -0.01683878272976078264724),
    (1.5, 3.0, -0.566603614665101096857),
    (0.0, 5.0, -1.046366058727224733505),
    (-30.0, 2.5, -3.406677962757219009809),
    (40.0, 40.0, 8.034770291061368983264),
    (20.0, 41.0, 1.130519590094588606922),
    (0.0, 10000.0, -4.725952423623336590382),
    (300.0, 100000.0, -5.248337711069495425925),
    (-300.0, 100000.0, -6.340733112154290096377),
    (50000.0, 100000.0, 6244.815902210439585877),
    (-50000.0, 100000.0, -10.81985826841659416529),
    (1000000.0, 1000000.0, 249992.9714624833826177),
    (500000.0, 1000000.0, 62493.66460966394256304),
    (-1000000.0, 1000000.0, -13.81551255795427420277),
    (0.0, 1000000.0, -7.028537516617382274399),
    (0.001, 1e-06, -0.6928972534870260600631),
    (40.0, 0.05, 16.299808678971361013),
    (-40.0, 0.05, -3.688941946384329644337),
    (10000.0, 100.0, 4965.79970792327962759),
]


@pytest.mark.parametrize(("regret", "square", "value"), XI)
def test_squint_weight(regret, square, value):
    small = square < 0.25 and abs(0.5 * regret - 0.25 * square) < 0.25
    mantissa, exponent = (quadrature(regret, square), 0.0) if small else evidence(regret, square)
    assert 0 < mantissa < 2
    assert exponent + math.log(mantissa) == pytest.approx(value, rel=1e-14, abs=1e-14)


@given(st.floats(-0.3, 0.3))
def test_squint_forms_meet(shift):
    # at the edge of the two forms both are right
    for square in (0.2, 0.25, 0.3):
        for tilt in (-0.25, 0.25):
            regret = 2 * (tilt + shift / 10) + square / 2
            mantissa, exponent = evidence(regret, square)
            assert mantissa * math.exp(exponent) == pytest.approx(quadrature(regret, square), rel=1e-14)


def test_adanormalhedge_weights_of_the_paper():
    hand = ByHand(learner("adanormalhedge"), 4)
    hand.state[0], hand.state[1] = [2.0, 0.5, -0.5, -3.0], [4.0, 1.0, 2.0, 5.0]

    def potential(r, c):
        return math.exp(max(r, 0) ** 2 / (3 * c))

    weights = [(potential(r + 1, c + 1) - potential(r - 1, c + 1)) / 2 for r, c in hand.state[:2].T]
    assert hand.play() == pytest.approx(np.array(weights) / sum(weights), rel=1e-13)
    hand.state[0] = [-1.0, -2.0, -1.5, -7.0]
    assert hand.play().tolist() == [0.25] * 4  # no weight at all: uniform
    hand.state[0] = [3e5, 3e5 - 1, 0.0, -1e5]  # exponents of 1e5: no overflow, and the leaders keep their ratio
    hand.state[1] = [4e5, 4e5, 4e5, 4e5]
    probs = hand.play()
    assert probs[1] / probs[0] == pytest.approx(math.exp((300000**2 - 300001**2) / (3 * 400001)), rel=1e-5)


def test_ftpl_has_the_law_of_hedge():
    n, draws = 4, 40_000 if JIT else 500
    hand, hedge = (ByHand(learner(name, learning_rate=0.7), n, seed=12) for name in ("ftpl", "hedge"))
    for losses in ([1.0, 0.2, 0.7, 0.0], [0.5, 1.0, 0.0, 0.9]):
        for policy in (hand, hedge):
            policy.observe(np.full(n, 0.25), losses)
    count = sum(hand.play() for _ in range(draws))
    expected = draws * hedge.play()
    # chi-square with 3 degrees of freedom exceeds 30.7 with probability 1e-6: the false-alarm rate
    assert ((count - expected) ** 2 / expected).sum() < 30.7
    assert (count > 0).all()


def test_ftpl_draws_as_numpy_does():
    rng = np.random.default_rng(13)
    hand = ByHand(learner("ftpl"), 3, seed=13)
    for _ in range(50):
        hand.play()
        rng.random(3)
    assert hand.rng.random() == rng.random()
