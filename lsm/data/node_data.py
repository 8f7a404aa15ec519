"""The nodes of one type in a store: features, labels, splits, times, names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lsm.core.ids import vector_of_ids
from lsm.data import format as layout
from lsm.data.arrays import load_array
from lsm.data.feature_files import FeatureFiles
from lsm.data.format import FeatureMeta, LabelMeta, NodeMeta
from lsm.data.names import find_names, look_up_names, names_at, read_names

if TYPE_CHECKING:
    from lsm.data.graph_store import GraphStore

_MOST_LABELS_IN_MEMORY = 8 << 20  # numbers: 64 MiB of int64


class NodeData:
    """The nodes of one type, with ids 0 to ``num_nodes - 1`` of their own.

    Files are read when they are asked for: into memory with ``in_memory``, else they are mapped.
    """

    def __init__(
        self,
        store: GraphStore,
        node_type: str,
        folder: str,
        meta: NodeMeta,
        given: FeatureFiles | None = None,
    ) -> None:
        """Use ``GraphStore.nodes``.

        Args:
            store: The store.
            node_type: The type.
            folder: "" or "NAME/", the place of its files.
            meta: Its description in meta.json.
            given: Features of another place, in place of those of the store.
        """
        self.node_type = node_type
        self.num_nodes = meta.num_nodes
        self.num_classes = meta.num_classes
        """Labels are 0 to ``num_classes - 1``, or -1 where unknown. 0: nodes without labels, or
        with labels that are numbers."""
        self.label_meta = meta.labels
        """The width and the dtype of labels that are numbers; None without such."""
        self.features = meta.features if given is None else _meta_of(given)
        """The layout of the features; None without any."""
        self._given = given
        self._store = store.path
        self._store_name = store.name
        self._files = store.meta.files
        self._folder = folder

    def __repr__(self) -> str:
        row = "no features"
        if self.features is not None:
            row = f"{self.features.dim} x {self.features.dtype}"
        return f"NodeData({self.node_type!r}, num_nodes={self.num_nodes}, {row})"

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are stored; each may be empty."""
        return tuple(s for s in layout.SPLITS if self._folder + layout.split_file(s) in self._files)

    @property
    def has_labels(self) -> bool:
        """True if nodes have classes, or labels that are numbers."""
        return self.num_classes > 0 or self.label_meta is not None

    @property
    def label_layout(self) -> LabelMeta:
        """The width and the dtype of labels: those of classes, unless they are numbers."""
        return self.label_meta or LabelMeta(width=1, dtype="int64")

    @property
    def has_times(self) -> bool:
        """True if each node has a time."""
        return self._folder + layout.NODE_TIMES in self._files

    @property
    def has_names(self) -> bool:
        """True if each node has a name."""
        return self._folder + layout.NAMES in self._files

    @property
    def name_bytes(self) -> int:
        """Bytes of the file of names; 0 without names."""
        return self._files[self._folder + layout.NAMES].bytes if self.has_names else 0

    @property
    def values(self) -> list[str]:
        """The values that nodes have next to features and labels, in words."""
        return ["times"] * self.has_times + ["names"] * self.has_names

    @property
    def feature_files(self) -> FeatureFiles:
        """The feature files, for engines and feature loaders. Raises ValueError without any."""
        if self._given is not None:
            return self._given
        features = self.known_features
        sums = " ".join(self._files[name].sha256 for name in features.files)
        return FeatureFiles(
            paths=tuple(self._store / name for name in features.files),
            num_rows=self.num_nodes,
            dim=features.dim,
            dtype=getattr(torch, features.dtype),
            stripe_bytes=features.stripe_bytes,
            store=self._store_name,
            digest=hashlib.sha256(sums.encode()).hexdigest(),
        )

    @property
    def known_features(self) -> FeatureMeta:
        """The layout of the features. Raises ValueError without any."""
        if self.features is None:
            raise ValueError(
                f"{self._store}: nodes of type {self.node_type} have no features; make the "
                "store with x (node_feat.npy), or train embeddings (`lsm embed train`), which "
                "`lsm train` takes as data.features"
            )
        return self.features

    def labels(self, in_memory: bool = False) -> torch.Tensor:
        """Class of each node, [N] int64; -1 is unknown. Labels that are numbers: [N] or [N, k]
        float32, NaN is unknown, or int64, a negative one is unknown. More than 8 Mi numbers are
        memory-mapped, unless ``in_memory``. Raises ValueError for nodes without labels."""
        path = self._path(layout.LABELS, "labels")
        found = self.label_layout
        in_memory = in_memory or self.num_nodes * found.width <= _MOST_LABELS_IN_MEMORY
        return load_array(path, found.dtype, found.shape(self.num_nodes), in_memory)

    def split(self, name: str) -> torch.Tensor:
        """The nodes of split ``name`` (train, valid or val, test): [n] int64. Raises ValueError for
        another split, or one with a node that does not exist."""
        path = self._path(layout.split_file(layout.split_name(name)), f"split {name!r}")
        ids = load_array(path, "int64", (None,), in_memory=True)
        bad = ((ids < 0) | (ids >= self.num_nodes)).nonzero().view(-1)
        if len(bad):
            position = int(bad[0])
            raise ValueError(
                f"{path}: position {position}: node {int(ids[position])} does not exist: expected "
                f"an id in [0, {self.num_nodes}); run `lsm data verify {self._store}` and convert "
                "again"
            )
        return ids

    def times(self, in_memory: bool = False) -> torch.Tensor:
        """Time of each node, [N] int64, in the unit of the source. Raises ValueError without
        them."""
        path = self._path(layout.NODE_TIMES, "times")
        return load_array(path, "int64", (self.num_nodes,), in_memory)

    def names(self, ids: Iterable[int] | None = None) -> Iterator[str]:
        """Names by id, streamed: of ``ids``, ascending, or of all nodes. Raises ValueError without
        them."""
        return read_names(self._path(layout.NAMES, "names"), ids)

    def names_of(self, ids: Sequence[int] | torch.Tensor) -> list[str]:
        """The names of ``ids``, a tensor or a list; one pass over the file of names. ValueError for
        one that is no node."""
        numbers = vector_of_ids(ids).tolist()
        bad = next((each for each in numbers if not 0 <= each < self.num_nodes), None)
        if bad is not None:
            raise ValueError(f"ids: expected ids in [0, {self.num_nodes}), got {bad}")
        return names_at(self._path(layout.NAMES, "names"), numbers)

    def find(self, names: Sequence[str]) -> list[int]:
        """The ids of ``names``, a list; one pass over the file of names. ValueError for an unknown
        one, TypeError for a string in place of a list."""
        return find_names(self._path(layout.NAMES, "names"), names)

    def look_up(self, names: Sequence[str]) -> list[int]:
        """The ids of ``names``, -1 for an unknown one; one pass over the file of names."""
        return look_up_names(self._path(layout.NAMES, "names"), names)

    def _path(self, name: str, noun: str) -> Path:
        file = self._folder + name
        if file not in self._files:
            raise ValueError(
                f"{self._store}: nodes of type {self.node_type} have no {noun}; add them to the "
                "source and make the store again"
            )
        return self._store / file


def _meta_of(files: FeatureFiles) -> FeatureMeta:
    """The layout of features of another place."""
    return FeatureMeta(
        dim=files.dim,
        dtype=str(files.dtype).removeprefix("torch."),
        row_bytes=files.row_bytes,
        files=[str(path) for path in files.paths],
        stripe_bytes=files.stripe_bytes,
    )
