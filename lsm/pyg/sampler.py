"""PyG's BaseSampler over the topology of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler import NegativeSampling as PygNegativeSampling

from lsm.core.ids import as_int64
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import LinkSplits
from lsm.data.opened import opened
from lsm.graph.types import EdgeType
from lsm.links.negative_sampling import NegativeSampling, NodeDraws
from lsm.loader.batch import Batch, StoreValues
from lsm.loader.inputs import (
    TIME,
    Drawing,
    find_seed_times,
    open_sampler,
    open_topology,
    open_typed_sampler,
    open_typed_topology,
)
from lsm.loader.link_batches import LinkBatches
from lsm.loader.link_inputs import find_excluded, open_draws, open_splits
from lsm.loader.link_seeds import LinkEdges, LinkSeeds
from lsm.loader.node_batches import NodeBatches
from lsm.pyg.output import to_output
from lsm.sampler.name import BatchName
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import SeedBatch
from lsm.sampler.typed_neighbor import NumNeighbors

_Draws = tuple[NodeDraws | None, NodeDraws | None]
"""The draws of the sources and of the destinations of negatives."""


class Sampler(BaseSampler):
    """Draws neighbours of a store's nodes and links, for PyG's NodeLoader and LinkLoader.

    It is the ``node_sampler`` of PyG's NodeLoader, the ``link_sampler`` of its LinkLoader, and the
    ``neighbor_sampler`` of its loaders of both. Draws take their seed from torch's generator, so
    ``torch.manual_seed`` repeats them, and the workers of a DataLoader differ. Each process maps
    the topology by itself; a pickle has the arguments alone.

    Args:
        store: A GraphStore of lsm, or its path.
        num_neighbors: As of lsm.NeighborLoader; so are disjoint, time_attr, temporal_strategy,
            weight_attr and sampling. ladies has no place for its weights in PyG's output.
        edge_ids: Return the positions of edges in the store, PyG's ``e_id``, for which a batch is
            sampled a second time.
        exclude_seed_edges: As of lsm.LinkNeighborLoader; so is reverse_type.
        links: A LinkSplits, or its path: links are sampled from the message graph of their
            ``split``, without edges of validation and test. None: from every edge of the store.
        split: The split of the links.

    Raises:
        FileNotFoundError: There is no store at ``store``.
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        store: GraphStore | str | Path,
        num_neighbors: NumNeighbors,
        *,
        disjoint: bool = False,
        time_attr: str | None = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        weight_attr: str | None = None,
        sampling: str | Sampling = "neighbor",
        edge_ids: bool = True,
        exclude_seed_edges: bool = True,
        reverse_type: EdgeType | Literal["auto"] | None = "auto",
        links: LinkSplits | str | Path | None = None,
        split: str = "train",
    ) -> None:
        self.store: GraphStore = opened(store)
        """The store."""
        self._drawing = Drawing(
            *(num_neighbors, Sampling.of(sampling), disjoint),
            *(temporal_strategy, time_attr, weight_attr),
        )
        if self._drawing.sampling.chosen.needs_weights:
            raise ValueError(
                f"sampling: expected neighbor or labor, got {self._drawing.sampling.kind}, whose "
                "weights of edges PyG's samplers cannot return; use lsm.NeighborLoader"
            )
        self._edge_ids = edge_ids
        self._exclude_seed_edges, self._reverse_type = exclude_seed_edges, reverse_type
        self._links, self._split = open_splits(self.store, links), split
        self._of_nodes: dict[str, NodeBatches] = {}
        self._of_links: dict[EdgeType, LinkBatches] = {}
        self._negatives: tuple[PygNegativeSampling | None, EdgeType, _Draws] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the open topology and the draws of negatives."""
        return self.__dict__ | {"_of_nodes": {}, "_of_links": {}, "_negatives": None}

    def __repr__(self) -> str:
        drawing = self._drawing
        told = f"num_neighbors={drawing.num_neighbors}, sampling={drawing.sampling.kind!r}"
        return f"{type(self).__name__}({self.store!r}, {told})"

    @property
    def edge_permutation(self) -> None:
        """None: ``e_id`` are positions in the store."""
        return None

    def sample_from_nodes(self, index: NodeSamplerInput) -> SamplerOutput | HeteroSamplerOutput:
        """Samples from seed nodes.

        Args:
            index: The seeds, [b] int64 of ``input_type``, distinct unless each has a subgraph.

        Returns:
            Their subgraph; of a store with types, with all types.

        Raises:
            ValueError: A seed is no node or is repeated, the type is unknown, or the topology is
                corrupt.
        """
        input_type = index.input_type
        if input_type is None and not self.store.is_typed:
            input_type = self.store.node_types[0]
        if input_type not in self.store.node_types:
            known = ", ".join(self.store.node_types)
            raise ValueError(
                f"input_nodes: expected ids of a type, (type, ids), of {known}, got type "
                f"{input_type!r}"
            )
        batch = self._sample_nodes(input_type, index)
        return to_output(batch, index.input_id, edge_ids=self._edge_ids)

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: PygNegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples from links.

        Args:
            index: The links, [p] int64 each of ``row``, their sources, and ``col``.
            neg_sampling: The negatives to draw.

        Returns:
            The subgraph of their ends and of negatives; of a store with types, with all types.

        Raises:
            ValueError: An end is no node, no negative is possible, or the topology is corrupt.
        """
        edge_type = index.input_type
        if edge_type is None and not self.store.is_typed:
            edge_type = self.store.edge_types[0]
        if edge_type not in self.store.edge_types:
            known = ", ".join(map(str, self.store.edge_types))
            raise ValueError(
                f"edge_label_index: expected links of a type, (type, pairs), of {known}, got type "
                f"{edge_type!r}"
            )
        batch = self._sample_links(edge_type, index, neg_sampling)
        return to_output(batch, index.input_id, edge_ids=self._edge_ids)

    def _sample_nodes(self, input_type: str, index: NodeSamplerInput) -> Batch:
        nodes = as_int64(index.node)
        times = find_seed_times(self.store, input_type, nodes, self._drawing, index.time)
        seeds = SeedBatch(BatchName(_seed()), torch.arange(len(nodes)), nodes, times)
        batches = self._node_batches(input_type)
        return batches.make(seeds, batches.sample(seeds), None, {})

    def _sample_links(
        self,
        edge_type: EdgeType,
        index: EdgeSamplerInput,
        neg_sampling: PygNegativeSampling | None,
    ) -> Batch:
        if (index.time is None) != (self._drawing.time_attr is None):
            raise ValueError(
                f"edge_label_time: expected a time for each link with time_attr={TIME!r}, and only "
                "with it"
            )
        ends = as_int64(torch.stack((index.row, index.col)))
        edges = LinkEdges(edge_type, ends, index.label, index.time)
        source = LinkSeeds(
            edges,
            NegativeSampling.cast(neg_sampling),
            self._draws_of(edges, neg_sampling),
            batch_size=max(1, len(index.row)),
            is_disjoint=self._drawing.is_disjoint,
            excluded_types=self._excluded(edge_type),
            shuffle=False,
            drop_last=False,
            seed=_seed(),
            rank=0,
            world_size=1,
        )
        links, batches = source.epoch(0)(0), self._link_batches(edge_type)
        return batches.make(links, batches.sample(links), None, {})

    def _node_batches(self, input_type: str) -> NodeBatches:
        if input_type not in self._of_nodes:
            topology = open_topology(self.store, self._drawing)
            sampler = open_sampler(topology, input_type, self._drawing)
            self._of_nodes[input_type] = NodeBatches(sampler, StoreValues(), None)
        return self._of_nodes[input_type]

    def _link_batches(self, edge_type: EdgeType) -> LinkBatches:
        if edge_type not in self._of_links:
            links = self._links
            message = {} if links is None else links.message_graph(self.store, self._split)
            topology = open_typed_topology(self.store, self._drawing, message=message)
            sampler = open_typed_sampler(topology, edge_type[2], self._drawing)
            self._of_links[edge_type] = LinkBatches(sampler, StoreValues(), message)
        return self._of_links[edge_type]

    def _excluded(self, edge_type: EdgeType) -> dict[EdgeType, bool]:
        if not self._exclude_seed_edges:
            return {}
        return find_excluded(self.store, edge_type, self._links, self._reverse_type)

    def _draws_of(self, edges: LinkEdges, neg_sampling: PygNegativeSampling | None) -> _Draws:
        """The draws of negatives, which are kept: weights of nodes take time to add up."""
        kept = self._negatives
        if kept is None or kept[0] is not neg_sampling or kept[1] != edges.edge_type:
            given = NegativeSampling.cast(neg_sampling)
            draws = open_draws(self.store, edges, given, is_disjoint=self._drawing.is_disjoint)
            self._negatives = kept = (neg_sampling, edges.edge_type, draws)
        return kept[2]


def _seed() -> int:
    """The seed of a batch's draws."""
    return int(torch.randint(2**62, ()))
