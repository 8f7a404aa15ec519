"""Two CSV files of a run: ``steps.csv`` and ``epochs.csv``, a line for each."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsm.run.loggers.logger import Kind, LoggedRun, Logger, say_damaged, writing_log


class CsvLogger(Logger):
    """A column for each number, named in the first line."""

    def __init__(self, run: LoggedRun) -> None:
        # An epoch that begins is not among those that have ended.
        self._tables: dict[Kind, _Table] = {
            "step": _Table(run.directory / "steps.csv", "iteration", run.iteration),
            "epoch": _Table(run.directory / "epochs.csv", "epoch", run.epoch + 1),
        }

    def add(self, kind: Kind, at: int, values: Mapping[str, float]) -> None:
        self._tables[kind].add(at, values)

    def flush(self) -> None:
        for each in self._tables.values():
            each.flush()

    def close(self) -> None:
        self.flush()


class _Table:
    """A CSV file. Lines whose first column is at least ``end`` are dropped when it is opened. Lines
    wait in memory for flush()."""

    def __init__(self, path: Path, first: str, end: int) -> None:
        self._path, self._first, self._end = path, first, end
        self._names: list[str] | None = None
        self._lines: list[Mapping[str, Any]] = []

    def add(self, at: int, values: Mapping[str, Any]) -> None:
        """Adds a line that has ``at`` in the first column."""
        self._lines.append({self._first: at, **values})

    def flush(self) -> None:
        """Writes the lines that wait. A new column makes the file anew."""
        if not self._lines:
            return
        names = list(dict.fromkeys(name for line in self._lines for name in line))
        with writing_log(self._path):
            if self._names is None or not set(names) <= set(self._names):
                self._begin(names)
            with open(self._path, "a", newline="") as file:
                file.write(_in_csv(self._names or names, self._lines))
        self._lines = []

    def _begin(self, names: list[str]) -> None:
        """Writes the lines that are kept, with columns for ``names`` too."""
        kept = self._kept()
        self._names = list(dict.fromkeys([*(kept[0] if kept else []), *names]))
        text = _in_csv(self._names, [dict(zip(self._names, self._names, strict=True)), *kept])
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.write_text(text, newline="")
        os.replace(temporary, self._path)

    def _kept(self) -> list[dict[str, str]]:
        if not self._path.exists():
            return []
        with open(self._path, newline="", encoding="utf-8", errors="replace") as file:
            text = file.read()
        # A kill may have cut the last line short.
        lines = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))
        if self._names is not None:
            return lines  # of this opening
        # DictReader gives None for values and names that a line lacks.
        whole = [line for line in lines if None not in line and None not in line.values()]
        numbers = [_number(line.get(self._first)) for line in whole]
        say_damaged(self._path, len(lines) - len(whole) + numbers.count(math.inf))
        return [line for line, at in zip(whole, numbers, strict=True) if at < self._end]


def _in_csv(names: list[str], lines: list[Any]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, names, restval="").writerows(lines)
    return text.getvalue()


def _number(text: str | None) -> float:
    """The number in a file that may be damaged; infinite if there is none."""
    try:
        number = float(text or "inf")
    except ValueError:
        return math.inf
    return number if math.isfinite(number) else math.inf
