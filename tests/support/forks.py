"""Forked children that have to end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable


def exit_status(pid: int, secs: float = 30) -> int:
    """The status of a child; a negative signal if it had to be killed, as it did not end."""
    deadline = time.monotonic() + secs
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_child(body: Callable[[], object], secs: float = 30) -> int:
    """As exit_status(), of a child that calls ``body``: 0 if it returns something true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if body() else 1
        finally:
            os._exit(status)
    return exit_status(pid, secs)
