"""Available host memory, of this process."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lsm.core.units import format_bytes

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_SHARE_OF_CGROUP = 0.85

LATER_LIBRARY_BYTES = 64 << 20
"""Memory of libraries that a process loads after its start."""


def available_bytes() -> int:
    """Bytes that can be allocated without swapping: the kernel's estimate, or the room that the
    limits of this process's control groups (v1, v2) leave, whichever is less."""
    return max(0, min([machine_bytes("MemAvailable"), *_cgroup_rooms()]))


def require(what: str, needed: int, remedy: str) -> None:
    """Raises MemoryError, with a ``remedy``, unless ``needed`` bytes for ``what`` are available."""
    free = available_bytes()
    if needed > free:
        raise MemoryError(
            f"{what} would take {format_bytes(needed)} of memory, and {format_bytes(free)} are "
            f"free; {remedy}"
        )


def default_bytes() -> int:
    """Default memory of all ranks of this machine together: half of the machine's free memory,
    which others use as well, or 85% of the room in this process's control groups, which is its own;
    whichever is less."""
    shares = [int(room * _SHARE_OF_CGROUP) for room in _cgroup_rooms()]
    return max(0, min([machine_bytes("MemAvailable") // 2, *shares]))


def resident_bytes() -> dict[str, int]:
    """Resident memory of this process: ``peak`` of all of it; at present ``anonymous`` (with shared
    memory) and ``file``, the pages of mapped files."""
    sizes = Counter(_sizes(_STATUS))
    anonymous = sizes["RssAnon"] + sizes["RssShmem"]
    return {"peak": sizes["VmHWM"], "anonymous": anonymous, "file": sizes["RssFile"]}


def peak_beside_files(libraries: int) -> int:
    """Peak of this process's resident memory, less its present pages of mapped files but for
    ``libraries`` bytes. The kernel reclaims such pages when it needs memory."""
    now = resident_bytes()
    return now["peak"] - max(0, now["file"] - libraries)


def peak_growth(work: Callable[[], None]) -> int:
    """Peak of the resident memory that ``work()`` adds. Resets the process's peak where the kernel
    allows it; elsewhere the result is an overestimate."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK)
    before = resident_bytes()
    work()
    return max(0, resident_bytes()["peak"] - before["anonymous"] - before["file"])


def machine_bytes(name: str) -> int:
    """A size of the whole machine: MemTotal, MemAvailable."""
    return _sizes(_MEMINFO)[name]


def _sizes(path: Path) -> dict[str, int]:
    """The fields of a file of /proc that are sizes, in bytes."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return {words[0][:-1]: int(words[1]) << 10 for words in lines if words[-1:] == ["kB"]}


def _cgroup_rooms() -> list[int]:
    """For each control group that limits this process: its limit less its unreclaimable memory."""
    try:
        lines = [line.split(":", 2) for line in _CGROUP.read_text().splitlines()]
    except OSError:
        return []
    rooms = []
    for _, controllers, name in lines:
        if not controllers:
            files = ("memory.max", "memory.current", ("active_file", "inactive_file"))
            rooms += _rooms_up(_CGROUP_ROOT, name, *files)
        elif "memory" in controllers.split(","):
            cached = ("total_active_file", "total_inactive_file")
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", cached)
            rooms += _rooms_up(_CGROUP_ROOT / "memory", name, *files)
    return rooms


def _rooms_up(root: Path, name: str, limit: str, usage: str, cached: tuple[str, str]) -> list[int]:
    """The rooms of control group ``name`` under ``root`` and of its ancestors, without groups that
    are invisible here."""
    rooms, group = [], root / name.strip("/")
    while group != root.parent:
        try:
            text = (group / limit).read_text().strip()
            if text != "max":
                stat = dict(map(str.split, (group / "memory.stat").read_text().splitlines()))
                used = int((group / usage).read_text()) - sum(int(stat[key]) for key in cached)
                rooms.append(int(text) - used)
        except (OSError, KeyError, ValueError):
            pass
        group = group.parent
    return rooms
