"""Compiled kernels: one decorator, one cache folder that cannot go stale, and the way back to plain Python.

Numba's on-disk cache looks only at the file that holds a function. A kernel that calls a helper of another
file, or reads a constant imported from one, would keep running the old code after an edit. The cache folder is
therefore named by a hash of every source file of the package and of the versions and CPU that shape the code.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import threading
import types as python_types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba.core import config as _numba_config

config: Any = _numba_config  # its names are set at run time

__all__ = ["cache_folder", "compiled_once", "kernel", "plain", "source_hash", "uncompiled"]

_PACKAGE = Path(__file__).resolve().parent


def source_hash(folder: Path = _PACKAGE) -> str:
    """Return 16 hex digits that change with any source file below `folder`, with numba, numpy, Python or the CPU."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for part in (
        *(importlib.metadata.version(package) for package in ("numba", "llvmlite", "numpy")),
        platform.python_version(),
        llvmlite.binding.get_host_cpu_name(),
        llvmlite.binding.get_host_cpu_features().flatten(),
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of this source's compiled kernels, below NUMBA_CACHE_DIR or the user's cache folder.

    None, with a warning, where nothing can be written: kernels are then compiled anew in each process. Numba would fall
    back to a folder whose name knows nothing of our other files, and might run stale code.
    """
    base = config.CACHE_DIR or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hedgelab")
    folder = Path(base) / f"kernels-{source_hash()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)  # being allowed to, by the file modes, is not enough everywhere
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass
    there = next((parent for parent in (folder, *folder.parents) if os.path.lexists(parent)), folder)
    warnings.warn(f"kernels are compiled anew in each process: cannot write to {there}", stacklevel=2)
    return None


@contextmanager
def _our_cache_folder() -> Iterator[None]:
    # numba reads the folder when a function is decorated; set it for our functions only
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder() or before)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` without Python objects, strictly: no fast-math flag, division by zero as in numpy.

    Strict code gives the same bits as the plain Python function, see `uncompiled`. Functions of this package are cached
    on disk. Those of other modules (a prototype in a user's file) are compiled anew in each process, because no cache
    could see edits in what they import, and check array bounds.
    """
    if function.__module__.split(".")[0] != "hedgelab":
        return numba.njit(function, error_model="numpy", nogil=True, boundscheck=True)
    with _our_cache_folder():
        return numba.njit(function, cache=cache_folder() is not None, error_model="numpy", nogil=True)


_COMPILING = threading.Lock()


def compiled_once(function: Any, signature: Any) -> Any:
    """Return `function` compiled for this signature, or from the cache, and for no other; threads wait for one another.

    The plain function where compilation is switched off.
    """
    if hasattr(function, "compile"):
        with _COMPILING:
            if not function.overloads:
                function.compile(signature)
                function.disable_compile()
    return function


def plain(substitute: Callable[..., Any]) -> Callable[[Any], Any]:
    """Name `substitute` as the plain Python meaning of a compiler intrinsic."""

    def mark(intrinsic: Any) -> Any:
        if config.DISABLE_JIT:
            return substitute
        _SUBSTITUTES[intrinsic] = substitute
        return intrinsic

    return mark


_SUBSTITUTES: dict[Any, Callable[..., Any]] = {}


def uncompiled(function: Any) -> Callable[..., Any]:
    """Return `function` as plain Python, and with it every compiled helper that it reaches through its globals.

    >>> from hedgelab.vexp import vexp
    >>> uncompiled(vexp)(0.0)
    1.0
    """
    return _uncompiled(function, {})


def _uncompiled(function: Any, done: dict[Any, Callable[..., Any]]) -> Callable[..., Any]:
    if function in _SUBSTITUTES:
        return _SUBSTITUTES[function]
    python = getattr(function, "py_func", function)
    if python in done:
        return done[python]
    if not isinstance(python, python_types.FunctionType):
        return python
    names = dict(python.__globals__)
    cells = tuple(python_types.CellType() for _ in python.__closure__ or ())
    copy = python_types.FunctionType(python.__code__, names, python.__name__, python.__defaults__, cells)
    copy.__kwdefaults__ = python.__kwdefaults__
    done[python] = copy
    for cell, given in zip(cells, python.__closure__ or (), strict=True):
        value = given.cell_contents
        cell.cell_contents = _uncompiled(value, done) if _is_compiled(value) else value
    for name in python.__code__.co_names:
        value = names.get(name)
        if _is_compiled(value):
            names[name] = _uncompiled(value, done)
        elif isinstance(value, python_types.ModuleType) and value.__name__.split(".")[0] == "hedgelab":
            raise TypeError(f"{python.__name__} reaches helpers through module {value.__name__}: import them by name")
    return copy


def _is_compiled(value: Any) -> bool:
    return hasattr(value, "py_func") or (value.__hash__ is not None and value in _SUBSTITUTES)
