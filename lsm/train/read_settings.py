"""Derives the settings of reads that are ``auto`` from the disk profile."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lsm.config.schema import Config
from lsm.core.option_types import settled
from lsm.core.units import format_bytes
from lsm.run.drives import check_drives_of_ranks
from lsm.storage.disk_profile import DiskProfile
from lsm.storage.engine import select_engine
from lsm.storage.longest_read import MOST_READ_BYTES, longest_read
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead
from lsm.storage.short_profile import Found, find_on_machines
from lsm.train.setup import Setup

logger = logging.getLogger(__name__)

_PREFETCH = 4


@dataclass(frozen=True)
class ReadSettings:
    """Options of reading rows, and of reading ahead."""

    options: StorageOptions
    read_ahead: ReadAhead

    @classmethod
    def of(cls, config: Config, profile: DiskProfile | None) -> ReadSettings:
        """The settings of ``config``; cache.policy=auto counts as no cache. Values that are auto
        follow from ``profile``; without one, they are those of StorageOptions.resolved() and 4
        iterations."""
        storage = config.storage
        # Over a cache, reading iterations together did not win everywhere (bench/ablation.md).
        merging = profile if config.cache.policy in ("none", "auto") else None
        max_read_bytes, max_gap_bytes = storage.max_read_bytes, storage.max_gap_bytes
        if max_read_bytes == "auto":
            max_read_bytes = longest_read(merging)
        if max_gap_bytes == "auto":
            max_gap_bytes = merging.max_gap_bytes(max_read_bytes) if merging else 0
        # Reading an unrequested block pays off only where the start of a read dominates its cost.
        # Reading iterations together pays off then, too, because it coalesces reads.
        merges = merging is not None and merging.max_gap_bytes(MOST_READ_BYTES) > 0
        merge_iterations = storage.merge_iterations
        if merge_iterations == "auto":
            merge_iterations = "half" if merges else 1
        options = storage.model_copy(
            update={
                "max_read_bytes": max_read_bytes,
                "max_gap_bytes": max_gap_bytes,
                "merge_iterations": merge_iterations,
            }
        )
        return cls(options, _read_ahead(config, profile, merges and merge_iterations == "half"))

    def in_words(self) -> str:
        """One line for a user."""
        ahead, options = self.read_ahead, self.options
        iterations = str(ahead.iterations)
        if ahead.max_iterations > ahead.iterations:
            iterations += f" to {ahead.max_iterations}"
        together = {"half": "half of them planned together", 1: "each planned by itself"}.get(
            options.merge_iterations, f"{options.merge_iterations} of them planned together"
        )
        gap = settled(options.max_gap_bytes)
        gaps = f"gaps up to {format_bytes(gap)} are read" if gap else "no gaps are read"
        return (
            f"{iterations} iterations are read ahead to keep {ahead.accesses:.0f} reads "
            f"outstanding, {together}; {gaps}, in reads of up to "
            f"{format_bytes(settled(options.max_read_bytes))}"
        )


def _read_ahead(config: Config, profile: DiskProfile | None, merges: bool) -> ReadAhead:
    prefetch = config.loader.prefetch
    accesses = profile.access_model().accesses(config.storage.target_share) if profile else 0.0
    if prefetch != "auto":
        return ReadAhead(prefetch, prefetch, accesses)
    most = config.loader.max_prefetch
    least = min(_PREFETCH, most)
    return ReadAhead(least, most, accesses, merges) if profile else ReadAhead.fixed(least)


def find_read_settings(setup: Setup) -> ReadSettings:
    """The settings of reads on this machine, which rank 0 logs. A collective. Raises ValueError if
    ranks of one machine name the same drive."""
    config, world = setup.config, setup.world
    storage, found = config.storage, Found()
    check_drives_of_ranks(storage, world)
    follow = (storage.max_read_bytes, storage.max_gap_bytes, storage.merge_iterations)
    if "auto" in (*follow, config.loader.prefetch):
        engine = select_engine(storage.engine)[0]
        found = find_on_machines(storage.profile, setup.store.path, engine, world)
    settings = ReadSettings.of(config, found.profile)
    if found.profile is not None and world.is_main:
        logger.info("as the disk was measured (%s): %s", found.source, settings.in_words())
    elif found.source and world.is_main:
        logger.info("storage.profile=auto: %s, so reads keep to fixed settings", found.source)
    return settings
