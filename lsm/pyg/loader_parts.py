"""The arguments of PyG's NodeLoader and LinkLoader that let lsm prepare their batches ahead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch_geometric.sampler import NegativeSampling as PygNegativeSampling

from lsm.core.ids import as_int64
from lsm.data.graph_store import GraphStore
from lsm.data.opened import opened
from lsm.graph.types import EdgeType
from lsm.links.negative_sampling import NegativeSampling
from lsm.loader.inputs import InputNodes, find_inputs, is_mask
from lsm.loader.link_inputs import InputLinks
from lsm.loader.link_neighbor_loader import LinkNeighborLoader
from lsm.loader.link_seeds import LinkSeeds
from lsm.loader.loader import Loader
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.pyg.ahead import BatchesAhead, SamplerAhead
from lsm.pyg.edge_values import EdgeValues
from lsm.pyg.feature_store import FeatureStore
from lsm.pyg.graph_store import GraphStore as PygGraph
from lsm.sampler.typed_neighbor import NumNeighbors

_OF_SAMPLER = ("disjoint", "time_attr", "temporal_strategy", "weight_attr", "sampling")
_OF_PYG = ("transform_sampler_output", "custom_cls", "pin_memory", "pin_memory_device")
_OF_LINK_SAMPLER = (*_OF_SAMPLER, "exclude_seed_edges", "reverse_type", "links")


class Parts(dict[str, Any]):
    """The keyword arguments of one of PyG's loaders: ``NodeLoader(**parts)``.

    ``close()`` ends the threads and the engines behind them; so does the end of a ``with``
    statement.

    Args:
        loader: Prepares the batches.
        arguments: The keyword arguments.
    """

    def __init__(self, loader: Loader, arguments: dict[str, Any]) -> None:
        super().__init__(arguments)
        self.loader = loader
        """The loader of lsm that prepares the batches; its ``stats()`` count them."""

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``for batch in loader``. Later loops continue from there.

        Args:
            epoch: Epoch, from 0.
        """
        self.loader.set_epoch(epoch)

    def close(self) -> None:
        """Closes the loader and the feature store."""
        self.loader.close()
        self["data"][0].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def parts(
    store: GraphStore | str | Path,
    num_neighbors: NumNeighbors,
    input_nodes: InputNodes = None,
    batch_size: int = 1024,
    *,
    edge_ids: bool = True,
    transform: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Parts:
    """Returns the arguments of PyG's NodeLoader over a store: ``NodeLoader(**parts)``.

    Threads sample and read batches ahead of PyG's loader, so a cache sees the batches to come, as
    with lsm.NeighborLoader. They are in the order of ``batch_sampler``, which takes the place of
    ``batch_size, shuffle, drop_last`` and ``sampler`` of a DataLoader: these are arguments of
    parts(), and PyG's loader refuses them next to a ``batch_sampler``. ``num_workers`` stays 0;
    workers would sample and read each batch by themselves.

    Args:
        store: A GraphStore of lsm, or its path.
        num_neighbors: As of lsm.NeighborLoader; so are input_nodes and batch_size.
        edge_ids: Batches have ``e_id`` and the store's values of edges, for which each is sampled a
            second time.
        transform: Applied to each batch, at last.
        **options: Other arguments of lsm.NeighborLoader: shuffle, seed, rank, world_size, cache,
            storage, features and so on.

    Returns:
        data, node_sampler, input_nodes, input_time, input_id, batch_sampler and transform.

    Raises:
        ValueError: An argument or an option is invalid.
        TypeError: An argument is unknown.
        OSError: A file of the store cannot be read.
        RuntimeError: The storage engine is unavailable.
    """
    store = opened(store)
    _check_options("parts", options)
    input_type, nodes = find_inputs(store, input_nodes)
    input_id = nodes if is_mask(input_nodes) else None
    loader = NeighborLoader(store, num_neighbors, (input_type, nodes), batch_size, **options)
    times = options.get("input_time")
    given = {name: options[name] for name in _OF_SAMPLER if name in options} | {
        "edge_ids": edge_ids
    }
    return _parts(
        *(loader, store, num_neighbors, input_type, "node_sampler", given),
        storage=options.get("storage"),
        transform=EdgeValues(store, transform) if edge_ids else transform,
        input_nodes=(input_type, nodes) if store.is_typed else nodes,
        input_time=None if times is None else as_int64(torch.as_tensor(times)),
        input_id=input_id,
    )


def link_parts(
    store: GraphStore | str | Path,
    num_neighbors: NumNeighbors,
    edge_label_index: InputLinks = None,
    *,
    edge_ids: bool = True,
    transform: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Parts:
    """Returns the arguments of PyG's LinkLoader over a store: ``LinkLoader(**parts)``.

    As ``parts``, for links.

    Args:
        store: A GraphStore of lsm, or its path.
        num_neighbors: As of lsm.LinkNeighborLoader; so is edge_label_index.
        edge_ids: As of ``parts``; so is transform.
        transform: Applied to each batch, at last.
        **options: Other arguments of lsm.LinkNeighborLoader: edge_label, links, neg_sampling,
            batch_size, shuffle, cache and so on. Negatives are of a kind that PyG has: uniform.

    Returns:
        data, link_sampler, edge_label_index, edge_label, edge_label_time, neg_sampling,
        batch_sampler and transform.

    Raises:
        ValueError: An argument or an option is invalid.
        TypeError: An argument is unknown.
        OSError: A file of the store cannot be read.
        RuntimeError: The storage engine is unavailable.
    """
    store = opened(store)
    _check_options("link_parts", options)
    negatives = _negatives(options)
    loader = LinkNeighborLoader(store, num_neighbors, edge_label_index, **options)
    seeds = loader.parts.seeds
    assert isinstance(seeds, LinkSeeds), "the loader is one of links"
    edges = seeds.edges
    given = {name: options[name] for name in _OF_LINK_SAMPLER if name in options} | {
        "edge_ids": edge_ids,
        "neg_sampling": negatives,
    }
    return _parts(
        *(loader, store, num_neighbors, edges.edge_type, "link_sampler", given),
        storage=options.get("storage"),
        transform=EdgeValues(store, transform) if edge_ids else transform,
        edge_label_index=(edges.edge_type if store.is_typed else None, edges.ends),
        edge_label=edges.labels,
        edge_label_time=edges.times,
        neg_sampling=negatives,
    )


def _parts(
    loader: Loader,
    store: GraphStore,
    num_neighbors: NumNeighbors,
    kind: str | EdgeType,
    role: str,
    given: dict[str, Any],
    *,
    storage: Any,
    **arguments: Any,
) -> Parts:
    """The parts over ``loader``, which an error closes.

    Args:
        kind: The type of the seeds.
        role: The sampler's name among the arguments of PyG's loader.
        given: Arguments of the sampler.
        storage: Options of the feature store.
        **arguments: The other arguments of PyG's loader.
    """
    try:
        rows = FeatureStore(store, storage=storage)
        ahead = BatchesAhead(loader)
        arguments |= {
            "data": (rows, PygGraph(store)),
            role: SamplerAhead(store, num_neighbors, ahead, loader, rows, kind, **given),
            "batch_sampler": ahead,
        }
    except BaseException:
        loader.close()
        raise
    return Parts(loader, arguments)


def _negatives(options: dict[str, Any]) -> PygNegativeSampling | None:
    """PyG's object of the negatives in ``options``. Raises ValueError for kinds that PyG lacks."""
    if options.get("neg_sampling_ratio"):
        return PygNegativeSampling("binary", options["neg_sampling_ratio"])
    given = NegativeSampling.cast(options.get("neg_sampling"))
    if given is None:
        return None
    if given.kind != "uniform" or given.nodes is not None:
        raise ValueError(
            "neg_sampling: expected kind uniform without nodes, as PyG's LinkLoader has it; "
            "lsm.LinkNeighborLoader has the other kinds"
        )
    return PygNegativeSampling(given.mode, given.amount, given.src_weight, given.dst_weight)


def _check_options(name: str, options: dict[str, Any]) -> None:
    """Raises TypeError for options of PyG's loader alone, and for those that give batches of lsm
    another form or another sampler."""
    for option in _OF_PYG:
        if option in options:
            raise TypeError(
                f"{name}: {option} is for PyG's loader, next to the result of {name}: "
                f"NodeLoader(**parts, {option}=...), or LinkLoader"
            )
    for option in ("as_pyg", "as_dgl", "sampler"):
        if option in options:
            raise TypeError(f"{name}: {option}: PyG's loader makes the batches, by node_sampler")
