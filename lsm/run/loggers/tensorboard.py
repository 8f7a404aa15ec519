"""Events for TensorBoard, in the folder ``tensorboard`` of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lsm.run.loggers.logger import Kind, LoggedRun, Logger, writing_log

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardLogger(Logger):
    """Scalars ``step/NAME`` and ``epoch/NAME``."""

    def __init__(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a slow import

        threading.excepthook = _heard_by_the_caller
        self._path = run.directory / "tensorboard"
        with writing_log(self._path):
            self.writer = SummaryWriter(self._path, purge_step=run.iteration)

    def add(self, kind: Kind, at: int, values: Mapping[str, float]) -> None:
        with self._writing() as writer:
            if writer is not None:
                for name, value in values.items():
                    writer.add_scalar(f"{kind}/{name}", value, at)

    def flush(self) -> None:
        with self._writing() as writer:
            if writer is not None:
                writer.flush()

    def close(self) -> None:
        with self._writing() as writer:
            if writer is not None:
                writer.close()

    @contextmanager
    def _writing(self) -> Iterator[SummaryWriter | None]:
        """A context that writes; None once the files are gone. If somebody removed them,
        TensorBoard's thread may notice before the trainer does."""
        with writing_log(self._path):
            try:
                yield None if self.is_lost else self.writer
            except FileNotFoundError:
                self.is_lost = True


def _heard_by_the_caller(arguments: threading.ExceptHookArgs) -> None:
    """Silences a TensorBoard thread that cannot write its file: the next call raises the error."""
    is_board = type(arguments.thread).__module__.startswith("tensorboard.")
    if not (is_board and issubclass(arguments.exc_type, OSError)):
        threading.__excepthook__(arguments)
