"""Checks that the files of a store are there, with the sizes that ``meta.json`` lists."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lsm.data.format import CONVERT_AGAIN, FileMeta


def check_sizes(store: Path, files: dict[str, FileMeta], remedy: str = CONVERT_AGAIN) -> None:
    """Raises the ``size_problem`` of the first of ``files`` that has one. remedy: of damage."""
    for name, expected in files.items():
        problem = size_problem(store / name, expected, remedy)
        if problem is not None:
            raise problem


def size_problem(
    path: Path, expected: FileMeta, remedy: str = CONVERT_AGAIN
) -> OSError | ValueError | None:
    """The error of a file ``path`` that is missing or of another size; None if it is as
    expected. remedy: of damage."""
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return FileNotFoundError(f"{path}: missing; {_remedy_of_missing(path, remedy)}")
    if not path.is_file():
        return ValueError(f"{path}: not a file; {remedy}")
    if size != expected.bytes:
        what = "truncated" if size < expected.bytes else "too long"
        return ValueError(f"{path}: {what}: expected {expected.bytes} bytes, got {size}; {remedy}")
    return None


def _remedy_of_missing(path: Path, again: str) -> str:
    """The remedy of a file of a store that is missing: its disk first, if it may have its own."""
    if path.is_symlink():
        target = os.readlink(path)
        return f"it is a link to {target}: is that disk not mounted? If the file is lost, {again}"
    if re.fullmatch(r"features\.\d+\.bin", path.name):
        return f"is its disk not mounted, or the link to it gone? If the file is lost, {again}"
    if path.parent.name == "scores":
        return f"compute it again with `lsm data score`: {path.stem}"
    return again
