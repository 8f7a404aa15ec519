"""Reads of text, and from any byte of a file."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import numpy as np

_MAX_VIEWS = os.sysconf("SC_IOV_MAX")


def read_utf8(path: Path) -> str:
    """The text of a file, without a byte order mark, with "\\n" at the ends of lines. Raises
    ValueError, which names the file and the line, for text that is not UTF-8."""
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = content[error.start : error.start + 1]
        raise ValueError(
            f"{path}: line {line}: expected text in UTF-8, got the byte {found!r} "
            f"({error.reason}); convert the file, such as with `iconv -f latin1 -t utf-8`"
        ) from None


def read_exactly(fd: int, out: np.ndarray, offset: int) -> None:
    """Fills the C-contiguous ``out`` from byte ``offset`` of ``fd``. Raises ValueError at end of
    file."""
    read_scattered(fd, [out.reshape(-1).view(np.uint8).data], offset)


def read_scattered(fd: int, views: list[memoryview], offset: int) -> None:
    """Fills ``views``, one after the other, from byte ``offset`` of ``fd``. Raises ValueError at
    end of file."""
    pending = [view for view in views if len(view)]
    first = 0
    while first < len(pending):
        size = os.preadv(fd, pending[first : first + _MAX_VIEWS], offset)
        if size == 0:
            missing = sum(len(view) for view in pending[first:])
            raise ValueError(f"file ends at byte {offset}, expected {missing} more")
        offset += size
        while size and size >= len(pending[first]):
            size -= len(pending[first])
            first += 1
        if size:
            pending[first] = pending[first][size:]
