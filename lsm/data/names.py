"""Files of names: lines of id, tab, name, in the order of ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lsm.data.sink import FileSink

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ESCAPING = str.maketrans(_ESCAPES)
_UNESCAPES = {escaped[1]: raw for raw, escaped in _ESCAPES.items()}
_NAMES_AT_ONCE = 1 << 14


def write_names(sink: FileSink, names: Iterable[str]) -> None:
    """Writes the ``names`` of ids 0, 1, ... and closes ``sink``. Backslash, tab and line ends in a
    name are escaped as in C."""
    lines: list[str] = []
    with sink:
        for number, name in enumerate(names):
            lines.append(f"{number}\t{name.translate(_ESCAPING)}\n")
            if len(lines) == _NAMES_AT_ONCE:
                sink.write("".join(lines).encode())
                lines = []
        sink.write("".join(lines).encode())


def read_names(path: Path) -> Iterator[str]:
    """The names in ``path``, streamed. ValueError, with the line, unless it is as written."""
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            given, tab, name = line.removesuffix(b"\n").partition(b"\t")
            try:
                if not tab or given != b"%d" % number:
                    raise ValueError
                yield _unescape(name.decode())
            except (ValueError, KeyError, RuntimeError):
                raise ValueError(
                    f"{path}: line {number + 1}: expected {number}, a tab and a name in UTF-8, got "
                    f"{line[:200]!r}; convert the data again"
                ) from None


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces = iter(text)
    return "".join(_UNESCAPES[next(pieces, "")] if piece == "\\" else piece for piece in pieces)
