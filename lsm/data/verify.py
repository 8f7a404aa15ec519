"""Checks a store: every promise, by streaming, and with all problems, not just the first."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lsm.core.os_error import in_words
from lsm.core.progress import ByteProgress
from lsm.data import format as layout
from lsm.data.checks import StoreArrays, check_files, finite
from lsm.data.links.verify import verify_links
from lsm.data.triples.verify import verify_triples
from lsm.data.typed.format import edge_parts, node_parts, read_graph_meta
from lsm.data.verify_edges import EdgeSizes, edge_problems
from lsm.data.verify_nodes import node_problems


def verify_store(path: str | Path, *, progress: bool | None = None) -> list[str]:
    """The problems of the store at ``path``, one line each: file, fault, remedy.

    Checks sizes, checksums, that indptr grows from 0 to the number of edges, the ranges of indices,
    labels and splits, that splits are disjoint and labelled, that no feature, score or weight is
    NaN or infinite, and that edges with times are in their order; of triples: that edges are in
    order, each once, in their buckets, and that all ids have names. Reads every file once or twice;
    memory: two bytes per node and tens of MiB; of edges with their order kept a byte each.
    """
    path = Path(path)
    if layout.store_kind(path) == "triples":
        return verify_triples(path, progress=progress)
    if layout.store_kind(path) == "links":
        return verify_links(path, progress=progress)
    try:
        meta = read_graph_meta(path)
    except (OSError, ValueError) as error:
        return [in_words(error)]
    with ByteProgress(progress) as bars:
        problems, readable = check_files(path, meta.files, bars)
        files = StoreArrays(path, readable)
        times: dict[str, Path] = {}
        for name, (folder, nodes) in node_parts(meta).items():
            problems += node_problems(files, folder, nodes, bars)
            if files.has(folder + layout.NODE_TIMES):
                times[name] = path / folder / layout.NODE_TIMES
        counts = {name: nodes.num_nodes for name, (_, nodes) in node_parts(meta).items()}
        for (source, _, destination), (folder, num_edges) in edge_parts(meta).items():
            sizes = EdgeSizes(num_edges, counts[source], counts[destination])
            problems += edge_problems(files, folder, sizes, times.get(source))
        for name in meta.files:
            if layout.is_score(name):
                num_nodes = sum(counts.values())
                problems += files.check(name, "float32", (num_nodes,), partial(finite, "scores"))
    return problems
