"""Feature rows from a cache in GPU memory: lsm.features.cached, with bytes on the device.

Cache and static partition are GPU memory, victim and constant buffer page-locked host memory that
kernels read and write over PCIe. Rows from storage arrive in page-locked memory, and go from there
to the others of their batch by one of two ways (lsm.cache.staging).
"""

from __future__ import annotations

import torch

from lsm import native
from lsm.cache.options import CacheRows
from lsm.cache.planner import Planner, Source
from lsm.cache.planner_trial import TrialPlanner
from lsm.cache.staging import Staging
from lsm.core.device import current, empty_rows, memory_errors
from lsm.features.cached import CachedFeatureLoader

PLANNERS = ("auto", "host", "device")


class DeviceTiers:
    """What native.CacheExecutor is on the host: the tiers, and the replay of plans on them. All
    copies of all plans are queued to one stream, in the order of the plans.

    device: where rows are delivered; for the host it is the executor's twin, for tests. staging:
    how rows from storage get there (lsm.cache.staging).
    """

    def __init__(
        self,
        storage,
        tiers: CacheRows,
        static_ids: torch.Tensor,
        constant_ids: torch.Tensor,
        *,
        device: torch.device,
        prefetch_rows: int,
        staging: str = "gather",
    ) -> None:
        self._device = device
        self._prefetch_rows = prefetch_rows
        self._native = native.GpuExecutor(
            storage.handle(),
            num_lines=tiers.planner.num_lines,
            victim_slots=tiers.victim_slots,
            prefetch_rows=prefetch_rows,
            static_ids=static_ids,
            constant_ids=constant_ids,
            timeout_secs=storage.timeout_secs,
            device=native.TWIN if device.type == "cpu" else device.index,
        )
        self._staging = Staging(staging, self._native)
        self._victims: dict[int, torch.Tensor] = {}  # victim slots by iteration that is to come
        self.prefetched_rows = 0
        """Rows of the victim buffer that were brought back before their batch was due."""

    @property
    def device_bytes(self) -> int:
        """GPU memory of the tiers."""
        return self._native.device_bytes

    def open_batch(
        self, iteration: int, source: torch.Tensor, slot: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Tells which victim slots a coming plan is served from."""
        del out  # prefetched rows have a buffer of their own
        self._victims[iteration] = slot[source == Source.VICTIM]

    def start_over(self) -> None:
        """Forgets the batches that were opened: plans start anew."""
        self._victims.clear()

    def replay(
        self,
        iteration: int,
        out: torch.Tensor,
        pool: native.ThreadPool,
        targets: list[tuple] | None = None,
        **moves: torch.Tensor,
    ) -> torch.Tensor | None:
        """Replays one plan; returns its rows, on the device and complete, or, if there are
        ``targets``, None when those have their rows. ``out``: rows [n, dim] in page-locked or the
        device's memory, those from storage at their positions."""
        del pool  # the GPU copies
        self._victims.pop(iteration, None)
        rows = None if targets is not None else self.empty_rows(out.shape, out.dtype)
        into = {"out": rows} if targets is None else {"targets": targets}
        with self._staging.batch(moves["source"]):
            with current(self._device):
                self._native.replay(iteration=iteration, **moves, staged=out, **into)
            following = self._victims.get(iteration + 1)
            if following is not None and len(following):
                self._native.prefetch(following)
                self.prefetched_rows += min(len(following), self._prefetch_rows)
            # This thread has nothing else to do, and whoever gets the rows may use them in any
            # stream.
            if targets is None:
                self._native.synchronize()
            else:
                self._native.wait_delivered()
        return rows

    def empty_rows(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        """Memory for rows on the device, not initialised."""
        if self._device.type == "cpu":
            return torch.empty(shape, dtype=dtype)
        # Memory that other streams still use is not handed out to the one that writes here, ..
        stream = torch.cuda.ExternalStream(self._native.stream, device=self._device)
        with torch.cuda.stream(stream), memory_errors("for the rows of a batch"):
            rows = torch.empty(shape, dtype=dtype, device=self._device)
            # cuFile, for one, does not know of streams.
            stream.synchronize()
        # .. and it comes back only when the stream that trains is done with it.
        rows.record_stream(torch.cuda.default_stream(self._device))
        return rows


class OnDevice:
    """What makes the cache of a CachedFeatureLoader, before which it is derived from, GPU memory:
    the arguments of DeviceFeatureLoader, and what follows from them."""

    reads_apart = False  # the batch is made on the GPU from where rows arrive

    def __init__(
        self,
        *arguments,
        device: torch.device,
        planner: str = "auto",
        prefetch_rows: int = 0,
        staging: str = "auto",
        **options,
    ) -> None:
        if planner not in PLANNERS:
            raise ValueError(f"planner: expected one of {', '.join(PLANNERS)}, got {planner!r}")
        self._device = device
        self.planner = planner
        """Where plans are made; auto until it has been found out."""
        self._prefetch_rows = prefetch_rows
        self._staging = staging
        super().__init__(*arguments, **options)

    @property
    def device_bytes(self) -> int:
        """GPU memory of the cache, the static partition and the prefetch buffer."""
        return self._executor.device_bytes

    def _open_planner(self, *arguments, **options) -> Planner | TrialPlanner:
        index = self._device.index or 0
        on_gpu = "twin" if self._device.type == "cpu" else "device"

        def new_planner(sets: str) -> Planner:
            return Planner(*arguments, sets=sets, device=index, **options)

        if self.planner == "auto":
            return TrialPlanner(
                new_planner("host"), lambda: new_planner(on_gpu), self._decide_planner
            )
        return new_planner(on_gpu if self.planner == "device" else "host")

    def _decide_planner(self, planner: str) -> None:
        self.planner = planner

    def _open_executor(
        self, tiers: CacheRows, static_ids: torch.Tensor, constant_ids: torch.Tensor
    ) -> DeviceTiers:
        return DeviceTiers(
            self.storage,
            tiers,
            static_ids,
            constant_ids,
            device=self._device,
            prefetch_rows=min(self._prefetch_rows, tiers.victim_slots),
            staging="gather" if self.engine == "gds" else self._staging,
        )

    def _take_rows(self, num_rows: int) -> torch.Tensor:
        if self._device.type == "cpu":
            return super()._take_rows(num_rows)
        if self.engine == "gds":
            return self._executor.empty_rows((num_rows, self.dim), self.dtype)
        return empty_rows(num_rows, self.dim, self.dtype)


class DeviceFeatureLoader(OnDevice, CachedFeatureLoader):
    """A CachedFeatureLoader whose cache, static partition and rows are GPU memory.

    device: a GPU; the host stands for it in tests. planner: where sets are decided and next uses
    are found: host, device, or auto, which makes the first plans in both places and goes on where
    that was faster (lsm.cache.planner_trial). prefetch_rows: how many rows of the next batch may be
    brought back from the victim buffer while a step runs. staging: how rows from storage get to
    the GPU: gather, copy or auto (cache.staging); with gds they are there. Other arguments as for
    CachedFeatureLoader.
    """
