"""Records of one iteration's exchange: requests, and the places of their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from lsm.comm.shared_memory import SharedBatch

NO_PLACES = torch.empty(0, dtype=torch.int32)
"""Stands for ``places`` of a RowTarget, or ``row_of``, of 0, 1, 2, .."""


@dataclass(frozen=True)
class RowFormat:
    """A row is ``dim`` values of ``dtype``."""

    dim: int
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * self.dtype.itemsize


@dataclass(frozen=True)
class Request:
    """The ids of one iteration, as seen from one rank.

    As requester it wants ``num_rows`` rows; owner r has those at ``positions[starts[r] : starts[r +
    1]]`` ([num_rows] int32). As owner it fetches ``ids`` ([u] int64, in request order; rank r's
    list adds ``ids[rank_starts[r] : rank_starts[r + 1]]``) and gives rank r their rows
    ``row_of[list_starts[r] : list_starts[r + 1]]``, in order.
    """

    iteration: int
    num_rows: int
    positions: torch.Tensor
    starts: list[int]
    ids: torch.Tensor
    rank_starts: torch.Tensor
    row_of: torch.Tensor
    list_starts: list[int]
    stats: dict[str, float] = field(compare=False)
    """EXCHANGED, comm_secs and comm_wait_secs (lsm.core.counters); final after finish()."""

    def asked_of(self, owner: int) -> torch.Tensor:
        """Positions in the batch of the rows of ``owner``."""
        return self.positions[self.starts[owner] : self.starts[owner + 1]]

    def asked_by(self, requester: int) -> torch.Tensor:
        """The rows for ``requester``, in the order of its request."""
        return self.row_of[self.list_starts[requester] : self.list_starts[requester + 1]]


class RowTarget(NamedTuple):
    """The place for the rows that one rank requested: row ``row_of[k]`` of the request's ids ([n]
    int32) goes to row ``places[k]`` ([n] int32; empty: k) of ``rows`` ([m, dim])."""

    row_of: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor


@dataclass(frozen=True)
class Delivery:
    """A request whose rows are on their way. ``packed``: by rank, the rows that go to it as a
    message; row k is the k-th of its request."""

    request: Request
    batch: SharedBatch
    packed: dict[int, torch.Tensor] = field(default_factory=dict)
