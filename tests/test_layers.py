"""The structure that the code promises: who imports whom, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import store
from experiments.claims import NAMES

ROOT = Path(__file__).parents[1]
LAYERS = ("hedgelab", "traces", "experiments", "paper_figures")  # each may import those before it
LATE = {"torch", "transformers", "matplotlib", "yaml", "scipy", "sklearn"}  # never at import time in hedgelab


def imports(path, top_level_only):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_one_way(layer):
    above = set(LAYERS[LAYERS.index(layer) + 1 :]) | {"tests"}
    files = list((ROOT / layer).rglob("*.py"))
    assert files
    for path in files:
        assert not above & set(imports(path, top_level_only=False)), path
        if layer == "hedgelab":
            assert not LATE & set(imports(path, top_level_only=True)), path


def test_importing_hedgelab_loads_neither_torch_nor_matplotlib_and_compiles_nothing():
    script = """
import sys, numba.core.event
with numba.core.event.install_recorder("numba:compile") as recorder:
    import hedgelab, hedgelab.cli, hedgelab.comparison, hedgelab.figure, hedgelab.routing
assert not recorder.buffer, "import compiled something"
late = {"torch", "transformers", "matplotlib", "sklearn"} & set(sys.modules)
assert not late, late
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_no_module_is_named_like_a_public_function():
    names = {"replay", "play", "learner", "learners"}
    assert not names & {path.stem for path in (ROOT / "hedgelab").rglob("*.py")}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_claim_measures_depends_on_neither_its_questions_nor_its_judgement(name):
    read = store.sources(store.measure_of(name))
    assert not {"asked", "judge"} & {path.stem for path in read if path.parent.name == name}
    assert not {"claim", "texts", "growth", "store", "runner"} & {path.stem for path in read}
    assert f"experiments/claims/{name}/measure.py" in {path.relative_to(ROOT).as_posix() for path in read}
