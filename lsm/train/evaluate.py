"""Accuracy by sampled inference, with the seeds of a split divided among the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lsm.core.counters import COUNTERS
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.loader.batch import Batch, to_device
from lsm.loader.neighbor_loader import NeighborLoader


@dataclass(frozen=True)
class Evaluation:
    """The accuracy on a split, and the tiers that its rows came from."""

    accuracy: float | None
    """Share of the seeds whose highest score is their label; None for a split without nodes."""
    rows: dict[str, int]
    """COUNTERS of lsm.core.counters, over all ranks."""


def evaluate(
    model: torch.nn.Module,
    loader: NeighborLoader,
    world: World,
    device: torch.device,
    advance: Callable[[], None],
) -> Evaluation:
    """Classifies ``loader``'s seeds, each rank its own. Returns the result of all ranks.

    Neighbours are the same at every call (epoch 0 of the loader). Calls ``advance`` after each
    batch. Leaves the model in evaluation mode.
    """
    model.eval()
    counts = torch.zeros(2 + len(COUNTERS), dtype=torch.float64)
    for batch in loader.iterate(epoch=0):
        batch = to_device(batch, device)
        # Around the model alone: a cache creates tensors in this thread that it changes later.
        with torch.inference_mode():
            num_correct = count_correct(model(batch), labels_of(batch))
        rows = [batch.stats[name] for name in COUNTERS]
        counts += torch.tensor([num_correct, batch.batch_size, *rows], dtype=torch.float64)
        advance()
        del batch  # not kept while the next is awaited
    num_correct, num_seeds, *rows = collectives.all_reduce_sum(counts, world).tolist()
    return Evaluation(
        num_correct / num_seeds if num_seeds else None,
        dict(zip(COUNTERS, map(int, rows), strict=True)),
    )


def labels_of(batch: Batch) -> torch.Tensor:
    """``batch.y``: [batch_size]. Raises ValueError if the batch has no labels."""
    if batch.y is None:
        raise ValueError("expected a batch with labels, got one whose y is None")
    return batch.y


def count_correct(scores: torch.Tensor, labels: torch.Tensor) -> int:
    """Number of rows of ``scores`` [b, classes] whose maximum is at ``labels`` [b]."""
    return int((scores.argmax(dim=1) == labels).sum())
