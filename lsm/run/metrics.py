"""Records of a run: JSON lines, loggers, a progress bar; on rank 0 only."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from lsm.run.loggers.logger import LoggedRun, Logger, say_damaged, writing
from lsm.run.loggers.open import LoggerName, check_installed, open_logger
from lsm.run.options import MetricsOptions

logger = logging.getLogger(__name__)


class JsonLines:
    """``metrics.jsonl``: one object per iteration (``kind: step``) and per epoch (``kind: epoch``).
    Epochs count from 1, iterations of an epoch from 0.

    Opened at a position, keeps the lines before it and drops the rest, so that a resumed run has
    each iteration once.
    """

    def __init__(self, path: Path, position: tuple[int, int]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        with _writing_lines(path):
            with open(temporary, "wb") as file:
                file.writelines(_lines_before(path, position))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        self._file: TextIO = open(path, "a")  # noqa: SIM115 (closed in close)

    def write(self, record: dict[str, Any]) -> None:
        """Appends one line; floats keep every bit."""
        with _writing_lines(self._path):
            self._file.write(json.dumps(record) + "\n")

    def flush(self) -> None:
        """Passes the lines so far to the operating system."""
        with _writing_lines(self._path):
            self._file.flush()

    def sync(self) -> None:
        """Makes the lines so far durable, as a checkpoint is that is written after them."""
        with _writing_lines(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with _writing_lines(self._path):
            self._file.close()


def _lines_before(path: Path, position: tuple[int, int]) -> Iterator[bytes]:
    """Whole lines of iterations before ``position`` (epoch, iteration), and of epochs before it.

    ``position`` counts epochs from 0, as checkpoints do. Lines of earlier versions counted so, too;
    they are rewritten to count from 1. Warns of damaged lines, which are left out.
    """
    if not path.exists():
        return
    first_epoch: int | None = None
    num_damaged = 0
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # a kill cut the last line short
            try:
                record = json.loads(line)
                epoch, is_step = record["epoch"], record["kind"] == "step"
                if first_epoch is None:
                    first_epoch = min(1, epoch)
                at = (epoch - first_epoch, record["iteration"] if is_step else 0)
                before = at < position if is_step else at[0] < position[0]
            except (ValueError, KeyError, TypeError, RecursionError):
                num_damaged += 1
                continue
            if before:
                if first_epoch < 1:
                    line = json.dumps(record | {"epoch": at[0] + 1}).encode() + b"\n"
                yield line
    say_damaged(path, num_damaged)


def _scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The known numbers of a record, and those of the records in it as ``name/name``, without the
    epoch's."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{prefix}{name}/")
        elif name != "epoch" and value is not None:
            yield f"{prefix}{name}", value


def _writing_lines(path: Path) -> AbstractContextManager[None]:
    return writing(path, "metrics.jsonl", "set metrics.jsonl=false")


class Metrics:
    """Records steps and epochs in the files of ``config``. Does nothing on ranks other than 0."""

    def __init__(
        self,
        config: MetricsOptions,
        directory: Path,
        *,
        main: bool,
        epochs: int,
        iterations: int,
        iterations_before: int | None = None,
        position: tuple[int, int],
        step_scalars: Sequence[str],
        in_words: Callable[[dict[str, Any]], str],
        settings: Mapping[str, Any],
        note: Callable[[str], None] | None = None,
    ) -> None:
        """``iterations``: of the epoch. ``iterations_before``: of all epochs before it; None: each
        has as many. ``position``: (epoch, iteration) that training starts from, both counted from
        0. ``step_scalars``: of a step's record, for the loggers. ``in_words``: of an epoch's
        record, all but the loss and the time. ``settings``: of the run, for the loggers. ``note``:
        takes each printed line."""
        self._step_scalars, self._in_words = step_scalars, in_words
        self._note = note
        self._log_every = config.log_every
        self._iterations, self._in_epoch = iterations, position[1]
        self._before = position[0] * iterations if iterations_before is None else iterations_before
        self._epochs = epochs
        self._console = Console(file=sys.stderr, highlight=False)
        self._main = main
        self._config, self._directory, self._settings = config, directory, settings
        self._lines: JsonLines | None = None
        self._loggers: dict[LoggerName, Logger] = {}
        self._rows, self._misses = 0, 0
        if main:
            check_installed(config.loggers)
            self._open(position)
        show = config.progress == "on" or (config.progress == "auto" and sys.stderr.isatty())
        self._bar = _progress_bar(self._console) if main and show else None
        self._task: TaskID | None = None

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, _type: object, exception: BaseException | None, _traceback: object) -> None:
        # The original error tells more than a failure to close files after it.
        with suppress(RuntimeError) if exception is not None else nullcontext():
            self.close()

    def reopen(self, position: tuple[int, int]) -> None:
        """Creates the files again, after their directory was removed."""
        if self._main:
            with suppress(RuntimeError):
                self._close_files()
            self._open(position)

    def reopen_lost(self, position: tuple[int, int]) -> None:
        """Creates the files of a logger again, if they alone were removed."""
        for name, each in self._loggers.items():
            if each.is_lost:
                logger.warning(
                    "metrics.loggers: %s was removed while the run was writing to it; it is "
                    "created again, and its contents are lost",
                    self._directory / name,
                )
                self._loggers[name] = open_logger(name, self._logged(position))

    def say(self, text: str) -> None:
        """Prints a line on standard error of rank 0."""
        if self._main:
            self._console.print(text, markup=False, soft_wrap=True)
            if self._note is not None:
                self._note(text)

    def begin(self, what: str, total: int, completed: int = 0) -> None:
        """Starts a progress bar for ``total`` iterations of ``what``."""
        self._rows, self._misses = 0, 0
        self._iterations = total
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(what, total=total, completed=completed, note="")

    def advance(self, note: str = "") -> None:
        """Advances the progress bar by one iteration."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, note=note)

    def end(self) -> None:
        """Removes the progress bar."""
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
            self._bar.stop()

    def step(self, record: dict[str, Any]) -> None:
        """Records one iteration: epoch, iteration, loss and more."""
        if not self._main:
            return
        if self._lines is not None:
            self._lines.write({"kind": "step", **record})
        self.advance(f"loss {record['loss']:.4f}{self._hits_so_far(record)}")
        self._in_epoch = done = record["iteration"] + 1
        if done % self._log_every and done != self._iterations:
            return
        if self._lines is not None:
            self._lines.flush()
        at = self._before + record["iteration"]
        for each in self._loggers.values():
            each.add("step", at, {name: record[name] for name in self._step_scalars})

    def epoch(self, record: dict[str, Any]) -> None:
        """Records the end of an epoch in every file, and prints a line."""
        if not self._main:
            return
        if self._lines is not None:
            self._lines.write({"kind": "epoch", **record})
            self._lines.flush()
        for each in self._loggers.values():
            each.add("epoch", record["epoch"], dict(_scalars(record)))
            each.flush()
        self._before, self._in_epoch = self._before + self._in_epoch, 0
        self.say(
            f"epoch {record['epoch']:>3}/{self._epochs}  loss {record['loss']:.4f}  "
            f"{self._in_words(record)}{record['seconds']:.2f} s"
        )

    def flush(self) -> None:
        """Makes all records so far durable; passes those of loggers on."""
        if self._lines is not None:
            self._lines.sync()
        for each in self._loggers.values():
            each.flush()

    def close(self) -> None:
        """Flushes and closes every file, and removes the progress bar."""
        if self._bar is not None:
            self._bar.stop()
        self._close_files()

    def _hits_so_far(self, record: dict[str, Any]) -> str:
        """``  hits 93.1%``: the share of the epoch's rows up to here that memory served. "" without
        counts."""
        if "requests" not in record:
            return ""
        self._rows += record["requests"]
        self._misses += record["misses"]
        return f"  hits {1 - self._misses / max(1, self._rows):.1%}"

    def _open(self, position: tuple[int, int]) -> None:
        if self._config.jsonl:
            self._lines = JsonLines(self._directory / "metrics.jsonl", position)
        for name in self._config.loggers:
            self._loggers[name] = open_logger(name, self._logged(position))

    def _logged(self, position: tuple[int, int]) -> LoggedRun:
        epoch, iteration = position
        return LoggedRun(self._directory, epoch, self._before + iteration, self._settings)

    def _close_files(self) -> None:
        loggers, self._loggers = self._loggers, {}
        with ExitStack() as stack:
            for each in loggers.values():
                stack.callback(each.close)
            if self._lines is not None:
                stack.callback(self._lines.close)


class _Rate(ProgressColumn):
    """Iterations per second."""

    def render(self, task: Task) -> Text:
        """``12.3 it/s``; nothing before the second iteration."""
        return Text(f"{task.speed:.1f} it/s" if task.speed else "")


def _progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        _Rate(),
        TextColumn("{task.fields[note]}"),
        console=console,
        transient=True,
    )
