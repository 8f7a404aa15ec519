"""Work of threads in order, and errors that name the setting of threads that cannot start."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import TypeVar

from lsm import native

T = TypeVar("T")
R = TypeVar("R")

_REMEDY = (
    "lower it, or raise the limit on processes (`ulimit -u`, a container's pids.max) or on memory"
)
# Message of Python's threads, whose error class is not theirs alone.
_PYTHON_MESSAGE = "can't start new thread"


def map_ahead(
    executor: Executor, function: Callable[[T], R], tasks: Iterable[T], ahead: int
) -> Iterator[R]:
    """``map(function, tasks)`` in order, with at most ``ahead`` tasks in flight."""
    pending: deque[Future[R]] = deque()
    for task in tasks:
        pending.append(executor.submit(function, task))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


@contextmanager
def starting(name: str, count: int) -> Iterator[None]:
    """A context in which a thread that cannot be started raises RuntimeError with the setting
    ``name`` and its value ``count``."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, native.ThreadError) and str(error) != _PYTHON_MESSAGE:
            raise
        raise RuntimeError(
            f"{name}: the system refuses to start so many threads, got {count}; {_REMEDY}"
        ) from error


def check_startable(name: str, count: int) -> None:
    """Raises RuntimeError, which names the setting ``name``, unless ``count`` threads can run at a
    time. For libraries such as OpenMP, which end the process if a thread cannot be started.
    """
    release = threading.Event()
    started: list[threading.Thread] = []
    try:
        with starting(name, count):
            for _ in range(count):
                thread = threading.Thread(target=release.wait, daemon=True)
                thread.start()
                started.append(thread)
    finally:
        release.set()
        for thread in started:
            thread.join()
