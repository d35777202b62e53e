"""Settings that all tests share."""

import os

# one thread a process, before torch is loaded: workers that share cores would wait for each other's threads, spinning
os.environ.setdefault("OMP_NUM_THREADS", "1")

import fcntl
from pathlib import Path

import pytest
from hypothesis import settings

from tests.sizes import few, thorough

# compilation makes first examples slow; derandomised so that a red run can be repeated word for word
settings.register_profile(
    "hedgelab", max_examples=thorough(100, few(40, 5)), deadline=None, derandomize=True, print_blob=True
)
settings.load_profile("hedgelab")


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory):
    """A function from a claim's name to the results of its quick settings, computed once for all test processes."""
    from experiments.executors import local
    from experiments.runner import Plan, results_of, run_claims

    base = tmp_path_factory.getbasetemp()
    folder: Path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "quick"
    folder.mkdir(exist_ok=True)

    def results(name: str):
        plan = Plan(quick=True, out=folder)
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            run_claims([name], plan, lambda: local(0))
        return results_of(name, plan)

    return results
