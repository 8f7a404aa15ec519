"""Mini-batches of sampled neighbourhoods with their features, prepared ahead of training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Never

import torch

from lsm.cache.options import CacheOptions
from lsm.data.graph_store import GraphStore
from lsm.data.opened import opened
from lsm.features.sets import Features
from lsm.graph.topology import Topology
from lsm.loader.inputs import (
    Drawing,
    InputNodes,
)
from lsm.loader.loader import Loader
from lsm.loader.parts import open_node_parts
from lsm.loader.pyg_arguments import check_extra_arguments
from lsm.loader.shared_arguments import check_features, form_of, run_ahead
from lsm.sampler.neighbor import Sampler
from lsm.sampler.options import Sampling
from lsm.sampler.typed_neighbor import NumNeighbors, TypedTopology
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead


class NeighborLoader(Loader):
    """Iterates over an epoch of Batches, as PyG's loader of the same name does.

    Batches carry ``x, edge_index, y, n_id, e_id, input_id, batch_size, num_sampled_nodes,
    num_sampled_edges``, and of a store with types their views by type; see Batch. Their contents
    are a function of (seed, epoch, iteration, rank) and of nothing else. Background threads sample
    and read features ahead of the consumer. Each iteration over the loader is the next epoch, from
    0 on. Over a cache, one iterator is open at a time.

    Args:
        store: A GraphStore, or its path.
        num_neighbors: Neighbours per node and hop, without replacement; -1 takes all. Of a store
            with types: for each edge type alike, or a dict by edge type.
        input_nodes: Seed nodes: a split's name, [N] int64 or of a smaller integer type without
            repeats in a batch (``disjoint`` takes them), a mask, or None for all nodes. Of a store
            with types: a node type, or a pair of it and one of these.
        batch_size: Seeds per rank and iteration.
        shuffle: Shuffle the seeds anew in each epoch, as ``seed`` and the epoch determine.
        drop_last: Leave out the last iteration if it has fewer seeds than the others.
        seed: Seed of all draws.
        rank: This process's place, from 0.
        world_size: Number of ranks. Every rank has the same number of iterations.
        features: Source of rows. None: the loader opens one with ``storage`` and ``cache``, and
            closes it in ``close()``.
        storage: The engine that reads rows, and its options, or a dict of them.
        cache: Options of a cache over storage, or a dict of them (``{"bytes": "4GiB"}``). Sampling
            then runs ``cache.window`` iterations ahead. After an epoch that is left early the cache
            starts cold.
        topology: The store's topology, if it is open already, with the values of edges that the
            other arguments ask for.
        labels: The labels of the seeds' type, [N] or [N, k], if they are open already.
        disjoint: Give each seed a subgraph of its own.
        time_attr: "time": a subgraph has no neighbour later than its seed, by the times of edges,
            or else of their sources. Makes subgraphs disjoint.
        temporal_strategy: With times, uniform takes any such neighbours, last the latest.
        input_time: Times of the seeds, one for each of ``input_nodes``, [N] int64. None: those of
            the nodes.
        weight_attr: "edge_weight": neighbours are drawn in proportion to the weights of their
            edges. Not with ``temporal_strategy="last"``, labor or ladies.
        as_pyg: Iterate over ``Batch.to_pyg()``: PyG's Data or HeteroData.
        as_dgl: Iterate over ``(input_nodes, output_nodes, blocks)``, as DGL's DataLoader does.
            Nodes are by type in a store with types. ``blocks`` are those of ``Batch.to_dgl()``; the
            first has features as ``feat`` of its sources, the last labels as ``label`` of its
            destinations.
        sampling: The method that draws neighbours: neighbor, labor, or a Sampling with its options,
            or a dict of them.
        sampler: Draws ``num_neighbors`` in place of a NeighborSampler over the topology;
            ``sampling`` then has no effect.
        prefetch: Most iterations that are read ahead. A ReadAhead adapts them to the reads that the
            drive has outstanding.
        staging_bytes: Most bytes of rows that are read ahead, as a number or as "256MiB".
        num_threads: Sampling threads; each samples an iteration of its own.
        timeout_secs: Longest wait of the consumer for a batch, in seconds. A longer one raises
            TimeoutError.
        window_bytes: Memory of the window's graphs and of the planner's ids; None: no bound but
            ``cache.window``. A smaller budget shortens the window, unless ranks share the cache.
        **more: None. An argument that only PyG's loader has may have PyG's default.

    Raises:
        ValueError: An argument or an option is invalid.
        TypeError: An argument of PyG's loader has another value than PyG's default; the error names
            the remedy.
        OSError: A file of the store cannot be read.
        RuntimeError: The storage engine is unavailable.
    """

    def __init__(
        self,
        store: GraphStore | str | Path,
        num_neighbors: NumNeighbors,
        input_nodes: InputNodes = None,
        batch_size: int = 1024,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        features: Features | None = None,
        storage: StorageOptions | Mapping[str, Any] | None = None,
        cache: CacheOptions | Mapping[str, Any] | None = None,
        topology: Topology | TypedTopology | None = None,
        labels: torch.Tensor | None = None,
        disjoint: bool = False,
        time_attr: str | None = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        input_time: torch.Tensor | None = None,
        weight_attr: str | None = None,
        as_pyg: bool = False,
        as_dgl: bool = False,
        sampling: str | Sampling | Mapping[str, Any] = "neighbor",
        sampler: Sampler | None = None,
        prefetch: int | ReadAhead = 4,
        staging_bytes: int | str = 256 << 20,
        num_threads: int = 1,
        timeout_secs: float = 120.0,
        window_bytes: int | str | None = None,
        **more: Never,
    ) -> None:
        check_extra_arguments(NeighborLoader, more)
        store, sampling = opened(store), Sampling.of(sampling)
        check_features(features)
        policy = run_ahead(prefetch, staging_bytes, num_threads, timeout_secs, window_bytes)
        drawing = Drawing(
            num_neighbors, sampling, disjoint, temporal_strategy, time_attr, weight_attr
        )
        parts = open_node_parts(
            store,
            drawing,
            input_nodes,
            input_time=input_time,
            labels=labels,
            topology=topology,
            sampler=sampler,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )
        super().__init__(
            parts,
            features or parts.batches.open_rows(store, cache, storage, parts.seeds),
            policy,
            owns_features=features is None,
            form=form_of(as_pyg=as_pyg, as_dgl=as_dgl),
        )
