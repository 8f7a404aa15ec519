"""Groups of ranks that share one cache, with their message streams."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist

from lsm.comm.mailbox import Mailboxes, connect
from lsm.comm.messages import MessageStream
from lsm.comm.options import CommOptions
from lsm.comm.owners import MAX_RANKS
from lsm.comm.shared_memory import SharedLists
from lsm.core.device import GpuPlace
from lsm.distributed.environment import World
from lsm.distributed.watchdog import awaiting

_START = "the start of the shared cache"

HOST_VARIABLE = "LSM_HOST"
"""Environment variable that names a rank's host, in place of the kernel's host name."""


@dataclass(frozen=True)
class CacheGroup:
    """The ranks that share a cache, as seen from one of them: ``CacheGroup.join(CommOptions())``.

    One exchange at a time may use a group; another() makes one for a further exchange.

    Attributes:
        rank: This rank's place in the group, from 0.
        size: Number of ranks.
        host: This rank's machine (``host_identity``).
        ids: Message stream of ids, used by one thread at a time. Ids pass while rows are awaited.
        rows: Message stream of rows, used by one thread at a time.
        options: Options of the group.
        lists: Request lists of local ranks.
        streams: The streams of all groups of these ranks, this one's and those of another(). An
            error of this rank goes to all of them.
        links: The links between GPUs that the first exchange found, for all groups of these ranks:
            one NCCL communicator, as each takes GPU memory.
    """

    rank: int
    size: int
    host: str
    ids: MessageStream
    rows: MessageStream
    options: CommOptions
    lists: SharedLists
    streams: list[MessageStream]
    links: dict[GpuPlace, Any] = field(default_factory=dict)

    @classmethod
    def join(cls, options: CommOptions | Mapping[str, Any] | None = None) -> CacheGroup:
        """Joins this rank's group. A collective of torch.distributed's default process group.

        Blocks until all ranks have called it.

        Args:
            options: Options, or a dict of them, the same on every rank; None: the defaults.

        Returns:
            The group.

        Raises:
            ValueError: The options differ between ranks, or a group would have more than 256
                ranks. Every rank raises it.
        """
        options = CommOptions.of_argument("options", options) or CommOptions()
        rank, size = torch_dist.get_rank(), torch_dist.get_world_size()
        everyone: list = [None] * size
        with awaiting(_START):
            torch_dist.all_gather_object(everyone, (host_identity(), options))
        _check_alike([each for _, each in everyone])
        hosts = [host for host, _ in everyone]
        groups = _groups(hosts, options.group)
        for members in groups:
            check_size(len(members))
        with awaiting(_START):
            for members in groups:  # in the same order on every rank, whether a member or not
                pair = [_new_group(members, options.timeout_secs) for _ in range(2)]
                if rank in members:
                    ids, rows = pair
            return cls.over(ids, rows, hosts[rank], options)

    @classmethod
    def over(
        cls,
        ids: torch_dist.ProcessGroup,
        rows: torch_dist.ProcessGroup,
        host: str,
        options: CommOptions,
        channel: int = 0,
    ) -> CacheGroup:
        """Makes a group of two process groups of the same ranks. A collective of these ranks.

        Args:
            ids: Process group for ids.
            rows: Process group for rows.
            host: ``host_identity()`` of this rank.
            options: Options, the same on every rank.
            channel: Number of the group among those over the same process groups.

        Returns:
            The group.
        """
        boxes: Sequence[Mailboxes | None] = (None, None)
        if options.transport != "gloo":
            boxes = connect(rows, host, num_streams=2)
        of_ids, of_rows = (
            MessageStream(group, options.timeout_secs, mailboxes, channel)
            for group, mailboxes in zip((ids, rows), boxes, strict=True)
        )
        streams = [of_ids, of_rows]
        return cls(
            of_rows.rank, of_rows.size, host, of_ids, of_rows, options, SharedLists(), streams
        )

    def another(self) -> CacheGroup:
        """Makes a group of the same ranks for a further exchange. A collective of these ranks.

        Messages of the two do not mix. An error of one exchange reaches ranks that wait for the
        other, so that they raise it, too.

        Returns:
            The group.
        """
        channel = len(self.streams) // 2
        with awaiting(_START):
            made = CacheGroup.over(
                self.ids.group, self.rows.group, self.host, self.options, channel
            )
        self.streams.extend(made.streams)
        return replace(made, streams=self.streams, links=self.links)

    def sum(self, counts: torch.Tensor) -> torch.Tensor:
        """Adds up the ``counts`` [n] int64 of all ranks. A collective of these ranks.

        Returns:
            The sums, [n] int64, the same on every rank.
        """
        total = counts.clone()
        with awaiting(_START):
            torch_dist.all_reduce(total, group=self.rows.group)
        return total


def shares_cache(options: CommOptions, world: World) -> bool:
    """True if ranks share a cache."""
    return world.size > 1 and options.mode != "independent"


def check_size(num_ranks: int) -> None:
    """Raises ValueError if ``num_ranks`` ranks are too many to share a cache."""
    if num_ranks > MAX_RANKS:
        raise ValueError(
            f"world size: {num_ranks} ranks cannot share a cache, expected at most {MAX_RANKS} "
            "(8 bits of a row's metadata); set comm.group=node or comm.mode=independent"
        )


def host_identity() -> str:
    """A name that two ranks share if they are on one machine. Two network namespaces are two
    machines. HOST_VARIABLE overrides it."""
    if HOST_VARIABLE in os.environ:
        return os.environ[HOST_VARIABLE]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}/{os.readlink('/proc/self/ns/net')}"


def _groups(hosts: list[str], group: str) -> list[list[int]]:
    if group == "world":
        return [list(range(len(hosts)))]
    return [
        [rank for rank, host in enumerate(hosts) if host == each] for each in dict.fromkeys(hosts)
    ]


def _check_alike(everyone: list[CommOptions]) -> None:
    for rank, options in enumerate(everyone):
        for name in CommOptions.model_fields:
            first, other = getattr(everyone[0], name), getattr(options, name)
            if first != other:
                raise ValueError(
                    f"comm.{name}: expected the same on every rank, got {first!r} on rank 0 and "
                    f"{other!r} on rank {rank}"
                )


def _new_group(members: list[int], timeout_secs: float) -> torch_dist.ProcessGroup:
    return torch_dist.new_group(members, backend="gloo", timeout=timedelta(seconds=timeout_secs))
