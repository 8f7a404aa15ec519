"""Converts a homogeneous dataset of the Illinois Graph Benchmark (IGB) to a store.

Layout and splits are those of IGB's own loader (IllinoisGraphBenchmark/IGB-Datasets,
``igb/dataloader.py``). We differ in one point: the loader removes self-loops and adds one per node;
we keep the edges as they are on disk, since models add the loops that they need.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Unpack

from lsm.core.arguments import option
from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.labels import write_ordered_splits
from lsm.data.convert.left_out import warn_of_left_out, warn_of_types
from lsm.data.convert.write_store import GraphSource, StoreOptions, write_store
from lsm.data.graph_store import GraphStore

FEATURE_DIM = 1024
NUM_NODES = {
    "tiny": 100_000,
    "small": 1_000_000,
    "medium": 10_000_000,
    "large": 100_000_000,
    "full": 269_346_174,
}
LABEL_FILES = {19: "node_label_19.npy", 2983: "node_label_2K.npy"}
_NODES, _EDGES = "paper", "paper__cites__paper"
_PAPER_FILES = ("node_feat.npy", *LABEL_FILES.values(), "paper_id_index_mapping.npy")
# Labelled nodes of "full", which come first, by number of classes.
NUM_LABELLED = {19: 227_130_858, 2983: 157_675_969}


def convert_igb(
    src: str | Path,
    out: str | Path,
    *,
    size: str,
    num_classes: int = 19,
    num_nodes: int | None = None,
    num_labelled: int | None = None,
    **options: Unpack[StoreOptions],
) -> GraphStore:
    """Writes the store ``out`` from ``src/SIZE/processed`` and opens it.

    ``paper/node_feat.npy``: float32 [N, 1024] and ``paper/node_label_{19,2K}.npy``: float32 [N],
    each with a .npy header (tiny, small, medium) or without (large, full), as its first bytes show.
    ``paper__cites__paper/edge_index.npy``: [E, 2], from column 0 to column 1. The store has the
    edges by destination, those of one destination in the order of the file.

    A warning names folders of other types (IGBH), and arrays, that are not converted.

    Splits: the labelled nodes in order of id, 60% train, 20% valid, the rest test. ``num_nodes``
    and ``num_labelled`` replace the numbers of ``size``, for a part of a dataset. See
    ``StoreOptions``. Raises ValueError or OSError, and leaves nothing behind then.
    """
    count, num_labelled = _counts(size, num_classes, num_nodes, num_labelled)
    processed = _processed(Path(src), size)
    paper, cites = processed / _NODES, processed / _EDGES
    with contextlib.ExitStack() as stack:
        features = stack.enter_context(
            ArrayFile(paper / "node_feat.npy", raw_shape=(count, FEATURE_DIM))
        )
        labels = stack.enter_context(
            ArrayFile(paper / LABEL_FILES[num_classes], raw_shape=(count,))
        )
        edges = stack.enter_context(ArrayFile(cites / "edge_index.npy"))
        if features.num_rows != count:
            raise ValueError(
                f"{features.path}: expected {count} rows for --size {size}, got "
                f"{features.num_rows}; pass the right size, or "
                f"{option('num_nodes', features.num_rows)}"
            )
        warn_of_types(processed, _NODES, _EDGES)
        warn_of_left_out(paper, _PAPER_FILES, "node_feat.npy and the labels")
        warn_of_left_out(cites, ("edge_index.npy",), "edge_index.npy")
        graph = GraphSource(
            name=f"igb-{size}",
            description={"format": "igb", "size": size, "num_classes": num_classes},
            edges=edges,
            edges_first=True,
            features=features,
            labels=labels,
            write_splits=write_ordered_splits,
            num_classes=num_classes,
            num_labelled=num_labelled,
        )
        return write_store(graph, out, options)


def _counts(
    size: str, num_classes: int, num_nodes: int | None, num_labelled: int | None
) -> tuple[int, int]:
    """The numbers of nodes and of those that may have a label."""
    if size not in NUM_NODES:
        raise ValueError(f"size: expected one of {', '.join(NUM_NODES)}, got {size}")
    if num_classes not in LABEL_FILES:
        raise ValueError(f"num_classes: expected 19 or 2983, got {num_classes}")
    if num_labelled is None and size == "full" and num_nodes is None:
        num_labelled = NUM_LABELLED[num_classes]
    if num_nodes is None:
        num_nodes = NUM_NODES[size]
    if num_labelled is None:
        num_labelled = num_nodes
    if not 0 <= num_labelled <= num_nodes:
        raise ValueError(f"num_labelled: expected 0 to {num_nodes}, got {num_labelled}")
    return num_nodes, num_labelled


def _processed(src: Path, size: str) -> Path:
    # Older downloads call the tiny dataset "experimental".
    names = [size, "experimental"] if size == "tiny" else [size]
    for name in names:
        if (src / name / "processed").is_dir():
            return src / name / "processed"
    raise FileNotFoundError(
        f"{src / size / 'processed'}: no such directory; expected the IGB layout SRC/SIZE/processed"
    )
