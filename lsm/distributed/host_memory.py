"""How much memory this process, and each of its machine's ranks, can still take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from lsm.distributed.environment import local_size_in

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_SHARE_OF_CGROUP = 0.85


def available_bytes() -> int:
    """Bytes that can be allocated without swapping: what the kernel estimates, or what the limits
    of this process's control groups (v1, v2) leave, whichever is less."""
    return max(0, min([_free_bytes(), *_cgroup_rooms()]))


def default_bytes() -> int:
    """Bytes that the ranks of this machine take together unless told otherwise: half of those that
    the machine has free, for others use it, or 85% of those that the control groups of this
    process leave, for these are its own; whichever is less."""
    shares = [int(room * _SHARE_OF_CGROUP) for room in _cgroup_rooms()]
    return max(0, min([_free_bytes() // 2, *shares]))


def available_bytes_per_rank() -> int:
    """The same for each of the ranks on this machine if all take as much, which they do: of a job
    whose processes are in control groups of their own, this is less than it could be."""
    return available_bytes() // local_size_in()


def resident_bytes() -> dict[str, int]:
    """Resident memory of this process: ``peak`` of all; ``anonymous`` (with shared memory) and
    ``file``, the pages of mapped files, at present."""
    fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())

    def size(name: str) -> int:
        return int(fields[name].split()[0]) << 10 if name in fields else 0

    return {
        "peak": size("VmHWM"),
        "anonymous": size("RssAnon") + size("RssShmem"),
        "file": size("RssFile"),
    }


def peak_beside_files(libraries: int) -> int:
    """Most resident memory that this process has had, less pages of mapped files: all but
    ``libraries`` bytes of those it has now. The kernel takes such pages back when it needs them."""
    now = resident_bytes()
    return now["peak"] - max(0, now["file"] - libraries)


def peak_growth(work: Callable[[], None]) -> int:
    """Most bytes of resident memory that ``work()`` adds at a time. The process's peak counts from
    here on, where the kernel allows it; where not, this is too much rather than too little."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK)
    before = resident_bytes()
    work()
    return max(0, resident_bytes()["peak"] - before["anonymous"] - before["file"])


def _free_bytes() -> int:
    fields = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) << 10


def _cgroup_rooms() -> list[int]:
    """For each control group that limits this process: its limit, less what cannot be freed."""
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
    """The rooms of control group ``name`` under ``root`` and of those it is in; none of a group
    that is not for us to see."""
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
