"""Engine 1 against an obvious loop, as plain Python, and on games with known answers."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hedgelab as hl
from experiments import twins
from experiments.twins import game as twin_game
from hedgelab import delays, worlds
from hedgelab._jit import kernel
from hedgelab.token_game import log_times
from tests.sizes import few, needs_jit

DELAYS = {
    "none": lambda rng, t: 0,
    "constant": lambda rng, t: 3,
    "given": lambda rng, t: rng.integers(0, 9, t),
    "some never": lambda rng, t: np.where(rng.random(t) < 0.1, 10**9, rng.integers(0, 5, t)),
    "past the end": lambda rng, t: t,
    "now or never": lambda rng, t: np.where(rng.random(t) < 0.2, 10**9, 0),
}


@pytest.mark.parametrize("name", hl.learners())
@settings(max_examples=few(40, 5))
@given(
    world=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(sorted(DELAYS)),
    mode=st.sampled_from(delays.MODES),
    n=st.integers(1, 5),
)
def test_play_equals_an_obvious_loop_and_plain_python(name, world, kind, mode, n):
    rng = np.random.default_rng(world)
    bandit = hl.learner(name).feedback == "bandit"
    if mode == "qpm-d" and not bandit:
        mode = "queue"
    losses, delay = rng.random((30, n)), DELAYS[kind](rng, 30)
    if mode == "padded" and kind in ("some never", "now or never"):
        delay = np.minimum(delay, 50)
    game = hl.play(losses, name, delay=delay, delay_mode=mode, seed=5, record=True)
    picks, expected = twin_game.play(
        losses,
        twins.LEARNERS[name],
        np.random.Generator(np.random.PCG64([5, 0])),
        delay=delay,
        mode=mode,
        own_entry_only=bandit,
    )
    assert game.picks.tolist() == picks
    np.testing.assert_allclose(game.round_loss, expected, atol=1e-9)
    assert game.regret == pytest.approx(sum(expected) - losses.sum(axis=0).min(), abs=1e-8)
    running = np.cumsum(expected) - np.cumsum(losses, axis=0).min(axis=1)
    np.testing.assert_allclose(game.regret_at, running[game.times - 1], atol=1e-8)
    np.testing.assert_allclose(game.drafter_losses, losses.sum(axis=0))
    assert game.pick_loss == pytest.approx(losses[np.arange(30), game.picks].sum())
    spread = (game.probs * losses**2).sum(axis=1) - (game.probs * losses).sum(axis=1) ** 2
    assert game.variance == pytest.approx(spread.sum(), abs=1e-9)
    plain = hl.play(losses, name, delay=delay, delay_mode=mode, seed=5, record=True, jit=False)
    assert (plain.probs == game.probs).all()  # the same bits
    assert plain.picks.tolist() == game.picks.tolist()
    assert plain.regret_at.tolist() == game.regret_at.tolist()


@given(st.integers(0, 2**32 - 1), st.sampled_from(["hedge", "normalhedge", "ftl"]), st.booleans())
def test_token_game_with_the_delays_of_decoding_is_that_of_the_decode_replay(world, name, length):
    # engine 1, told the delays that engine 2 made, plays the same game
    rng = np.random.default_rng(world)
    rows, n, k = int(rng.integers(8, 60)), 3, int(rng.integers(1, 6))
    alpha = rng.random((rows, n))
    trace = hl.Trace.from_arrays(
        token=np.zeros(rows, int),
        alpha=alpha,
        gamma=rng.random((rows, n)),
        offsets=[0, rows],
        domains=["x"],
        drafters=list("abc"),
        k=k,
    )
    objective = "length" if length else "acceptance"
    run = hl.replay(trace, name, objective=objective, token_game=True, seed=world % 1000)
    late = delays.decode(run.committed, k, objective=objective)
    losses = hl.feedback.losses(trace, objective=objective)[: len(late)]
    game = hl.play(losses, name, delay=late)
    known = ~np.isnan(run.expected_loss)
    assert known.sum() == len(late)
    np.testing.assert_allclose(game.round_loss, run.expected_loss[known], atol=1e-12)
    assert late.max(initial=0) <= (2 * k - 1 if length else k)
    assert delays.most_outstanding(late, len(late)) <= delays.outstanding_in_decoding(k, objective=objective)


def test_padded_decode_replay_is_round_robin_in_the_token_game():
    rng = np.random.default_rng(0)
    rows, n, k = 300, 4, 3
    trace = hl.Trace.from_arrays(
        token=np.zeros(rows, int),
        alpha=rng.random((rows, n)),
        gamma=rng.random((rows, n)),
        offsets=[0, rows],
        domains=["x"],
        drafters=list("abcd"),
        k=k,
    )
    for objective, most in (("length", 2 * k - 1), ("acceptance", k)):
        run = hl.replay(trace, "normalhedge", objective=objective, delay_mode="padded", token_game=True)
        losses = hl.feedback.losses(trace, objective=objective)
        losses = losses[~np.isnan(losses[:, 0])]
        game = hl.play(losses, "normalhedge", delay=most, delay_mode="padded")
        assert game.settings["copies"] == most + 1
        known = ~np.isnan(run.expected_loss)
        np.testing.assert_allclose(game.round_loss, run.expected_loss[known], atol=1e-12)
        assert run.losses_seen[known].tolist() == [t // (most + 1) for t in range(len(losses))]


def test_constant_delay_under_bold_is_round_robin():
    losses = np.random.default_rng(1).random((50, 3))
    game = hl.play(losses, "hedge", delay=4, delay_mode="bold", record=True)
    for copy in range(5):
        own = hl.play(losses[copy::5], "hedge", record=True)
        np.testing.assert_array_equal(own.probs, game.probs[copy::5])


@pytest.mark.parametrize("name", hl.learners())
def test_delay_zero_is_no_delay(name):
    losses = np.random.default_rng(2).random((200, 4))
    plain = hl.play(losses, name, seed=1)
    for mode in delays.MODES:
        if mode == "qpm-d" and hl.learner(name).feedback != "bandit":
            continue
        late = hl.play(losses, name, seed=1, delay=np.zeros(200, int), delay_mode=mode)
        assert late.picks.tolist() == plain.picks.tolist()
        if mode != "qpm-d":
            assert late.regret_at.tolist() == plain.regret_at.tolist()


def test_losses_are_read_a_block_at_a_time(tmp_path):
    rng = np.random.default_rng(3)
    losses = rng.random((10_000, 3)).astype(np.float32)
    np.save(tmp_path / "losses.npy", losses)
    mapped = np.load(tmp_path / "losses.npy", mmap_mode="r")
    whole = hl.play(losses.astype(float), "normalhedge", delay=7)
    assert hl.play(mapped, "normalhedge", delay=7).picks.tolist() == whole.picks.tolist()
    cuts = (0, 1, 5, 4097, 10_000)

    def blocks(seed):
        for begin, end in itertools.pairwise(cuts):
            yield losses[begin:end].astype(float)

    world = worlds.World(name="cut", rounds=10_000, drafters=3, blocks=blocks)
    assert hl.play(world, "normalhedge", delay=7).regret_at.tolist() == whole.regret_at.tolist()
    short = worlds.World(name="short", rounds=10_001, drafters=3, blocks=blocks)
    with pytest.raises(ValueError, match="short: 10000 rounds of losses in a world of 10001"):
        hl.play(short, "hedge")
    wide = worlds.World(name="wide", rounds=10_000, drafters=4, blocks=blocks)
    with pytest.raises(ValueError, match="wide: a block of shape"):
        hl.play(wide, "hedge")


@pytest.mark.parametrize(
    ("losses", "options", "words"),
    [
        ([[0.5, 1.5]], {}, r"round 0, drafter 1 has 1\.5"),
        ([[0.5, 0.5], [0.5, math.nan]], {}, "round 1, drafter 1 has nan"),
        ([[0.5, 0.5], [-0.1, 0.5]], {}, "round 1, drafter 0 has -0.1"),
        ([0.5, 0.5], {}, "shape"),
        (np.empty((0, 3)), {}, "shape"),
        ([["a"]], {}, "real numbers"),
        ([[0.5]], {"feedback": "some"}, "feedback must be one of full, bandit"),
        ([[0.5]], {"feedback": "bandit"}, "needs every drafter's loss"),
        ([[0.5]], {"delay_mode": "wait"}, "delay_mode must be one of queue, bold, padded, qpm-d"),
        ([[0.5]], {"delay_mode": "qpm-d"}, "for learners with bandit feedback"),
        ([[0.5]], {"delay": -1}, "delay must not be negative"),
        ([[0.5]], {"delay": 0.5}, "whole number"),
        ([[0.5]], {"delay": [0, 0]}, "one entry for each of 1 rounds, got 2"),
        ([[0.5]], {"seed": -1}, "seed must be"),
        ([[0.5]], {"times": [2]}, r"times must be increasing whole numbers in \[1, 1\]"),
        ([[0.5]], {"jit": 1}, "jit must be True, False or None"),
        ([[0.5]], {"learner": "none"}, "no learner 'none'"),
    ],
)
def test_bad_arguments(losses, options, words):
    with pytest.raises(ValueError, match=words):
        hl.play(losses, **options)


def test_a_play_that_is_no_distribution_ends_the_game():
    bad = hl.Learner("bad", lambda params, n: np.zeros((1, n)), lambda *_: None, lambda *_: None)
    with pytest.raises(ValueError, match=r"'bad': in round 0 play did not write a distribution"):
        hl.play([[0, 1]], bad)


def test_integers_and_flags_are_losses():
    for losses in ([[1, 0], [0, 1]], [[True, False], [False, True]], np.eye(2, dtype=np.uint8)):
        assert hl.play(losses, "exp3").drafter_losses.tolist() == [1.0, 1.0]


def test_caveats_say_what_voids_a_theorem():
    losses = np.random.default_rng(0).random((20, 2))
    coins = worlds.fair_coins(20, 2)
    for name in ("normalhedge", "hedge", "exp3", "uniform", "squint"):
        assert hl.play(losses, name).caveats == ()
    for name in ("ucb1", "successive-elimination", "ucbspec"):
        assert hl.play(coins, name).caveats == ()
        for other in (losses, worlds.alternating(20, 2), worlds.greedy(20, 2)):
            assert hl.play(other, name).caveats[0] == (
                "its bound is for losses independent over rounds, with one mean a drafter"
            )
    words = {
        "moss": "needs the horizon",
        "exp3-p": "needs the horizon",
        "ucb-tuned": "needs beta above",
        "kl-ucb": "asymptotic",
        "thompson-gauss": "order only",
        "explore-then-commit": "may grow linearly",
        "normalhedge-bh": "no bound with constants",
        "banditspec-release": "no bound with constants",
    }
    for name, word in words.items():
        assert word in hl.play(coins, name).caveats[0], name
    assert hl.play(coins, hl.learner("moss", horizon=20)).caveats == ()
    assert "horizon = T" in hl.play(coins, hl.learner("moss", horizon=21)).caveats[0]
    assert any("c = 3" in note for note in hl.play(coins, "kl-ucb").caveats)
    assert "one-hot play" in hl.play(worlds.greedy(20, 2), "ftpl").caveats[0]
    for name in ("exp3", "exp3spec"):
        assert "pseudo-regret" in hl.play(worlds.greedy(20, 2), name).caveats[0]
        assert hl.play(losses, name).caveats == ()
    # late losses
    assert hl.play(losses, "normalhedge", delay=2, delay_mode="padded").caveats == ()
    assert "no bound is proved for 'normalhedge'" in hl.play(losses, "normalhedge", delay=2).caveats[0]
    assert "hedge_path" in hl.play(losses, "hedge", delay=2).caveats[0]
    late = hl.play(coins, "banditspec-release", delay=2).caveats[-1]
    assert late == "no bound is proved for 'banditspec-release' on late losses"
    assert "the picks drawn" in hl.play(coins, "ucb1", delay=1, delay_mode="qpm-d").caveats[0]
    # decoding
    trace = hl.sample_trace("greedy").select([0])
    notes = hl.replay(trace, "hedge", feedback="censored").caveats
    assert any("biased" in note for note in notes)
    assert any("depend on the picks" in note for note in hl.replay(trace, "ucb1").caveats)
    assert hl.replay(trace, "hedge", delay_mode="padded", carry_over=True).caveats == ()
    own = hl.Learner("own", lambda params, n: np.ones((1, n)), lambda *a: a[-1].fill(1 / len(a[-1])), lambda *a: None)
    assert hl.play(losses, own).caveats == ("no bound is registered for 'own'",)


def test_results_print_short():
    game = hl.play([[0, 1], [0, 1]], "hedge")
    assert repr(game) == "<Game of 'hedge' in 'given losses': 2 rounds, regret 0.7355>"
    run = hl.replay(hl.sample_trace("greedy").select([0]), "fixed")
    assert repr(run).startswith("<Replay of 'fixed' on 'greedy': ")


def test_log_times():
    assert log_times(1).tolist() == [1]
    assert log_times(1000)[-1] == 1000
    assert (np.diff(log_times(12345)) > 0).all()


def test_bold_teaches_the_copy_that_played_when_others_wait_for_ever():
    # every loss that comes is in time; the first never does, so its copy is lost and the second one learns
    delay = np.array([99, 0, 0, 0, 0])
    game = hl.play([[1, 0]] * 5, "hedge", delay=delay, delay_mode="bold", record=True)
    alone = hl.play([[1, 0]] * 4, "hedge", record=True)
    np.testing.assert_array_equal(game.probs[1:], alone.probs)
    assert game.settings["copies"] == 2
    assert game.settings["longest_delay"] == 99


def test_one_very_late_loss_costs_no_more_than_others():
    rounds = few(200_000, 500)
    losses = np.random.default_rng(0).random((rounds, 2))
    delay = np.zeros(rounds, int)
    delay[0] = rounds - 1
    late = hl.play(losses, "hedge", delay=delay)
    assert late.settings["most_outstanding"] == 1
    assert late.regret == pytest.approx(hl.play(losses, "hedge").regret, abs=1.0)


@kernel
def _writes_one(settings, memory, t, probs, totals, rng, losses):
    losses[0] = 0.5


@kernel
def _writes_all(settings, memory, t, probs, totals, rng, losses):
    for i in range(losses.shape[0]):
        losses[i] = 0.5
        probs[i] = 7.0
        totals[i] = -5.0


def test_adversaries_must_write_every_loss_and_nothing_else_counts():
    with pytest.raises(ValueError, match=r"partial: losses outside \[0, 1\] in round 0"):
        hl.play(worlds.World("partial", 3, 2, adversary=_writes_one), "hedge")
    game = hl.play(worlds.World("greedy for more", 3, 2, adversary=_writes_all), "hedge", record=True)
    assert game.regret == 0.0
    assert game.probs.tolist() == [[0.5, 0.5]] * 3


@needs_jit
def test_threads_may_compile_together():
    # in a process of its own, where nothing is compiled yet
    script = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np, hedgelab as hl
losses = np.random.default_rng(0).random((300, 3))
def job(seed):
    return hl.play(losses, "hedge", seed=seed).picks.tolist(), hl.lengths.realised(losses, 2).sum()
with ThreadPoolExecutor(8) as pool:
    together = list(pool.map(job, range(16)))
assert together == [job(seed) for seed in range(16)]
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[1])


@pytest.mark.parametrize("times", [np.array([5, 1], "u1"), [1.9, 2.5], ["3"], [[1]], [2, 2], [0]])
def test_times_must_increase(times):
    with pytest.raises(ValueError, match="times must be increasing whole numbers"):
        hl.play(np.ones((10, 2)), times=times)


def test_blocks_and_arrays_that_are_no_losses():
    for losses in (np.ma.masked_array([[0.5, 0.5]], [[1, 0]]), [[0.5], [0.5, 0.5]]):
        with pytest.raises(ValueError, match="losses must"):
            hl.play(losses)
    words = worlds.World("words", 1, 2, blocks=lambda seed: iter([np.array([["a", "b"]])]))
    with pytest.raises(ValueError, match="words: blocks must be arrays of real numbers"):
        hl.play(words)
    with pytest.raises(ValueError, match=r"a block of shape \(3, 2\) in a world of shape \(2, 2\)"):
        worlds.World("long", 2, 2, blocks=lambda seed: iter([np.ones((3, 2))])).array()
