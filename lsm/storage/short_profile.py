"""Finds the disk profile of a run: the store's own, or one measured before the first reads.

The measurement takes about half a second. It is that of ``lsm bench storage --profile`` at fewer
points: the settings of reads (train.read_settings) need only the peak at full depth, the time of a
lone request, and the line through the costs of reads by size.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from lsm.comm.group import host_identity
from lsm.core.os_error import in_words
from lsm.distributed import collectives
from lsm.distributed.environment import World
from lsm.storage.disk_profile import (
    PROFILE,
    DiskProfile,
    disk_facts,
    load_profile,
    save_profile,
)
from lsm.storage.measure import Source, measure_engine
from lsm.storage.measure_profile import BLOCK_BYTES, feature_source, lone_request, profile_of

logger = logging.getLogger(__name__)

ENGINES = ("posix", "io_uring")
"""Engines whose reading ahead follows a profile."""

_LEAST_BYTES = 64 << 20  # of features; reading fewer takes no longer than measuring them
_DEPTHS = (1, 32, 128)
_SIZES = (BLOCK_BYTES, 32 << 10, 128 << 10)
_ROUNDS = 2
_POINT_SECS = 0.05
_POINT_BYTES = 64 << 20
_LIMIT_SECS = 2.0


@dataclass(frozen=True)
class Found:
    """A profile and its origin; or None and the reason, "" where a profile is of no use."""

    profile: DiskProfile | None = None
    source: str = ""


def find_profile(setting: str, store: Path, engine: str) -> Found:
    """The profile that ``setting`` (storage.profile) means for reading ``store`` with ``engine``.

    none: no profile. A path: that file. auto: the store's own; without one of this engine and the
    disk of the features, a new measurement, saved in the store. Engines that read from memory, and
    small stores, need none.

    Raises FileNotFoundError for a missing path, ValueError for a broken file.
    """
    if setting == "none" or engine not in ENGINES:
        return Found()
    if setting != "auto":
        return Found(load_profile(Path(setting)), setting)
    try:
        source = feature_source(store)
    except ValueError:  # it has no features, which data.features gives
        return Found()
    path, reason = store / PROFILE, None
    if path.exists():
        profile = load_profile(path)
        same_disk = profile.device == disk_facts(source.paths[0])
        if same_disk and profile.engine == engine:
            return Found(profile, str(path))
        if same_disk:
            reason = f"{path} is of {profile.engine}"
    if source.num_bytes < _LEAST_BYTES:
        return Found()
    start = time.perf_counter()
    try:
        profile = measure_briefly(source, engine)
    except (OSError, ValueError, RuntimeError) as error:  # no direct reads, line, or threads
        return Found(source=f"the disk could not be measured ({in_words(error)})")
    secs = time.perf_counter() - start
    return Found(profile, f"measured in {secs:.1f} s, {_keep(profile, path, reason)}")


def find_on_machines(setting: str, store: Path, engine: str, world: World) -> Found:
    """As find_profile(), called by one rank of each machine, whose result the others take.

    A collective of all ranks. An error of one rank is raised on all."""
    found: Found | Exception | None = None
    if world.local_rank == 0:
        try:
            found = find_profile(setting, store, engine)
        except (OSError, ValueError, RuntimeError) as error:
            found = error
    host = host_identity()
    everyone = collectives.gather_objects((host, found), world)
    for _, each in everyone:
        if isinstance(each, Exception):
            raise each
    own = (each for where, each in everyone if where == host and each is not None)
    return next(own, everyone[0][1])


def measure_briefly(source: Source, engine: str) -> DiskProfile:
    """The profile of the disk that holds ``source``, from few points of some hundredths of a second
    or _POINT_BYTES each. Raises ValueError where reads of all sizes cost the same, or after
    _LIMIT_SECS; OSError where the file system has no direct reads."""
    until = time.perf_counter() + _LIMIT_SECS
    most_bytes = min(_POINT_BYTES, source.num_bytes // 8)
    request_secs = lone_request(source, engine, _POINT_SECS)

    def measure(block_bytes: int, depth: int, seed: int) -> dict[str, float]:
        if time.perf_counter() > until:
            raise ValueError(f"it is too slow to be measured in {_LIMIT_SECS:g} s")
        return measure_engine(
            source,
            engine,
            block_bytes,
            depth,
            _POINT_SECS,
            seed,
            most_bytes=most_bytes,
            rows_per_request=max(1, depth // 2),
        )

    by_depth: dict[int, list[dict[str, float]]] = {depth: [] for depth in _DEPTHS}
    by_size: dict[int, list[dict[str, float]]] = {size: [] for size in _SIZES}
    for seed in range(_ROUNDS):
        for depth, runs in by_depth.items():
            runs.append(measure(BLOCK_BYTES, depth, seed))
        by_size[BLOCK_BYTES].append(by_depth[_DEPTHS[-1]][-1])
        for size in _SIZES[1:]:
            by_size[size].append(measure(size, _DEPTHS[-1], seed))
    return profile_of(source, engine, request_secs, by_depth, by_size)


def _keep(profile: DiskProfile, path: Path, reason: str | None) -> str:
    """Saves the profile unless there is a ``reason`` against it. Returns the outcome in words."""
    if reason is None:
        try:
            save_profile(profile, path)
        except OSError as error:
            reason = in_words(error)
    return f"kept in {path}" if reason is None else f"for this run only: {reason}"
