"""Tiers of a cache in GPU memory.

Cache and static partition are GPU memory. Victim and constant buffer are page-locked host memory,
which kernels read and write over PCIe. Rows from storage arrive in page-locked memory and join
their batch by a gather or by copies (lsm.cache.staging).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lsm import native
from lsm.cache.planner import Plan
from lsm.cache.staging import Staging
from lsm.cache.tier_sizes import TierSizes
from lsm.comm.request import RowTarget
from lsm.core.device import GpuPlace, current, memory_errors
from lsm.core.stream_pool import allocated
from lsm.data.feature_files import FeatureFiles
from lsm.features.memory import TakeRows
from lsm.features.pending_batch import PendingBatch
from lsm.storage.engine import Storage
from lsm.storage.read_scheduler import ReadScheduler

PLANNERS = ("auto", "host", "device")


@dataclass(frozen=True)
class GpuOptions:
    """Options of a cache in GPU memory.

    planner: the processor that plans: host, device, or auto, which lets both make the first plans
    and keeps the faster (lsm.cache.planner_trial). prefetch_rows: most rows of the next batch that
    are copied from the victim buffer while a step runs. staging: path of rows from storage to the
    GPU: gather, copy or auto (lsm.cache.staging); the engine gds reads into GPU memory itself.
    pool_bytes: GPU memory for batches of a cache that ranks share, allocated at once; it grows if
    batches that are still held leave no room.
    """

    planner: str = "auto"
    prefetch_rows: int = 0
    staging: str = "auto"
    pool_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        if self.planner not in PLANNERS:
            raise ValueError(
                f"planner: expected one of {', '.join(PLANNERS)}, got {self.planner!r}"
            )


class GpuTiers:
    """Tiers in GPU memory (see Tiers). All copies are queued to one stream, in plan order.
    Delivered rows may be used in any stream.

    rows, static_ids, constant_ids: as for HostTiers. take_rows: page-locked memory for reads; None:
    reads go to GPU memory. prefetch_iterations: as for HostTiers. gpu: its
    memory holds the tiers, and delivered rows.
    """

    def __init__(
        self,
        storage: Storage,
        files: FeatureFiles,
        rows: TierSizes,
        static_ids: torch.Tensor,
        constant_ids: torch.Tensor,
        *,
        gpu: GpuPlace,
        options: GpuOptions,
        take_rows: TakeRows | None,
        prefetch_iterations: int,
    ) -> None:
        self.storage = storage
        self.take_rows = take_rows or self._empty_rows
        self.open_ahead = 1 + (prefetch_iterations if rows.victim_slots else 0)
        self._files = files
        self._gpu, self._device = gpu, gpu.device
        self._prefetch_rows = min(options.prefetch_rows, rows.victim_slots)
        self._executor = native.GpuExecutor(
            storage.handle(),
            num_lines=rows.planner.num_lines,
            victim_slots=rows.victim_slots,
            prefetch_rows=self._prefetch_rows,
            static_rows=storage.row_map.rows(static_ids),
            constant_rows=storage.row_map.rows(constant_ids),
            timeout_secs=storage.timeout_secs,
            device=gpu.number,
        )
        self._staging = Staging(
            "resident" if take_rows is None else options.staging, self._executor
        )
        self._open: dict[int, Plan] = {}  # by coming iteration
        self.prefetched_rows = 0

    @property
    def device_bytes(self) -> int:
        """As Tiers.device_bytes: cache, static partition and prefetch buffer."""
        return self._executor.device_bytes

    def start_reads(self, batch: PendingBatch, reads: ReadScheduler) -> None:
        """As Tiers.start_reads()."""
        batch.read_staged(self.take_rows, self.storage, reads)

    def open_batch(self, batch: PendingBatch) -> None:
        """As Tiers.open_batch(). Prefetched rows have a buffer of their own."""
        self._open[batch.plan.iteration] = batch.plan

    def replay(self, batch: PendingBatch, targets: Sequence[RowTarget] | None = None) -> None:
        """As Tiers.replay(). Blocks until the rows have arrived, so that they can be used in any
        stream; this thread has nothing else to do."""
        plan = batch.plan
        self._open.pop(plan.iteration, None)
        assert batch.staged is not None, "start_reads() takes the memory"
        into: dict[str, Any] = {"targets": targets}
        if targets is None:
            batch.delivered = self._empty_rows(plan.num_rows)
            into = {"out": batch.delivered}
        with self._staging.batch(plan.counters["misses"]):
            with current(self._device):
                self._executor.replay(plan.native, staged=batch.staged, **into)
            following = self._open.get(plan.iteration + 1)
            if following is not None and following.counters["victim_hits"]:
                self._executor.prefetch(following.native)
                num_victims = following.counters["victim_hits"]
                self.prefetched_rows += min(num_victims, self._prefetch_rows)
            if targets is None:
                self._executor.synchronize()
            else:
                self._executor.wait_delivered()

    def start_over(self) -> None:
        """As Tiers.start_over()."""
        self._open.clear()

    def close(self) -> None:
        """As Tiers.close()."""
        del self._executor, self._staging

    def _empty_rows(self, num_rows: int) -> torch.Tensor:
        """Memory for rows on the device, not initialised."""
        shape, dtype = (num_rows, self._files.dim), self._files.dtype
        if self._gpu.is_twin:
            return torch.empty(shape, dtype=dtype)
        # The allocator hands no memory that other streams still use to the stream that writes here.
        stream = torch.cuda.ExternalStream(self._executor.stream, device=self._device)
        with torch.cuda.stream(stream), memory_errors("for the rows of a batch"):
            rows = allocated(lambda: torch.empty(shape, dtype=dtype, device=self._device))
            # cuFile ignores streams.
            stream.synchronize()
        return rows
