"""One folder that the ranks of a job write to together."""

from __future__ import annotations

import uuid
from pathlib import Path

from lsm.distributed import collectives
from lsm.distributed.environment import World


def require_common_folder(path: Path, world: World, key: str) -> None:
    """Raises ValueError on all ranks if one of them does not see the folder ``path`` of rank 0, as
    on a machine without a file system in common. A collective. ``key``: the setting with it."""
    if world.size == 1:
        return
    mark = path / f".common-{uuid.uuid4().hex}"
    if world.is_main:
        path.mkdir(parents=True, exist_ok=True)
        mark.touch()
    try:
        first, name = collectives.broadcast_object((str(path), mark.name), world)
        seen = collectives.gather_objects((path / name).exists(), world)
    finally:
        if world.is_main:
            mark.unlink(missing_ok=True)
    if not all(seen):
        raise ValueError(
            f"{key}: rank {seen.index(False)} does not see the folder {first} of rank 0; choose "
            "one on a file system that all ranks share"
        )
