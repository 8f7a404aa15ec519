"""Carries a record and its logs from one machine to the next: a folder with ``record.json`` and
``logs.tgz``, small enough to be fetched."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

RECORD, LOGS = "record.json", "logs.tgz"
MOST_LOG_BYTES = 1 << 20  # of each log, before it is packed: its end
MOST_ARCHIVE_BYTES = 12 << 20


def save(record: Path, logs: Path, folder: Path) -> None:
    """Writes both to ``folder``, each at once, so that a call that is killed leaves the last
    ones."""
    folder.mkdir(parents=True, exist_ok=True)
    if record.exists():
        _replace(folder / RECORD, lambda path: shutil.copyfile(record, path))
    _replace(folder / LOGS, lambda path: _pack(logs, path))


def _replace(target: Path, write) -> None:
    unfinished = target.with_name(target.name + ".unfinished")
    write(unfinished)
    unfinished.replace(target)


def _pack(logs: Path, target: Path) -> None:
    """Newest first, as long as there is room, even if they cannot be compressed."""
    kept = sorted(logs.glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    room = MOST_ARCHIVE_BYTES
    with tarfile.open(target, "w:gz") as archive:
        for log in kept:
            size = log.stat().st_size
            length = min(size, MOST_LOG_BYTES)
            if length > room:
                break
            room -= length
            with log.open("rb") as file:
                file.seek(size - length)
                entry = archive.gettarinfo(fileobj=file, arcname=f"logs/{log.name}")
                entry.size = length
                archive.addfile(entry, file)


def restore(folder: Path, record: Path, logs: Path, facts: Mapping, same: tuple[str, ...]) -> bool:
    """Takes over what ``folder`` has, if it is of the same facts ``same`` and has more steps than
    ``record``. Returns whether it did."""
    saved = _read(folder / RECORD)
    if not saved or any(saved.get(name) != facts[name] for name in same):
        return False
    present = _read(record)
    is_same = all(present.get(name) == facts[name] for name in same)
    if is_same and len(present.get("steps", {})) >= len(saved.get("steps", {})):
        return False
    record.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / RECORD, record)
    _unpack(folder / LOGS, logs)
    return True


def _read(path: Path) -> dict:
    """Empty for a file that is not there, or was cut off."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _unpack(archive: Path, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as packed:
            for entry in packed:
                file = packed.extractfile(entry)
                if file is not None:
                    (logs / Path(entry.name).name).write_bytes(file.read())
    except (OSError, tarfile.TarError):
        print(f"{archive.name} could not be read: the logs of earlier calls are left out")
