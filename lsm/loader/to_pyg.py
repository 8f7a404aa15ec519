"""A batch as PyG's loaders deliver it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch_geometric.data import Data, HeteroData

from lsm.graph.types import EDGE, NODE
from lsm.loader.batch import Batch, select
from lsm.loader.seed_links import SeedLinks


def to_pyg(batch: Batch) -> Data | HeteroData:
    """The batch with exactly the fields of PyG's NeighborLoader, or of its LinkNeighborLoader, of a
    graph without masks: Data for a graph of one type, HeteroData for several. Tensors are
    shared."""
    return _to_data(batch) if batch.types is None else _to_hetero(batch)


def _to_data(batch: Batch) -> Data:
    data = Data(edge_index=batch.edge_index, n_id=batch.n_id, num_nodes=batch.num_nodes)
    e_id = batch.e_id
    _set(data, x=batch.x, e_id=e_id, input_id=batch.input_id, edge_weight=batch.edge_weight)
    values = batch.store_values
    if values is not None:
        select_values(data, values.nodes.get(NODE, {}), batch.n_id)
        of_edges = named_for_data(values.edges.get(EDGE, {}))
        select_values(data, of_edges, e_id, batch.edge_weight)
    _set(data, batch=batch.batch, seed_time=batch.seed_time)
    if batch.links is None:
        data.batch_size = batch.batch_size
    else:
        _set(data, **batch.links.values())
    data.num_sampled_nodes = batch.num_sampled_nodes
    data.num_sampled_edges = batch.num_sampled_edges
    return data


def _to_hetero(batch: Batch) -> HeteroData:
    types, data, values = batch.types, HeteroData(), batch.store_values
    assert types is not None, "the caller has looked"
    x = batch.x_dict
    seeds_of = types.nodes(batch.batch) if batch.batch is not None else {}
    for name, n_id in batch.n_id_dict.items():
        store = data[name]
        _set(store, x=x.get(name), n_id=n_id, batch=seeds_of.get(name))
        if values is not None:
            select_values(store, values.nodes.get(name, {}), n_id)
        store.num_nodes = len(n_id)
        store.num_sampled_nodes = types.num_sampled_nodes[name]
    e_id, weights = batch.e_id_dict, batch.edge_weight_dict
    for each, edge_index in batch.edge_index_dict.items():
        store, own = data[each], e_id.get(each)
        _set(store, edge_index=edge_index, e_id=own, edge_weight=weights.get(each))
        if values is not None:
            select_values(store, values.edges.get(each, {}), own, weights.get(each))
        store.num_sampled_edges = types.num_sampled_edges[each]
    if batch.links is None:
        _set(data[types.input_type], input_id=batch.input_id, seed_time=batch.seed_time)
        data[types.input_type].batch_size = batch.batch_size
    else:
        _set_links(data, batch.links, batch.input_id)
    return data


def _set_links(data: HeteroData, links: SeedLinks, input_id: Tensor | None) -> None:
    """Sets the fields of links where PyG has them: pairs on the edge type, triplets on its ends."""
    source, _, destination = links.edge_type
    values = links.values()
    own = {name: values.pop(name) for name in list(values) if name.startswith("edge_label")}
    _set(data[links.edge_type], input_id=input_id, **own)
    for end, names in ((source, ("src_index",)), (destination, ("dst_pos_index", "dst_neg_index"))):
        _set(data[end], **{name: values.get(name) for name in (*names, "seed_time")})


def named_for_data(of_edges: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values of edges by their names in ``Data``, which has nodes and edges in one, so that times
    of edges have a name of their own."""
    return {"edge_time" if name == "time" else name: each for name, each in of_edges.items()}


def select_values(
    store: object, values: Mapping[str, Tensor], ids: Tensor | None, drawn: Tensor | None = None
) -> None:
    """Sets the values of ``ids``; None: they are not known. ``drawn``: weights of the sampler, by
    which ``edge_weight`` is multiplied."""
    if ids is None:
        return
    for name, each in values.items():
        found = select(each, ids, ids.device)
        if name == "edge_weight" and drawn is not None:
            found = found * drawn
        setattr(store, name, found)


def _set(store: object, **values: Tensor | None) -> None:
    """Sets the values that are there."""
    for name, value in values.items():
        if value is not None:
            setattr(store, name, value)
