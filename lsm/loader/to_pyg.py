"""A batch as PyG's loaders deliver it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch_geometric.data import Data, HeteroData

if TYPE_CHECKING:
    from lsm.loader.batch import Batch


def to_pyg(batch: Batch) -> Data | HeteroData:
    """The batch with exactly the fields of PyG's NeighborLoader: Data for a graph of one type,
    HeteroData for several. Tensors are shared."""
    return _to_data(batch) if batch.types is None else _to_hetero(batch)


def _to_data(batch: Batch) -> Data:
    data = Data(edge_index=batch.edge_index, n_id=batch.n_id, num_nodes=batch.num_nodes)
    _set(data, x=batch.x, y=_labels(batch).get("node"), e_id=batch.e_id, input_id=batch.input_id)
    _set(data, edge_weight=batch.edge_weight)
    data.batch_size = batch.batch_size
    data.num_sampled_nodes = batch.num_sampled_nodes
    data.num_sampled_edges = batch.num_sampled_edges
    return data


def _to_hetero(batch: Batch) -> HeteroData:
    types, data, labels = batch.types, HeteroData(), _labels(batch)
    assert types is not None, "the caller has looked"
    x = batch.x_dict
    for name, n_id in batch.n_id_dict.items():
        store = data[name]
        _set(store, x=x.get(name), y=labels.get(name), n_id=n_id)
        store.num_nodes = len(n_id)
        store.num_sampled_nodes = types.num_sampled_nodes[name]
    e_id, weights = batch.e_id_dict, batch.edge_weight_dict
    for each, edge_index in batch.edge_index_dict.items():
        store = data[each]
        _set(store, edge_index=edge_index, e_id=e_id.get(each), edge_weight=weights.get(each))
        store.num_sampled_edges = types.num_sampled_edges[each]
    _set(data[types.input_type], input_id=batch.input_id)
    data[types.input_type].batch_size = batch.batch_size
    return data


def _labels(batch: Batch) -> dict[str, torch.Tensor]:
    """The labels of all nodes of the batch, by type, as far as there are any."""
    return {
        name: labels.index_select(0, batch.n_id_dict[name].to(labels.device)).to(batch.n_id.device)
        for name, labels in (batch.labels or {}).items()
    }


def _set(store: object, **values: torch.Tensor | None) -> None:
    """Sets the values that are there."""
    for name, value in values.items():
        if value is not None:
            setattr(store, name, value)
