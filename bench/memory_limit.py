"""Runs a command in a limited amount of memory, the page cache included.

A limit of the address space does not bound the page cache, through which a memory map reads. Linux
charges both to the control group of the process that touched a page first, so a group with a limit
gives "less memory than features" on a machine that has more.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_REMEDY = (
    "run as root, or inside a group of your own: systemd-run --user --scope -p Delegate=yes COMMAND"
)


class MemoryLimit:
    """A control group for commands that together may hold ``limit_bytes``; a context manager.

    The group lies below this process's own, or, with version 2, below the nearest ancestor that
    delegates memory limits. Pages already in the page cache belong to their first reader: drop them
    before. The kernel kills a command that needs more than the limit. Raises RuntimeError where no
    such group can be made.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes < 1:
            raise ValueError(f"limit_bytes: expected at least 1, got {limit_bytes}")
        self.limit_bytes = limit_bytes
        problems = []
        for version, parent in _parents():
            self._group = parent / f"lsm-bench-{os.getpid()}"
            self.mechanism = f"cgroup v{version}"
            try:
                self._group.mkdir()
                self._set_up(version)
            except OSError as error:
                problems.append(str(error))
                if self._group.is_dir():
                    self._group.rmdir()
                continue
            return
        reason = problems[0] if problems else "the memory controller is not mounted"
        raise RuntimeError(f"no memory limit can be set here ({reason}); {_REMEDY}")

    def _set_up(self, version: int) -> None:
        names = {
            1: (
                "memory.limit_in_bytes",
                "memory.max_usage_in_bytes",
                "memory.memsw.limit_in_bytes",
            ),
            2: ("memory.max", "memory.peak", "memory.swap.max"),
        }
        limit, self._peak, swap = names[version]
        (self._group / limit).write_text(str(self.limit_bytes))
        if (self._group / swap).exists():  # swapping would be a way round the limit
            (self._group / swap).write_text(str(self.limit_bytes) if version == 1 else "0")

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """subprocess.Popen() inside the limit, child processes included."""
        return subprocess.Popen(command, preexec_fn=self._enter, **options)

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """subprocess.run() inside the limit, child processes included."""
        return subprocess.run(command, preexec_fn=self._enter, check=False, **options)

    def _enter(self) -> None:
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self) -> int | None:
        """Peak of charged memory; None where the kernel does not report it."""
        path = self._group / self._peak
        return int(path.read_text()) if path.exists() else None

    def close(self) -> None:
        """Removes the group. Pages that its commands read stay in the page cache."""
        self._group.rmdir()

    def __enter__(self) -> MemoryLimit:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _parents() -> Iterator[tuple[int, Path]]:
    """(version, directory) of the possible parents of a group, the best first."""
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for mount_point, kind, options in _mounts():
        if kind == "cgroup" and "memory" in options:
            path = next((path for _, names, path in own if "memory" in names.split(",")), None)
            if path is not None:
                yield 1, mount_point / path.lstrip("/")
        if kind == "cgroup2":
            path = next((path for number, _, path in own if number == "0"), "/")
            group = mount_point / path.lstrip("/")
            for above in (group, *group.parents):
                if not above.is_relative_to(mount_point):
                    break
                control = above / "cgroup.subtree_control"
                if control.exists() and "memory" in control.read_text().split():
                    yield 2, above
                    break


def _mounts() -> Iterator[tuple[Path, str, list[str]]]:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount_point, kind, options, *_ = line.split()
        yield Path(mount_point), kind, options.split(",")
