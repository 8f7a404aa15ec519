"""Progress bars for work that is counted in bytes; silent unless on a terminal or asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class ByteProgress:
    """Context manager; ``enabled=None`` shows bars if stderr is a terminal."""

    def __init__(self, enabled: bool | None = None) -> None:
        if enabled is None:
            enabled = sys.stderr.isatty()
        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not enabled,
        )

    def __enter__(self) -> ByteProgress:
        self._progress.start()
        return self

    def __exit__(self, *_exception) -> None:
        self._progress.stop()

    def task(self, description: str, total_bytes: int) -> Callable[[int], None]:
        """A new bar; returns the function to call with each number of bytes done."""
        task = self._progress.add_task(description, total=total_bytes)
        return lambda num_bytes: self._progress.advance(task, num_bytes)
