"""Memory of partitions of embeddings."""

from __future__ import annotations

import torch

from lsm.core.memory import Terms
from lsm.core.units import format_bytes
from lsm.distributed.machine_share import check_free
from lsm.embed.table.layout import PartitionLayout


def terms(layout: PartitionLayout, num_frames: int, *, on_gpu: bool) -> Terms:
    """The frames that hold partitions, on the device that trains."""
    frames = f"{num_frames} frames of {format_bytes(layout.frame_bytes)}"
    needs = {frames: num_frames * layout.frame_bytes}
    return Terms(gpu=needs) if on_gpu else Terms(host=needs)


def check_frames(layout: PartitionLayout, num_frames: int, device: torch.device) -> None:
    """Raises ValueError if ``device`` has no room for the frames."""
    needs = terms(layout, num_frames, on_gpu=device.type == "cuda")
    check_free("embed.buffer", needs.host | needs.gpu, "raise embed.partitions", device)
