"""Where tasks run: processes of this machine, the workers of a Dask cluster, or this very process.

Each is a `concurrent.futures.Executor` in a block that ends it; another engine with such an executor (submitit for
Slurm) is one more function here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.remote import call
from experiments.settings import ClaimError
from hedgelab.processes import local_pool

__all__ = ["CHECKOUT", "EXECUTORS", "ByValue", "Engine", "InThisProcess", "dask", "local"]

CHECKOUT = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True)
class Engine:
    """executor : where tasks go. at_once : how many it works on at a time. by_value : workers cannot import ours."""

    executor: Executor
    at_once: int
    by_value: bool = False

    def submit(self, module: str, function: str, *arguments: Any) -> Future[Any]:
        """Run a function of this checkout, known by its module and its name."""
        sent = ByValue(call) if self.by_value else call
        return self.executor.submit(sent, CHECKOUT, module, function, *arguments)


class ByValue:
    """A function of a module that nobody else can import: pickled, it is the function itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call it."""
        return self.function(*arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        """Return how it is pickled."""
        import cloudpickle

        module = sys.modules[self.function.__module__]
        cloudpickle.register_pickle_by_value(module)
        try:
            return cloudpickle.loads, (cloudpickle.dumps(self.function),)
        finally:
            cloudpickle.unregister_pickle_by_value(module)


class InThisProcess(Executor):
    """Runs a task when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run and return a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def local(workers: int | None = None, address: str | None = None) -> Iterator[Engine]:
    """Give so many processes, by default one a core; 0 runs the tasks in this process."""
    if address is not None:
        raise ClaimError("--address goes with --executor dask")
    count = (os.cpu_count() or 1) if workers is None else workers
    if count == 0:
        yield Engine(InThisProcess(), 1)
        return
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # inherited: tasks run side by side, and sums keep their order
    with local_pool(count) as pool:
        yield Engine(pool, count)


@contextmanager
def dask(workers: int | None = None, address: str | None = None) -> Iterator[Engine]:
    """Give the workers of a running cluster, known by its scheduler's address; a worker that dies is made up for.

    Workers need an environment with this package's dependencies, and this checkout at the same path.
    """
    if address is None:
        raise ClaimError("--executor dask needs the scheduler's --address, tcp://HOST:PORT")
    if workers is not None:
        raise ClaimError("--workers goes with --executor local: a cluster has as many as it has")
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise ClaimError(f"{error.name} is not installed: pip install -e '.[dask]'") from None
    try:
        client = distributed.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClaimError(f"no scheduler answers at {address}: {error}") from error
    with client:
        threads = sum(client.nthreads().values())
        if threads == 0:
            raise ClaimError(f"the cluster at {address} has no workers")
        with client.get_executor(pure=False, retries=2) as executor:
            yield Engine(executor, 2 * threads, by_value=True)  # one running and one at hand


EXECUTORS: dict[str, Callable[[int | None, str | None], AbstractContextManager[Engine]]] = {
    "local": local,
    "dask": dask,
}
