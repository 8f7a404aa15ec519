"""Options of the exchange between ranks: the section ``comm`` of a configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from lsm.core.option_types import Bytes, Seconds
from lsm.core.section import Section


class CommOptions(Section):
    """The exchange of feature rows between the caches of several ranks.

    A single rank, and a job without a cache, ignores these options.
    """

    section: ClassVar[str] = "comm"

    mode: Literal["shared", "independent", "partition-aware"] = "shared"
    """Division of the cache among ranks. shared: every node has one owner, which alone reads and
    caches its row; independent: each rank caches the rows that it needs itself; partition-aware:
    shared, except that every rank keeps the rows with the highest scores (cache.score)."""
    owner: Literal["stride", "mix64", "table"] = "mix64"
    """Assignment of nodes to owners. stride: id mod ranks; mix64: a hash; table:
    comm.owner_table."""
    owner_table: str | None = None
    """A partitioner's .npy file: the owner of each node, from 0 to the number of ranks that share a
    cache, less 1."""
    group: Literal["world", "node"] = "world"
    """Ranks that share a cache. world: all ranks of the job; node: the ranks of each machine. Ranks
    are on one machine if they have the same host name and network namespace, or the same value of
    the environment variable LSM_HOST."""
    transport: Literal["auto", "shm", "gloo", "nccl", "ipc"] = "auto"
    """Link that carries rows. For caches in host memory: shm: the owner writes rows into memory
    that the requester shares, on one host; gloo: messages; auto: shm between ranks of a host, else
    gloo. For caches in GPU memory: ipc: the owner's GPU writes rows into the requester's GPU
    memory, on one host and with one GPU or peer access; nccl: packed rows, for ranks with a GPU
    each; gloo: messages in host memory; auto: the first of these that works."""
    timeout_secs: Seconds = 300.0
    """Longest wait for another rank's ids or rows, in seconds. A longer one is an error."""
    replicated_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """partition-aware: share of cache.bytes for the rows that every rank keeps."""
    chunk_bytes: Annotated[Bytes, Field(ge=4096)] = 4 * 2**20
    """gloo: size of the pieces in which rows are packed, sent and unpacked."""

    @model_validator(mode="after")
    def _has_its_table(self) -> CommOptions:
        if (self.owner == "table") != (self.owner_table is not None):
            raise ValueError(
                "comm.owner_table: expected a .npy file with comm.owner=table, and null otherwise"
            )
        return self
