"""The seeds of batches, by rank and iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from lsm import native
from lsm.core.arguments import flag, whole_number
from lsm.core.ids import as_int64, tensor_of_integers
from lsm.sampler.name import BatchName

_MAX_SEED = 2**64 - 1
_PRESAMPLED_EPOCH = 2**31
_PRESAMPLED_ITERATIONS = 64


class NodeSplits(Protocol):
    """Nodes by number and by split, as a GraphStore has them."""

    @property
    def num_nodes(self) -> int:
        """Nodes are 0 to ``num_nodes - 1``."""

    def split(self, name: str) -> torch.Tensor:
        """The nodes of a split: [N] int64."""


@dataclass(frozen=True, slots=True)
class SeedBatch:
    """The seed nodes of one rank's batch."""

    name: BatchName
    input_id: torch.Tensor
    """Their positions in the source's nodes: [b] int64."""
    nodes: torch.Tensor
    """[b] int64."""
    times: torch.Tensor | None = None
    """[b] int64: no neighbour is later. None: neighbours of any time."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of a sampler; only one of times takes them."""
        named = (self.nodes, self.name)
        return named if self.times is None else (*named, self.times)

    def first(self, count: int) -> SeedBatch:
        """The first ``count`` seeds."""
        times = None if self.times is None else self.times[:count]
        return replace(self, input_id=self.input_id[:count], nodes=self.nodes[:count], times=times)


class SeedSource(ABC):
    """Divides the seeds of an epoch into iterations and ranks.

    The epoch's order (the given one, or a permutation that depends on seed and epoch alone) is cut
    into global batches of ``batch_size * world_size``. Each global batch is cut contiguously and as
    evenly as possible into ranks. So all ranks have the same number of iterations, and an iteration
    sees the same seeds whether W ranks take b each or one rank takes W * b. In the last, short
    iteration a rank may get none.
    """

    def __init__(
        self,
        num_seeds: int,
        batch_size: int,
        *,
        shuffle: bool | None,
        drop_last: bool,
        seed: int,
        rank: int,
        world_size: int,
    ) -> None:
        batch_size = whole_number("batch_size", batch_size, 1)
        self._world_size = whole_number("world_size", world_size, 1)
        self._rank = whole_number("rank", rank, 0, world_size - 1)
        self._seed = whole_number("seed", seed, 0, _MAX_SEED)
        drop_last = flag("drop_last", drop_last)
        # torch's DataLoader takes None as False.
        self._shuffle = shuffle is not None and flag("shuffle", shuffle)
        self._global_batch = batch_size * world_size
        self.num_seeds = num_seeds
        """Seeds of an epoch, over all ranks; drop_last leaves some of them out."""
        whole, rest = divmod(num_seeds, self._global_batch)
        self.num_iterations = whole + (1 if rest and not drop_last else 0)
        """Iterations of an epoch, the same on every rank."""

    @abstractmethod
    def epoch(self, epoch: int) -> Callable[[int], Any]:
        """A function that returns this rank's seeds at an iteration of ``epoch``. Thread-safe."""

    def global_count(self, iteration: int) -> int:
        """Number of seeds of all ranks at ``iteration``."""
        return min(self._global_batch, self.num_seeds - iteration * self._global_batch)

    def _name(self, epoch: int, iteration: int) -> BatchName:
        step = epoch * self.num_iterations + iteration
        return BatchName(self._seed, epoch, iteration, self._rank, step)

    def _order(self, epoch: int) -> torch.Tensor | None:
        """The order of ``epoch``: positions among the seeds, [N] int64; None: as they are."""
        if not self._shuffle:
            return None
        key = native.batch_key(self._seed, epoch, 0, 0)
        generator = np.random.Generator(np.random.Philox(key=key))
        return torch.from_numpy(generator.permutation(self.num_seeds))

    def _positions(self, order: torch.Tensor | None, iteration: int) -> torch.Tensor:
        """The positions of this rank's seeds at ``iteration`` of an epoch in ``order``: [b]
        int64."""
        begin, end = self._span(iteration)
        return torch.arange(begin, end) if order is None else order.narrow(0, begin, end - begin)

    def _span(self, iteration: int) -> tuple[int, int]:
        """The range of this rank's seeds in the order of an epoch: the first, and the end."""
        first = iteration * self._global_batch
        count = max(0, self.global_count(iteration))
        begin = first + count * self._rank // self._world_size
        return begin, first + count * (self._rank + 1) // self._world_size


class NodeSeeds(SeedSource):
    """Batches of seed nodes.

    nodes: [N] int64, without repeats. times: [N] int64 of the nodes, or None. The other arguments
    are those of SeedSource.
    """

    def __init__(
        self,
        nodes: torch.Tensor,
        batch_size: int,
        *,
        times: torch.Tensor | None = None,
        **schedule: Any,
    ) -> None:
        super().__init__(nodes.numel(), batch_size, **schedule)
        self._nodes, self._times = nodes, times

    def epoch(self, epoch: int) -> Callable[[int], SeedBatch]:
        return partial(self._at, epoch, self._order(epoch))

    def _at(self, epoch: int, order: torch.Tensor | None, iteration: int) -> SeedBatch:
        positions = self._positions(order, iteration)
        name = self._name(epoch, iteration)
        times = None if self._times is None else self._times.index_select(0, positions)
        return SeedBatch(name, positions, self._nodes.index_select(0, positions), times)


def count_requests(sampler: Any, seeds: SeedSource, num_nodes: int) -> torch.Tensor:
    """Requests of each node in some batches, which no epoch of training has: [num_nodes] int64."""
    counts = torch.zeros(num_nodes, dtype=torch.int64)
    draw = seeds.epoch(_PRESAMPLED_EPOCH)
    for iteration in range(min(seeds.num_iterations, _PRESAMPLED_ITERATIONS)):
        ids = sampler.sample(*draw(iteration).arguments).ids
        counts.index_add_(0, ids, torch.ones_like(ids))
    return counts


def seed_nodes(store: NodeSplits, input_nodes: str | torch.Tensor | None) -> torch.Tensor:
    """The nodes, [N] int64, that ``input_nodes`` names: a split, ids of any integer type, a mask
    over all nodes, or None for all nodes. Raises ValueError for another shape or dtype, or an id
    that is no node."""
    if input_nodes is None:
        return torch.arange(store.num_nodes)
    if isinstance(input_nodes, str):
        return store.split(input_nodes)
    nodes = as_int64(tensor_of_integers("input_nodes", input_nodes))
    if nodes.dtype == torch.bool:
        if list(nodes.shape) != [store.num_nodes]:
            raise ValueError(
                f"input_nodes: expected a mask of {store.num_nodes} nodes, got {list(nodes.shape)}"
            )
        nodes = nodes.nonzero().view(-1)
    if nodes.dim() != 1 or nodes.dtype != torch.int64:
        raise ValueError(
            f"input_nodes: expected [N] integers or a mask, got {list(nodes.shape)} {nodes.dtype}"
        )
    unknown = ((nodes < 0) | (nodes >= store.num_nodes)).nonzero().view(-1)
    if len(unknown):
        position = int(unknown[0])
        raise ValueError(
            f"input_nodes: expected ids in [0, {store.num_nodes}), got {int(nodes[position])} at "
            f"position {position}"
        )
    return nodes
