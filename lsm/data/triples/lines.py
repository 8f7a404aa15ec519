"""Reads lines of cells from text: tabs, blanks or CSV, plain or gzip; keeps count of bad lines."""

from __future__ import annotations

import csv
import gzip
import logging
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lsm.core.arguments import option

log = logging.getLogger(__name__)

_MOST_LINE_BYTES = 1 << 20
_MOST_SHOWN = 5
_MOST_TEXT = 200

Line = tuple[int, str, list[str]]
"""Number from 1, text, cells."""


@dataclass
class Malformed:
    """Counts malformed lines, or refuses the first."""

    skip: bool = False
    count: int = 0

    def note(self, path: Path, where: str, text: str, why: str) -> None:
        """Raises ValueError with file, place and text of a line; with ``skip``, logs the first few
        and counts."""
        message = f"{path}: {where}: {why}: {text[:_MOST_TEXT]!r}"
        if not self.skip:
            raise ValueError(f"{message}; correct it or pass {option('skip_malformed')}")
        if self.count < _MOST_SHOWN:
            log.warning("%s; skipped", message)
        self.count += 1


class Lines:
    """Iterates over the lines of ``path`` that are neither blank nor begin with ``comment``."""

    def __init__(
        self, path: Path, *, is_csv: bool, header: bool, comment: str | None, malformed: Malformed
    ) -> None:
        """``header``: the first line names the columns."""
        self._path = path
        self._is_csv = is_csv
        self._comment = comment
        self._malformed = malformed
        self._number = 0
        self._in_record = False
        self._cells = self._csv_cells() if is_csv else self._split_cells()
        self.header: list[str] | None = None
        if header:
            self.header = next((cells for _, _, cells in self._cells), [])

    def __iter__(self) -> Iterator[Line]:
        return self._cells

    def _split_cells(self) -> Iterator[Line]:
        separator: str | None = None
        for number, line in enumerate(self._texts()):
            if number == 0 and "\t" in line:
                separator = "\t"  # else: blanks
            text = line.rstrip("\r\n")
            yield self._number, text, text.split(separator)

    def _csv_cells(self) -> Iterator[Line]:
        try:
            for cells in csv.reader(self._texts(), strict=True):
                self._in_record = False
                yield self._number, ",".join(cells), cells
        except csv.Error as error:
            raise ValueError(f"{self._path}: line {self._number}: bad CSV: {error}") from None

    def _texts(self) -> Iterator[str]:
        """Lines with their ends, but for blank ones and comments outside of quoted cells."""
        for line in read_lines(self._path):
            self._number += 1
            is_inside = self._is_csv and self._in_record
            if not (is_inside or line.strip()):
                continue
            try:
                text = line.decode("utf-8-sig" if self._number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                text = line.rstrip(b"\r\n").decode(errors="backslashreplace")
                why = f"not UTF-8 ({error.reason})"
                self._malformed.note(self._path, f"line {self._number}", text, why)
                continue
            if is_inside or not (self._comment and text.startswith(self._comment)):
                self._in_record = True
                yield text


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, unpacked if it is named .gz. ValueError for a line of a MiB and for
    damaged gzip."""
    try:
        with open_packed(path) as file:
            number = 0
            while line := file.readline(_MOST_LINE_BYTES + 1):
                number += 1
                if len(line) > _MOST_LINE_BYTES:
                    raise ValueError(
                        f"{path}: line {number}: expected at most {_MOST_LINE_BYTES} bytes; is it "
                        "text?"
                    )
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: not a whole gzip file ({error})") from None


def open_packed(path: Path) -> BinaryIO:
    """``path`` for reading, unpacked if it is named .gz."""
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return open(path, "rb", buffering=1 << 20)
