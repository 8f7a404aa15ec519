"""Feature rows from one cache in the memory of all GPUs of a group (DESIGN sections 3 and 4)."""

from __future__ import annotations

import torch

from lsm.comm.exchange import Exchange
from lsm.comm.group import CacheGroup
from lsm.comm.open import open_exchange
from lsm.comm.request import RowFormat
from lsm.features.shared import SharedFeatureLoader
from lsm.features.tiers_gpu import OnDevice


class SharedDeviceFeatureLoader(OnDevice, SharedFeatureLoader):
    """A SharedFeatureLoader whose part of the cache, static partition and rows are memory of the
    GPU ``device``, one per rank; ranks may have the same. Plans are those of the host.

    pool_bytes: GPU memory for batches, allocated at once. More is taken if batches that are held
    leave no room. Other arguments as for SharedFeatureLoader and DeviceFeatureLoader. Rows that
    were delivered may be used in the default stream of the GPU.
    """

    def __init__(
        self, *arguments, device: torch.device, pool_bytes: int = 256 << 20, **options
    ) -> None:
        self._pool_bytes = pool_bytes
        super().__init__(*arguments, device=device, **options)

    @property
    def device_bytes(self) -> int:
        """GPU memory of the cache, the static partition, the prefetch buffer and the batches."""
        return super().device_bytes + self._exchange.device_bytes

    def _open_exchange(self, group: CacheGroup, rows: RowFormat, num_threads: int) -> Exchange:
        return open_exchange(
            group,
            self._owners,
            rows,
            num_threads=num_threads,
            device=self._device,
            pool_bytes=self._pool_bytes,
        )
