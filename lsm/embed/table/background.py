"""Moves of partitions, in parallel with the thread that trains or evaluates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

_GRACE_SECS = 5.0

Result = TypeVar("Result")


def in_thread(body: Callable[[], Result]) -> Future[Result]:
    """The result of ``body``, run by a thread of its own that does not keep the process alive."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            result = body()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="lsm-partitions", daemon=True).start()
    return future


def result_of(moves: Future[Result], timeout_secs: float) -> Result:
    """Blocks until ``moves`` have ended; returns their result, or raises their error. Raises
    TimeoutError if they are stuck in a system call for longer than ``timeout_secs``, which is their
    own time-out."""
    limit = timeout_secs + _GRACE_SECS
    if not wait([moves], limit).done:
        raise TimeoutError(
            f"partitions were not moved in {limit:g} s (storage.timeout_secs): the disk does not "
            "answer"
        )
    return moves.result()
