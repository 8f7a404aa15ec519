"""A sampled batch as PyG's samplers return it."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from lsm.loader.batch import Batch


def to_output(
    batch: Batch, input_id: Tensor | None, *, edge_ids: bool
) -> SamplerOutput | HeteroSamplerOutput:
    """The nodes and edges of ``batch``. input_id: [b] int64 numbers of its seeds. edge_ids: With
    the edges' positions in the store, for which the batch is sampled again."""
    told: dict[str, Any] = {"metadata": _metadata(batch, input_id)}
    types = batch.types
    if types is None:
        source, destination = batch.edge_index
        return SamplerOutput(
            node=batch.n_id,
            row=source,
            col=destination,
            edge=batch.e_id if edge_ids else None,
            batch=batch.batch,
            num_sampled_nodes=batch.num_sampled_nodes,
            num_sampled_edges=batch.num_sampled_edges,
            **told,
        )
    ends = batch.edge_index_dict
    return HeteroSamplerOutput(
        node=batch.n_id_dict,
        row={each: own[0] for each, own in ends.items()},
        col={each: own[1] for each, own in ends.items()},
        edge=batch.e_id_dict if edge_ids else None,
        batch=None if batch.batch is None else types.nodes(batch.batch),
        num_sampled_nodes=types.num_sampled_nodes,
        num_sampled_edges=types.num_sampled_edges,
        **told,
    )


def _metadata(batch: Batch, input_id: Tensor | None) -> tuple[Any, ...]:
    """The values that PyG's loaders set on a batch of nodes, of pairs, or of triplets."""
    links = batch.links
    if links is None:
        return input_id, batch.seed_time
    if links.edge_label_index is not None:
        return input_id, links.edge_label_index, links.edge_label, links.edge_label_time
    return (
        *(input_id, links.src_index, links.dst_pos_index),
        *(links.dst_neg_index, links.seed_time),
    )
