"""Log messages of the package on the terminal of a command."""

from __future__ import annotations

import logging
import sys

_PACKAGE = logging.getLogger("lsm")


class _TerminalHandler(logging.Handler):
    """Prints messages on standard error: news as they are, warnings with that word before."""

    rank: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Prints one line. ``sys.stderr`` is looked up each time: progress bars replace it."""
        try:
            before = "warning: " if record.levelno >= logging.WARNING else ""
            before += f"rank {self.rank}: " if self.rank else ""
            print(f"{before}{record.getMessage()}", file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


_HANDLER = _TerminalHandler()


def show_log(rank: int | None = None, *, verbose: bool = False) -> None:
    """Shows the package's messages on standard error until the process ends: news and warnings on
    rank 0 or without ranks, warnings on others. A second call replaces the first.

    Args:
        rank: The rank of this process; None: it is no rank of a job.
        verbose: Show details (level DEBUG), too.
    """
    level = logging.DEBUG if verbose else logging.INFO
    _HANDLER.rank = rank
    _HANDLER.setLevel(logging.WARNING if rank else level)
    _PACKAGE.setLevel(level)
    _PACKAGE.addHandler(_HANDLER)  # once, however often it is called
