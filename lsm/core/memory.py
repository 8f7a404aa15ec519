"""Memory of a job by use. Each room that allocates has a ``memory`` module, whose ``terms()``
states the room's share; ``lsm.train.budget`` divides a budget among them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

# A pooled block has an eighth of headroom, for the next, slightly larger batch.
HEADROOM = 1.125
# Freed memory leaves holes: the largest ratio of resident to live memory that was seen.
FRAGMENTED = 1.25


@dataclass(frozen=True)
class Terms:
    """Bytes by use. Uses of the host and of the GPU do not count for one another."""

    host: dict[str, int] = field(default_factory=dict)
    gpu: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Terms) -> Terms:
        """The uses of both. Precondition: no use is named by both."""
        return Terms({**self.host, **other.host}, {**self.gpu, **other.gpu})


@dataclass(frozen=True)
class BatchSize:
    """The largest of some sampled batches."""

    nodes: int = 0
    edges: int = 0
    expanded: int = 0
    """Nodes whose in-edges are in the batch."""
    mixed_bytes: int = 0
    """Bytes of its rows, if rows have several sizes."""
    value_bytes: int = 0
    """Bytes of the values of its nodes and edges: the subgraph of each node, weights."""

    def at_least(self, other: BatchSize) -> BatchSize:
        """The maximum of both in each field."""
        names = [each.name for each in fields(self)]
        return BatchSize(*(max(getattr(self, name), getattr(other, name)) for name in names))

    def ratio(self, other: BatchSize) -> float:
        """The largest ratio of this size to ``other``, of nodes, edges or expanded nodes."""
        return max(
            self.nodes / max(1, other.nodes),
            self.edges / max(1, other.edges),
            self.expanded / max(1, other.expanded),
        )

    def scaled(self, factor: float) -> BatchSize:
        """Each field times ``factor``, rounded down."""
        return BatchSize(*(int(factor * getattr(self, each.name)) for each in fields(self)))


@dataclass(frozen=True)
class Shape:
    """The sizes of a job that the memory of its rooms depends on. Bytes are of one rank."""

    num_nodes: int
    row_bytes: int
    """Bytes of a row; of the smallest, if rows have several sizes."""
    topology_bytes: int = 0
    iterations: int = 1
    """Iterations of the longest split."""
    batch: BatchSize = BatchSize()
    """The largest batch."""
    on_gpu: bool = False
    """True if a GPU trains, which then holds the cache."""
    shares_cache: bool = False
    """True if the cache is one over ranks."""
    mixed_bytes: int = 0
    """Bytes of all rows, if they have several sizes."""
    union_bytes: int = 0
    """Memory of the edges of all types as one structure, from which scores are computed."""
    number_bytes: int = 0
    """Bytes of the labels of a node that are numbers; 0: classes."""

    def at_least(self, other: Shape) -> Shape:
        """The same with the larger batch, and the larger number of iterations. Precondition: both
        are of one job."""
        return replace(
            self,
            iterations=max(self.iterations, other.iterations),
            batch=self.batch.at_least(other.batch),
        )

    @property
    def rows_bytes(self) -> int:
        """Bytes of a batch's rows."""
        return self.batch.mixed_bytes or self.batch.nodes * self.row_bytes

    @property
    def features_bytes(self) -> int:
        """Bytes of all rows."""
        return self.mixed_bytes or self.num_nodes * self.row_bytes
