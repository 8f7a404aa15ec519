"""Signals that ask a run to stop: SIGTERM (also preemption by SLURM) and SIGUSR1 (before a limit).

They take effect at the end of the optimiser step, when all ranks know of them. Training then
writes a checkpoint and exits with EXIT_STOPPED, and the same command continues the run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_STOPPED = 75
"""Exit status of a stopped run that can be continued (EX_TEMPFAIL of sysexits.h)."""

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_received: signal.Signals | None = None


class Stopped(Exception):
    """A signal stopped the run, which has written its checkpoint."""


def requested() -> signal.Signals | None:
    """The signal that asked this rank to stop, or None."""
    return _received


@contextmanager
def on_signals() -> Iterator[None]:
    """A context in which signals are requests, returned by ``requested``.

    They stay requests after Stopped: torchrun and srun send more of them to ranks that are about to
    end. Does nothing outside the main thread, where Python allows no handlers.
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
