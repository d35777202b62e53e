"""The learner that CONTRIBUTING shows is complete: it runs, compiled and plain, and equals the twin shown beside it."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np

import hedgelab as hl
from experiments.twins import game as twin_game

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(), re.DOTALL)


def load(name, text, folder):
    path = folder / f"{name}.py"
    path.write_text(text)
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # numba finds a function's module by name
    specification.loader.exec_module(module)
    return module


def test_the_example_learner_is_complete(tmp_path):
    learner = load("example_learner", BLOCKS[0], tmp_path).LEARNER
    twin = load("example_twin", BLOCKS[1], tmp_path).EpsilonGreedy
    rng = np.random.default_rng(0)
    worlds = {"spread": rng.random((200, 4)), "coins": rng.integers(0, 2, (200, 4)), "equal": np.ones((200, 4))}
    for losses in worlds.values():
        for delay in (0, 3):
            game = hl.play(losses, learner, delay=delay, record=True)
            plain = hl.play(losses, learner, delay=delay, record=True, jit=False)
            assert (game.probs == plain.probs).all()
            assert np.abs(game.probs.sum(axis=1) - 1).max() < 1e-12
            picks, expected = twin_game.play(
                losses, twin, np.random.Generator(np.random.PCG64([0, 0])), delay=delay, own_entry_only=True
            )
            assert game.picks.tolist() == picks
            np.testing.assert_allclose(game.round_loss, expected, atol=1e-12)
    best = hl.play(hl.worlds.gap(2000, 4, 0.5, best=2), learner.with_values(epsilon=0.0))
    assert best.best == 2
    greedy = hl.replay(hl.sample_trace("greedy"), learner)
    assert greedy.mat > hl.replay(hl.sample_trace("greedy"), "uniform").mat


def test_the_example_is_short():
    code = [line for line in BLOCKS[0].split('"""', 2)[2].splitlines() if line.strip()]
    assert len(code) <= 30
