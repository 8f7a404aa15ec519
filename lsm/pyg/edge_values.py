"""Values of a batch's edges, for PyG's loaders, which take none from a FeatureStore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData

from lsm.data.graph_store import GraphStore
from lsm.data.opened import opened
from lsm.graph.types import EdgeType, TypedMap
from lsm.loader.inputs import edge_values
from lsm.loader.to_pyg import named_for_data, select_values


class EdgeValues:
    """A ``transform`` of PyG's loaders that sets the store's values of a batch's edges.

    They are ``edge_weight``, ``edge_attr`` and ``time`` (of ``Data``: ``edge_time``), as far as the
    store has them, found by ``e_id``.

    Args:
        store: A GraphStore of lsm, or its path.
        then: A transform to apply afterwards.

    Raises:
        FileNotFoundError: There is no store at ``store``.
    """

    def __init__(
        self, store: GraphStore | str | Path, then: Callable[[Any], Any] | None = None
    ) -> None:
        self.store: GraphStore = opened(store)
        """The store."""
        self._then = then
        self._values: TypedMap[EdgeType, dict[str, Tensor]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without mapped values."""
        return self.__dict__ | {"_values": None}

    def __call__(self, data: Data | HeteroData) -> Any:
        """Sets the values of a batch.

        Args:
            data: A batch with ``e_id``.

        Returns:
            ``data``, or the result of ``then``.

        Raises:
            ValueError: The batch has no ``e_id``.
        """
        if self._values is None:
            self._values = edge_values(self.store)
        for edge_type, values in self._values.items():
            if isinstance(data, HeteroData):
                if edge_type in data.edge_types:
                    _set(data[edge_type], values)
            else:
                _set(data, named_for_data(values))
        return data if self._then is None else self._then(data)


def _set(edges: Any, values: Mapping[str, Tensor]) -> None:
    if not values:
        return
    if "e_id" not in edges:
        raise ValueError("EdgeValues: the batch has no e_id; sample with edge_ids=True")
    select_values(edges, values, edges.e_id)
