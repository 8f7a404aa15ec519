"""Messages between the ranks of one machine, through memory that they share (comm/mailbox.h)."""

from __future__ import annotations

import logging
import os
import secrets
import select
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as torch_dist

from lsm import native

logger = logging.getLogger(__name__)

_TOKEN_BYTES = 64  # a cache line: mailboxes follow it
# Interval at which a waiting rank checks that the other is alive.
_SLICE_SECS = 0.1


class Mailboxes:
    """A stream of messages between this rank and each of ``peers``, in both directions.

    One thread at a time sends to a peer, and one receives from it. Messages lie in memory of their
    receiver, so that they outlive the sender.
    """

    def __init__(
        self,
        inboxes: dict[int, native.Mailbox],
        outboxes: dict[int, native.Mailbox],
        processes: dict[int, int],
    ) -> None:
        self.peers = list(outboxes)
        self._inboxes = inboxes
        self._outboxes = outboxes
        self._processes = processes  # descriptors of the peers' processes; closed by __del__

    def send(self, peer: int, words: Sequence[int], timeout_secs: float) -> None:
        """Sends ``words``. Raises ConnectionError if ``peer`` has ended, TimeoutError. Blocks only
        while the mailbox is full, with dozens of unread messages."""
        while not self._outboxes[peer].send(words):
            if not self.wait_read(peer, timeout_secs):
                raise TimeoutError(f"{timeout_secs:g} s")

    def take(self, peer: int) -> list[int]:
        """The next message of ``peer``; an empty list if none has arrived."""
        return self._inboxes[peer].receive(0.0)

    def receive(self, peer: int, timeout_secs: float) -> list[int]:
        """The next message of ``peer``; an empty list after ``timeout_secs``. Raises
        ConnectionError if the peer has ended and all its messages were received. Blocks."""
        deadline = time.monotonic() + timeout_secs
        while (left := deadline - time.monotonic()) > 0:
            if words := self._inboxes[peer].receive(min(left, _SLICE_SECS)):
                return words
            if self._has_ended(peer):  # perhaps after writing a message
                if words := self.take(peer):
                    return words
                raise ConnectionError(f"peer {peer} has ended")
        return []

    def wait_read(self, peer: int, timeout_secs: float) -> bool:
        """True once ``peer`` has received all messages; False after ``timeout_secs``. Raises
        ConnectionError if the peer has ended. Blocks."""
        deadline = time.monotonic() + timeout_secs
        while not self._outboxes[peer].wait_read(_SLICE_SECS):
            if self._has_ended(peer):
                raise ConnectionError(f"peer {peer} has ended")
            if time.monotonic() >= deadline:
                return False
        return True

    def _has_ended(self, peer: int) -> bool:
        # A descriptor of a process becomes readable when it ends, reaped or not.
        poll = select.poll()
        poll.register(self._processes[peer], select.POLLIN)
        return bool(poll.poll(0))

    def __del__(self) -> None:
        for process in self._processes.values():
            os.close(process)


def connect(group: torch_dist.ProcessGroup, host: str, num_streams: int) -> list[Mailboxes]:
    """Mailboxes for ``num_streams`` streams with the local ranks of ``group``.

    Local ranks have the same ``host`` (any text), and memory can be shared with them in both
    directions, which is tried. A collective of ``group``."""
    rank, size = torch_dist.get_rank(group), torch_dist.get_world_size(group)
    box_bytes = native.Mailbox.num_bytes
    memory = native.SharedPool(0).take(_TOKEN_BYTES + num_streams * size * box_bytes)
    token = secrets.token_bytes(_TOKEN_BYTES)
    native.as_tensor(memory, torch.uint8)[:_TOKEN_BYTES] = torch.tensor(list(token)).byte()
    everyone: list[Any] = [None] * size
    mine = (host, os.getpid(), memory.descriptor, memory.size, token)
    torch_dist.all_gather_object(everyone, mine, group=group)
    blocks = {
        peer: block
        for peer in range(size)
        if peer != rank and (block := _reach(everyone[peer], host)) is not None
    }
    reached: list[Any] = [None] * size
    torch_dist.all_gather_object(reached, list(blocks), group=group)
    peers = [peer for peer in blocks if rank in reached[peer]]

    def box(
        memory: native.SharedBuffer | native.PeerBlock, stream: int, sender: int
    ) -> native.Mailbox:
        return native.Mailbox(memory, _TOKEN_BYTES + (stream * size + sender) * box_bytes)

    return [
        Mailboxes(
            {peer: box(memory, stream, peer) for peer in peers},
            {peer: box(blocks[peer], stream, rank) for peer in peers},
            {peer: os.pidfd_open(everyone[peer][1]) for peer in peers},
        )
        for stream in range(num_streams)
    ]


def _reach(peer: tuple[str, int, int, int, bytes], host: str) -> native.PeerBlock | None:
    peer_host, process_id, descriptor, num_bytes, token = peer
    if peer_host != host:
        return None
    try:
        block = native.PeerBlock(process_id, descriptor, num_bytes)
        os.close(os.pidfd_open(process_id))
    except (OSError, ValueError) as error:
        logger.warning("comm: memory of a process of this host cannot be shared: %s", error)
        return None
    same = bytes(native.as_tensor(block, torch.uint8)[:_TOKEN_BYTES].tolist()) == token
    return block if same else None
