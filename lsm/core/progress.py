"""Progress bars for work counted in items or in bytes; silent unless on a terminal or requested."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class _Bars(Progress):
    """Bars on standard error, with ``columns``; ``enabled=None``: if it is a terminal."""

    def __init__(self, enabled: bool | None, *columns: ProgressColumn) -> None:
        super().__init__(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            *columns,
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not (sys.stderr.isatty() if enabled is None else enabled),
        )

    def stop(self) -> None:
        """Ends the display. Without one, rich before 14.3 would print an empty line."""
        if not self.disable:
            super().stop()


@contextmanager
def counting(
    description: str, total: int | None, enabled: bool | None = None
) -> Iterator[Callable[[int], None]]:
    """A context with a progress bar on standard error. Yields the function that advances it.

    ``total=None``: not known. ``enabled=None`` shows the bar if standard error is a terminal.
    """
    with _Bars(enabled, MofNCompleteColumn()) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)


class ByteProgress(_Bars):
    """Context manager; ``enabled=None`` shows bars if stderr is a terminal."""

    def __init__(self, enabled: bool | None = None) -> None:
        super().__init__(enabled, DownloadColumn(binary_units=True), TransferSpeedColumn())

    def task(self, description: str, total_bytes: int) -> Callable[[int], None]:
        """Adds a bar. Returns the function that advances it by a number of bytes."""
        task = self.add_task(description, total=total_bytes)
        return lambda num_bytes: self.advance(task, num_bytes)
