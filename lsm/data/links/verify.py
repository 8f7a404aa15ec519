"""Checks splits of edges: files, ids of nodes, and the message graphs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from lsm.core.os_error import in_words
from lsm.core.progress import ByteProgress
from lsm.data import format as layout
from lsm.data.checks import StoreArrays, check_files
from lsm.data.convert.array_file import ArrayFile
from lsm.data.links import format as links_layout
from lsm.data.links.format import LinksMeta, read_links_meta
from lsm.data.typed.format import edge_folder
from lsm.data.verify_edges import EdgeSizes, edge_problems

_LEFT_OUT = "left_out.npy"


def verify_links(path: Path, *, progress: bool | None = None) -> list[str]:
    """The problems of the splits of edges at ``path``, one line each."""
    try:
        meta = read_links_meta(path)
    except (OSError, ValueError) as error:
        return [in_words(error)]
    with ByteProgress(progress) as bars:
        problems, readable = check_files(path, meta.files, bars, links_layout.REMEDY)
    files = StoreArrays(path, readable, links_layout.REMEDY)
    for split, count in meta.splits.items():
        ends = partial(_ends, meta.num_nodes)
        problems += files.check(layout.split_file(split), "int64", (count, 2), ends)
        problems += files.check(links_layout.times_file(split), "int64", (count,))
        nodes = partial(_ends, (meta.num_nodes[1],))
        name = links_layout.candidates_file(split)
        problems += files.check(name, "int64", (count, None), nodes)
    for name in meta.files:
        if name.startswith("message/") and name.endswith(_LEFT_OUT):
            problems += _message_graph(files, meta, name.removesuffix(_LEFT_OUT))
    return problems


def _ends(counts: tuple[int, ...], array: ArrayFile) -> Iterator[str]:
    """Ids of nodes in columns of ``counts`` nodes; the last count is that of all further ones."""
    for first, rows in array.chunks():
        most = np.array([*counts, *[counts[-1]] * (rows.shape[1] - len(counts))])
        bad = np.flatnonzero(((rows < 0) | (rows >= most)).any(axis=1))
        if len(bad):
            yield f"edge {first + bad[0]} has an id that is no node: {rows[bad[0]].tolist()[:4]}"
            return


def _message_graph(files: StoreArrays, meta: LinksMeta, folder: str) -> Iterator[str]:
    name = f"{folder}{_LEFT_OUT}"
    problems = list(files.check(name, "int64", (None,), _ascending))
    yield from problems
    names = [f"{folder}{each}" for each in ("indptr.npy", "indices.npy")]
    if problems or not files.has(name, *names):
        return
    with ArrayFile(files.path / names[1]) as indices:
        num_edges = indices.num_rows
    sources, destinations = meta.num_nodes
    if meta.reverse_type is not None and folder.endswith(edge_folder(meta.reverse_type)):
        sources, destinations = destinations, sources
    sizes = EdgeSizes(num_edges, sources, destinations)
    yield from edge_problems(files, folder, sizes, None)


def _ascending(array: ArrayFile) -> Iterator[str]:
    last = -1
    for _, values in array.chunks():
        if len(values) and (values[0] <= last or (values[1:] <= values[:-1]).any()):
            yield "expected positions in ascending order"
            return
        last = values[-1] if len(values) else last
