"""PyG's FeatureStore over the values that a store has of its nodes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import FeatureStore as PygFeatureStore
from torch_geometric.data import TensorAttr

from lsm.cache.options import CacheOptions
from lsm.core import host_memory
from lsm.core.device import HOST
from lsm.core.ids import as_int64
from lsm.data.graph_store import GraphStore
from lsm.data.node_data import NodeData
from lsm.data.opened import opened
from lsm.data.pyg import MASKS, has_masks, mask_of
from lsm.features.loader import FeatureLoader
from lsm.features.open import open_features
from lsm.features.sets import Features
from lsm.features.typed import open_feature_sets
from lsm.graph.types import NODE, TypedMap
from lsm.loader.batch import Batch, select
from lsm.pyg.read_only import refuse
from lsm.storage.options import StorageOptions

X = "x"
"""The name of feature rows, which an engine reads."""


class FeatureStore(PygFeatureStore):
    """The values of a store's nodes by type and name: ``x``, ``y``, ``time`` and masks of splits.

    ``x`` is read from storage row by row; all types that a loader asks for at once are one wave of
    reads. Other values are mapped, or in memory. Each is delivered in the order of ``index``, in
    the stored dtype, on the host; rows read ahead lie where their source puts them. A graph without
    types has the group None. Values of edges are not
    listed, since PyG would index them with nodes; see EdgeValues.

    ``put_tensor`` adds values of all nodes of a type, which stay in memory; those of the store are
    read only. Each process opens an engine of its own at its first rows, also after a fork, and can
    take the store as a pickle.

    Args:
        store: A GraphStore of lsm, or its path.
        cache: Options of a cache over storage, or a dict of them. It plans batch by batch; only
            ``lsm.pyg.parts`` lets it see batches ahead. Each worker of a DataLoader has its own.
        storage: The engine that reads rows, and its options, or a dict of them.

    Raises:
        FileNotFoundError: There is no store at ``store``.
        ValueError: An option is invalid.
    """

    def __init__(
        self,
        store: GraphStore | str | Path,
        *,
        cache: CacheOptions | Mapping[str, Any] | None = None,
        storage: StorageOptions | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.store: GraphStore = opened(store)
        """The store."""
        self._cache = CacheOptions.of_argument("cache", cache)
        self._storage = StorageOptions.of_argument("storage", storage)
        self.opened: Features | None = None
        """The rows from storage, once some were asked for in this process."""
        self._planning = threading.Lock()  # of batches over a cache, which has one order
        self._ahead: Batch | None = None
        self._versions: dict[str, int] = {}
        self._names = {name: _names_of(self.store.nodes(name)) for name in self.store.node_types}
        self._values: dict[tuple[str, str], Tensor] = {}  # of the store, as they are asked for
        self._added: dict[tuple[str, str], Tensor] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Without the state of a process: the open engine, mapped values, a batch ahead."""
        return self.__dict__ | {"opened": None, "_values": {}, "_ahead": None, "_planning": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _planning=threading.Lock())

    def close(self) -> None:
        """Closes the engine of this process. Later rows open another."""
        rows, self.opened = self.opened, None
        if rows is not None:
            rows.close()

    def __enter__(self) -> FeatureStore:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def expect(self, batch: Batch | None) -> None:
        """Takes the rows of ``batch``, which were read ahead, for the next request of its nodes:
        the tensors ``n_id``, or of several types those in ``n_id_dict``, themselves."""
        self._ahead = batch
        ids = {} if batch is None else batch.n_id_dict
        self._versions = {name: _version(own) for name, own in ids.items()}

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The names of values by group, without an index; in the order of types, stored ones
        first."""
        named = [(name, each) for name, names in self._names.items() for each in names]
        return [TensorAttr(self._group(name), each) for name, each in [*named, *self._added]]

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        """Adds ``tensor`` [N, ...], for all nodes of a type. Raises ValueError for another size."""
        node_type = self._type_of(attr)
        if attr.attr_name in self._names[node_type]:
            return refuse(self.store, f"{attr.attr_name} of nodes of type {node_type}")
        values = torch.as_tensor(tensor)
        num_nodes = self.store.nodes(node_type).num_nodes
        if not _is_all(attr.index) or values.dim() == 0 or len(values) != num_nodes:
            raise ValueError(
                f"{attr.attr_name}: expected values of all {num_nodes} nodes of type {node_type}, "
                f"with index None, got {list(values.shape)}"
            )
        self._added[node_type, attr.attr_name] = values
        return True

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        node_type = self._type_of(attr)
        if attr.attr_name in self._names[node_type]:
            return refuse(self.store, f"{attr.attr_name} of nodes of type {node_type}")
        return self._added.pop((node_type, attr.attr_name), None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        try:
            node_type = self._type_of(attr)
            nodes = self.store.nodes(node_type)
            if attr.attr_name == X and nodes.features is not None:
                return (nodes.num_nodes, nodes.features.dim)
            return tuple(self._values_of(node_type, attr).shape)
        except KeyError:
            return None

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[Tensor]:
        """The values of each of ``attrs``. Raises KeyError for values that are not there, and the
        errors of the fetch of rows."""
        types = [self._type_of(attr) for attr in attrs]
        of_rows = [
            place
            for place, (name, attr) in enumerate(zip(types, attrs, strict=True))
            if attr.attr_name == X and X in self._names[name]
        ]
        found: dict[int, Tensor] = {}
        while of_rows:  # a wave reads each type once
            wave = {types[place]: place for place in reversed(of_rows)}
            of_rows = [place for place in of_rows if place not in wave.values()]
            rows = self._fetch(
                {name: self._ids(name, attrs[place]) for name, place in wave.items()}
            )
            found |= {place: rows[name] for name, place in wave.items()}
        for place, (name, attr) in enumerate(zip(types, attrs, strict=True)):
            if place not in found:
                values = self._values_of(name, attr)
                if not _is_all(attr.index):
                    ids = self._ids(name, attr)
                    self._require_nodes(name, ids)
                    values = select(values, ids, HOST)
                found[place] = values
            if isinstance(attr.index, Integral) or getattr(attr.index, "ndim", 1) == 0:
                found[place] = found[place][0]
        return [found[place] for place in range(len(attrs))]

    def _fetch(self, ids: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The rows of ``ids`` [n] int64 by type: those read ahead, or from storage. Raises
        IndexError for an id that is no node."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and all(self._is_of(ahead, name, own) for name, own in ids.items()):
            return ahead.x_dict
        space = self.store.node_space
        for name, own in ids.items():
            self._require_nodes(name, own)
        rows = self._open_rows()
        if isinstance(rows, FeatureLoader):
            return {NODE: rows.fetch(ids[NODE])}
        none = torch.empty(0, dtype=torch.int64)
        of_space = [space.to_global(name, ids.get(name, none)) for name in space.types]
        with self._planning:
            fetched = rows.announce(torch.cat(of_space), repeats=True).start().result()
        assert isinstance(fetched, TypedMap), "rows of several types are by type"
        return fetched

    def _is_of(self, ahead: Batch, node_type: str, ids: Tensor) -> bool:
        """True if ``ids`` are the nodes of a type in the batch ahead, unchanged."""
        is_same = ahead.n_id_dict.get(node_type) is ids
        return is_same and _version(ids) == self._versions[node_type]

    def _open_rows(self) -> Features:
        if self.opened is None or self.opened.is_forked:
            opens = open_feature_sets if self.store.is_typed else open_features
            self.opened = opens(self.store, self._cache, self._storage)
            self._planning = threading.Lock()  # a thread of the parent may have held the other
        return self.opened

    def _ids(self, node_type: str, attr: TensorAttr) -> Tensor:
        """The nodes of an index, [n] int64. Raises MemoryError for a range whose rows do not fit
        in memory."""
        index, nodes = attr.index, self.store.nodes(node_type)
        if not (_is_all(index) or isinstance(index, slice)):
            given = torch.as_tensor(index)
            given = given.view(-1) if given.dim() == 0 else given
            if given.dtype != torch.bool:
                return as_int64(given)
            if given.shape != (nodes.num_nodes,):
                raise IndexError(
                    f"index: expected a mask of {nodes.num_nodes} nodes of type {node_type}, got "
                    f"{list(given.shape)}"
                )
            return given.nonzero().view(-1)
        ids = torch.arange(nodes.num_nodes)
        ids = ids if _is_all(index) else ids[index]
        if attr.attr_name == X and nodes.features is not None:
            host_memory.require(
                f"{self.store.path}: {len(ids)} rows of type {node_type}",
                len(ids) * nodes.features.row_bytes,
                "give nodes as index, or iterate over batches",
            )
        return ids

    def _require_nodes(self, node_type: str, ids: Tensor) -> None:
        """Raises IndexError for an id [n] int64 that is no node of a type."""
        space = self.store.node_space
        outside = space.outside(node_type, ids)
        if len(outside):
            raise IndexError(
                f"index: expected nodes of type {node_type} in [0, {space.counts[node_type]}), got "
                f"{int(ids[outside[0]])} at position {int(outside[0])}"
            )

    def _values_of(self, node_type: str, attr: TensorAttr) -> Tensor:
        """All values of a type that are no rows. Raises KeyError for values that are not there."""
        key = (node_type, str(attr.attr_name))
        if key in self._added:
            return self._added[key]
        if key[1] not in self._names[node_type]:
            known = ", ".join(
                [*self._names[node_type], *(n for t, n in self._added if t == key[0])]
            )
            raise KeyError(f"{key[1]} of nodes of type {node_type}: expected one of {known}")
        if key not in self._values:
            self._values[key] = _load(self.store.nodes(node_type), key[1])
        return self._values[key]

    def _group(self, node_type: str) -> str | None:
        return node_type if self.store.is_typed else None

    def _type_of(self, attr: TensorAttr) -> str:
        """The node type of a group. Raises KeyError for another group."""
        if not self.store.is_typed and attr.group_name in (None, NODE):
            return NODE
        if attr.group_name in self.store.node_types:
            return str(attr.group_name)
        known = ", ".join(self.store.node_types) if self.store.is_typed else "None"
        raise KeyError(f"group {attr.group_name!r}: expected a node type: {known}")


def _version(ids: Tensor) -> int:
    """A number that changes with each write to ``ids``, but of those of inference mode."""
    return 0 if ids.is_inference() else ids._version


def _names_of(nodes: NodeData) -> list[str]:
    """The names of the values that nodes have, as PyG's ``Data`` has them."""
    found = {X: nodes.features is not None, "y": nodes.has_labels, "time": nodes.has_times}
    return [
        *(name for name, has in found.items() if has),
        *((MASKS[split] for split in nodes.splits) if has_masks(nodes) else ()),
    ]


def _load(nodes: NodeData, name: str) -> Tensor:
    """The values ``name`` of all nodes, but rows."""
    if name == "y":
        return nodes.labels()
    if name == "time":
        return nodes.times()
    return mask_of(nodes, next(split for split, mask in MASKS.items() if mask == name))


def _is_all(index: Any) -> bool:
    """True for an index of all nodes."""
    return index is None or (isinstance(index, slice) and index == slice(None))
