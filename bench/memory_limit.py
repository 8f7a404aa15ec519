"""Runs a command in a limited amount of memory, the page cache included.

A limit of the address space does not bound the page cache, through which a memory map reads. Linux
charges both to the control group of the process that touched a page first, so a group with a limit
gives "less memory than features" on a machine that has more.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_REMEDY = (
    "run as root, or inside a group of your own: systemd-run --user --scope -p Delegate=yes COMMAND"
)


_POLL_SECS = 0.01


def anonymous_bytes(pid: int) -> int:
    """Resident anonymous memory of a process; 0 once it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


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
                "memory.usage_in_bytes",
            ),
            2: ("memory.max", "memory.peak", "memory.swap.max", "memory.current"),
        }
        self._limit, self._peak, swap, self._charged = names[version]
        (self._group / self._limit).write_text(str(self.limit_bytes))
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

    def lower_to(self, room_bytes: int) -> None:
        """Lowers the limit to the memory charged now but for the page cache, and ``room_bytes``.
        The kernel drops pages of the page cache above it."""
        lines = (self._group / "memory.stat").read_text().splitlines()
        cached = dict(line.split() for line in lines)
        charged = int((self._group / self._charged).read_text())
        charged -= int(cached["inactive_file"]) + int(cached["active_file"])
        self.limit_bytes = charged + room_bytes
        (self._group / self._limit).write_text(str(self.limit_bytes))

    def run_when_ready(
        self,
        command: Sequence[object],
        room_bytes: int | None,
        env: Mapping[str, str] | None = None,
        timeout: float = 1800,
    ) -> dict:
        """The JSON in the last line of a command's output, with the limit and the peak of its
        anonymous memory. The command writes a line once it is ready, and waits for one; then the
        limit is lowered to ``room_bytes`` (None: it stays). Raises RuntimeError if the command
        fails."""
        with tempfile.TemporaryFile("w+") as errors:
            process = self.start(
                list(map(str, command)),
                env=os.environ | dict(env or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            assert process.stdin is not None, "it is a pipe"
            assert process.stdout is not None, "it is a pipe"
            if process.stdout.readline():
                if room_bytes is not None:
                    self.lower_to(room_bytes)
                process.stdin.write("\n")
                process.stdin.flush()
            peak, deadline = 0, time.monotonic() + timeout
            while process.poll() is None:
                peak = max(peak, anonymous_bytes(process.pid))
                if time.monotonic() > deadline:
                    process.kill()
                time.sleep(_POLL_SECS)
            lines = process.stdout.read().strip().splitlines()
            if process.returncode or not lines:
                errors.seek(0)
                last = (errors.read().strip().splitlines() or ["no message"])[-1]
                raise RuntimeError(
                    f"exit status {process.returncode}, peak {peak} bytes of a limit of "
                    f"{self.limit_bytes}: {last}"
                )
            return json.loads(lines[-1]) | {
                "limit_bytes": self.limit_bytes,
                "peak_anonymous_bytes": peak,
            }

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
