"""Batches that are prepared ahead of one of PyG's loaders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Never

import torch
from torch import Tensor
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

from lsm.core.ids import as_int64
from lsm.data.graph_store import GraphStore
from lsm.graph.types import EdgeType
from lsm.loader.batch import Batch
from lsm.loader.link_batches import LinkBatches
from lsm.loader.link_seeds import LinkSeeds
from lsm.loader.loader import Loader
from lsm.pyg.feature_store import FeatureStore
from lsm.pyg.sampler import Sampler
from lsm.sampler.typed_neighbor import NumNeighbors

logger = logging.getLogger(__name__)


class BatchesAhead(torch.utils.data.Sampler[list[int]]):
    """The ``batch_sampler`` of a PyG loader: the seeds of each batch, once the batch is prepared.

    A Loader samples and reads the batches of an epoch ahead. The seeds of one batch are given, and
    the batch waits for the sampler, which takes it. Each iteration is the loader's next epoch.

    Args:
        loader: Prepares the batches.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._waiting: tuple[object, Batch] | None = None  # of an iterator
        self._is_told = False

    def __len__(self) -> int:
        """Iterations per epoch."""
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration.

        Args:
            epoch: Epoch, from 0.
        """
        self._loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        """Iterates over the positions of each batch's seeds among all seeds.

        Raises:
            OSError, TimeoutError, ValueError: As Loader.iterate().
        """
        batches, count, own = iter(self._loader), 0, object()
        try:
            for batch in batches:
                if self._holds(own):
                    break
                count += 1
                self._waiting, epoch = (own, batch), batch.epoch
                positions = input_id_of(batch).tolist()
                del batch  # its memory is the consumer's
                if count == len(self):
                    batches.close()  # a consumer that counts, such as Lightning, asks for no more
                yield positions
            else:
                return
        finally:
            if self._holds(own):
                self._waiting = None
            batches.close()
        self.tell(
            "batches were prepared ahead, and nobody took them; leave num_workers at 0, since "
            "threads of the loader sample and read ahead"
        )
        seeds_at = self._loader.parts.seeds.epoch(epoch)
        for iteration in range(count, len(self)):
            yield seeds_at(iteration).input_id.tolist()

    def take(self) -> Batch | None:
        """The batch that waits; None without one."""
        waiting, self._waiting = self._waiting, None
        return None if waiting is None else waiting[1]

    def tell(self, message: str) -> None:
        """Logs a warning, but one in all."""
        if not self._is_told:
            logger.warning("%s", message)
        self._is_told = True

    def _holds(self, iterator: object) -> bool:
        """True if a batch of ``iterator`` waits."""
        return self._waiting is not None and self._waiting[0] is iterator


class SamplerAhead(Sampler):
    """A Sampler that hands out the batches that were prepared ahead, and their rows to ``rows``.

    Of other seeds it samples anew, as a Sampler does, also in a forked process.

    Args:
        store: As of Sampler; so are the ``arguments``.
        ahead: The batches.
        loader: Prepares them.
        rows: Takes the rows of each.
        kind: The type of the nodes, or of the edges, that ``loader`` samples from.
        neg_sampling: The negatives of its links.
    """

    def __init__(
        self,
        store: GraphStore,
        num_neighbors: NumNeighbors,
        ahead: BatchesAhead,
        loader: Loader,
        rows: FeatureStore,
        kind: str | EdgeType,
        *,
        neg_sampling: NegativeSampling | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(store, num_neighbors, **arguments)
        self._ahead = ahead
        self._rows_to = rows
        self._seeds = loader.parts.seeds
        self._kind, self._neg_sampling = kind, neg_sampling
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

    def _sample_nodes(self, input_type: str, index: NodeSamplerInput) -> Batch:
        def is_asked_for(batch: Batch) -> bool:
            seeds = batch.n_id_dict.get(input_type)
            return (
                input_type == self._kind
                and seeds is not None
                and torch.equal(seeds[: batch.batch_size], as_int64(index.node))
                and (index.time is None or _equal(batch.seed_time, index.time))
            )

        return self._taken(is_asked_for) or super()._sample_nodes(input_type, index)

    def _sample_links(
        self,
        edge_type: EdgeType,
        index: EdgeSamplerInput,
        neg_sampling: NegativeSampling | None,
    ) -> Batch:
        def is_asked_for(batch: Batch) -> bool:
            seeds, places = self._seeds, input_id_of(batch)
            assert isinstance(seeds, LinkSeeds), "a batch of links is ahead of links alone"
            links = seeds.edges
            return (
                edge_type == self._kind
                and torch.equal(
                    links.ends[:, places], as_int64(torch.stack((index.row, index.col)))
                )
                and _equal(links.labels, index.label, places)
                and _equal(links.times, index.time, places)
                and _are_alike(self._neg_sampling, neg_sampling)
            )

        return self._taken(is_asked_for) or super()._sample_links(edge_type, index, neg_sampling)

    def _taken(self, is_asked_for: Callable[[Batch], bool]) -> Batch | None:
        """The batch that waits, if it is the one; its rows go to the feature store."""
        batch = self._ahead.take()
        if batch is not None and not is_asked_for(batch):
            self._ahead.tell(
                f"batch {batch.iteration} was prepared ahead for other seeds, and is sampled and "
                f"read again; batch_sampler covers its own {self._seeds.num_seeds} seeds alone: "
                "call lsm.pyg.parts anew for others, and give one loader all that it returns"
            )
            batch = None
        self._rows_to.expect(batch)
        return batch


def input_id_of(batch: Batch) -> Tensor:
    """The positions of the seeds of a batch among all seeds: [b] int64."""
    assert batch.input_id is not None, "a loader numbers its seeds"
    return batch.input_id


def _equal(values: Tensor | None, others: Tensor | None, places: Tensor | None = None) -> bool:
    """True if both are None, or ``values``, at ``places``, are the ``others``."""
    if values is None or others is None:
        return values is others
    return torch.equal(values if places is None else values[places], others)


def _are_alike(one: NegativeSampling | None, other: NegativeSampling | None) -> bool:
    """True for negatives of the same mode, amount and weights."""
    if one is None or other is None or one is other:
        return one is other
    return (
        (one.mode, one.amount) == (other.mode, other.amount)
        and _equal(one.src_weight, other.src_weight)
        and _equal(one.dst_weight, other.dst_weight)
    )
