"""What CONTRIBUTING shows is complete. The learner runs, compiled and plain, and equals the twin shown beside it; the
drafter, put where it says, is recorded.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import hedgelab as hl
from experiments.twins import game as twin_game
from tests.strategies_recording import tiny_checkpoint, tiny_prompts
from tests.test_collect import rows_of, text_of

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
ENTRY = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[0]


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


@pytest.fixture
def grown(tmp_path):
    """A copy of the recorder with the drafter shown, put where CONTRIBUTING says; returns how to call it."""
    shutil.copytree(ROOT / "traces", tmp_path / "traces", ignore=shutil.ignore_patterns("data", "__pycache__"))
    drafters = tmp_path / "traces" / "drafters"
    (drafters / "repeat.py").write_text(BLOCKS[2])
    registry = (drafters / "__init__.py").read_text()
    opening = "KINDS: dict[str, Kind] = {\n"
    assert registry.count(opening) == 1
    registry = registry.replace(opening, opening + BLOCKS[3])
    (drafters / "__init__.py").write_text(registry.replace("import causal,", "import repeat, causal,"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "OMP_NUM_THREADS": "1"}

    def call(*arguments):
        command = [sys.executable, "-m", "traces", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    return call


def test_the_example_drafter_is_complete(tmp_path, grown):
    """Recorded by the command that CONTRIBUTING names, and equal to drafts made one by one from the text."""
    tiny_checkpoint(tmp_path / "target", sharp=0.3)
    tiny_prompts(tmp_path / "prompts.jsonl", 8)
    entry = yaml.safe_load(ENTRY)[0]
    k = 4
    document = {
        "name": "tiny", "target": "target", "prompts": {"file": "prompts.jsonl"}, "processing": {"temperature": 0.1},
        "max_new_tokens": 30, "k": k, "seed": 3, "loop": 0,
        "drafters": [
            entry, {**entry, "name": "once", "options": {}}, {**entry, "name": "long", "options": {"span": 16}},
        ],
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(document))
    done = grown("collect", "config.yaml", "--out", "out")
    assert done.returncode == 0, done.stderr
    trace = hl.open_trace(tmp_path / "out")
    assert trace.drafters == ("twice", "once", "long")
    assert [drafter.details["span"] for drafter in trace.manifest.drafters] == [2, 1, 16]
    accepted, silent = [0, 0, 0], 0
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        text = [*prompt, *own]
        for i, span in enumerate((2, 1, 16)):
            for start in range(begin, end):
                behind = len(prompt) + 1 + start - begin  # where the round's first draft goes
                alive = behind >= span
                silent += not alive
                assert trace.proposed[start, i] == k * alive
                for d in range(min(k, end - start)):
                    alive = alive and text[behind + d] == text[behind - span + d % span]
                    assert trace.alpha[start + d, d, i] == alive
                    accepted[i] += alive
    assert min(accepted) > 0
    assert silent > 0


def test_the_example_drafter_checks_its_options(tmp_path, grown):
    tiny_prompts(tmp_path / "prompts.jsonl", 1)
    entry = yaml.safe_load(ENTRY)[0]
    document = {
        "name": "tiny", "prompts": {"file": "prompts.jsonl"}, "processing": {"temperature": 0.1},
        "drafters": [{**entry, "options": {"span": 0}}],
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(document))
    done = grown("collect", "config.yaml", "--out", "out")
    assert done.returncode != 0
    assert "span" in done.stderr


def test_the_example_claim_is_complete(tmp_path, monkeypatch):
    import experiments.claims
    from experiments.executors import local
    from experiments.runner import Plan, run_claims, verdicts

    (tmp_path / "halves.py").write_text(BLOCKS[4])
    monkeypatch.setattr(experiments.claims, "__path__", [*experiments.claims.__path__, str(tmp_path)])
    monkeypatch.setattr(experiments.claims, "NAMES", ("halves",))
    plan = Plan(quick=True, out=tmp_path / "out")
    try:
        assert run_claims(["halves"], plan, lambda: local(0)) == 1
        (found,) = verdicts("halves", plan)
    finally:
        sys.modules.pop("experiments.claims.halves", None)
    assert found.verdict in ("holds", "cannot tell")
    assert found.effect.estimate == pytest.approx(0.5, abs=0.2)
