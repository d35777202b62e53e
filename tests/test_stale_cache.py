"""An edit anywhere in the package must never run code compiled before it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hedgelab

SCRIPT = """
import numpy as np
from hedgelab import vexp, algorithms
from hedgelab._jit import cache_folder
policy = algorithms.learner("hedge")
play, observe = policy.compiled()
params = policy.params()
state = policy.init(params, 2)
probs = np.empty(2)
play(params, state, np.empty(0), np.random.default_rng(0), probs)
observe(params, state, np.empty(0), probs, 0, np.array([1.0, 0.5]))
play(params, state, np.empty(0), np.random.default_rng(0), probs)
hits = sum(play.stats.cache_hits.values()) + sum(observe.stats.cache_hits.values())
print(probs[0].hex(), state[2, 0], hits)
"""


@pytest.fixture
def checkout(tmp_path):
    source = Path(hedgelab.__file__).parent
    shutil.copytree(source, tmp_path / "hedgelab", ignore=shutil.ignore_patterns("__pycache__", "data"))
    (tmp_path / "hedgelab" / "__init__.py").write_text("")  # only the parts used here
    return tmp_path


def run(checkout):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(checkout / "cache"), "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    probability, seen, hits = done.stdout.split()
    return float.fromhex(probability), float(seen), int(hits)


def edit(checkout, file, old, new):
    path = checkout / "hedgelab" / file
    text = path.read_text()
    assert text.count(old) >= 1
    # same size and time stamp: numba's own check of the function's file could not see this one
    stat = path.stat()
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_editing_a_learner_a_helper_or_a_constant_runs_new_code(checkout):
    first = run(checkout)
    assert first[2] == 0
    again = run(checkout)
    assert again[:2] == first[:2]
    assert again[2] == 2, "the second process must load both functions from the cache"
    # the learner's own file
    edit(checkout, "algorithms/hedge.py", "state[_SEEN, 0] += 1.0", "state[_SEEN, 0] += 5.0")
    learner_edited = run(checkout)
    assert learner_edited[1] == 5.0
    assert learner_edited[0] != first[0]
    # a helper two imports away: the worse expert's weight is cut to 0
    edit(checkout, "vexp.py", "value if x > -708.0", "value if x > -0.0001")
    helper_edited = run(checkout)
    assert helper_edited[0] != learner_edited[0]
    # a constant that a kernel reads
    edit(checkout, "vexp.py", "_LOG2E = 1.4426950408889634", "_LOG2E = 0.4426950408889634")
    edit(checkout, "vexp.py", "x > -0.0001", "x > -708.00")
    constant_edited = run(checkout)
    assert constant_edited[0] not in (helper_edited[0], learner_edited[0])


def test_no_cache_is_better_than_a_stale_one(checkout):
    # where nothing can be written, numba would fall back to a folder that does not know our other files
    environment = {**os.environ, "NUMBA_CACHE_DIR": "/dev/null/cache", "PYTHONPATH": str(checkout)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "compiled anew in each process" in done.stderr
        assert int(done.stdout.split()[2]) == 0
    assert not list(checkout.rglob("*.nbi"))


def test_hash_sees_every_file(tmp_path):
    from hedgelab._jit import source_hash

    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text("x = 1")
    before = source_hash(tmp_path)
    (tmp_path / "inner" / "a.py").write_text("x = 2")
    assert source_hash(tmp_path) != before
    (tmp_path / "inner" / "a.py").write_text("x = 1")
    assert source_hash(tmp_path) == before
    (tmp_path / "inner" / "a.py").rename(tmp_path / "inner" / "b.py")
    assert source_hash(tmp_path) != before
