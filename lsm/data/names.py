"""Files of names: lines of id, tab, name, in the order of ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from lsm.data.close_names import close_names
from lsm.data.sink import FileSink

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ESCAPING = str.maketrans(_ESCAPES)
_UNESCAPES = {escaped[1]: raw for raw, escaped in _ESCAPES.items()}
_NAMES_AT_ONCE = 1 << 14


def write_names(sink: FileSink, names: Iterable[str]) -> None:
    """Writes the ``names`` of ids 0, 1, ... and closes ``sink``. Names are ``escaped`` as in C."""
    lines: list[str] = []
    with sink:
        for number, name in enumerate(names):
            lines.append(f"{number}\t{escaped(name)}\n")
            if len(lines) == _NAMES_AT_ONCE:
                sink.write("".join(lines).encode())
                lines = []
        sink.write("".join(lines).encode())


def read_names(path: Path, ids: Iterable[int] | None = None) -> Iterator[str]:
    """The names of ``ids``, ascending, in ``path``, streamed; None: all names. ValueError, with the
    line, unless it is as written."""
    with open(path, "rb") as file:
        for number, line in enumerate(file) if ids is None else _lines_at(file, ids):
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


def _lines_at(lines: Iterable[bytes], numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The ``lines`` with ``numbers``, ascending; no line behind the last is read."""
    lines, begin = iter(lines), 0
    for number in numbers:
        yield from zip((number,), islice(lines, number - begin, None), strict=False)
        begin = number + 1


def find_names(path: Path, names: Sequence[str]) -> list[int]:
    """The ids of ``names``, by one pass over ``path`` that ends at the last of them. ValueError for
    a name that is not there, with those that are like it; TypeError as look_up_names()."""
    found = look_up_names(path, names)
    if -1 in found:
        name = names[found.index(-1)]
        close = " or ".join(map(repr, close_names(name, read_names(path))))
        remedy = f"; did you mean {close}?" if close else ""
        raise ValueError(f"{name!r}: expected one of the names in {path}{remedy}")
    return found


def look_up_names(path: Path, names: Sequence[str]) -> list[int]:
    """The ids of ``names``, -1 for a name that is not there, by one pass over ``path`` that ends at
    the last of them. TypeError for a string in place of a list of them, and for other elements."""
    if isinstance(names, str):
        raise TypeError(f"names: expected a list of names, got {names!r}; give [{names!r}]")
    keys = [_key_of(name) for name in names]
    ids = dict.fromkeys(keys, -1)
    num_missing = len(ids)
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if num_missing == 0:
                break
            key = line.partition(b"\t")[2]
            if ids.get(key, 0) < 0:
                ids[key] = number
                num_missing -= 1
    return [ids[key] for key in keys]


def _key_of(name: str) -> bytes:
    """The end of the line of ``name``. One that is not UTF-8, as an argument of a command may be,
    has a key that no line has."""
    if not isinstance(name, str):
        raise TypeError(f"names: expected strings, got {name!r}")
    return f"{escaped(name)}\n".encode(errors="surrogatepass")


def names_at(path: Path, ids: Sequence[int]) -> list[str]:
    """The names of ``ids``, by one pass over ``path`` that ends at the last of them."""
    wanted = sorted(set(ids))
    names = dict(zip(wanted, read_names(path, wanted), strict=False))
    return [names[number] for number in ids]


def escaped(name: str) -> str:
    """``name`` without tabs and line ends; one to one."""
    return name.translate(_ESCAPING)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces = iter(text)
    return "".join(_UNESCAPES[next(pieces, "")] if piece == "\\" else piece for piece in pieces)
