"""Types of nodes and edges, over one space of node ids.

Users see ids per type. Inside, the ids of all types are one range of int64: those of a type follow
one another from its offset. Types appear at two ends only, the store and the batch; request lists,
planner, owners and traces between them see ids of the one space.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import torch

EdgeType = tuple[str, str, str]
"""Type of the sources, name of the relation, type of the destinations."""

NODE = "node"
"""The type of all nodes of a graph without types."""
EDGE: EdgeType = (NODE, "to", NODE)
"""The type of all edges of a graph without types."""

_MOST_NODES = 2**63 - 1


def as_edge_type(given: Any) -> Any:
    """``given``; a list, which names an edge type too, as a tuple."""
    return tuple(given) if isinstance(given, list) else given


def has_types(node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> bool:
    """False for the types that all graphs without types have."""
    return tuple(node_types) != (NODE,) or tuple(edge_types) != (EDGE,)


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
S = TypeVar("S")


class TypedMap(dict[K, T]):
    """Values by type of node or edge; one type stands for a graph without types."""

    @property
    def only(self) -> T:
        """The value of the one type. Raises ValueError for several types, or none."""
        if len(self) != 1:
            names = ", ".join(map(str, self)) or "none"
            raise ValueError(f"types: expected one, got {len(self)} ({names})")
        return next(iter(self.values()))

    def apply(self, function: Callable[[T], S]) -> TypedMap[K, S]:
        """The results of ``function`` on each value, by type."""
        return TypedMap({key: function(value) for key, value in self.items()})


class TypedIds(NamedTuple):
    """The ids of one type within a list of ids of all types.

    ids: [k] int64, of the type. positions: [k] int64, their places in the list; None: all of it.
    """

    ids: torch.Tensor
    positions: torch.Tensor | None


class NodeSpace:
    """One range of ids over the nodes of all types.

    counts: number of nodes by type, in the order of the offsets.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        if not counts:
            raise ValueError("node types: expected at least one")
        for name, count in counts.items():
            if not name or count < 0:
                raise ValueError(f"node type {name!r}: expected a name and a count, got {count}")
        self.counts: TypedMap[str, int] = TypedMap(counts)
        self.num_nodes = sum(counts.values())
        """Ids of the space are 0 to ``num_nodes - 1``."""
        if self.num_nodes > _MOST_NODES:
            raise ValueError(f"node types: expected at most {_MOST_NODES} nodes in all")
        self._starts = [0, *accumulate(counts.values())]
        self.offsets: TypedMap[str, int] = TypedMap(zip(counts, self._starts, strict=False))
        """The first id of each type."""

    @classmethod
    def of_one(cls, num_nodes: int) -> NodeSpace:
        """The space of a graph without types, whose ids are those of the space."""
        return cls({NODE: num_nodes})

    @property
    def types(self) -> tuple[str, ...]:
        """The node types, by offset."""
        return tuple(self.counts)

    def to_global(self, node_type: str, ids: torch.Tensor) -> torch.Tensor:
        """Ids of the space for ``ids`` ([n] int64) of a type: [n] int64.

        Raises ValueError for an unknown type. Ids out of range are for outside() to find, so that
        a caller can name their origin.
        """
        if node_type not in self.offsets:
            known = ", ".join(self.types)
            raise ValueError(f"node type: expected one of {known}, got {node_type!r}")
        offset = self.offsets[node_type]
        return ids if offset == 0 else ids + offset

    def outside(self, node_type: str, ids: torch.Tensor) -> torch.Tensor:
        """Positions of those of ``ids`` ([n] int64) that are no node of the type: [k] int64."""
        return ((ids < 0) | (ids >= self.counts[node_type])).nonzero().view(-1)

    def split(self, ids: torch.Tensor) -> TypedMap[str, TypedIds]:
        """The ids of each type among ``ids`` ([n] int64 of the space), in their order. Each type
        is there. Precondition: the ids are of the space."""
        if len(self.counts) == 1:
            return TypedMap({self.types[0]: TypedIds(ids, None)})
        # The type of an id is the last whose offset is not above it; empty types share an offset.
        number = torch.searchsorted(torch.tensor(self._starts[1:]), ids, right=True)
        parts: TypedMap[str, TypedIds] = TypedMap()
        for index, (name, offset) in enumerate(self.offsets.items()):
            positions = (number == index).nonzero().view(-1)
            parts[name] = TypedIds(ids[positions] - offset, positions)
        return parts


class EdgeTypes(tuple[EdgeType, ...]):
    """The edge types of a graph, each once, between node types that exist."""

    __slots__ = ()

    def __new__(cls, types: Iterable[EdgeType], nodes: NodeSpace) -> EdgeTypes:
        """Raises ValueError for a repeated type, one whose ends are no types of ``nodes``, or a
        relation with the name of a node type, which PyG cannot tell apart."""
        checked = tuple(types)
        for number, (source, relation, destination) in enumerate(checked):
            name = f"edge type ({source}, {relation}, {destination})"
            for end in (source, destination):
                if end not in nodes.counts:
                    known = ", ".join(nodes.types)
                    raise ValueError(f"{name}: {end} is no node type; expected one of {known}")
            if relation in nodes.counts:
                raise ValueError(f"{name}: {relation} is a node type, too; rename one of them")
            if not relation:
                raise ValueError(f"{name}: expected a name for the relation")
            if checked[number] in checked[:number]:
                raise ValueError(f"{name}: is there twice")
        return super().__new__(cls, checked)

    def __reduce__(self) -> tuple[type[EdgeTypes], tuple[tuple[EdgeType, ...], NodeSpace]]:
        """A copy, also in another process, has been checked against its nodes already."""
        ends = {end: 0 for source, _, destination in self for end in (source, destination)}
        return type(self), (tuple(self), NodeSpace(ends or {NODE: 0}))

    @classmethod
    def of_one(cls, nodes: NodeSpace) -> EdgeTypes:
        """The one edge type of a graph without types."""
        return cls([EDGE], nodes)
