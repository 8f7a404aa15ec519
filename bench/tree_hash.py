"""A hash of the files that a measurement depends on: the same with the repository's history and
without it, and the same after a change of the documentation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("bench", "cache", "cmake", "comm", "configs", "examples", "kernels", "launch", "lsm")
ROOMS += ("tests", "CMakeLists.txt", "Makefile", "constraints.txt", "pyproject.toml")
# Products and records, which differ from machine to machine.
LEFT_OUT = ("__pycache__", ".pytest_cache", ".hypothesis", "results")
SUFFIXES_LEFT_OUT = (".so", ".pyc", ".md")


def files_of(root: Path) -> Iterator[Path]:
    """The files, in the order of their names."""
    for room in sorted(ROOMS):
        top = root / room
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            is_product = path.suffix in SUFFIXES_LEFT_OUT or any(
                part in LEFT_OUT for part in path.relative_to(root).parts
            )
            if path.is_file() and not is_product:
                yield path


def tree_hash(root: Path) -> str:
    """Sixteen hexadecimal digits of names and contents."""
    whole = hashlib.sha256()
    for path in files_of(root):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return whole.hexdigest()[:16]
