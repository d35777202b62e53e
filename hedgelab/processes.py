"""Tasks through a `concurrent.futures.Executor`: the local pool, and a queue that keeps what is done when one fails."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["as_they_end", "local_pool"]

T = TypeVar("T")


@contextmanager
def local_pool(workers: int) -> Iterator[Executor]:
    """Give an executor of so many processes, which end when the block is left by an error, or when this process dies.

    Ctrl-C is this process's business: the workers ignore it.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _begin_worker, (os.getpid(),))
    try:
        yield pool
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def as_they_end(
    tasks: Sequence[T],
    submit: Callable[[T], Future[Any]],
    *,
    at_once: int,
    name: Callable[[T], str],
    running: Callable[[list[T]], None] = lambda _: None,
) -> Iterator[tuple[T, Any]]:
    """Yield (task, its result) as tasks end, at most `at_once` of them submitted at a time, in their order.

    When a task fails no further one begins, those that run are yielded when they end, and then its error is raised with
    a note that names it. running : told which tasks run, whenever that changes
    """
    waiting, under_way = deque(tasks), dict[Future[Any], T]()
    failure: Exception | None = None
    while under_way or (waiting and failure is None):
        while waiting and len(under_way) < at_once and failure is None:
            task = waiting.popleft()
            under_way[submit(task)] = task
        running(list(under_way.values()))
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            task = under_way.pop(future)
            try:
                result = future.result()
            except BrokenExecutor:
                raise
            except Exception as error:  # the others shall end first: what they did is kept
                error.add_note(f"in {name(task)}")
                failure = failure or error
            else:
                yield task, result
    if failure is not None:
        raise failure
