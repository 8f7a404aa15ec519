"""Memory of a model, and of a step beside its batch."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from lsm.core import host_memory
from lsm.core.allocator import release_freed_memory
from lsm.core.memory import FRAGMENTED, BatchSize, Shape, Terms


def model_bytes(model: torch.nn.Module) -> int:
    """Memory of training ``model``: its parameters, their gradients and Adam's two moments."""
    return 4 * sum(p.numel() * p.element_size() for p in model.parameters())


def terms(model: int, step: int = 0) -> Terms:
    """A model of ``model`` bytes, and ``step`` bytes of a step on the host, which holds the model a
    second time for the best epoch's weights."""
    host = int(FRAGMENTED * (step + 2 * model))
    return Terms({"step": host}, {"the model with gradients and moments": model})


def activation_bytes(shape: Shape, width: int) -> int:
    """Estimated GPU memory of a step with its batch. width: of the widest layer."""
    batch = shape.batch
    return 2 * shape.rows_bytes + 16 * batch.expanded * width + 32 * batch.edges


def step_bytes(step: Callable[[], None], size: BatchSize, tried: BatchSize) -> int:
    """Host memory of a step on a batch of ``size``, without the batch: measured by ``step``, which
    takes one on a batch of size ``tried``, and scaled by the ratio of sizes."""
    step()  # loads libraries and starts threads
    gc.collect()
    release_freed_memory()
    measured = host_memory.peak_growth(step)
    pairs = (
        (size.nodes, tried.nodes),
        (size.edges, tried.edges),
        (size.expanded, tried.expanded),
    )
    return int(measured * max(largest / max(1, own) for largest, own in pairs))
