"""Signals that ask a run to stop: SIGTERM (also preemption by SLURM) and SIGUSR1 (before a limit).

They take effect at the end of the iteration, when all ranks know of them: a checkpoint is written
and the process ends with EXIT_STOPPED, so that the same command continues the run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_STOPPED = 75
"""Exit status of a run that was stopped and can be continued (EX_TEMPFAIL of sysexits.h)."""

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_received: signal.Signals | None = None


class Stopped(Exception):
    """The run was asked to stop and has written what it needs to continue."""


def requested() -> signal.Signals | None:
    """The signal that asked this rank to stop, if any did."""
    return _received


@contextmanager
def on_signals() -> Iterator[None]:
    """Signals inside are requests that ``requested`` tells.

    After Stopped they still are: torchrun and srun send more of them to ranks that are about to
    end. Does nothing outside the main thread, where Python takes no handlers.
    """
    global _received
    _received = None
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _receive) for number in _SIGNALS}
    try:
        yield
    except Stopped:
        before.clear()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _receive(number: int, _frame: FrameType | None) -> None:
    global _received
    _received = signal.Signals(number)
