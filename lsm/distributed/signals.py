"""Signals that ask a run to stop: SIGTERM (also preemption by SLURM) and SIGUSR1 (before a limit).

They take effect at the end of the optimiser step, when all ranks know of them. Training then
writes a checkpoint and exits with EXIT_STOPPED, and the same command continues the run. A run that
plans its memory ends between two of the batches that it tries.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

EXIT_STOPPED = 75
"""Exit status of a stopped run that can be continued (EX_TEMPFAIL of sysexits.h)."""

STOP_FILE = "LSM_STOP_FILE"
"""The variable with the file that stopped ranks make, for a launcher of one machine's ranks."""

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_received: signal.Signals | None = None


class Stopped(Exception):
    """A signal stopped the run, which has written its checkpoint, if it had begun to train."""


def exit_status() -> int:
    """That of a rank that a signal stopped. A launcher that starts failed ranks again and waits for
    STOP_FILE has EXIT_STOPPED itself, and its ranks have 0."""
    path = os.environ.get(STOP_FILE)
    if path is None:
        return EXIT_STOPPED
    try:
        Path(path).touch()
    except OSError:  # the launcher has ended
        return EXIT_STOPPED
    # torchrun on several machines would wait for machines that do not end.
    return 0 if os.environ.get("GROUP_WORLD_SIZE") == "1" else EXIT_STOPPED


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
