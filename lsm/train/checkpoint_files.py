"""The files of checkpoints, found by name and without torch."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"step-(\d{6,})-(\d{8,})\.pt")


def list_checkpoints(directory: Path) -> list[Path]:
    """Checkpoints in ``directory``, in the order of training."""
    found = [(_NAME.fullmatch(path.name), path) for path in directory.glob("step-*.pt")]
    return [
        path
        for _, path in sorted(
            ((int(match[1]), int(match[2])), path) for match, path in found if match
        )
    ]
