"""Memory that ranks of one machine share. An owner reads a requester's ids in it and writes rows
into the requester's batch."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lsm import native

_MAPPED_PER_PEER = 32
_ALIGNMENT = 64
_IDLE_LIST_BYTES = 64 << 20

NUM_ADDRESS_WORDS = 5
"""Numbers that a peer needs to map a SharedBatch."""


@dataclass(frozen=True)
class SharedBatch:
    """Memory for one batch: ``rows`` [n, dim] and their ``positions`` [n] int32 by owner, which
    peers read.

    address: numbers with which a peer maps it. rows_address: [k] int64, the address of the rows if
    they do not lie next to the positions."""

    rows: torch.Tensor
    positions: torch.Tensor
    address: list[int]
    rows_address: torch.Tensor | None = None


class MappedBlocks:
    """Mapped memory of peers. Keeps at most _MAPPED_PER_PEER blocks per peer, evicting the least
    recently used."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, int], Any] = OrderedDict()

    def get(self, peer: int, number: int, map_block: Callable[[], Any]) -> Any:
        """Block ``number`` of ``peer``; maps it if necessary."""
        key = peer, number
        if key not in self._blocks:
            self._blocks[key] = map_block()
            of_peer = [each for each in self._blocks if each[0] == peer]
            if len(of_peer) > _MAPPED_PER_PEER:
                del self._blocks[of_peer[0]]
        self._blocks.move_to_end(key)
        return self._blocks[key]

    def clear(self) -> None:
        """Unmaps all blocks."""
        self._blocks.clear()


class PeerMemory:
    """This rank's batches, in memory that peers can map, and the batches of those peers. Only for
    the local peers that lsm.comm.mailbox finds. Used by one thread at a time."""

    def __init__(self, idle_bytes: int) -> None:
        self._pool = native.SharedPool(idle_bytes)
        self._mapped = MappedBlocks()
        self._process_id = os.getpid()

    def take(self, num_rows: int, dim: int, dtype: torch.dtype) -> SharedBatch:
        """Memory for a batch of ``num_rows`` rows, not initialised. A later take() reuses it once
        no tensor refers to it. Precondition: no peer writes to it by then."""
        rows_bytes = num_rows * dim * dtype.itemsize
        buffer = self._pool.take(rows_bytes + _ALIGNMENT + 4 * num_rows)
        rows, positions = _parts(native.as_tensor(buffer, torch.uint8), num_rows, dim, dtype)
        return SharedBatch(
            rows,
            positions,
            address=[self._process_id, buffer.descriptor, buffer.number, buffer.capacity, num_rows],
        )

    def batch_of(
        self, peer: int, address: Sequence[int], dim: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows and positions of a SharedBatch of ``peer``. Raises OSError if the batch is
        gone."""
        process_id, descriptor, number, capacity, num_rows = address[:NUM_ADDRESS_WORDS]
        block = self._mapped.get(
            peer, number, lambda: native.PeerBlock(process_id, descriptor, capacity)
        )
        return _parts(native.as_tensor(block, torch.uint8), num_rows, dim, dtype)


class SharedLists:
    """This rank's request lists, which peers read, and the lists of those peers. They belong to the
    group, not to an exchange, so that lists stay readable after this rank has closed its
    exchange."""

    def __init__(self) -> None:
        self._memory = PeerMemory(idle_bytes=_IDLE_LIST_BYTES)
        self._kept: list[SharedBatch] = []

    def take(self, num_ids: int) -> tuple[torch.Tensor, list[int]]:
        """Memory for ``num_ids`` ids, [n] int64, not initialised, and its address. Kept until a
        forget_older() after a later take()."""
        batch = self._memory.take(num_ids, 1, torch.int64)
        self._kept.append(batch)
        return batch.rows.view(-1), batch.address

    def forget_older(self) -> None:
        """Releases all memory but that of the last take(). Precondition: no peer reads it any
        more."""
        del self._kept[:-1]

    def list_of(self, peer: int, address: list[int]) -> torch.Tensor:
        """The ids ([n] int64) in a list of ``peer``. Raises OSError if the list is gone."""
        ids, _ = self._memory.batch_of(peer, address, 1, torch.int64)
        return ids.view(-1)


def _parts(
    data: torch.Tensor, num_rows: int, dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, positions) in the memory of a batch."""
    rows_bytes = num_rows * dim * dtype.itemsize
    start = -(-rows_bytes // _ALIGNMENT) * _ALIGNMENT
    rows = data[:rows_bytes].view(dtype).view(num_rows, dim)
    return rows, data[start : start + 4 * num_rows].view(torch.int32)
