"""The links of a LinkNeighborLoader and their negatives, from PyG's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from lsm.core.arguments import as_path
from lsm.core.ids import as_int64, tensor_of_integers
from lsm.data.format import SPLITS
from lsm.data.graph_store import GraphStore
from lsm.data.links.make import known_edge_type, known_reverse
from lsm.data.links.splits import LinkSplits
from lsm.graph.types import EdgeType
from lsm.links.negative_sampling import NegativeSampling, NodeDraws
from lsm.loader.inputs import TIME
from lsm.loader.link_seeds import LinkEdges

InputLinks = str | Tensor | tuple[Any, Any] | EdgeType | None
"""Links as PyG's loader takes them: pairs, an edge type, or both; or a split's name for pairs."""


def open_splits(store: GraphStore, links: LinkSplits | str | Path | None) -> LinkSplits | None:
    """The splits that an argument names, which are of ``store``. Raises TypeError, ValueError,
    FileNotFoundError."""
    if links is None:
        return None
    splits = links if isinstance(links, LinkSplits) else LinkSplits.open(as_path("links", links))
    splits.check_store(store)
    return splits


def find_links(
    store: GraphStore, given: InputLinks, splits: LinkSplits | None
) -> tuple[EdgeType, Tensor, str]:
    """The type of the links, their ends [2, n] int64, and the split whose message graph they take.
    Raises ValueError for links that are none."""
    edge_type, pairs = _parts(given)
    if splits is not None and edge_type is None:
        edge_type = splits.edge_type
    if edge_type is not None and store.is_typed is False and edge_type not in store.edge_types:
        raise ValueError("edge_label_index: expected pairs or a split of a graph without types")
    if edge_type is None and len(store.edge_types) > 1:
        found = repr(pairs) if isinstance(pairs, str) else "none"
        known = "; ".join(map(str, store.edge_types))
        raise ValueError(
            "edge_label_index: expected an edge type, or (edge type, pairs or split), of a store "
            f"with the types {known}, got {found}"
        )
    chosen = known_edge_type(store, edge_type)
    if isinstance(pairs, str):
        if splits is None or splits.edge_type != chosen:
            raise ValueError(
                f"edge_label_index: split {pairs!r} of {','.join(chosen)}: give links=, the "
                "directory that `lsm data split-links` wrote for this edge type"
            )
        return chosen, splits.edges(pairs), pairs
    edges = store.edges(chosen)
    if pairs is None:
        return chosen, edges.in_order(edges.ends(), dim=1), SPLITS[0]
    counts = (edges.num_sources, edges.num_destinations)
    return (
        chosen,
        _checked(as_int64(tensor_of_integers("edge_label_index", pairs)), counts),
        SPLITS[0],
    )


def find_edges(
    store: GraphStore,
    given: InputLinks,
    splits: LinkSplits | None,
    labels: Tensor | None,
    times: Tensor | None,
    time_attr: str | None,
    negatives: NegativeSampling | None,
) -> tuple[LinkEdges, str]:
    """The links with their labels and times, and the split whose message graph they take. Raises
    ValueError for values that do not fit."""
    edge_type, ends, split = find_links(store, given, splits)
    pairs = _parts(given)[1]
    labels = None if labels is None else torch.as_tensor(labels)
    times = None if times is None else as_int64(tensor_of_integers("edge_label_time", times))
    all_edges = store.edges(edge_type) if pairs is None else None
    if all_edges is not None and not all_edges.has_order:
        for name, values in (("edge_label", labels), ("edge_label_time", times)):
            if values is not None:
                raise ValueError(
                    f"{name}: the store does not keep the order of its edges in the source; give "
                    "the pairs as edge_label_index, too, or make the store with keep_order=True"
                )
    if negatives is not None and labels is not None:
        if not negatives.is_binary:
            raise ValueError("edge_label: expected None with triplets")
        if len(labels) and labels.min() == 0:
            labels = labels + 1  # 0 is the label of negatives
    if times is None and time_attr is not None:
        if all_edges is not None and all_edges.has_times:
            times = all_edges.in_order(all_edges.times())
        elif splits is not None and isinstance(pairs, str):
            times = splits.times(split)
    if (times is None) != (time_attr is None):
        raise ValueError(
            f"edge_label_time: expected a time for each link with time_attr={TIME!r}, and only with"
            " it"
        )
    for name, values in (("edge_label", labels), ("edge_label_time", times)):
        if values is not None and len(values) != ends.size(1):
            raise ValueError(
                f"{name}: expected one for each of {ends.size(1)} links, got {len(values)}"
            )
    if times is not None and times.dtype != torch.int64:
        raise ValueError(f"edge_label_time: expected int64, got {times.dtype}")
    return LinkEdges(edge_type, ends, labels, times), split


def open_draws(
    store: GraphStore, edges: LinkEdges, negatives: NegativeSampling | None, *, is_disjoint: bool
) -> tuple[NodeDraws | None, NodeDraws | None]:
    """The draws of the sources and of the destinations of negatives. Raises ValueError if no
    negative is possible, or for a kind that does not suit the loader."""
    if negatives is None:
        return None, None
    if negatives.is_shared and is_disjoint:
        raise ValueError(
            f"neg_sampling: kind {negatives.kind}: links share negatives, and with disjoint or "
            "times each has a subgraph of its own"
        )
    source_type, _, destination_type = edges.edge_type
    source, destination = store.nodes(source_type), store.nodes(destination_type)
    if negatives.candidates is not None:
        _check_candidates(negatives.candidates, edges.ends.size(1), destination.num_nodes)
    by_degree = negatives.kind == "degree"
    needs = (negatives.is_binary, negatives.kind in ("uniform", "joint", "degree"))
    own_times = edges.times is not None
    draws: list[NodeDraws | None] = [None, None]
    if needs[0]:
        draws[0] = NodeDraws(
            source.num_nodes,
            side="source",
            weight=negatives.src_weight,
            ends=edges.ends[0] if by_degree else None,
        ).with_times(source.times() if own_times and source.has_times else None)
    if needs[1]:
        draws[1] = NodeDraws(
            destination.num_nodes,
            weight=negatives.dst_weight,
            nodes=negatives.nodes,
            ends=edges.ends[1] if by_degree else None,
        ).with_times(destination.times() if own_times and destination.has_times else None)
    return draws[0], draws[1]


def find_excluded(
    store: GraphStore,
    edge_type: EdgeType,
    splits: LinkSplits | None,
    reverse_type: EdgeType | Literal["auto"] | None,
) -> dict[EdgeType, bool]:
    """The types of edges that hold the links, by True if they lead from destination to source."""
    if splits is not None and reverse_type == "auto":
        reverse = splits.reverse_type
    else:
        reverse = known_reverse(store, edge_type, reverse_type)
    return {edge_type: False} if reverse is None else {edge_type: False, reverse: True}


def _parts(given: Any) -> tuple[EdgeType | None, Any]:
    """The edge type and the pairs of an argument."""
    is_sequence = isinstance(given, tuple | list)
    if is_sequence and len(given) == 3 and all(isinstance(each, str) for each in given):
        return tuple(given), None
    if not isinstance(given, tuple):
        return None, given
    if len(given) == 2 and (given[0] is None or isinstance(given[0], tuple)):
        return given
    raise ValueError(
        "edge_label_index: expected pairs [2, n], a split, an edge type, or (edge type, pairs or "
        f"split), got {given!r}"
    )


def _checked(pairs: Tensor, counts: tuple[int, int]) -> Tensor:
    if pairs.dim() != 2 or pairs.size(0) != 2 or pairs.dtype != torch.int64:
        raise ValueError(
            f"edge_label_index: expected integers [2, n], got {pairs.dtype} {list(pairs.shape)}"
        )
    for row, count in enumerate(counts):
        bad = ((pairs[row] < 0) | (pairs[row] >= count)).nonzero().view(-1)
        if len(bad):
            raise ValueError(
                f"edge_label_index: link {int(bad[0])}: {('source', 'destination')[row]} "
                f"{int(pairs[row, bad[0]])} is no node: expected an id in [0, {count})"
            )
    return pairs


def _check_candidates(candidates: Tensor, num_links: int, num_nodes: int) -> None:
    if candidates.dim() not in (1, 2) or candidates.dtype != torch.int64:
        raise ValueError(
            f"neg_sampling: candidates: expected int64 [{num_links}, k] or [k], got "
            f"{candidates.dtype} {list(candidates.shape)}"
        )
    if candidates.dim() == 2 and len(candidates) != num_links:
        raise ValueError(
            f"neg_sampling: candidates: expected a row for each of {num_links} links, got "
            f"{len(candidates)}"
        )
    if candidates.numel() == 0:
        raise ValueError("neg_sampling: no negatives are possible: no candidate is given")
    if int(candidates.min()) < 0 or int(candidates.max()) >= num_nodes:
        raise ValueError(
            f"neg_sampling: candidates: expected ids of destinations in [0, {num_nodes}), got "
            f"{int(candidates.min())} to {int(candidates.max())}"
        )
