r"""Runs claims: settings to results, each kept as soon as it is there, then verdicts.

`run_claims` computes what is missing; `results_of` reads what is there. Both take the same `Plan`, which says which
settings: full or quick, the seed, and traces of the user's in place of bundled ones.
"""

from __future__ import annotations

import fcntl
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments import claims, store
from experiments.claim import Answer, Experiment, Finding, Result, Results, judged
from experiments.executors import Engine
from experiments.settings import Arrays, ClaimError, Setting
from hedgelab.processes import as_they_end

__all__ = ["MissingError", "Plan", "alone", "execute", "experiment", "results_of", "run_claims", "verdicts"]

OUT = Path("out/experiments")


class MissingError(ClaimError):
    """Results that were not computed yet; the message says how."""


def experiment(name: str) -> Experiment:
    """Return the module of a claim. Raises ClaimError for a name that is none."""
    if name not in claims.NAMES:
        raise ClaimError(f"no claim {name!r}; there are {', '.join(claims.NAMES)}")
    store.judgement(name)  # of the files as they are now, before they are read
    module: Any = importlib.import_module(store.module_of(name))
    return module


@dataclass(frozen=True)
class Plan:
    """What is run. traces : {bundled name: folder of a trace to take instead}. out : the folder of results."""

    quick: bool = False
    seed: int = 0
    traces: Mapping[str, str] = field(default_factory=dict)
    out: Path = OUT

    def tasks(self, name: str) -> list[store.Task]:
        """Return the tasks of a claim, one a setting."""
        module = experiment(name)
        settings: Sequence[Setting] = module.QUICK if self.quick else module.SETTINGS
        return [(name, self._with_own_trace(setting), self.seed) for setting in settings]

    def _with_own_trace(self, setting: Setting) -> Setting:
        own = self.traces.get(str(setting.get("trace")))
        return setting if own is None else {**setting, "trace": own}

    def done(self, name: str) -> tuple[int, int]:
        """Return how many of a claim's results are there, and how many there are in all."""
        tasks = self.tasks(name)
        return sum(store.load(self.out, task) is not None for task in tasks), len(tasks)

    def command(self, *names: str) -> str:
        """Return the command line that computes claims of this plan."""
        words = ["python -m experiments run", *names]
        words += ["--quick"] if self.quick else []
        words += [f"--seed {self.seed}"] if self.seed else []
        words += [f"--trace {name}={folder}" for name, folder in self.traces.items()]
        return " ".join(words + ([f"--out {self.out}"] if self.out != OUT else []))


def execute(task: store.Task, code: str, traces: Mapping[str, Any]) -> Arrays:
    """Return what a task gives; runs in a worker. Raises ClaimError where the worker has other code or other traces.

    A worker keeps the modules that it has imported and the traces that it has opened: after an edit one that lives on
    would give the old ones' results.
    """
    name, setting, seed = task
    if store.code(name) != code or store.traces(task) != traces:
        what = "sources" if store.code(name) != code else "traces"
        raise ClaimError(
            f"claim {name}: its {what} changed after this run or this worker began; start the workers anew, then the "
            "same command goes on"
        )
    return experiment(name).run(setting, seed)


def _said(task: store.Task) -> str:
    values = ", ".join(f"{key} {value}" for key, value in task[1].items())
    return f"claim {task[0]}: {values}"


def run_claims(
    names: Sequence[str],
    plan: Plan,
    start: Callable[[], AbstractContextManager[Engine]],
    advance: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> int:
    """Compute the results that are missing, keeping each when it is there; return how many were computed.

    start : gives the engine, see `experiments.executors`; not called if nothing is missing. advance : called with
    (claim, results there, results in all) at the beginning and whenever a task ends. A task that raises ends the run
    when those beside it have ended; what was computed is kept, and the same call goes on.
    """
    missing: list[store.Task] = []
    done, total = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for name in names:
        _equipped(name)
    for name in names:
        tasks = plan.tasks(name)
        here = [task for task in tasks if store.load(plan.out, task) is None]
        missing += here
        total[name], done[name] = len(tasks), len(tasks) - len(here)
        advance(name, done[name], total[name])
    if missing:
        with start() as engine:
            for task, arrays in _ended(missing, engine):
                store.save(plan.out, task, arrays)
                done[task[0]] += 1
                advance(task[0], done[task[0]], total[task[0]])
    return len(missing)


def _equipped(name: str) -> None:
    """Raise ClaimError where a package is not installed that a claim needs: before the run, not in its midst."""
    for extra, packages in store.needs(name).items():
        if absent := [package for package in packages if not store.version(package)]:
            raise ClaimError(
                f"claim {name} needs {' and '.join(absent)}, not installed: pip install -c constraints.txt -e "
                f"'.[{extra}]'"
            )


def _ended(tasks: Sequence[store.Task], engine: Engine) -> Iterator[tuple[store.Task, Arrays]]:
    """Yield (task, what it gives) as tasks end."""
    try:
        yield from as_they_end(
            tasks,
            lambda task: engine.submit(__name__, "execute", task, store.code(task[0]), store.traces(task)),
            at_once=engine.at_once,
            name=_said,
        )
    except BrokenExecutor as error:
        raise ClaimError(
            "a worker process was ended from outside (for want of memory?); what was computed is kept, the same "
            "command goes on, and fewer --workers need less memory"
        ) from error


def results_of(name: str, plan: Plan) -> Results:
    """Return the results of a claim. Raises MissingError, with the command that computes them, unless all are there."""
    found = [(task, store.load(plan.out, task)) for task in plan.tasks(name)]
    missing = sum(arrays is None for _, arrays in found)
    if missing:
        raise MissingError(f"claim {name}: {missing} of {len(found)} results are missing: {plan.command(name)}")
    return Results([Result(task[1], arrays) for task, arrays in found if arrays is not None])


def verdicts(name: str, plan: Plan) -> list[Finding]:
    """Return the findings of a claim from results that are there. Answers are kept beside the results."""
    results, tasks, module = results_of(name, plan), plan.tasks(name), experiment(name)
    answers: Mapping[str, Answer] | None = store.load_answers(plan.out, tasks)
    if answers is None:
        answers = module.check(results)
        found = judged(name, module.CLAIM, answers)
        store.save_answers(plan.out, tasks, answers)
        return found
    return judged(name, module.CLAIM, answers)


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Hold the folder of results for this run. Raises ClaimError while another run holds it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ClaimError(
                f"{out}: another run writes its results there; wait for it, or use another --out"
            ) from None
        yield
