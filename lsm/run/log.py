"""The log of a run: logged and printed lines, in ``run.log`` of its directory."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TextIO

LOG_NAME = "run.log"

_PACKAGE = logging.getLogger("lsm")


class RunLog(logging.Handler):
    """Context manager that keeps the package's log messages, and writes them to a file as soon as
    ``open`` names its directory. While it is entered, the package logs details (level DEBUG), too.

    A line is the local time, the level and the message. A file that cannot be written is given up
    with a warning: a log is not worth the end of a run.
    """

    def __init__(self, *, main: bool = True) -> None:
        """``main``: False on a rank that writes no files; it keeps nothing."""
        super().__init__()
        self._main = main
        self._held: list[str] | None = []
        self._file: TextIO | None = None
        self._level_before = logging.NOTSET

    def __enter__(self) -> RunLog:
        if self._main:
            self._level_before = _PACKAGE.level
            _PACKAGE.setLevel(logging.DEBUG)
            _PACKAGE.addHandler(self)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._main:
            _PACKAGE.removeHandler(self)
            _PACKAGE.setLevel(self._level_before)
        self.close()

    def open(self, directory: Path, *, anew: bool = False) -> None:
        """Appends to the log in ``directory`` from now on, the messages that were kept first.
        ``anew``: replaces the log there."""
        self._close_file()
        held, self._held = self._held or [], None
        try:
            self._file = open(directory / LOG_NAME, "w" if anew else "a", encoding="utf-8")  # noqa: SIM115 (closed in close)
        except OSError as error:
            self._give_up(error)
        for line in held:
            self._write(line)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a message of the package."""
        self.note(record.getMessage(), record.levelname)

    def note(self, text: str, level: str = "INFO") -> None:
        """Writes a line that was printed and not logged."""
        if self._main:
            time = datetime.now().astimezone().isoformat(timespec="milliseconds")
            self._write(f"{time} {level} {text}\n")

    def close(self) -> None:
        """Closes the file."""
        self._close_file()
        super().close()

    def _write(self, line: str) -> None:
        if self._held is not None:
            self._held.append(line)
        elif self._file is not None:
            try:
                self._file.write(line)
                self._file.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._close_file()
        _PACKAGE.warning(
            "run.dir: cannot write %s (%s); the run goes on without it", LOG_NAME, error.strerror
        )

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # the rest of a line that could not be written
                file.close()
