"""The files of checkpoints, found by name and without torch."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"step-(\d{6,})-(\d{8,})\.pt")


def list_checkpoints(directory: Path) -> list[Path]:
    """Checkpoints in ``directory``, in the order of training."""
    found = [path for path in directory.glob("step-*.pt") if _NAME.fullmatch(path.name)]
    return sorted(found, key=place_of)


def place_of(path: Path) -> tuple[int, int]:
    """The epoch and the iteration that continue a checkpoint of list_checkpoints()."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2])
