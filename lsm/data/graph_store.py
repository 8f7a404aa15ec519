"""Opens a store directory and returns its arrays as tensors."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lsm import native
from lsm.core.files import read_exactly
from lsm.data import format as layout
from lsm.data.feature_files import FeatureFiles
from lsm.data.format import FileMeta, StoreMeta
from lsm.data.npy_header import read_header
from lsm.data.sink import FileSink, explaining_no_room, no_room
from lsm.graph.topology import Topology
from lsm.graph.types import NODE, EdgeTypes, NodeSpace

_MOST_LABELS_IN_MEMORY = 8 << 20  # 64 MiB of them
_FREE_SPACE = "free some space there"


class GraphStore:
    """A store directory, opened for reading; only ``save_score`` writes."""

    def __init__(self, path: Path, meta: StoreMeta) -> None:
        """Use ``GraphStore.open``, which reads ``meta``.

        Args:
            path: The store's directory.
            meta: Its meta.json.
        """
        self.path = path
        self.meta = meta

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
        """
        store = cls(Path(path), layout.read_meta(Path(path)))
        check_sizes(store.path, store.meta.files)
        return store

    def __repr__(self) -> str:
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
    def num_nodes(self) -> int:
        """Nodes are 0 to ``num_nodes - 1``."""
        return self.node_space.num_nodes

    @cached_property
    def node_space(self) -> NodeSpace:
        """The ids of the nodes by type; this store has one type."""
        return NodeSpace.of_one(self.meta.num_nodes)

    @property
    def edge_types(self) -> EdgeTypes:
        """The types of the edges; this store has one."""
        return EdgeTypes.of_one(self.node_space)

    @property
    def num_edges(self) -> int:
        """Directed edges: an undirected edge counts twice."""
        return self.meta.num_edges

    @property
    def num_classes(self) -> int:
        """Labels are 0 to ``num_classes - 1``, or -1 where unknown. 0: a graph without labels."""
        return self.meta.num_classes

    @property
    def feature_dim(self) -> int:
        """Values of a node's feature row."""
        return self.meta.features.dim

    @property
    def feature_dtype(self) -> torch.dtype:
        """Type of a value of a feature row."""
        return getattr(torch, self.meta.features.dtype)

    @property
    def row_bytes(self) -> int:
        """Bytes of a feature row."""
        return self.meta.features.row_bytes

    @property
    def feature_paths(self) -> list[Path]:
        """The files that the feature rows are striped over, in the order of the stripes."""
        return [self.path / name for name in self.meta.features.files]

    @property
    def stripe_bytes(self) -> int:
        """Bytes per stripe page: page p lies in file ``p % K`` at page ``p // K``."""
        return self.meta.features.stripe_bytes

    @property
    def feature_files(self) -> FeatureFiles:
        """The feature files, for engines and feature loaders."""
        features = self.meta.features
        sums = " ".join(self.meta.files[name].sha256 for name in features.files)
        return FeatureFiles(
            paths=tuple(self.feature_paths),
            num_rows=self.num_nodes,
            dim=features.dim,
            dtype=self.feature_dtype,
            stripe_bytes=features.stripe_bytes,
            store=self.name,
            digest=hashlib.sha256(sums.encode()).hexdigest(),
        )

    def identity(self) -> dict[str, Any]:
        """The identity of this store, by name: its counts and the checksums of its files, without
        scores, which can be computed again.
        """
        meta = self.meta
        counts = {
            "store.num_nodes": meta.num_nodes,
            "store.num_edges": meta.num_edges,
            "store.num_classes": meta.num_classes,
            "store.feature_dim": meta.features.dim,
            "store.feature_dtype": meta.features.dtype,
        }
        sums = {
            f"SHA-256 of {name}": file.sha256
            for name, file in meta.files.items()
            if not name.startswith("scores/")
        }
        return counts | sums

    @property
    def scores(self) -> list[str]:
        """Names of the static scores that are stored."""
        names = (name for name in self.meta.files if name.startswith("scores/"))
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
        kind = layout.index_dtype(self.num_nodes)
        indptr = self._load(layout.INDPTR, "int64", self.num_nodes + 1, in_memory)
        indices = self._load(layout.INDICES, kind, self.num_edges, in_memory)
        return Topology(indptr, indices)

    def labels(self, in_memory: bool = False) -> torch.Tensor:
        """Returns the labels of all nodes.

        Args:
            in_memory: Read the labels into memory. False: more than 8 Mi labels are memory-mapped
                like the topology.

        Returns:
            Class of each node, [N] int64. An unknown class is -1.

        Raises:
            OSError: The file cannot be read.
        """
        in_memory = in_memory or self.num_nodes <= _MOST_LABELS_IN_MEMORY
        return self._load(layout.LABELS, "int64", self.num_nodes, in_memory)

    def split(self, name: str) -> torch.Tensor:
        """Returns the nodes of a split.

        Args:
            name: train, valid (or val), or test.

        Returns:
            Node ids, [n] int64.

        Raises:
            ValueError: There is no such split, or it has a node that does not exist.
        """
        file = layout.split_file(layout.split_name(name))
        ids = self._load(file, "int64", None, in_memory=True)
        bad = self.node_space.outside(NODE, ids)
        if len(bad):
            position = int(bad[0])
            raise ValueError(
                f"{self.path / file}: position {position}: node {int(ids[position])} does not "
                f"exist: expected an id in [0, {self.num_nodes}); run `lsm data verify "
                f"{self.path}` and convert again"
            )
        return self.node_space.to_global(NODE, ids)

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
        return self._load(file, "float32", self.num_nodes, in_memory=True)

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
            self.meta.files.update(GraphStore.open(self.path).meta.files)
            self._replace_score(layout.score_file(name), score)

    def _replace_score(self, file: str, score: torch.Tensor) -> None:
        target = self.path / file
        target.parent.mkdir(exist_ok=True)
        partial = target.with_name(f".{target.name}.tmp")
        try:
            with FileSink(partial, remedy=_FREE_SPACE) as sink:
                sink.write_array(score.detach().cpu().contiguous().numpy())
            if self.meta.files.pop(file, None) is not None:
                layout.write_meta(self.path / layout.META, self.meta)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        layout.sync_directory(target.parent)
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

    def _load(
        self, name: str, dtype: str, length: int | None, in_memory: bool = False
    ) -> torch.Tensor:
        path = self.path / name
        with open(path, "rb", buffering=0) as file:
            header = read_header(file, path)
            shape = header.shape
            if header.dtype != dtype or len(shape) != 1 or length not in (None, shape[0]):
                expected = f"{dtype} [{'n' if length is None else length}]"
                raise ValueError(
                    f"{path}: expected {expected}, got {header.dtype} {list(shape)}; "
                    "run `lsm data verify` and convert again"
                )
            needed = header.data_offset + shape[0] * header.dtype.itemsize
            size = os.fstat(file.fileno()).st_size
            if size < needed:
                raise ValueError(
                    f"{path}: truncated: expected {needed} bytes for {dtype} {list(shape)}, got "
                    f"{size}; convert the data again"
                )
            # Unaligned elements, of a foreign writer, cannot be mapped; they are read.
            if in_memory or shape[0] == 0 or header.data_offset % header.dtype.itemsize:
                array = np.empty(shape, dtype)
                try:
                    read_exactly(file.fileno(), array, header.data_offset)
                except OSError as error:
                    raise OSError(error.errno, error.strerror, str(path)) from None
                return torch.from_numpy(array)
        return torch.frombuffer(
            native.MappedFile(str(path)),
            dtype=getattr(torch, dtype),
            count=shape[0],
            offset=header.data_offset,
        )


@contextmanager
def _one_writer(path: Path) -> Iterator[None]:
    """A lock on the store at ``path`` against other processes of this machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_sizes(store: Path, files: dict[str, FileMeta]) -> None:
    """Raises the ``size_problem`` of the first of ``files`` that has one."""
    for name, expected in files.items():
        problem = size_problem(store / name, expected)
        if problem is not None:
            raise problem


def size_problem(path: Path, expected: FileMeta) -> OSError | ValueError | None:
    """The error of a file ``path`` that is missing or of another size; None if it is as
    expected."""
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return FileNotFoundError(f"{path}: missing; {_remedy_of_missing(path)}")
    if not path.is_file():
        return ValueError(f"{path}: not a file; convert the data again")
    if size != expected.bytes:
        what = "truncated" if size < expected.bytes else "too long"
        return ValueError(
            f"{path}: {what}: expected {expected.bytes} bytes, got {size}; convert the data again"
        )
    return None


def _remedy_of_missing(path: Path) -> str:
    """The remedy of a file of a store that is missing: its disk first, if it may have its own."""
    again = "convert the data again"
    if path.is_symlink():
        target = os.readlink(path)
        return f"it is a link to {target}: is that disk not mounted? If the file is lost, {again}"
    if re.fullmatch(r"features\.\d+\.bin", path.name):
        return f"is its disk not mounted, or the link to it gone? If the file is lost, {again}"
    return again
