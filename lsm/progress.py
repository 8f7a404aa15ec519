"""A progress bar for work that is counted in items; silent unless on a terminal or asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def counting(
    description: str, total: int, enabled: bool | None = None
) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while the block runs; gives the function that advances it.

    ``enabled=None`` shows the bar if standard error is a terminal.
    """
    bar = Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (sys.stderr.isatty() if enabled is None else enabled),
    )
    with bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)
