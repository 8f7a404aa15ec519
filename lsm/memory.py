"""How much memory this process, and each of its machine's ranks, can still take."""

from __future__ import annotations

from pathlib import Path

from lsm.launch import local_size_in

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Bytes that can be allocated without swapping: what the kernel estimates, or what the limits
    of this process's control groups (cgroup v2) leave, whichever is less."""
    fields = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
    machine = int(fields["MemAvailable"].split()[0]) << 10
    return max(0, min([machine, *_cgroup_rooms()]))


def available_bytes_per_rank() -> int:
    """The same for each of the ranks on this machine if all take as much, which they do: of a job
    whose processes are in control groups of their own, this is less than it could be."""
    return available_bytes() // local_size_in()


def _cgroup_rooms() -> list[int]:
    """For each control group that limits this process: its limit, less what cannot be freed."""
    rooms = []
    try:
        lines = _CGROUP.read_text().splitlines()
        name = next(line[3:] for line in lines if line.startswith("0::"))
        group = _CGROUP_ROOT / name.strip("/")
        while group != _CGROUP_ROOT.parent:
            limit = group / "memory.max"
            if limit.exists() and (text := limit.read_text().strip()) != "max":
                stat = dict(map(str.split, (group / "memory.stat").read_text().splitlines()))
                cached = int(stat["active_file"]) + int(stat["inactive_file"])
                rooms.append(int(text) - int((group / "memory.current").read_text()) + cached)
            group = group.parent
    except (OSError, KeyError, ValueError, StopIteration):
        return rooms  # no cgroup v2 here, or not for us to see
    return rooms
