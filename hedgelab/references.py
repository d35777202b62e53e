"""What a command line says: a learner by its name or from a file, and values by name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from hedgelab.algorithms import learner as registered
from hedgelab.contract import Learner

__all__ = ["USER_FILES", "assignments", "learner_of", "number_or_text"]

USER_FILES: set[str] = set()  # files that learners were read from


def learner_of(reference: str, settings: Iterable[str] = ()) -> Learner:
    """Return a learner, registered or FILE.py:NAME, with values NAME=VALUE of its parameters. Raises ValueError.

    >>> learner_of("fixed", ["drafter=lookup"]).name
    'fixed'
    """
    values: dict[str, float | str | None] = {}
    for name, text in assignments(settings, "--set").items():
        # a drafter may be called "1"
        values[name] = text if name == "drafter" else None if text == "none" else number_or_text(text)
    if reference.endswith(".py"):
        raise ValueError(f"a learner in a file is given as FILE.py:NAME, got {reference!r}")
    policy = _from_file(reference) if ":" in reference else registered(reference)
    return policy.with_values(**values)


def assignments(items: Iterable[str], option: str) -> dict[str, str]:
    """Return what NAME=VALUE items say. Raises ValueError, which names the option, for others.

    >>> assignments(["gap=0.1"], "--world")
    {'gap': '0.1'}
    """
    found = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise ValueError(f"{option} needs NAME=VALUE, got {item!r}")
        found[name] = text
    return found


def number_or_text(text: str) -> float | str:
    """Return a number that `text` writes, else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def _from_file(reference: str) -> Learner:
    """Return the Learner called NAME in FILE.py, from "FILE.py:NAME"."""
    file, _, name = reference.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"no file {file!r} (a learner in a file is given as FILE.py:NAME)")
    module_name = f"learners_of_{path.stem}"  # not the bare stem: a file json.py must not become the module json
    specification = importlib.util.spec_from_file_location(module_name, path)
    if specification is None or specification.loader is None:
        raise ValueError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module  # numba finds a function's module by name
    USER_FILES.add(str(path))
    sys.path.insert(0, str(path.resolve().parent))  # so that it finds its neighbours
    try:
        specification.loader.exec_module(module)
    finally:
        del sys.path[0]
    learner = getattr(module, name, None)
    if not isinstance(learner, Learner):
        there = [key for key, value in vars(module).items() if isinstance(value, Learner)]
        raise ValueError(f"{file} has no hedgelab.Learner called {name!r}; it has {', '.join(there) or 'none'}")
    return learner
