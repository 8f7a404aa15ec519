"""Batches that are prepared ahead of one of PyG's loaders."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Never

import torch
from torch import Tensor
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

from lsm.data.graph_store import GraphStore
from lsm.graph.types import EdgeType
from lsm.loader.batch import Batch
from lsm.loader.link_batches import LinkBatches
from lsm.loader.loader import Loader
from lsm.pyg.feature_store import FeatureStore
from lsm.pyg.sampler import Sampler
from lsm.sampler.typed_neighbor import NumNeighbors

logger = logging.getLogger(__name__)


class BatchesAhead(torch.utils.data.Sampler[list[int]]):
    """The ``batch_sampler`` of a PyG loader: the seeds of each batch, once the batch is prepared.

    A Loader samples and reads the batches of an epoch ahead. The seeds of one batch are given, and
    the batch waits for the sampler, which takes it. Each iteration is the next epoch, from 0 on.

    Args:
        loader: Prepares the batches.
        input_id: [N] int64 numbers of all seeds; None: their positions.
    """

    def __init__(self, loader: Loader, input_id: Tensor | None = None) -> None:
        self._loader, self._input_id = loader, input_id
        self._epoch = 0
        self._waiting: Batch | None = None
        self._is_told = False

    def __len__(self) -> int:
        """Iterations per epoch."""
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration.

        Args:
            epoch: Epoch, from 0.
        """
        self._epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Iterates over the positions of each batch's seeds among all seeds.

        Raises:
            OSError, TimeoutError, ValueError: As Loader.iterate().
        """
        epoch, self._epoch = self._epoch, self._epoch + 1
        batches, count = self._loader.iterate(epoch), 0
        try:
            for batch in batches:
                if self._waiting is not None:
                    break
                count += 1
                self._waiting, positions = batch, _positions(batch).tolist()
                del batch  # its memory is the consumer's
                yield positions
            else:
                return
        finally:
            self._waiting = None
            batches.close()
        self._tell(
            "batches were prepared ahead, and nobody took them; leave num_workers at 0, since "
            "threads of the loader sample and read ahead"
        )
        seeds_at = self._loader.parts.seeds.epoch(epoch)
        for iteration in range(count, len(self)):
            yield seeds_at(iteration).input_id.tolist()

    def take(self, input_id: Tensor | None) -> Batch | None:
        """The batch that waits, if it is of the seeds ``input_id`` [b] int64; else None."""
        batch, self._waiting = self._waiting, None
        if batch is None:
            return None
        own = _positions(batch)
        if self._input_id is not None:
            own = self._input_id[own]
        if input_id is not None and torch.equal(own, input_id):
            return batch
        self._tell(
            f"batch {batch.iteration} was prepared ahead for other seeds, and is sampled and read "
            "again; give all that lsm.pyg.parts returns to one loader"
        )
        return None

    def _tell(self, message: str) -> None:
        if not self._is_told:
            logger.warning("%s", message)
        self._is_told = True


class SamplerAhead(Sampler):
    """A Sampler that hands out the batches that were prepared ahead, and their rows to ``rows``.

    Of other seeds it samples anew, as a Sampler does, also in a forked process.

    Args:
        store: As of Sampler; so are the ``arguments``.
        ahead: The batches.
        loader: Prepares them.
        rows: Takes the rows of each.
        kind: The type of the nodes, or of the edges, that ``loader`` samples from.
    """

    def __init__(
        self,
        store: GraphStore,
        num_neighbors: NumNeighbors,
        ahead: BatchesAhead,
        loader: Loader,
        rows: FeatureStore,
        kind: str | EdgeType,
        **arguments: Any,
    ) -> None:
        super().__init__(store, num_neighbors, **arguments)
        self._ahead = ahead
        self._rows_to = rows
        batches = loader.parts.batches
        if isinstance(kind, str):
            self._of_nodes[kind] = batches
        elif isinstance(batches, LinkBatches):
            self._of_links[kind] = batches

    def __reduce__(self) -> Never:
        raise TypeError(
            "batches ahead stay in the process that prepares them; use num_workers=0, or an "
            "lsm.pyg.Sampler, which workers can have"
        )

    def _sample_nodes(self, index: NodeSamplerInput) -> Batch:
        return self._taken(index.input_id) or super()._sample_nodes(index)

    def _sample_links(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None
    ) -> Batch:
        return self._taken(index.input_id) or super()._sample_links(index, neg_sampling)

    def _taken(self, input_id: Tensor | None) -> Batch | None:
        batch = self._ahead.take(input_id)
        self._rows_to.expect(batch)
        return batch


def _positions(batch: Batch) -> Tensor:
    """The positions of the seeds of a batch among all seeds: [b] int64."""
    assert batch.input_id is not None, "a loader numbers its seeds"
    return batch.input_id
