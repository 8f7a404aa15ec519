"""Divides the edges of one type of a store into train, valid and test."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

import numpy as np

from lsm import native
from lsm.core.arguments import option, whole_number
from lsm.core.limits import LARGEST_SEED
from lsm.data import format as layout
from lsm.data.edge_data import EdgeData
from lsm.data.graph_store import GraphStore
from lsm.data.links import format as links_layout
from lsm.data.links.format import LinksMeta, MessageRule
from lsm.data.links.given import GivenSplits
from lsm.data.links.parts import GivenParts, Parts, RandomParts, TimeParts, edge_chunks
from lsm.data.links.splits import store_facts
from lsm.data.typed.format import edge_parts
from lsm.data.writer import StoreWriter
from lsm.graph.types import EdgeType, as_edge_type

_VALID, _TEST = 1, 2
_NUM_PARTS = 3
_COPIED_EDGES = 1 << 20  # at once


class SplitOptions(TypedDict, total=False):
    """The options of split_links()."""

    edge_type: EdgeType | None
    reverse_type: EdgeType | Literal["auto"] | None
    valid: float
    test: float
    order: Literal["auto", "random", "time"]
    seed: int
    message_edges: MessageRule
    given: str | Path | None
    force: bool


def split_links(
    store: GraphStore,
    out: str | Path | None = None,
    *,
    edge_type: EdgeType | None = None,
    reverse_type: EdgeType | Literal["auto"] | None = "auto",
    valid: float = 0.05,
    test: float = 0.05,
    order: Literal["auto", "random", "time"] = "auto",
    seed: int = 0,
    message_edges: MessageRule = "train",
    given: str | Path | None = None,
    force: bool = False,
) -> Path:
    """Writes the splits, and the message graphs that go with them. Reads the edges twice.

    Args:
        store: The store.
        out: Directory to make; None: next to the store, as ``STORE.links``.
        edge_type: The type of edges to divide; None: the only one.
        reverse_type: The type that has the same edges in the other direction. auto:
            (DESTINATION, rev_RELATION, SOURCE), or else the type of the same relation, apart from
            ``rev_``, from DESTINATION to SOURCE, if there is one.
        valid: Share of the edges for validation.
        test: Share of the edges for testing.
        order: time: the latest edges are for testing, those before them for validation; random: by
            a hash of the ends, which edges in the other direction share; auto: time if edges have
            times.
        seed: Seed of random.
        message_edges: As MessageRule.
        given: Directory with the edges of the splits, in place of shares; see GivenSplits.
        force: Replace existing splits.

    Returns:
        The directory of the splits.

    Raises:
        FileExistsError: ``out`` exists.
        ValueError: An option does not fit the store, or a split would have no edges.
    """
    _require_one_of("order", order, ("auto", "random", "time"))
    _require_one_of("message_edges", message_edges, get_args(MessageRule))
    chosen = known_edge_type(store, edge_type)
    reverse = known_reverse(store, chosen, reverse_type)
    edges = {each: store.edges(each) for each in (chosen, reverse) if each is not None}
    pairs = None if given is None else GivenSplits.read(Path(given), edges[chosen])
    if order == "auto":
        order = "time" if edges[chosen].has_times else "random"
    is_symmetric = chosen[0] == chosen[2]  # both ends are of one type
    parts: Parts
    if pairs is not None:
        most = max(edges[chosen].num_sources, edges[chosen].num_destinations)
        held = (pairs.edges["valid"], pairs.edges["test"])
        parts = GivenParts(*held, most, is_symmetric=is_symmetric)
    else:
        parts = _drawn_parts(edges, valid, test, order, seed, is_symmetric=is_symmetric)
    path = Path(out) if out is not None else store.path.with_name(f"{store.path.name}.links")
    with StoreWriter(path, force=force, kind="links") as writer:
        if pairs is None:
            counts = _write_splits(writer, parts, edges[chosen])
            _check_counts(counts, valid, test)
        else:
            counts = pairs.write(writer, edges[chosen], parts)
        for each, own in edges.items():
            folder, is_reverse = edge_parts(store.meta)[each][0], each == reverse
            _write_message_graphs(writer, message_edges, folder, parts, own, is_reverse=is_reverse)
        meta = LinksMeta(
            store=store_facts(store, list(edges)),
            edge_type=chosen,
            reverse_type=reverse,
            num_nodes=(edges[chosen].num_sources, edges[chosen].num_destinations),
            order="given" if pairs is not None else order,
            seed=seed,
            message_edges=message_edges,
            splits=counts,
        )
        writer.commit(meta)
    return path


def _require_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")


def known_edge_type(store: GraphStore, edge_type: EdgeType | None) -> EdgeType:
    """The type that is given, or the only one. Raises ValueError for another, or none of
    several."""
    known = store.edge_types
    edge_type = as_edge_type(edge_type)
    if edge_type is None and len(known) == 1:
        return known[0]
    if edge_type is None or edge_type not in known:
        names = "; ".join(",".join(each) for each in known)
        is_type = isinstance(edge_type, tuple) and all(isinstance(n, str) for n in edge_type)
        given = "none" if edge_type is None else ",".join(edge_type) if is_type else repr(edge_type)
        raise ValueError(f"edge type: expected one of {names} of {store.path}, got {given}")
    return edge_type


def known_reverse(
    store: GraphStore, edge_type: EdgeType, given: EdgeType | Literal["auto"] | None
) -> EdgeType | None:
    """The type that has the edges of ``edge_type`` in the other direction: as ``given``. auto: by
    its name. Raises ValueError for a type between other ends."""
    source, relation, destination = edge_type
    if given is None:
        return None
    if given != "auto":
        reverse: EdgeType = as_edge_type(given)
        if reverse not in store.edge_types or (reverse[0], reverse[2]) != (destination, source):
            raise ValueError(
                f"reverse type: expected edges from {destination} to {source}, got {given}"
            )
        return reverse
    named = (destination, f"rev_{relation}", source)
    back = (destination, relation.removeprefix("rev_"), source)
    for each in (named, back):
        if each in store.edge_types and each != edge_type:
            return each
    return None


def _drawn_parts(
    edges: dict[EdgeType, EdgeData],
    valid: float,
    test: float,
    order: str,
    seed: int,
    *,
    is_symmetric: bool,
) -> Parts:
    shares: tuple[Any, ...] = (valid, test)
    are_numbers = all(isinstance(share, Real) for share in shares)
    if not (are_numbers and valid >= 0 and test >= 0 and 0 < valid + test < 1):
        raise ValueError(
            "valid, test: expected shares of at least 0, above 0 and below 1 together, got "
            f"{valid!r} and {test!r}"
        )
    whole_number("seed", seed, 0, LARGEST_SEED)
    if order == "random":
        return RandomParts(seed, valid, test, is_symmetric=is_symmetric)
    for each, own in edges.items():
        if not own.has_times:
            raise ValueError(
                f"order: edges of type {','.join(each)} have no times; split with "
                f"{option('order', 'random')}, or name a reverse type that has times"
            )
    return TimeParts(next(iter(edges.values())), valid, test)


def _write_splits(writer: StoreWriter, parts: Parts, edges: EdgeData) -> dict[str, int]:
    """Writes the edges of each split, and their times. Returns the number of edges by split."""
    counts = np.zeros(_NUM_PARTS, np.int64)
    for chunk in edge_chunks(edges):
        counts += np.bincount(parts.of(edges, chunk, is_reverse=False), minlength=_NUM_PARTS)
    sinks = [writer.file(layout.split_file(name)) for name in layout.SPLITS]
    for sink, count in zip(sinks, counts, strict=True):
        sink.write_header(np.dtype(np.int64), int(count), 2)
    times = edges.times() if edges.has_times else None
    time_sinks = []
    if times is not None:
        time_sinks = [writer.file(links_layout.times_file(name)) for name in layout.SPLITS]
        for sink, count in zip(time_sinks, counts, strict=True):
            sink.write_header(np.dtype(np.int64), int(count))
    for chunk in edge_chunks(edges):
        found = parts.of(edges, chunk, is_reverse=False)
        rows = np.stack((chunk.sources, chunk.destinations), axis=1)
        for part in range(_NUM_PARTS):
            is_own = found == part
            sinks[part].write(rows[is_own])
            if times is not None:
                own = times[chunk.first : chunk.first + len(found)].numpy()
                time_sinks[part].write(own[is_own])
    if times is not None:
        native.check_mapped(times)
    return dict(zip(layout.SPLITS, counts.tolist(), strict=True))


def _check_counts(counts: dict[str, int], valid: float, test: float) -> None:
    for name, share in (("train", 1.0), ("valid", valid), ("test", test)):
        if share > 0 and counts[name] == 0:
            listed = ", ".join(f"{split} {count}" for split, count in counts.items())
            raise ValueError(
                f"{name}: no edge is left for it ({listed}); choose other shares, or another seed "
                "or order"
            )


def _write_message_graphs(
    writer: StoreWriter,
    rule: MessageRule,
    folder: str,
    parts: Parts,
    edges: EdgeData,
    *,
    is_reverse: bool,
) -> None:
    graphs: dict[str, tuple[int, ...]] = {}
    if rule != "all":
        graphs["train"] = (_VALID, _TEST)
    if rule == "earlier":
        graphs["test"] = (_TEST,)
    for graph, held in graphs.items():
        found = [
            chunk.first
            + np.flatnonzero(np.isin(parts.of(edges, chunk, is_reverse=is_reverse), held))
            for chunk in edge_chunks(edges)
        ]
        left_out = np.concatenate([np.empty(0, np.int64), *found])
        _write_topology(writer, links_layout.message_folder(graph, folder), edges, left_out)


def _write_topology(
    writer: StoreWriter, folder: str, edges: EdgeData, left_out: np.ndarray
) -> None:
    """Writes the edges of a type but those at ``left_out``."""
    topology = edges.topology()
    indptr, indices = topology.indptr.numpy(), topology.indices.numpy()
    with writer.file(f"{folder}indptr.npy") as sink:
        sink.write_array(indptr - np.searchsorted(left_out, indptr))
    with writer.file(f"{folder}indices.npy") as sink:
        sink.write_header(indices.dtype, len(indices) - len(left_out))
        for kept in _without(indices, left_out):
            sink.write(kept)
    writer.write_array(f"{folder}left_out.npy", left_out)
    native.check_mapped(topology.indptr)
    native.check_mapped(topology.indices)


def _without(values: np.ndarray, positions: np.ndarray) -> Iterable[np.ndarray]:
    """``values`` without those at ``positions``, in chunks."""
    for first in range(0, len(values), _COPIED_EDGES):
        begin, end = np.searchsorted(positions, [first, first + _COPIED_EDGES])
        yield np.delete(values[first : first + _COPIED_EDGES], positions[begin:end] - first)
