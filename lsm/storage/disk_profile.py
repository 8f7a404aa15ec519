"""Disk profiles: measured latency, IOPS and cost of reads, as ``lsm bench storage STORE --profile``
writes them.

``profile.json`` lies next to a store's ``meta.json``, which does not list it: a profile describes
the machine, not the data.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lsm.core.versioned_json import read_versioned
from lsm.storage.read_ahead import AccessModel

SCHEMA_VERSION = 1
PROFILE = "profile.json"
_MEASURE = "measure it with `lsm bench storage STORE --profile`"

Measured = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class DepthPoint(_Part):
    """Rate of random reads of one block with ``depth`` of them in flight."""

    depth: Annotated[int, Field(ge=1)]
    iops: Measured


class SizePoint(_Part):
    """Disk time of a read of ``bytes`` at full depth: 1 / reads per second."""

    bytes: Annotated[int, Field(ge=512)]
    secs: Measured


class ReadCost(_Part):
    """Disk time of one read: ``secs_per_read + bytes x secs_per_byte``."""

    secs_per_read: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    secs_per_byte: Measured

    def secs(self, num_bytes: float) -> float:
        """Disk time of a read of ``num_bytes``, in seconds."""
        return self.secs_per_read + num_bytes * self.secs_per_byte

    @classmethod
    def fitted(cls, points: list[tuple[float, float]]) -> ReadCost:
        """The line through (bytes, secs) with the least sum of absolute relative deviations.

        Such a line goes through two of the points, so all pairs are tried. A stray point does not
        move it. Raises ValueError if no pair of points costs more for more bytes.
        """
        best: tuple[float, float, float] | None = None
        for i, (x, y) in enumerate(points):
            for other_x, other_y in points[i + 1 :]:
                if other_x == x:
                    continue
                slope = (other_y - y) / (other_x - x)
                base = max(0.0, y - slope * x)
                if slope <= 0:
                    continue
                off = sum(abs(base + slope * at - secs) / secs for at, secs in points)
                if best is None or off < best[0]:
                    best = (off, base, slope)
        if best is None:
            raise ValueError("read sizes: longer reads took no longer; nothing to fit a line to")
        return cls(secs_per_read=best[1], secs_per_byte=best[2])


class DiskFacts(_Part):
    """Identity of a disk, without a path or a host name."""

    model: str
    bytes: Annotated[int, Field(ge=0)]
    """Size of the block device; 0 if it is unknown."""
    filesystem: str


class DiskProfile(_Part):
    """Schema 1 of ``profile.json``. Reads are direct (O_DIRECT) and random."""

    schema_version: Literal[1] = 1
    date: str
    commit: str
    machine: dict[str, str | int]
    device: DiskFacts
    engine: Literal["posix", "io_uring"]
    num_files: Annotated[int, Field(ge=1)]
    file_bytes: Annotated[int, Field(ge=1)]
    """Total of all files that were read."""
    block_bytes: Annotated[int, Field(ge=512)]
    latency_secs: Measured
    """Median latency of a read of one block with no other read in flight."""
    request_secs: Measured
    """Median time of a request for one row on an idle disk: the latency plus the software's
    share."""
    iops: Annotated[list[DepthPoint], Field(min_length=1)]
    peak_iops: Measured
    """Maximum of ``iops``."""
    sizes: Annotated[list[SizePoint], Field(min_length=2)]
    cost: ReadCost

    @model_validator(mode="after")
    def _points_are_ordered(self) -> DiskProfile:
        for name, values in (
            ("iops", [point.depth for point in self.iops]),
            ("sizes", [point.bytes for point in self.sizes]),
        ):
            if any(b <= a for a, b in pairwise(values)):
                raise ValueError(f"{name}: expected rising values, got {values}")
        return self

    def access_model(self) -> AccessModel:
        """The model of read-ahead for this disk. All files were measured together, so all their
        drives count as one."""
        return AccessModel(self.peak_iops, self.request_secs)

    def max_gap_bytes(self, max_read_bytes: int) -> int:
        """The longest run of whole blocks that is cheaper to read than to skip.

        Reading g more bytes costs ``g x secs_per_byte``; another read costs ``secs_per_read``. The
        gap leaves room for a block on either side in a read of ``max_read_bytes``."""
        gap = self.cost.secs_per_read / self.cost.secs_per_byte
        room = max(0, max_read_bytes - 2 * self.block_bytes)
        return int(min(gap, room)) // self.block_bytes * self.block_bytes


def save_profile(profile: DiskProfile, path: Path) -> None:
    """Writes ``path``, whole or not at all."""
    partial = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        partial.write_text(json.dumps(profile.model_dump(), indent=1) + "\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def load_profile(path: Path) -> DiskProfile:
    """The profile in ``path``. Raises FileNotFoundError if the file is missing, ValueError with the
    fault and the remedy if it cannot be used."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such disk profile; {_MEASURE}")
    return read_versioned(path, DiskProfile, SCHEMA_VERSION, _MEASURE)


def disk_facts(path: Path) -> DiskFacts:
    """The block device and the file system that hold ``path``, as far as Linux shows them."""
    number = os.stat(path).st_dev
    folder = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    model, num_bytes = "unknown", 0
    if folder.exists():
        num_bytes = int((folder / "size").read_text()) * 512
        folder = folder.resolve()
        whole = folder.parent if (folder / "partition").exists() else folder
        named = whole / "device" / "model"
        model = named.read_text().strip() if named.exists() else whole.name
    return DiskFacts(model=model, bytes=num_bytes, filesystem=_filesystem(number))


def _filesystem(device_number: int) -> str:
    """The type of the file system mounted from this device (proc(5), mountinfo)."""
    wanted = f"{os.major(device_number)}:{os.minor(device_number)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0]
    return "unknown"
