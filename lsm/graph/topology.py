"""The edges of a graph, by destination."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Topology:
    """In-edges by destination: the in-neighbours of v are ``indices[indptr[v]:indptr[v + 1]]``.

    indptr: [N + 1] int64; indices: [E] int32, or int64 from 2**31 nodes on. ``indices`` has the
    edges of a converted graph in the order of ``np.argsort(destinations, kind="stable")``: values
    of edges, so sorted, are indexed by a batch's ``e_id``.
    """

    indptr: torch.Tensor
    indices: torch.Tensor

    @property
    def num_nodes(self) -> int:
        """Destinations: nodes 0 to ``num_nodes - 1``."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Directed edges: an undirected edge counts twice."""
        return self.indices.numel()

    @property
    def num_bytes(self) -> int:
        """Memory of both arrays."""
        return self.indptr.nbytes + self.indices.nbytes
