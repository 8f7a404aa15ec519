"""Mini-batches of links with the sampled neighbourhoods of their ends, prepared ahead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Never

import torch

from lsm.cache.options import CacheOptions
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import LinkSplits
from lsm.data.opened import opened
from lsm.features.sets import Features
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.links.negative_sampling import NegativeSampling
from lsm.loader.inputs import Drawing
from lsm.loader.link_inputs import InputLinks
from lsm.loader.link_parts import open_link_parts
from lsm.loader.loader import Loader
from lsm.loader.pyg_arguments import check_extra_arguments
from lsm.loader.shared_arguments import check_features, form_of, run_ahead
from lsm.sampler.options import Sampling
from lsm.sampler.typed_neighbor import NumNeighbors, TypedTopology
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead


class LinkNeighborLoader(Loader):
    """Iterates over an epoch of Batches of links, as PyG's loader of the same name does.

    Batches carry the fields of NeighborLoader's, without labels of seeds, and ``links``, a
    SeedLinks with PyG's fields: ``edge_label_index, edge_label`` and ``edge_label_time``, or
    ``src_index, dst_pos_index, dst_neg_index`` and ``seed_time``. ``batch_size`` counts links.
    Their contents are a function of (seed, epoch, iteration, rank) and of nothing else.

    Unlike PyG's, a batch samples none of its own links, nor their reverses, unless
    ``exclude_seed_edges`` is False; and with ``links`` no edge of validation or test.

    Args:
        store: A GraphStore, or its path.
        num_neighbors: As of NeighborLoader.
        edge_label_index: Links: pairs [2, n] of sources and destinations, or a split's name, which
            needs ``links``; of a store with types an edge type, or a pair of it and one of these.
            None: all edges, in the order of their source if the store keeps it.
        edge_label: Labels of the links, [n]. With binary negatives, 0 is the label of negatives,
            and labels that begin at 0 are raised by one. Labels of all edges need a store that
            keeps their order.
        edge_label_time: Times of the links, [n] int64, with ``time_attr``. None: those of the
            split, or of all edges, if edges have times.
        links: A LinkSplits, or its path: the splits, and the message graph without edges of
            validation and test. None: every edge of the store may be sampled.
        exclude_seed_edges: A batch samples no edge between the ends of one of its links.
        reverse_type: The type with the same edges in the other direction, which are left out, too.
            auto: that of ``links``, or (DESTINATION, rev_RELATION, SOURCE), or, if there is none,
            the type of the same relation, apart from ``rev_``, from DESTINATION to SOURCE.
        neg_sampling: Negatives, as PyG's: "binary", "triplet", its NegativeSampling, or a dict of
            mode, amount, src_weight and dst_weight. A dict may also have ``kind``: uniform,
            degree (in proportion to the links of a node), joint (``amount`` destinations that all
            links of a batch share), inbatch (the destinations of the other links: none are drawn,
            and a batch has no ``dst_neg_index``, with ``as_pyg`` either), resident
            (``amount`` that all share, of the destinations of the links of this rank's group of
            ``iterations`` batches, 8 by default) or given (those in ``candidates``, [n, k] or
            [k]); and ``nodes``, the destinations to draw from.
        neg_sampling_ratio: Binary negatives for each link.
        batch_size: Links per rank and iteration.
        shuffle: As of NeighborLoader; so are drop_last, seed, rank, world_size, features, storage
            and cache.
        topology: The topology to sample, if it is open already.
        disjoint: Give each end of a link a subgraph of its own; ``batch`` has the number of the
            link.
        time_attr: As of NeighborLoader; so are temporal_strategy, weight_attr, as_pyg, sampling
            (but ladies), prefetch, staging_bytes, num_threads, timeout_secs and window_bytes.
        **more: None. An argument that only PyG's loader has may have PyG's default.

    Raises:
        ValueError: An argument or an option is invalid, a link's end is no node, or no negative is
            possible.
        TypeError: An argument of PyG's loader has another value than PyG's default; the error names
            the remedy.
        OSError: A file of the store cannot be read.
        RuntimeError: The storage engine is unavailable.
    """

    def __init__(
        self,
        store: GraphStore | str | Path,
        num_neighbors: NumNeighbors,
        edge_label_index: InputLinks = None,
        edge_label: torch.Tensor | None = None,
        edge_label_time: torch.Tensor | None = None,
        *,
        links: LinkSplits | str | Path | None = None,
        exclude_seed_edges: bool = True,
        reverse_type: EdgeType | Literal["auto"] | None = "auto",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        batch_size: int = 1024,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        features: Features | None = None,
        storage: StorageOptions | Mapping[str, Any] | None = None,
        cache: CacheOptions | Mapping[str, Any] | None = None,
        topology: Topology | TypedTopology | None = None,
        disjoint: bool = False,
        time_attr: str | None = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        weight_attr: str | None = None,
        as_pyg: bool = False,
        sampling: str | Sampling | Mapping[str, Any] = "neighbor",
        prefetch: int | ReadAhead = 4,
        staging_bytes: int | str = 256 << 20,
        num_threads: int = 1,
        timeout_secs: float = 120.0,
        window_bytes: int | str | None = None,
        **more: Never,
    ) -> None:
        check_extra_arguments(LinkNeighborLoader, more)
        store, sampling = opened(store), Sampling.of(sampling)
        check_features(features)
        policy = run_ahead(prefetch, staging_bytes, num_threads, timeout_secs, window_bytes)
        drawing = Drawing(
            num_neighbors, sampling, disjoint, temporal_strategy, time_attr, weight_attr
        )
        if neg_sampling_ratio:
            neg_sampling = NegativeSampling("binary", neg_sampling_ratio)
        parts = open_link_parts(
            store,
            drawing,
            edge_label_index,
            edge_label=edge_label,
            edge_label_time=edge_label_time,
            links=links,
            negatives=NegativeSampling.cast(neg_sampling),
            exclude_seed_edges=exclude_seed_edges,
            reverse_type=reverse_type,
            topology=topology,
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
            form=form_of(as_pyg=as_pyg, as_dgl=False),
        )
