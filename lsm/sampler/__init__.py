"""Neighbour sampling on the host and on GPUs."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.sampler.neighbor import NeighborSampler, SampledGraph
    from lsm.sampler.options import Sampling

__all__ = ["NeighborSampler", "SampledGraph", "Sampling"]

__getattr__, __dir__ = lazily(
    __name__, {"NeighborSampler": "neighbor", "SampledGraph": "neighbor", "Sampling": "options"}
)
