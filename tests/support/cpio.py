"""Archives in the format "newc" (Linux, driver-api/early-userspace/buffer-format), of which an
initramfs may be several, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

_DIRECTORY, _FILE = 0o040755, 0o100755


def write_archive(out: BinaryIO, files: Mapping[str, bytes | Path]) -> None:
    """Writes an archive of ``files``, by their paths in it without a leading slash. A Path is the
    file with the content, whose time of change is kept, so that Python takes its bytecode."""
    folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    number = 0
    for name in sorted(folders):
        number += 1
        _write_member(out, number, name, _DIRECTORY, b"", 0)
    for name, source in files.items():
        number += 1
        is_path = isinstance(source, Path)
        data = source.read_bytes() if is_path else source
        _write_member(out, number, name, _FILE, data, int(source.stat().st_mtime) if is_path else 0)
    _write_member(out, number + 1, "TRAILER!!!", 0, b"", 0)


def _write_member(
    out: BinaryIO, number: int, name: str, mode: int, data: bytes, mtime: int
) -> None:
    path = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, mtime, len(data), 0, 0, 0, 0, len(path), 0]
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
    out.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))
