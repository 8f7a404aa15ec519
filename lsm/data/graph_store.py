"""Opens a store directory and returns its arrays as tensors."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import torch

from lsm.core.arguments import as_path
from lsm.core.atomic_file import sync_directory
from lsm.data import format as layout
from lsm.data.arrays import load_array
from lsm.data.edge_data import EdgeData
from lsm.data.feature_files import FeatureFiles
from lsm.data.file_sizes import check_sizes
from lsm.data.format import FileMeta, StoreMeta
from lsm.data.node_data import NodeData
from lsm.data.sink import FileSink, explaining_no_room, no_room
from lsm.data.typed.format import (
    TypedMeta,
    counts_by_name,
    edge_parts,
    node_parts,
    read_graph_meta,
)
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType, EdgeTypes, NodeSpace, TypedMap, as_edge_type, has_types

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from lsm.data.convert.write_store import StoreOptions

logger = logging.getLogger(__name__)

K = TypeVar("K")
_FREE_SPACE = "free some space there"
# Longest wait for another process that stores a score.
_LOCK_SECS = 60.0
_POLL_SECS = 0.05


class GraphStore:
    """A store directory, opened for reading; only ``save_score`` writes.

    ``nodes`` and ``edges`` have the data of one type. Other names of one type's data
    (``feature_dim``, ``labels``, ``topology``, ...) are for graphs without types; those of a graph
    of several types raise ValueError, which names the types.
    """

    def __init__(
        self,
        path: Path,
        meta: StoreMeta | TypedMeta,
        features: Mapping[str, FeatureFiles] | None = None,
    ) -> None:
        """Use ``GraphStore.open``, which reads ``meta``.

        Args:
            path: The store's directory.
            meta: Its meta.json.
            features: Features of another place by node type, in place of those of the store.
        """
        self.path = path
        self.meta = meta
        self._features = dict(features or {})

    def with_features(self, features: Mapping[str, FeatureFiles]) -> GraphStore:
        """The same graph with features of another place, by node type. They are part of its
        ``identity()``."""
        return GraphStore(self.path, self.meta, features)

    @classmethod
    def open(cls, path: str | Path) -> GraphStore:
        """Opens a store. Reads ``meta.json`` and checks every file's size.

        ``lsm data verify`` checks the contents of the files.

        Args:
            path: The store's directory.

        Returns:
            The store, open for reading.

        Raises:
            FileNotFoundError: There is no store at ``path``, or a file of it is missing.
            ValueError: A file has the wrong size, or ``meta.json`` cannot be used.
            TypeError: ``path`` is none, such as a store that is open.
        """
        path = as_path("path", path)
        store = cls(path, read_graph_meta(path))
        for name in [each for each in store.meta.files if layout.is_score(each)]:
            if not (store.path / name).exists():
                logger.warning("%s: missing; `lsm data score` computes it again", store.path / name)
                del store.meta.files[name]
        check_sizes(store.path, store.meta.files)
        return store

    @classmethod
    def from_pyg(
        cls,
        data: Data | HeteroData,
        path: str | Path,
        *,
        keep_order: bool = False,
        **options: Unpack[StoreOptions],
    ) -> GraphStore:
        """Makes a store of a graph of PyG.

        Kept of nodes: ``x``, ``y`` (classes, -1 unknown; or numbers, [N] or [N, k]),
        ``train_mask``, ``val_mask``, ``test_mask``, ``time``, ``names`` (a list of strings); of
        edges: ``edge_index``, ``edge_weight``, ``edge_attr`` and ``time`` (of ``Data``:
        ``edge_time``). Everything may be missing but ``edge_index``. A warning names attributes
        that are not kept.

        Edges get the order of ``EdgeData``: by destination, then by the time of the edge or else of
        its source, where there is one, then as in ``edge_index``.

        Args:
            data: A ``Data``, which makes a store without types, or a ``HeteroData``.
            path: Directory to make.
            keep_order: Also store each edge's place in ``edge_index``, 8 bytes an edge, so that
                ``to_pyg`` restores it.
            **options: name, dtype (converts features), stripes, stripe_bytes, force.

        Returns:
            The store, open for reading.

        Raises:
            FileExistsError: ``path`` exists.
            ValueError: The graph is no valid one; names the attribute.
        """
        from lsm.data.pyg import from_pyg

        from_pyg(data, as_path("path", path), keep_order=keep_order, options=options)
        return cls.open(path)

    def to_pyg(self) -> Data | HeteroData:
        """Reads the whole graph into memory, as PyG has it.

        Returns:
            ``Data`` for a graph without types, else ``HeteroData``, with the attributes that
            ``from_pyg`` takes. Edges are in the store's order, or in the order of the source if the
            store keeps it.

        Raises:
            MemoryError: The graph does not fit in memory.
        """
        from lsm.data.pyg import to_pyg

        return to_pyg(self)

    def __repr__(self) -> str:
        if self.is_typed:
            types = f"node_types={list(self.node_space.types)}, edge_types={list(self.edge_types)}"
            return f"GraphStore({str(self.path)!r}, {types})"
        if self.nodes().features is None:
            counts = f"num_nodes={self.num_nodes}, num_edges={self.num_edges}"
            return f"GraphStore({str(self.path)!r}, {counts}, no features)"
        dtype = str(self.feature_dtype).removeprefix("torch.")
        return (
            f"GraphStore({str(self.path)!r}, num_nodes={self.num_nodes}, "
            f"num_edges={self.num_edges}, num_classes={self.num_classes}, "
            f"feature_dim={self.feature_dim}, feature_dtype={dtype})"
        )

    @property
    def name(self) -> str:
        """The name of the graph, given when the store was made."""
        return self.meta.name

    @property
    def is_typed(self) -> bool:
        """True for a graph with types; False for one of the types that graphs without types have,
        also where its store names them, as it does without features."""
        return has_types(self.node_types, self.edge_types)

    @property
    def num_nodes(self) -> int:
        """Nodes of all types; those of a graph without types are 0 to ``num_nodes - 1``."""
        return self.node_space.num_nodes

    @cached_property
    def node_space(self) -> NodeSpace:
        """The ids of the nodes by type; a graph without types has one."""
        if isinstance(self.meta, TypedMeta):
            return self.meta.node_space
        return NodeSpace.of_one(self.meta.num_nodes)

    @property
    def node_types(self) -> tuple[str, ...]:
        """The types of the nodes; a graph without types has one."""
        return self.node_space.types

    @cached_property
    def edge_types(self) -> EdgeTypes:
        """The types of the edges; a graph without types has one."""
        if isinstance(self.meta, TypedMeta):
            return self.meta.edge_types_in(self.node_space)
        return EdgeTypes.of_one(self.node_space)

    def nodes(self, node_type: str | None = None) -> NodeData:
        """Returns the data of the nodes of a type.

        Args:
            node_type: One of ``node_types``; None: the one type of a graph without types.

        Raises:
            ValueError: There is no such type.
        """
        return self._nodes[self._known(node_type, self._nodes, "node type")]

    def edges(self, edge_type: EdgeType | None = None) -> EdgeData:
        """Returns the data of the edges of a type.

        Args:
            edge_type: One of ``edge_types``; None: the one type of a graph without types.

        Raises:
            ValueError: There is no such type.
        """
        return self._edges[self._known(as_edge_type(edge_type), self._edges, "edge type")]

    @property
    def num_edges(self) -> int:
        """Directed edges of all types: an undirected edge counts twice."""
        return sum(edges.num_edges for edges in self._edges.values())

    @property
    def num_classes(self) -> int:
        """Labels are 0 to ``num_classes - 1``, or -1 where unknown. 0: a graph without labels, or
        with labels that are numbers."""
        return self.nodes().num_classes

    @property
    def feature_dim(self) -> int:
        """Values of a node's feature row."""
        return self.nodes().known_features.dim

    @property
    def feature_dtype(self) -> torch.dtype:
        """Type of a value of a feature row."""
        return getattr(torch, self.nodes().known_features.dtype)

    @property
    def row_bytes(self) -> int:
        """Bytes of a feature row."""
        return self.nodes().known_features.row_bytes

    @property
    def feature_paths(self) -> list[Path]:
        """The files that the feature rows are striped over, in the order of the stripes."""
        return list(self.feature_files.paths)

    @property
    def stripe_bytes(self) -> int:
        """Bytes per stripe page: page p lies in file ``p % K`` at page ``p // K``."""
        return self.nodes().known_features.stripe_bytes

    @property
    def feature_files(self) -> FeatureFiles:
        """The feature files, for engines and feature loaders."""
        return self.nodes().feature_files

    def identity(self) -> dict[str, Any]:
        """The identity of this store, by name: its counts and the checksums of its files, without
        scores, which can be computed again.
        """
        sums = {
            f"SHA-256 of {name}": file.sha256
            for name, file in layout.without_scores(self.meta.files).items()
        }
        given = {f"features of {name}": each for name, each in self.given_features.items()}
        return counts_by_name(self.meta) | sums | given

    @property
    def given_features(self) -> dict[str, str]:
        """Digests of features of another place, by node type."""
        return {name: files.digest for name, files in self._features.items()}

    def digest(self) -> str:
        """SHA-256 of ``identity()``: equal for stores of equal contents."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()

    @property
    def scores(self) -> list[str]:
        """Names of the static scores that are stored."""
        names = (name for name in self.meta.files if layout.is_score(name))
        return sorted(Path(name).stem for name in names)

    def topology(self, in_memory: bool = False) -> Topology:
        """Returns the in-edges by destination.

        A reader of mapped memory must call ``native.check_mapped`` afterwards, as the sampler does:
        a page that cannot be read is zeros until then.

        Args:
            in_memory: Read the arrays into memory. False: they are memory-mapped (copy on write).

        Returns:
            The in-edges, ``indptr`` [N + 1] int64 and ``indices`` [E] int32, or int64 from 2**31
            nodes on.

        Raises:
            OSError: A file cannot be read.
        """
        return self.edges().topology(in_memory)

    def labels(self, in_memory: bool = False) -> torch.Tensor:
        """Returns the labels of all nodes.

        Args:
            in_memory: Read the labels into memory. False: more than 8 Mi labels are memory-mapped
                like the topology.

        Returns:
            Class of each node, [N] int64, -1 where unknown; or numbers, [N] or [N, k] float32 or
            int64.

        Raises:
            OSError: The file cannot be read.
        """
        return self.nodes().labels(in_memory)

    def split(self, name: str) -> torch.Tensor:
        """Returns the nodes of a split.

        Args:
            name: train, valid (or val), or test.

        Returns:
            Node ids, [n] int64.

        Raises:
            ValueError: There is no such split, or it has a node that does not exist.
        """
        return self.nodes().split(name)

    def score(self, name: str) -> torch.Tensor:
        """Returns a static score of all nodes.

        Args:
            name: One of ``scores``.

        Returns:
            Score of each node, [N] float32.

        Raises:
            ValueError: The score is not stored.
        """
        file = layout.score_file(name)
        if file not in self.meta.files:
            raise ValueError(
                f"{self.path}: score {name!r} is not stored (stored: "
                f"{', '.join(self.scores) or 'none'}); run `lsm data score {self.path} {name}`"
            )
        return load_array(self.path / file, "float32", (self.num_nodes,), in_memory=True)

    def save_score(self, name: str, score: torch.Tensor) -> None:
        """Stores a static score as ``scores/NAME.npy``, in place of an older one.

        Another process sees the old score, none, or the new one at any moment. Several processes
        may store scores at the same time.

        Args:
            name: NAME: letters, digits, ``_`` and ``-``.
            score: Score of each node, [N] float32.

        Raises:
            ValueError: ``name`` has other characters, or ``score`` another shape or dtype.
            OSError: The file cannot be written.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(f"score name: expected letters, digits, '_' or '-', got {name!r}")
        if score.dtype != torch.float32 or score.shape != (self.num_nodes,):
            raise ValueError(
                f"score {name}: expected float32 [{self.num_nodes}], "
                f"got {score.dtype} {list(score.shape)}"
            )
        with _one_writer(self.path):
            # Another process may have stored a score since.
            self.meta.files.update(read_graph_meta(self.path).files)
            self._replace_score(layout.score_file(name), score)

    def _replace_score(self, file: str, score: torch.Tensor) -> None:
        target = self.path / file
        target.parent.mkdir(exist_ok=True)
        partial = target.with_name(f".{target.name}.tmp")
        try:
            with FileSink(partial, remedy=_FREE_SPACE, final=target) as sink:
                sink.write_array(score.detach().cpu().contiguous().numpy())
            if self.meta.files.pop(file, None) is not None:
                layout.write_meta(self.path / layout.META, self.meta)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_directory(target.parent)
        self.meta.files[file] = FileMeta(bytes=sink.num_bytes, sha256=sink.sha256)
        with explaining_no_room(self.path / layout.META, 0, _FREE_SPACE):
            layout.write_meta(self.path / layout.META, self.meta)

    def require_room_for_score(self) -> None:
        """Raises OSError, which names the store, unless the store can hold another score."""
        if not os.access(self.path, os.W_OK):
            is_read_only = os.statvfs(self.path).f_flag & os.ST_RDONLY
            code = errno.EROFS if is_read_only else errno.EACCES
            text = f"{os.strerror(code)}: a score is stored in the store, which has to be writable"
            raise OSError(code, text, str(self.path))
        needed, free = 4 * self.num_nodes, shutil.disk_usage(self.path).free
        if free < needed:
            raise no_room(errno.ENOSPC, self.path, needed, free, _FREE_SPACE)

    @cached_property
    def _nodes(self) -> TypedMap[str, NodeData]:
        """The data of each node type."""
        return TypedMap(
            {
                name: NodeData(self, name, folder, meta, self._features.get(name))
                for name, (folder, meta) in node_parts(self.meta).items()
            }
        )

    @cached_property
    def _edges(self) -> TypedMap[EdgeType, EdgeData]:
        """The data of each edge type."""
        return TypedMap(
            {
                edge_type: EdgeData(self, edge_type, folder, num_edges)
                for edge_type, (folder, num_edges) in edge_parts(self.meta).items()
            }
        )

    def _known(self, key: K | None, of: TypedMap[K, Any], noun: str) -> K:
        if key is not None and key in of:
            return key
        if key is None and len(self._nodes) == len(self._edges) == 1:
            return next(iter(of))
        if key is None:
            raise ValueError(
                f"{self.path}: a graph of several types (nodes: {', '.join(self.node_types)}; "
                f"{len(self.edge_types)} types of edges): store.nodes(type) and store.edges(type) "
                "have the data of a type"
            )
        known = ", ".join(map(str, of))
        raise ValueError(f"{self.path}: {noun}: expected one of {known}, got {key!r}")


@contextmanager
def _one_writer(path: Path) -> Iterator[None]:
    """A lock on the store at ``path`` against other processes of this machine. Raises TimeoutError
    if one of them holds it for long."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + _LOCK_SECS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"{path}: another process has been storing a score for {_LOCK_SECS:g} s; "
                        "if it is suspended, continue or end it (`lslocks` lists it), and try again"
                    ) from None
                time.sleep(_POLL_SECS)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)
