"""Splits of the edges of one type: names of their files, ``meta.json``.

``split/SPLIT.npy`` holds the edges of a split, [n, 2] int64 sources and destinations, and
``split/SPLIT_times.npy`` their times, if edges have times. ``split/SPLIT_candidates.npy``, [n, k]
int64, holds destinations among which each edge's own is ranked, if they were given.

``message/GRAPH/`` holds the edges that a sampler may take, for each edge type that differs from the
store's: ``indptr.npy`` and ``indices.npy`` as in a store, and ``left_out.npy``, the positions in
the store of the others, ascending. GRAPH is ``train``, for training and validation, or ``test``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt

from lsm.core.versioned_json import read_versioned
from lsm.data import format as layout
from lsm.data.format import FileMeta, MetaPart
from lsm.graph.types import EdgeType

SCHEMA_VERSION = 1
REMEDY = "split the edges again with `lsm data split-links`"

MessageRule = Literal["train", "earlier", "all"]
"""Edges in the graph that is sampled. train: none of validation or test; earlier: those of
validation, when testing; all: every edge."""


class LinksMeta(MetaPart):
    """``meta.json`` of splits of edges. ``files`` lists every file but ``meta.json`` itself."""

    schema_version: int = SCHEMA_VERSION
    kind: Literal["links"] = "links"
    store: dict[str, Any]
    """The facts of the store that the edges are of, by name."""
    edge_type: EdgeType
    reverse_type: EdgeType | None = None
    """The type that has each edge of ``edge_type`` in the other direction."""
    num_nodes: tuple[NonNegativeInt, NonNegativeInt]
    """Nodes of the types of the sources and of the destinations."""
    order: Literal["random", "time", "given"]
    seed: int = Field(default=0, ge=0)
    message_edges: MessageRule
    splits: dict[str, NonNegativeInt]
    """Edges of train, valid and test."""
    files: dict[str, FileMeta] = Field(default_factory=dict)


def times_file(split: str) -> str:
    """Path of the times of a split's edges."""
    return f"split/{split}_times.npy"


def candidates_file(split: str) -> str:
    """Path of the given candidates of a split's edges."""
    return f"split/{split}_candidates.npy"


def message_folder(graph: str, folder: str) -> str:
    """The folder of a message graph's edges of a type, whose folder in the store is ``folder``."""
    return f"message/{graph}/{folder}"


def message_graph(rule: MessageRule, split: str) -> str | None:
    """The message graph of a split; None: the store's."""
    if rule == "all":
        return None
    return "test" if rule == "earlier" and split == "test" else "train"


def read_links_meta(path: Path) -> LinksMeta:
    """``meta.json`` of splits of edges. Raises FileNotFoundError if there is none, ValueError if it
    cannot be used or is of another kind."""
    meta_path = path / layout.META
    if layout.kind_of(path, "lsm data split-links STORE", REMEDY) != "links":
        raise ValueError(f"{path}: expected splits of edges, got a store; {REMEDY}")
    meta = read_versioned(meta_path, LinksMeta, SCHEMA_VERSION, REMEDY)
    layout.require_splits(meta_path, meta.splits, REMEDY)
    layout.require_listed(meta_path, meta.files, map(layout.split_file, layout.SPLITS))
    return meta
