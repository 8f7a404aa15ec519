"""The links of a batch, by the places of their ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from lsm.graph.types import EdgeType


@dataclass(frozen=True)
class SeedLinks:
    """The links that a batch is of, with PyG's names.

    Places are those of nodes of the end's type in the batch, such as in ``n_id_dict``; of a graph
    without types, in ``n_id``.

    Attributes:
        edge_type: The type of the links.
        edge_label_index: [2, p + n] int64 places of sources and destinations: of links, then of
            negatives. None: the links are triplets.
        edge_label: [p + n] labels: given ones, or float32 ones; 0 for negatives. None without.
        edge_label_time: [p + n] int64 times. None without.
        src_index: [p] int64 places of the sources. None: the links are no triplets.
        dst_pos_index: [p] int64 places of the destinations.
        dst_neg_index: [p] or [p, k] int64 places of each link's negatives; [k] if all links share
            them (``is_shared``); None: the destinations of the other links are the negatives.
        seed_time: [p] int64 times of triplets. None without.
        log_chances: [p] float32 logarithms of the chances that the destinations are drawn as
            negatives of other links. None unless a loss takes them.
        neg_log_chances: [k] those of shared negatives.
        is_shared: True if all links share ``dst_neg_index``.
    """

    edge_type: EdgeType
    edge_label_index: Tensor | None = None
    edge_label: Tensor | None = None
    edge_label_time: Tensor | None = None
    src_index: Tensor | None = None
    dst_pos_index: Tensor | None = None
    dst_neg_index: Tensor | None = None
    seed_time: Tensor | None = None
    log_chances: Tensor | None = None
    neg_log_chances: Tensor | None = None
    is_shared: bool = False

    @property
    def sources(self) -> Tensor:
        """Places of the sources of the links, negatives too if they are no triplets: [n] int64."""
        if self.edge_label_index is not None:
            return self.edge_label_index[0]
        assert self.src_index is not None, "one of both forms is there"
        return self.src_index

    @property
    def destinations(self) -> Tensor:
        """Places of the destinations, as ``sources``."""
        if self.edge_label_index is not None:
            return self.edge_label_index[1]
        assert self.dst_pos_index is not None, "one of both forms is there"
        return self.dst_pos_index

    def values(self) -> dict[str, Tensor]:
        """The tensors that are there, by name."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def apply(self, function: Callable[[Tensor], Tensor]) -> SeedLinks:
        """The links with ``function`` applied to each tensor."""
        changes: dict[str, Any] = {name: function(each) for name, each in self.values().items()}
        return replace(self, **changes)
