"""Memory that ranks of one machine share, so that an owner writes rows into a requester's batch."""

from __future__ import annotations

import logging
import os
import secrets
from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.distributed as torch_dist

from lsm import native

logger = logging.getLogger(__name__)

_PROBE_BYTES = 16
_MAPPED_PER_PEER = 32
_ALIGNMENT = 64

NUM_ADDRESS_WORDS = 5
"""Numbers that a peer needs to map a SharedBatch."""


@dataclass(frozen=True)
class SharedBatch:
    """Memory for one batch: ``rows`` [n, dim], and ``positions`` [n] int32 of the rows by owner,
    where peers look them up. ``address``: what a peer needs to map it."""

    rows: torch.Tensor
    positions: torch.Tensor
    address: list[int]


class PeerMemory:
    """This rank's batches, in memory that peers can map, and the batches of those peers.

    ``peers``: with whom, in both directions, that works; found out by trying it, among the peers
    whose ``host`` (any text) is the same. All ranks of ``group`` must make one at the same time.
    """

    def __init__(self, group: torch_dist.ProcessGroup, host: str, idle_bytes: int) -> None:
        self._pool = native.SharedPool(idle_bytes)
        self._mapped: OrderedDict[tuple[int, int], native.PeerBlock] = OrderedDict()
        self._process_id = os.getpid()
        rank, size = torch_dist.get_rank(group), torch_dist.get_world_size(group)
        probe = self._pool.take(_PROBE_BYTES)
        token = secrets.token_bytes(_PROBE_BYTES)
        native.as_tensor(probe, torch.uint8).copy_(torch.tensor(list(token), dtype=torch.uint8))
        probes: list = [None] * size
        mine = (host, self._process_id, probe.descriptor, token)
        torch_dist.all_gather_object(probes, mine, group=group)
        reached = [peer != rank and _reaches(probes[peer], host) for peer in range(size)]
        matrix: list = [None] * size
        torch_dist.all_gather_object(matrix, reached, group=group)
        self.peers = [peer for peer in range(size) if reached[peer] and matrix[peer][rank]]

    def take(self, num_rows: int, dim: int, dtype: torch.dtype) -> SharedBatch:
        """Memory for a batch of ``num_rows`` rows, not initialised. It is used again when no tensor
        refers to it any more and take() is called; no peer may write to it by then."""
        rows_bytes = num_rows * dim * dtype.itemsize
        buffer = self._pool.take(rows_bytes + _ALIGNMENT + 4 * num_rows)
        rows, positions = _parts(native.as_tensor(buffer, torch.uint8), num_rows, dim, dtype)
        return SharedBatch(
            rows,
            positions,
            address=[self._process_id, buffer.descriptor, buffer.number, buffer.capacity, num_rows],
        )

    def batch_of(
        self, peer: int, address: list[int], dim: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows and positions of a SharedBatch of ``peer``. Raises OSError if it is gone."""
        process_id, descriptor, number, capacity, num_rows = address[:NUM_ADDRESS_WORDS]
        block = self._mapped.get((peer, number))
        if block is None:
            block = native.PeerBlock(process_id, descriptor, capacity)
            self._mapped[peer, number] = block
            while len(self._mapped) > _MAPPED_PER_PEER * len(self.peers):
                self._mapped.popitem(last=False)
        self._mapped.move_to_end((peer, number))
        return _parts(native.as_tensor(block, torch.uint8), num_rows, dim, dtype)


def _parts(
    data: torch.Tensor, num_rows: int, dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows and the positions in the memory of a batch."""
    rows_bytes = num_rows * dim * dtype.itemsize
    start = -(-rows_bytes // _ALIGNMENT) * _ALIGNMENT
    rows = data[:rows_bytes].view(dtype).view(num_rows, dim)
    return rows, data[start : start + 4 * num_rows].view(torch.int32)


def _reaches(probe: tuple[str, int, int, bytes], host: str) -> bool:
    peer_host, process_id, descriptor, token = probe
    if peer_host != host:
        return False
    try:
        block = native.PeerBlock(process_id, descriptor, _PROBE_BYTES)
    except (OSError, ValueError) as error:
        logger.warning("comm: memory of a process of this host cannot be shared: %s", error)
        return False
    return bytes(native.as_tensor(block, torch.uint8).tolist()) == token
