"""The node types whose requests a trace of a store with types holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lsm.data import format as layout
from lsm.data.graph_store import GraphStore


@dataclass(frozen=True)
class TracedTypes:
    """The type of a trace's seeds, and the ids of the types whose rows it requests.

    seeds: the type. ranges: of ids in the one space of all types, [begin, end) each, rising.
    """

    seeds: str
    ranges: list[tuple[int, int]]

    @classmethod
    def of(
        cls, store: GraphStore, split: str, input_type: str | None, types: Sequence[str] | None
    ) -> TracedTypes:
        """As given. None: the only type with nodes in ``split``; all types with rows. Raises
        ValueError for an unknown type, or rows of several sizes, which no trace tells apart."""
        space, known = store.node_space, store.node_types
        if not store.is_typed:
            if input_type is not None or types is not None:
                raise ValueError(f"input_type, types: {store.path} has one type of nodes")
            return cls(known[0], [(0, space.num_nodes)])
        types = None if types is None else list(dict.fromkeys(types))
        asked = {"types": types or (), "input_type": () if input_type is None else (input_type,)}
        for key, names in asked.items():
            for name in names:
                if name not in known:
                    raise ValueError(
                        f"{key}: expected types of nodes ({', '.join(known)}), got {name!r}"
                    )
        features = {name: store.nodes(name).features for name in types or known}
        sizes = {name: own.row_bytes for name, own in features.items() if own is not None}
        if len(set(sizes.values())) != 1 or (types is not None and len(sizes) < len(types)):
            listed = ", ".join(f"{name} {sizes.get(name, 'no')} bytes" for name in types or sizes)
            raise ValueError(
                f"types: expected types with rows of one size, got rows of {listed}; name some by "
                "--types"
            )
        ranges = [(space.offsets[name], space.offsets[name] + space.counts[name]) for name in sizes]
        return cls(input_type or _seeds_type(store, split), sorted(ranges))

    def mask(self, ids: np.ndarray) -> np.ndarray:
        """True for those of ``ids`` ([n] int64) whose rows are requested: [n] bool."""
        return np.logical_or.reduce([(begin <= ids) & (ids < end) for begin, end in self.ranges])


def _seeds_type(store: GraphStore, split: str) -> str:
    called = layout.split_name(split)
    fitting = [name for name in store.node_types if called in store.nodes(name).splits]
    if len(fitting) != 1:
        raise ValueError(
            f"input_type: {store.path} has {', '.join(fitting) or 'no type'} with split "
            f"{split!r}; name one by --input-type"
        )
    return fitting[0]
