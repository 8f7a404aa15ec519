"""The negatives of sampled links: how many, and from which nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from lsm.core.arguments import whole_number
from lsm.core.ids import as_int64
from lsm.core.suggest import require_known

_TRIES = 5  # at a node that is not later than its link, as PyG tries


@dataclass(frozen=True)
class NegativeSampling:
    """Negatives for each link, as PyG's class of the same name has them, and more.

    Args:
        mode: binary: pairs of nodes, both drawn; triplet: destinations for each link's source.
        amount: Negatives for each link; for triplets a whole number.
        src_weight: Relative chances of sources, [nodes of the type]; None: all alike.
        dst_weight: Those of destinations.
        kind: uniform: each link has its own, drawn by the weights; degree: its own, drawn in
            proportion to the links that end at a node; joint: ``amount`` destinations that all
            links of a batch share; inbatch: none are drawn, and the destinations of the batch's
            other links serve; resident: ``amount`` destinations that all links of a batch share,
            drawn from the destinations of links of nearby iterations, whose rows a cache holds;
            given: those in ``candidates``.
        nodes: Draw negatives from these nodes of the destinations' type, [n] int64 or a mask of all
            its nodes; None: from all.
        candidates: Destinations for each link, [links, k] int64, or for all links, [k].
        iterations: resident: iterations in a group; the batches of a rank in one group draw from
            the destinations of all their links.

    Raises:
        ValueError: A value is wrong, or does not suit another.
    """

    mode: Literal["binary", "triplet"]
    amount: float = 1
    src_weight: Tensor | None = None
    dst_weight: Tensor | None = None
    kind: Literal["uniform", "degree", "joint", "inbatch", "resident", "given"] = "uniform"
    nodes: Tensor | None = None
    candidates: Tensor | None = None
    iterations: int = 8

    def __post_init__(self) -> None:
        if self.mode not in ("binary", "triplet"):
            raise ValueError(f"neg_sampling: expected binary or triplet, got {self.mode!r}")
        if self.kind not in ("uniform", "degree", "joint", "inbatch", "resident", "given"):
            raise ValueError(
                "neg_sampling: kind: expected uniform, degree, joint, inbatch, resident or given, "
                f"got {self.kind!r}"
            )
        whole_number("neg_sampling: iterations", self.iterations, 1)
        for name in ("src_weight", "dst_weight", "candidates"):
            given = getattr(self, name)
            if not isinstance(given, Tensor | None):
                kind = type(given).__name__
                raise TypeError(f"neg_sampling: {name}: expected a tensor, got {kind}")
        amount: Any = self.amount
        if not isinstance(amount, Real):
            raise ValueError(f"neg_sampling: amount: expected a number, got {amount!r}")
        if not (self.amount > 0 and math.isfinite(self.amount)):
            raise ValueError(
                f"neg_sampling: amount: expected a finite number above 0, got {self.amount}"
            )
        if self.mode == "triplet" and self.amount != int(self.amount):
            raise ValueError(
                f"neg_sampling: amount: expected a whole number for triplet, got {self.amount}"
            )
        if self.mode == "binary" and self.kind not in ("uniform", "degree"):
            raise ValueError(f"neg_sampling: kind {self.kind}: expected mode triplet, got binary")
        if (self.kind == "given") != (self.candidates is not None):
            raise ValueError("neg_sampling: expected candidates with kind given, and only with it")
        if self.nodes is not None and self.kind not in ("uniform", "joint"):
            raise ValueError(
                f"neg_sampling: nodes: expected kind uniform or joint, got {self.kind}"
            )
        for name in ("src_weight", "dst_weight"):
            if getattr(self, name) is not None and self.kind not in ("uniform", "joint"):
                raise ValueError(
                    f"neg_sampling: {name}: expected kind uniform or joint, got {self.kind}"
                )

    @classmethod
    def cast(cls, given: Any) -> NegativeSampling | None:
        """``given`` as PyG takes it: a mode, a tuple or a dict of arguments, or PyG's own object;
        None: no negatives. Raises TypeError, too, for arguments that are none."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(given)  # type: ignore[arg-type]
        if isinstance(given, tuple | list):
            return cls(*given)
        if isinstance(given, Mapping):
            require_known("neg_sampling", given, cls.__dataclass_fields__)
            if "mode" not in given:
                raise TypeError("neg_sampling: expected mode, binary or triplet, in the dict")
            return cls(**given)
        if hasattr(given, "is_triplet"):
            weights = (given.src_weight, given.dst_weight)
            return cls("triplet" if given.is_triplet() else "binary", given.amount, *weights)
        raise ValueError(
            "neg_sampling: expected binary, triplet, a dict or PyG's NegativeSampling, got "
            f"{type(given).__name__}"
        )

    @property
    def is_binary(self) -> bool:
        """True for pairs."""
        return self.mode == "binary"

    @property
    def is_shared(self) -> bool:
        """True if all links of a batch have the same negatives."""
        shared = self.candidates is not None and self.candidates.dim() == 1
        return self.kind in ("joint", "inbatch", "resident") or shared

    def count(self, num_links: int) -> int:
        """Negatives of ``num_links`` links that have their own."""
        return math.ceil(num_links * self.amount)


class NodeDraws:
    """Draws nodes of one type, with replacement."""

    def __init__(
        self,
        num_nodes: int,
        *,
        side: str = "destination",
        weight: Tensor | None = None,
        nodes: Tensor | None = None,
        ends: Tensor | None = None,
    ) -> None:
        """Of ``num_nodes`` nodes, or of ``nodes`` among them, or of ``ends`` [n], the ends of
        links, which may repeat; in proportion to ``weight`` [num_nodes], if there is one. Raises
        ValueError if there are fewer than two nodes to draw, for which no negative is possible."""
        self._num_nodes, self._pool = num_nodes, ends
        self._bounds: Tensor | None = None
        self._times: Tensor | None = None
        if nodes is not None:
            self._pool = _checked_nodes(as_int64(torch.as_tensor(nodes)), num_nodes, side)
        if weight is not None:
            self._bounds = _bounds_of(weight, num_nodes, side, self._pool)
        distinct = num_nodes
        if self._pool is not None:
            first = self._pool[:1]
            distinct = len(first) + bool((self._pool != first).any())  # 2: or more
        if distinct < 2:
            raise ValueError(
                f"neg_sampling: no negatives are possible: {distinct} node to draw as {side}"
            )

    def with_times(self, times: Tensor | None) -> NodeDraws:
        """Draws no node that is later than its link: ``times`` [num_nodes] int64, or None."""
        self._times = times
        return self

    def draw(
        self, count: int, generator: torch.Generator, link_times: Tensor | None = None
    ) -> Tensor:
        """[count] int64. Of ``link_times`` [p], that of link i % p is the latest time of draw i;
        where several draws fail, the earliest node is taken."""
        drawn = self._draw(count, generator)
        if self._times is None or link_times is None or count == 0:
            return drawn
        latest = link_times.repeat(-(-count // len(link_times)))[:count]
        for _ in range(_TRIES):
            late = (self._times[drawn] > latest).nonzero().view(-1)
            if not len(late):
                return drawn
            drawn[late] = self._draw(len(late), generator)
        late = self._times[drawn] > latest
        if late.any():
            drawn[late] = self._earliest(self._times)
        return drawn

    def _earliest(self, times: Tensor) -> Tensor:
        """The earliest node that may be drawn."""
        candidates = times if self._pool is None else times[self._pool]
        if self._bounds is not None:
            is_drawn = self._bounds.diff(prepend=self._bounds.new_zeros(1)) > 0
            candidates = candidates.where(is_drawn, torch.iinfo(times.dtype).max)
        place = candidates.argmin()
        return place if self._pool is None else self._pool[place]

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        if self._bounds is not None:
            shares = torch.rand(count, generator=generator, dtype=torch.float64)
            found = torch.searchsorted(self._bounds, shares * self._bounds[-1], right=True)
            found.clamp_(max=len(self._bounds) - 1)
            return found if self._pool is None else self._pool[found]
        if self._pool is None:
            return torch.randint(self._num_nodes, (count,), generator=generator)
        places = torch.randint(len(self._pool), (count,), generator=generator)
        return self._pool.index_select(0, places)


def _checked_nodes(nodes: Tensor, num_nodes: int, side: str) -> Tensor:
    if nodes.dtype == torch.bool and nodes.shape == (num_nodes,):
        return nodes.nonzero().view(-1)
    if nodes.dim() != 1 or nodes.dtype != torch.int64:
        raise ValueError(
            f"neg_sampling: nodes: expected [n] int64 or a mask of {num_nodes} {side} nodes, got "
            f"{nodes.dtype} {list(nodes.shape)}"
        )
    bad = (nodes < 0) | (nodes >= num_nodes)
    if bad.any():
        first = int(nodes[bad][0])
        raise ValueError(
            f"neg_sampling: nodes: {first} is no node: expected ids of {side} nodes in [0, "
            f"{num_nodes})"
        )
    return nodes


def _bounds_of(weight: Tensor, num_nodes: int, side: str, pool: Tensor | None) -> Tensor:
    """Sums of the weights of the ``pool``, or of all nodes."""
    if weight.shape != (num_nodes,):
        raise ValueError(
            f"neg_sampling: weights of {side} nodes: expected [{num_nodes}], got "
            f"{list(weight.shape)}"
        )
    weight = (weight if pool is None else weight[pool]).double()
    is_valid = bool((torch.isfinite(weight) & (weight >= 0)).all())
    if not is_valid or int((weight > 0).sum()) < 2:
        raise ValueError(
            f"neg_sampling: no negatives are possible: expected finite weights of at least 0 for "
            f"{side} nodes, and two above 0"
        )
    return weight.cumsum(0)
