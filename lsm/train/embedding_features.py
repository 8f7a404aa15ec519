"""Embeddings of a run of `lsm embed train` as the features of nodes, read from where they lie."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from lsm.config.schema import Config
from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore
from lsm.data.node_data import NodeData
from lsm.embed.run import EmbeddingRun
from lsm.embed.table.files import FILE_NAME
from lsm.embed.use.embeddings import Embeddings, open_run
from lsm.run.record import has_finished

_NAMES_AT_ONCE = 4 << 20


def with_embeddings(store: GraphStore, config: Config) -> GraphStore:
    """``store`` with the features that ``data.features`` names.

    Rows stay in the run's file of partitions; memory holds the row of each node, 8 bytes. Raises
    ValueError or FileNotFoundError, which name the key, if there is no finished run, or if it is of
    another graph.
    """
    path = config.data.features
    if path is None:
        return store
    if config.storage.engine == "nvme":
        raise ValueError(
            "data.features: storage.engine=nvme reads copies of a store's own features; set "
            "io_uring or posix"
        )
    try:
        found = open_run(path)
        _check_run(found.run)
        types = _types_for(store, found)
        return store.with_features({name: _files(store.nodes(name), found) for name in types})
    except FileNotFoundError as error:
        raise FileNotFoundError(f"data.features: {error}") from error
    except ValueError as error:
        raise ValueError(f"data.features: {error}") from error


def _check_run(run: EmbeddingRun) -> None:
    """Raises ValueError unless the run has ended, with rows that an engine can read."""
    table = run.state.table
    if not has_finished(run.path):
        raise ValueError(
            f"{run.path}: the run has not finished; run the command that started it again"
        )
    if run.config.storage.device is not None:
        raise ValueError(
            f"{run.path}: its embeddings lie on the drive {run.config.storage.device}; train them "
            "to files, without storage.devices"
        )
    if table.width % table.dim:
        raise ValueError(
            f"{run.path}: its rows of {table.dim} floats have {table.width - table.dim} of state "
            "between them, which reads by rows cannot leave out; train with embed.optimizer=adagrad"
        )


def _types_for(store: GraphStore, found: Embeddings) -> list[str]:
    """The node types that get the embeddings. Raises ValueError if the run is of another graph."""
    types = list(store.node_types)
    if len(types) == 1:
        if found.num_entities != store.num_nodes:
            raise ValueError(
                f"{found.run.path} has {found.num_entities:,} entities, and {store.path} "
                f"{store.num_nodes:,} nodes; give a run on the same graph"
            )
        return types
    types = [name for name in types if store.nodes(name).features is None]
    if not types:
        raise ValueError(
            f"{store.path}: all node types have features of their own; set data.features=null"
        )
    nameless = [name for name in types if not store.nodes(name).has_names]
    if nameless:
        raise ValueError(
            f"{store.path}: nodes of type {nameless[0]} have no names, by which entities are found "
            "in a graph of several types; convert it with names"
        )
    return types


def _files(nodes: NodeData, found: Embeddings) -> FeatureFiles:
    """The rows of ``nodes`` in the run's file."""
    run = found.run
    layout, dim, kept = run.layout, found.dim, run.state.kept
    # The state of the optimiser has as many floats as the embedding, and its rows are of no node.
    rows_each = layout.width // dim
    starts = torch.tensor(layout.starts)
    first = torch.tensor([layout.slot_offset(p, slot) for p, slot in enumerate(kept.slots)])
    first = first // layout.row_bytes - starts[:-1]
    entities = _entities(nodes, found)
    partitions = torch.searchsorted(starts, entities, right=True) - 1
    facts = [run.state.table.starts, dim, kept.slots, kept.checksums]
    return FeatureFiles(
        paths=(run.path / FILE_NAME,),
        num_rows=layout.file_bytes // (dim * torch.float32.itemsize),
        dim=dim,
        dtype=torch.float32,
        store=str(run.path),
        digest=hashlib.sha256(repr(facts).encode()).hexdigest(),
        table=(entities + first[partitions]) * rows_each,
    )


def _entities(nodes: NodeData, found: Embeddings) -> Tensor:
    """The entity of each node, by its name, or its id if it has none: [N] int64. Raises ValueError
    for a node without one."""
    parts, remaining = [], _names(nodes)
    while names := list(islice(remaining, _NAMES_AT_ONCE)):
        try:
            parts.append(torch.tensor(found.store.find_entities(names)))
        except ValueError as error:
            raise ValueError(
                f"{found.run.path} is of another graph, and a node has no embedding: {error}"
            ) from error
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


def _names(nodes: NodeData) -> Iterator[str]:
    return nodes.names() if nodes.has_names else map(str, range(nodes.num_nodes))
