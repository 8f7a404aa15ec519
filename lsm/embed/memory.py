"""Memory of partitions of embeddings."""

from __future__ import annotations

import torch

from lsm.core.units import format_bytes
from lsm.distributed.machine_share import check_free
from lsm.embed.table.layout import PartitionLayout


def check_frames(layout: PartitionLayout, num_frames: int, device: torch.device) -> None:
    """Raises ValueError if ``device`` has no room for the frames."""
    frames = f"{num_frames} frames of {format_bytes(layout.frame_bytes)}"
    needs = {frames: num_frames * layout.frame_bytes}
    check_free("embed.buffer", needs, "raise embed.partitions", device)
