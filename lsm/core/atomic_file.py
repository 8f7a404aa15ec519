"""Files that are whole or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A context with the path of a temporary file, which takes the place of ``path`` at its end. An
    error removes it, and ``path`` stays as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Makes renames and new names in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def half_written(folder: Path, name: str) -> list[Path]:
    """The temporary files of replacing() for files ``name``, a pattern, in ``folder``: those that
    killed processes have left, where no other process writes such files."""
    return list(folder.glob(f".{name}.*.tmp"))


def remove_left(folder: Path, name: str) -> None:
    """Deletes the half_written() files whose process is none of this machine now. Only where no
    other machine writes such files."""
    for path in half_written(folder, name):
        process = path.name.split(".")[-2]
        if process.isdigit() and not Path("/proc", process).exists():
            path.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """As replacing(), of a file that a user named. A link or a pipe, such as /dev/stdout, is
    written in place. Raises OSError, which names ``path`` and the remedy, if it cannot be
    written."""
    in_place = path.is_symlink() or (path.exists() and not path.is_file())
    try:
        with nullcontext(path) if in_place else replacing(path) as place:
            yield place
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot write {path} ({error.strerror}); make room there, or choose another place",
        ) from error


def write_bytes_atomic(path: Path, content: bytes | memoryview) -> None:
    """Writes a file of a run atomically: a temporary file, fsync, rename. Makes the directory.
    Raises RuntimeError, which names the file and run.dir, if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(path.parent)
    except OSError as error:
        raise RuntimeError(
            f"run.dir: cannot write {path} ({error.strerror}); make room there, and the same "
            "command continues from the last checkpoint"
        ) from error
