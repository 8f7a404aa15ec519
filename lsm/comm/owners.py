"""Owners of nodes. The owner of a node caches its row and reads it from storage."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from lsm import native
from lsm.core.hash import mix64

OwnerHash = Literal["stride", "mix64"]

MAX_RANKS = 256
"""Most ranks of one shared cache: a row's metadata word has 8 bits for the rank."""

# As in comm/owner.h.
_SECOND_ROUND = np.uint64(0x9E3779B97F4A7C15)


def owners(ids: np.ndarray, num_ranks: int, hash: OwnerHash = "stride") -> np.ndarray:
    """The owner of each of ``ids`` [n] int64: ``hash(id) mod num_ranks``, [n].

    mix64 runs twice, with another constant than the single round that gives an id's set. With the
    same bits for both, a rank's ids would reach only some of the sets wherever the number of sets
    and the number of ranks share a factor.
    """
    if hash == "stride":
        return ids % num_ranks
    if hash == "mix64":
        return mix64(mix64(ids.astype(np.uint64)) ^ _SECOND_ROUND) % np.uint64(num_ranks)
    raise ValueError(f"hash: expected one of {', '.join(get_args(OwnerHash))}, got {hash!r}")


def load_owner_table(path: str | Path, num_nodes: int, num_ranks: int) -> torch.Tensor:
    """The owners in a partitioner's ``.npy`` file, which holds integers of any size: [num_nodes]
    uint8. Raises ValueError for another shape or dtype or an owner that is no rank, OSError.
    """
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"comm.owner_table: {path}: expected a .npy file ({error})") from None
    if not isinstance(table, np.ndarray) or table.dtype.kind not in "iu" or table.ndim != 1:
        got = f"{table.dtype} {list(table.shape)}" if isinstance(table, np.ndarray) else "an .npz"
        raise ValueError(f"comm.owner_table: {path}: expected integers [num nodes], got {got}")
    if len(table) != num_nodes:
        raise ValueError(
            f"comm.owner_table: {path}: expected an owner for each of {num_nodes} nodes, "
            f"got {len(table)}"
        )
    low, high = (int(table.min()), int(table.max())) if num_nodes else (0, 0)
    if low < 0 or high >= num_ranks:
        raise ValueError(
            f"comm.owner_table: {path}: expected owners 0 to {num_ranks - 1}, one for each rank of "
            f"the cache group, got {low} to {high}"
        )
    return torch.from_numpy(table.astype(np.uint8))


class OwnerMap:
    """The owner of every node, as seen from rank ``rank`` of ``num_ranks``.

    table: [num_nodes] uint8, the owners; None: by ``hash``. replicated_ids: [k] int64, ids that
    every rank owns itself.
    """

    def __init__(
        self,
        num_nodes: int,
        num_ranks: int,
        rank: int,
        *,
        hash: OwnerHash = "mix64",
        table: torch.Tensor | None = None,
        replicated_ids: torch.Tensor | None = None,
    ) -> None:
        self.num_ranks = num_ranks
        self._rank = rank
        self._hash = hash
        self._table = table
        self._native = native.OwnerMap(
            hash=getattr(native.OwnerHash, hash if table is None else "table"),
            num_nodes=num_nodes,
            num_ranks=num_ranks,
            rank=rank,
            table=torch.empty(0, dtype=torch.uint8) if table is None else table,
            replicated_ids=(
                torch.empty(0, dtype=torch.int64) if replicated_ids is None else replicated_ids
            ),
        )

    def is_own(self, num_nodes: int) -> torch.Tensor:
        """Mask of the nodes that this rank owns, replicated or not: [num_nodes] bool."""
        if self._table is not None:
            return self._table == self._rank
        ids = np.arange(num_nodes)
        return torch.from_numpy(owners(ids, self.num_ranks, self._hash) == self._rank)

    def bucket(
        self, ids: torch.Tensor, threads: native.ThreadPool, out: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        """Groups ``ids`` [n] int64 by owner, in their order. Returns (ids [n] int64, in ``out`` if
        given; their positions in ``ids`` [n] int32; the starts of the owners' parts, num_ranks + 1
        numbers)."""
        bucketed = torch.empty_like(ids) if out is None else out
        positions = torch.empty(len(ids), dtype=torch.int32)
        starts = torch.empty(self.num_ranks + 1, dtype=torch.int64)
        self._native.bucket(ids, bucketed, positions, starts, threads)
        return bucketed, positions, starts.tolist()
