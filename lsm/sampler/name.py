"""The name of a batch."""

from __future__ import annotations

from typing import NamedTuple


class BatchName(NamedTuple):
    """Names one batch, as ``lsm::BatchName`` of the native code does.

    A batch's sample is a function of its name, its seeds and the graph, and of nothing else.
    """

    seed: int = 0
    """Seed of all draws."""
    epoch: int = 0
    """Epoch, from 0."""
    iteration: int = 0
    """Iteration of the epoch, from 0."""
    rank: int = 0
    """The rank whose batch it is."""
    step: int = 0
    """Iterations since the first of epoch 0, for batch_dependency."""
