"""Splits of edges that a dataset gives, in the form of ogbl-citation2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lsm.data import format as layout
from lsm.data.convert.array_file import ArrayFile
from lsm.data.edge_data import EdgeData
from lsm.data.links import format as links_layout
from lsm.data.links.parts import Parts, edge_chunks
from lsm.data.writer import StoreWriter


@dataclass(frozen=True)
class GivenSplits:
    """Edges of splits, [n, 2] int64 each, and candidates of their destinations, [n, k] int64.

    Read from a directory: ``valid.npy`` and ``test.npy`` with pairs, [n, 2] or [2, n]; optionally
    ``train.npy`` (by default all edges of the store that are in neither), and
    ``valid_candidates.npy`` and ``test_candidates.npy``.
    """

    edges: Mapping[str, np.ndarray]
    candidates: Mapping[str, np.ndarray]

    @classmethod
    def read(cls, path: Path, edges: EdgeData) -> GivenSplits:
        """Reads a directory. Raises FileNotFoundError for a split that is missing, ValueError for
        pairs that are no nodes of the ends of ``edges``."""
        pairs, candidates = {}, {}
        for split in layout.SPLITS:
            file = path / f"{split}.npy"
            if split != "train" or file.is_file():
                pairs[split] = _pairs(file, edges)
            given = path / f"{split}_candidates.npy"
            if given.is_file():
                candidates[split] = _candidates(given, len(pairs[split]), edges)
        return cls(pairs, candidates)

    def write(self, writer: StoreWriter, edges: EdgeData, parts: Parts) -> dict[str, int]:
        """Writes the splits; ``parts`` are those of ``edges`` by them. Returns the number of edges
        by split."""
        pairs = dict(self.edges)
        if "train" not in pairs:
            rest = [
                np.stack(chunk[1:], axis=1)[parts.of(edges, chunk, is_reverse=False) == 0]
                for chunk in edge_chunks(edges)
            ]
            pairs["train"] = np.concatenate([np.empty((0, 2), np.int64), *rest])
        for split in layout.SPLITS:
            writer.write_array(layout.split_file(split), pairs[split])
        for split, ids in self.candidates.items():
            writer.write_array(links_layout.candidates_file(split), ids)
        return {split: len(pairs[split]) for split in layout.SPLITS}


def _pairs(path: Path, edges: EdgeData) -> np.ndarray:
    pairs = _integers(path)
    if pairs.ndim != 2 or 2 not in pairs.shape:
        raise ValueError(f"{path}: expected pairs of nodes, [n, 2] or [2, n], got {pairs.shape}")
    if pairs.shape[1] != 2:
        pairs = pairs.T
    for column, count in enumerate((edges.num_sources, edges.num_destinations)):
        _check_nodes(path, pairs[:, column], count, ("source", "destination")[column])
    return pairs


def _candidates(path: Path, num_edges: int, edges: EdgeData) -> np.ndarray:
    ids = _integers(path)
    if ids.ndim != 2 or len(ids) != num_edges or ids.shape[1] == 0:
        raise ValueError(f"{path}: expected candidates [{num_edges}, k], got {list(ids.shape)}")
    _check_nodes(path, ids.reshape(-1), edges.num_destinations, "candidate")
    return ids


def _integers(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the pairs of nodes of a split")
    with ArrayFile(path) as array:
        values = array.read_all()
    if values.dtype.kind not in "iu":
        raise ValueError(f"{path}: expected ids of nodes, integers, got {values.dtype}")
    return values.astype(np.int64)


def _check_nodes(path: Path, ids: np.ndarray, num_nodes: int, what: str) -> None:
    bad = np.flatnonzero((ids < 0) | (ids >= num_nodes))
    if len(bad):
        raise ValueError(
            f"{path}: {what} {ids[bad[0]]} of pair {bad[0]} is no node: expected an id in [0, "
            f"{num_nodes})"
        )
