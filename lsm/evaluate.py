"""Accuracy by sampled inference, the seeds of a split shared out over the ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lsm import dist
from lsm.device import to_device
from lsm.dist import World
from lsm.models import SampledGNN
from lsm.neighbor_loader import NeighborLoader


def evaluate(
    model: SampledGNN,
    loader: NeighborLoader,
    world: World,
    device: torch.device,
    advance: Callable[[], None],
) -> float | None:
    """Share of ``loader``'s seeds, over all ranks, whose highest score is their label.

    None for a split without nodes. Neighbours are the same at every call (epoch 0 of the loader).
    ``advance`` is called after each batch. Leaves the model in evaluation mode.
    """
    model.eval()
    counts = torch.zeros(2, dtype=torch.float64)
    with torch.inference_mode():
        for batch in loader.iterate(epoch=0):
            batch = to_device(batch, device)
            counts[0] += count_correct(model(batch), batch.y)
            counts[1] += batch.batch_size
            advance()
    num_correct, num_seeds = dist.all_reduce_sum(counts, world).tolist()
    return num_correct / num_seeds if num_seeds else None


def count_correct(scores: torch.Tensor, labels: torch.Tensor) -> int:
    """How many rows of ``scores`` [b, classes] are highest at ``labels`` [b]."""
    return int((scores.argmax(dim=1) == labels).sum())
