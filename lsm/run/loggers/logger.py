"""The interface of loggers, and the facts that one is opened with."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

log = logging.getLogger(__name__)

Kind = Literal["step", "epoch"]


@dataclass(frozen=True)
class LoggedRun:
    """A run whose numbers are logged, from a position on. A logger drops its points of later
    iterations, so that a resumed run has each one once."""

    directory: Path
    epoch: int
    """Epochs that have ended."""
    iteration: int
    """Iterations since the start of the run."""
    settings: Mapping[str, Any]
    """The configuration by section."""

    @property
    def is_new(self) -> bool:
        """True at the start of a run."""
        return self.epoch == self.iteration == 0


class Logger(ABC):
    """Takes numbers by name, such as ``loss``. Epochs count from 1, iterations of a run from 0.

    A logger writes to files or to another process. It raises RuntimeError, with the remedy, where
    a file cannot be written; a server that is gone is a warning.
    """

    is_lost = False
    """True once its files were removed in mid-run: it takes nothing more."""

    @abstractmethod
    def add(self, kind: Kind, at: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of an iteration (``step``) or, at its end, of an epoch."""

    @abstractmethod
    def flush(self) -> None:
        """Passes all numbers so far on."""

    @abstractmethod
    def close(self) -> None:
        """Flushes, and ends the logger."""


@contextmanager
def writing(path: Path, key: str, remedy: str) -> Iterator[None]:
    """A context that turns errors of the file system into RuntimeErrors with a remedy."""
    try:
        yield
    except OSError as error:
        raise RuntimeError(
            f"{key}: cannot write {path} ({error.strerror}); make room there, or {remedy}; "
            "the last checkpoint resumes"
        ) from error


@contextmanager
def writing_log(path: Path) -> Iterator[None]:
    """writing() of a logger's files."""
    with writing(path, "metrics.loggers", f"leave {path.stem} out"):
        yield


def say_damaged(path: Path, num_lines: int) -> None:
    """Warns of damaged lines of a file, which a run that continues leaves out."""
    if num_lines:
        log.warning("%s: %d damaged lines are left out; is the disk sound?", path, num_lines)
