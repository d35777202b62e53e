"""Every registered learner: the contract, its naive twin, and the numerics that went wrong elsewhere (cases C6-C8)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.event import install_recorder

import hedgelab as hl
from experiments import twins
from hedgelab._jit import uncompiled
from hedgelab.algorithms import LEARNERS, learner, learners
from hedgelab.contract import Learner, Parameter
from tests.sizes import JIT_OFF, few, needs_jit

NOTHING = np.empty(0)


class Game:
    """A learner driven by hand, compiled or as plain Python."""

    def __init__(self, policy: Learner, n: int, jit: bool = True, seed: int = 0):
        self.params = policy.params()
        self.state = policy.init(self.params, n)
        self.rng = np.random.default_rng(seed)
        self.bandit = policy.feedback == "bandit"
        self.functions = (
            policy.compiled() if jit and policy.jitted else (uncompiled(policy.play), uncompiled(policy.observe))
        )
        self.n = n

    def play(self):
        probs = np.full(self.n, np.nan)
        self.functions[0](self.params, self.state, NOTHING, self.rng, probs)
        return probs

    def observe(self, probs, pick, losses):
        seen = np.where(np.arange(self.n) == pick, losses, np.nan) if self.bandit else np.array(losses, float)
        self.functions[1](self.params, self.state, NOTHING, probs, pick, seen)


def pick_from(probs, rng):
    return int(rng.choice(len(probs), p=probs / probs.sum()))


STREAMS = {
    "random": lambda rng, t, n: rng.random((t, n)),
    "equal": lambda rng, t, n: np.repeat(rng.random((t, 1)), n, axis=1),
    "zeros": lambda rng, t, n: np.zeros((t, n)),
    "ones": lambda rng, t, n: np.ones((t, n)),
    "binary": lambda rng, t, n: (rng.random((t, n)) < 0.5).astype(float),
    "one good": lambda rng, t, n: np.where(np.arange(n) == n // 2, 0.0, 1.0) * np.ones((t, 1)),
    "alternating": lambda rng, t, n: ((np.arange(t)[:, None] + np.arange(n)) % 2).astype(float),
}


@pytest.mark.parametrize("name", learners())
@pytest.mark.parametrize(("n", "rounds"), [(1, 30), (2, 200), (8, 150), (37, 40), (4096, 10)])
def test_distribution_is_on_the_simplex_and_equals_plain_python(name, n, rounds):
    for make in STREAMS.values():
        rng = np.random.default_rng(1)
        losses = make(rng, few(rounds, max(2, rounds // 10)), n)
        compiled = Game(learner(name), n)
        plain = Game(learner(name), n, jit=False) if n < 1000 else None
        for row in losses:
            probs = compiled.play()
            assert ((probs >= 0) & (probs <= 1)).all()
            assert probs.sum() == pytest.approx(1.0, abs=1e-12)
            pick = pick_from(probs, rng)
            compiled.observe(probs, pick, row)
            if plain:
                assert plain.play().tolist() == probs.tolist()  # the same bits
                plain.observe(probs, pick, row)


def phases(rng, rounds, n):
    """All kinds of losses one after the other in one game."""
    per = -(-rounds // len(STREAMS))
    return np.concatenate([make(rng, per, n) for make in STREAMS.values()])[:rounds]


@pytest.mark.parametrize("name", learners())
@pytest.mark.parametrize(("n", "rounds"), [(1, 10_000), (2, 1_000_000), (8, 1_000_000), (4096, 1000)])
def test_a_long_game_stays_on_the_simplex(name, n, rounds):
    game = hl.play(phases(np.random.default_rng(2), few(rounds, min(rounds, max(4, 800 // n))), n), name, record=True)
    assert game.probs.min() >= 0
    assert np.abs(game.probs.sum(axis=1) - 1.0).max() < 1e-12 * max(1, n / 100)
    assert np.isfinite(game.regret_at).all()


@pytest.mark.parametrize("name", learners())
def test_same_seed_same_picks_and_the_future_changes_none(name):
    rng = np.random.default_rng(3)
    losses = rng.random((300, 5))
    first, again = (hl.play(losses, name, seed=9) for _ in range(2))
    assert first.picks.tolist() == again.picks.tolist()
    for start in (1, 150, 299):
        changed = losses.copy()
        changed[start:] = rng.random((300 - start, 5))
        for delay in (0, 4):
            before = hl.play(losses, name, seed=9, delay=delay).picks
            after = hl.play(changed, name, seed=9, delay=delay).picks
            assert before[: start + 1].tolist() == after[: start + 1].tolist()


@needs_jit
def test_no_recompilation_on_the_second_call():
    losses = np.random.default_rng(4).random((20, 3))
    trace = hl.sample_trace("greedy").select([0])

    def every_learner(losses):
        for name in learners():
            hl.play(losses, name)
            hl.play(losses, name, delay=3)
            hl.replay(trace, name)

    every_learner(losses)
    with install_recorder("numba:compile") as recorder:
        every_learner(np.random.default_rng(5).random((30, 7)))
    assert not recorder.buffer


@pytest.mark.parametrize("name", learners())
@settings(max_examples=few(50, 5))
@given(
    n=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1.0, 1e-3, 1e-9]),
    lazy=st.integers(1, 6),
)
def test_learner_equals_its_naive_twin(name, n, seed, scale, lazy):
    rng = np.random.default_rng(seed)
    game, twin, twin_rng = Game(learner(name), n), twins.LEARNERS[name](n), np.random.default_rng(0)
    for _ in range(25):
        probs = game.play()
        np.testing.assert_allclose(probs, twin.play(twin_rng), atol=1e-9, rtol=1e-8)
        for _ in range(lazy):  # several losses between two plays, as in a decode loop
            losses = scale * rng.random(n)
            pick = pick_from(probs, rng)
            game.observe(probs, pick, losses)
            twin.observe(probs, pick, losses)


@pytest.mark.parametrize("name", [name for name in learners() if not LEARNERS[name].randomises and name != "fixed"])
def test_renaming_the_drafters_renames_the_plays(name):
    rng = np.random.default_rng(3)
    order = rng.permutation(6)  # drafter j of the one game is drafter order[j] of the other
    base, permuted = (Game(learner(name), 6) for _ in range(2))
    for _ in range(200):
        probs = base.play()
        np.testing.assert_allclose(permuted.play(), probs[order], atol=1e-9)
        losses, pick = rng.random(6), pick_from(probs, rng)
        base.observe(probs, pick, losses)
        permuted.observe(probs[order], int(np.flatnonzero(order == pick)[0]), losses[order])


@pytest.mark.parametrize(
    "name", [name for name in learners() if LEARNERS[name].feedback == "full" and not LEARNERS[name].randomises]
)
def test_a_constant_added_to_all_losses_changes_no_play(name):
    rng = np.random.default_rng(3)
    base, shifted = (Game(learner(name), 6) for _ in range(2))
    for _ in range(200):
        probs = base.play()
        np.testing.assert_allclose(shifted.play(), probs, atol=1e-9)
        losses = 0.5 * rng.random(6)
        base.observe(probs, 0, losses)
        shifted.observe(probs, 0, losses + 0.5 * rng.random())


@pytest.mark.parametrize("name", [name for name in learners() if LEARNERS[name].feedback == "bandit"])
def test_bandits_read_their_own_entry_alone(name):
    rng = np.random.default_rng(4)
    a, b = Game(learner(name), 5), Game(learner(name), 5)
    a.bandit = b.bandit = False  # hand over full vectors that differ outside the pick
    for _ in range(200):
        probs = a.play()
        assert b.play().tolist() == probs.tolist()
        pick = pick_from(probs, rng)
        losses, other = rng.random(5), rng.random(5)
        other[pick] = losses[pick]
        a.observe(probs, pick, losses)
        b.observe(probs, pick, other)


def test_normalhedge_solves_its_equation():
    rng = np.random.default_rng(5)
    for n in (2, 7, 300):
        game = Game(learner("normalhedge"), n)
        worst = 0.0
        for t in range(few(1500, 100)):
            probs = game.play()
            regret = np.maximum(game.state[0], 0.0)
            if regret.max() > 0:
                u = game.state[3, 0]
                # relative error of u from the residual of ln mean exp(u q) = 1, divided by the slope in ln u
                weights = np.exp(u * regret**2)
                slope = u * (weights * regret**2).sum() / weights.sum()
                worst = max(worst, abs(math.log(weights.mean()) - 1) / slope)
            losses = rng.random(n) ** (1 + t % 5) if t % 100 < 90 else np.where(np.arange(n) == t % n, 0.0, 1.0)
            game.observe(probs, 0, losses)
        assert 0 < worst < 1e-10


def test_hedge_does_not_underflow():
    # case C6: eta = .05, 1e5 rounds of loss 1; here also with no play in between, and with a leader
    for play_between in (True, False):
        game = Game(learner("hedge", learning_rate=0.05), 3)
        probs = game.play()
        for _ in range(few(100_000, 10_000)):
            game.observe(probs, 0, np.array([1.0, 1.0, 0.9]))
            if play_between:
                probs = game.play()
        probs = game.play()
        assert probs[:2].tolist() == [pytest.approx(math.exp(-0.05 * few(10_000, 1000)), rel=1e-6)] * 2
        assert probs[2] == pytest.approx(1.0)


def test_exp3_learns_from_integer_rewards():
    # case C7: whole-number losses must not turn the weights into integers
    rng = np.random.default_rng(6)
    game = Game(learner("exp3"), 4)
    for _ in range(3000):
        probs = game.play()
        pick = pick_from(probs, rng)
        game.observe(probs, pick, np.array([1, 1, 0, 1]))
    assert game.play()[2] > 0.9


@pytest.mark.parametrize("name", ["ftl", "ucb1"])
def test_ties_are_uniform(name):
    # case C8: at the start and among equals, whoever is tied gets the same probability
    game = Game(learner(name), 4)
    assert game.play().tolist() == [0.25] * 4
    if name == "ftl":
        game.observe(game.play(), 0, np.array([0.5, 0.25, 0.5, 0.25]))
        assert game.play().tolist() == [0, 0.5, 0, 0.5]
    else:
        game.observe(game.play(), 1, np.zeros(4))
        assert game.play() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
        for pick in (0, 2, 3):
            game.observe(game.play(), pick, np.zeros(4))
        assert game.play().tolist() == [0.25] * 4  # equal means and counts


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("hedge", {"rate": 1}, "rate: no such parameter"),
        ("hedge", {"learning_rate": -1}, r"learning_rate: must lie in \[0, inf\]"),
        ("hedge", {"learning_rate": math.nan}, "finite"),
        ("hedge", {"scale": None}, "scale: a number is needed"),
        ("fixed", {"drafter": 1.5}, "whole number"),
        ("fixed", {"drafter": -1}, "must lie in"),
        ("nothing", {}, "no learner 'nothing'; there are hedge"),
    ],
)
def test_parameters_are_checked(name, values, words):
    with pytest.raises(ValueError, match=words):
        learner(name, **values)


def test_fixed_needs_a_drafter_that_exists():
    policy = learner("fixed", drafter=3)
    with pytest.raises(ValueError, match=r"drafter must lie in \[0, 2\], got 3"):
        policy.init(policy.params(), 3)
    assert learner("fixed", drafter="b").params(("a", "b")).tolist() == [1.0]
    with pytest.raises(ValueError, match="no drafter 'c'; there are a, b"):
        learner("fixed", drafter="c").params(("a", "b"))


def test_facts_for_the_table():
    for name, policy in LEARNERS.items():
        assert policy.name == name
        assert policy.file.endswith(".py")
        assert policy.jitted is not JIT_OFF
        assert policy.reference or policy.feedback == "none"
        assert all(parameter.meaning for parameter in policy.parameters.values())
    with pytest.raises(ValueError, match="feedback"):
        Learner(name="x", init=np.zeros, play=None, observe=None, feedback="some")
    assert Parameter(1.0, "").problem(True)
