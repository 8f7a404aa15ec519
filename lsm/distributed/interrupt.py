"""Ctrl-C as one line and exit status 130, from the first moment of a command to its last.

A KeyboardInterrupt inside an import leaves half a module behind: C extensions crash on it, and
whoever handles the interrupt imports the half once more. Inside ``__del__`` it is printed and lost.
In a function that pydantic calls while it writes a configuration it becomes an error of pydantic's.
So Ctrl-C waits for the end of each. Until the package works on something, there is nothing to
unwind, and Ctrl-C ends the process where it is.

SIGINT is not blocked meanwhile: threads and programs that start then would inherit that.
"""

from __future__ import annotations

import os
import signal
import time
from itertools import takewhile
from types import FrameType

EXIT_INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as shells have it."""

# A launcher passes on a Ctrl-C that its ranks have from the terminal already.
_SAME_SECS = 0.5
_POLL_SECS = 0.02

_process = 0
_first_secs: float | None = None
_prints = True


def watch() -> None:
    """Handles Ctrl-C in this process from now on, unless it is ignored or has a handler.

    The first raises KeyboardInterrupt where the package works, else it ends the process; the
    second ends it at once. A job prints the line once, on rank 0.
    """
    global _process, _prints
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    _process = os.getpid()
    signal.signal(signal.SIGINT, _interrupt)
    from lsm.distributed.environment import rank_in

    _prints = rank_in() in (None, 0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _first_secs
    if os.getpid() != _process:  # a fork
        signal.default_int_handler(number, frame)
    now = time.monotonic()
    if _first_secs is None:
        _first_secs = now
        _deliver(number, frame)
    elif now - _first_secs > _SAME_SECS:
        _end()


def _deliver(_number: int, frame: FrameType | None) -> None:
    frames = _inwards(frame)
    if not any(_works(frame) for frame in takewhile(_is_no_import, frames)):
        _end()
    if not all(_is_no_import(frame) and _passes_on(frame) for frame in frames):
        signal.signal(signal.SIGALRM, _deliver)
        signal.setitimer(signal.ITIMER_REAL, _POLL_SECS)
        return
    raise KeyboardInterrupt


def _inwards(frame: FrameType | None) -> list[FrameType]:
    """The calls of the main thread, the outermost first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _is_no_import(frame: FrameType) -> bool:
    return not frame.f_code.co_filename.startswith("<frozen importlib")


def _passes_on(frame: FrameType) -> bool:
    """False if the caller turns an interrupt into something else."""
    name = frame.f_globals.get("__name__") or ""
    return frame.f_code.co_name != "__del__" and not name.startswith("pydantic.")


def _works(frame: FrameType) -> bool:
    """True in a function of the package that may hold files, processes or shared memory: none of
    the command line's, and none of a package's own module, which only imports."""
    name = frame.f_globals.get("__name__") or ""
    if "__path__" in frame.f_globals or name.startswith(("lsm.cli.", "lsm.__main__", __name__)):
        return False
    return name.startswith("lsm.")


def _end() -> None:
    if _prints:
        os.write(2, b"lsm: interrupted\n")
    os._exit(EXIT_INTERRUPTED)
