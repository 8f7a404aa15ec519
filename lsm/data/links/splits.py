"""Opens splits of edges, and the graphs that are sampled with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from lsm import native
from lsm.core.arguments import as_path
from lsm.core.suggest import require_known
from lsm.data import format as layout
from lsm.data.arrays import load_array
from lsm.data.file_sizes import check_sizes
from lsm.data.graph_store import GraphStore
from lsm.data.links import format as links_layout
from lsm.data.links.format import LinksMeta, MessageRule, read_links_meta
from lsm.data.links.pair_file import first_bad
from lsm.data.opened import opened
from lsm.data.typed.format import edge_parts
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType

if TYPE_CHECKING:
    from lsm.data.links.make import SplitOptions


@dataclass(frozen=True)
class MessageEdges:
    """The edges of a type that a sampler may take.

    topology: those edges. left_out: positions in the store of all others, [h] int64, ascending.
    """

    topology: Topology
    left_out: Tensor

    def positions(self, edge_ids: Tensor) -> Tensor:
        """The positions in the store of edges, by their positions ``edge_ids`` in ``topology``: [e]
        int64."""
        kept_before = self.left_out - torch.arange(len(self.left_out))
        return edge_ids + torch.searchsorted(kept_before, edge_ids, right=True)

    def kept(self, values: Tensor) -> Tensor:
        """Those of the ``values`` of all edges in the store, [E, ...], that are of these edges."""
        is_kept = torch.ones(len(values), dtype=torch.bool)
        is_kept[self.left_out] = False
        return values[is_kept]


class LinkSplits:
    """The edges of one type of a store, divided into train, valid and test.

    No message graph has an edge of validation or test, unless ``message_edges`` says so.
    """

    def __init__(self, path: Path, meta: LinksMeta) -> None:
        """Use ``LinkSplits.open`` or ``LinkSplits.make``.

        Args:
            path: The directory.
            meta: Its meta.json.
        """
        self.path = path
        self.meta = meta
        self._checked: set[str] = set()

    @classmethod
    def open(cls, path: str | Path) -> LinkSplits:
        """Opens splits that ``lsm data split-links`` or ``make`` wrote.

        Args:
            path: Their directory.

        Returns:
            The splits, open for reading.

        Raises:
            FileNotFoundError: There are none at ``path``, or a file is missing.
            ValueError: A file has the wrong size, or ``meta.json`` cannot be used.
            TypeError: ``path`` is none, such as a store.
        """
        path = as_path("path", path)
        splits = cls(path, read_links_meta(path))
        check_sizes(splits.path, splits.meta.files, links_layout.REMEDY)
        return splits

    @classmethod
    def make(
        cls,
        store: GraphStore | str | Path,
        out: str | Path | None = None,
        **options: Unpack[SplitOptions],
    ) -> LinkSplits:
        """Divides the edges of a store, as ``lsm data split-links`` does.

        Args:
            store: The store, or its path.
            out: Directory to make; None: next to the store, as ``STORE.links``.
            **options: edge_type, reverse_type, valid, test, order, seed, message_edges, given,
                force: the options of the command.

        Returns:
            The splits, open for reading.

        Raises:
            FileExistsError: ``out`` exists.
            ValueError: An option does not fit the store, or a split would have no edges.
        """
        from lsm.data.links.make import SplitOptions, split_links

        require_known("make", options, SplitOptions.__annotations__)
        return cls.open(split_links(opened(store), out, **options))

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={count}" for name, count in self.num_edges.items())
        return f"LinkSplits({str(self.path)!r}, edge_type={self.edge_type}, {counts})"

    @property
    def edge_type(self) -> EdgeType:
        """The type of the edges."""
        return self.meta.edge_type

    @property
    def reverse_type(self) -> EdgeType | None:
        """The type that has the same edges in the other direction, if there is one."""
        return self.meta.reverse_type

    @property
    def message_edges(self) -> MessageRule:
        """Edges of the graph that is sampled: train, earlier or all."""
        return self.meta.message_edges

    @property
    def num_edges(self) -> dict[str, int]:
        """Edges of train, valid and test."""
        return {name: self.meta.splits[name] for name in layout.SPLITS}

    def edges(self, split: str) -> Tensor:
        """Returns the edges of a split. The first call for it reads them, to check their ids.

        Args:
            split: train, valid (or val), or test.

        Returns:
            Sources and destinations, by their ids in their types: [2, n] int64, memory-mapped.

        Raises:
            ValueError: There is no such split, or its file has an id that is no node's.
        """
        name = layout.split_name(split)
        file = layout.split_file(name)
        pairs = self._array(file, (self.meta.splits[name], 2)).t()
        bad = None if name in self._checked else first_bad(pairs, self.meta.num_nodes)
        if bad is not None:
            place, side = bad
            raise ValueError(
                f"{self.path / file}: pair {place}: node {int(pairs[side, place])} does not exist: "
                f"expected an id in [0, {self.meta.num_nodes[side]}); {links_layout.REMEDY}"
            )
        self._checked.add(name)
        return pairs

    def times(self, split: str) -> Tensor | None:
        """Returns the times of a split's edges.

        Args:
            split: train, valid (or val), or test.

        Returns:
            Times, [n] int64, memory-mapped; None if edges have no times.
        """
        return self._optional(links_layout.times_file, split, ())

    def candidates(self, split: str) -> Tensor | None:
        """Returns the given candidates of a split's edges.

        Args:
            split: train, valid (or val), or test.

        Returns:
            Destinations that each edge's own is ranked among, [n, k] int64, memory-mapped; None if
            none were given.
        """
        return self._optional(links_layout.candidates_file, split, (None,))

    def check_store(self, store: GraphStore) -> None:
        """Raises ValueError unless the edges are those of ``store``."""
        facts = store_facts(store, self._types)
        for name, expected in self.meta.store.items():
            found = facts.get(name)
            if found != expected:
                raise ValueError(
                    f"{self.path}: splits of another store: {name} is {expected}, and {found} in "
                    f"{store.path}; {links_layout.REMEDY}"
                )

    def message_graph(
        self, store: GraphStore, split: str, in_memory: bool = False
    ) -> dict[EdgeType, MessageEdges]:
        """Returns the edges that a sampler may take for a split.

        Args:
            store: The store of the edges.
            split: train, valid (or val), or test.
            in_memory: Read them into memory. False: they are memory-mapped.

        Returns:
            The edges of each type that differs from the store's.
        """
        graph = links_layout.message_graph(self.message_edges, layout.split_name(split))
        if graph is None:
            return {}
        return {
            each: self._message_edges(store, each, graph, in_memory)
            for each in store.edge_types
            if each in self._types
        }

    @property
    def _types(self) -> list[EdgeType]:
        """The types that the splits are of."""
        return [each for each in (self.edge_type, self.reverse_type) if each is not None]

    def _message_edges(
        self, store: GraphStore, edge_type: EdgeType, graph: str, in_memory: bool
    ) -> MessageEdges:
        edges = store.edges(edge_type)
        folder = links_layout.message_folder(graph, edge_parts(store.meta)[edge_type][0])
        left_out = self._array(f"{folder}left_out.npy", (None,))
        _require_positions(self.path / folder / "left_out.npy", left_out, edges.num_edges)
        kind, shape = layout.index_dtype(edges.num_sources), (edges.num_edges - len(left_out),)
        ends = (edges.num_destinations + 1,)
        topology = Topology(
            self._array(f"{folder}indptr.npy", ends, in_memory=in_memory),
            self._array(f"{folder}indices.npy", shape, kind, in_memory),
        )
        return MessageEdges(topology, left_out)

    def _optional(self, name_of: Any, split: str, row: tuple[None, ...]) -> Tensor | None:
        name = layout.split_name(split)
        if name_of(name) not in self.meta.files:
            return None
        return self._array(name_of(name), (self.meta.splits[name], *row))

    def _array(
        self,
        name: str,
        shape: tuple[int | None, ...],
        dtype: str = "int64",
        in_memory: bool = False,
    ) -> Tensor:
        if name not in self.meta.files:
            raise ValueError(f"{self.path}: {name} is not listed; {links_layout.REMEDY}")
        return load_array(self.path / name, dtype, shape, in_memory, links_layout.REMEDY)


def _require_positions(path: Path, positions: Tensor, num_edges: int) -> None:
    """Raises ValueError unless ``positions``, those of the file ``path``, ascend and are edges."""
    is_ascending = bool((positions.diff() > 0).all())
    native.check_mapped(positions)
    if len(positions) and not (is_ascending and positions[0] >= 0 and positions[-1] < num_edges):
        raise ValueError(
            f"{path}: expected positions of edges in [0, {num_edges}), each larger than the one "
            f"before; {links_layout.REMEDY}"
        )


def store_facts(store: GraphStore, edge_types: list[EdgeType]) -> dict[str, Any]:
    """The facts of a store that splits of these edge types depend on, by name."""
    facts: dict[str, Any] = {}
    for each, (folder, num_edges) in edge_parts(store.meta).items():
        if each in edge_types:
            facts[f"edges of {each}"] = num_edges
            for name in ("indptr.npy", "indices.npy"):
                facts[f"SHA-256 of {folder}{name}"] = store.meta.files[folder + name].sha256
    return facts
