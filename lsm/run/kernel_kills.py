"""The kernel's counts of processes that it killed for lack of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_VMSTAT = Path("/proc/vmstat")
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")

_REMEDY = "give the job more memory, or set memory.bytes lower"


def count_kills() -> dict[str, Any]:
    """The counts of this machine and of this process's control group, with the facts that tell both
    from others: ``boot``, ``machine``, ``group`` and ``in_group``. None: not known."""
    group, events = _memory_group()
    return {
        "boot": _text(_BOOT).strip() or None,
        "machine": _field(_VMSTAT, "oom_kill"),
        "group": group,
        "in_group": _field(events, "oom_kill") if events is not None else None,
    }


def explain_end(before: dict[str, Any], now: dict[str, Any]) -> tuple[str, bool]:
    """The likely reason for which a process ended without a word, and whether memory is it.

    Args:
        before: ``count_kills()`` when the process started.
        now: ``count_kills()`` of a later process on the same host.
    """
    if before.get("boot") != now.get("boot"):
        return "the machine has been started again since", False
    same_group = before.get("group") is not None and before.get("group") == now.get("group")
    in_group = _rise(before, now, "in_group") if same_group else None
    if in_group:
        killed = _processes(in_group)
        return f"since it began the memory limit has killed {killed} of its group; {_REMEDY}", True
    on_machine = _rise(before, now, "machine")
    if on_machine and in_group is None:
        killed = _processes(on_machine)
        return (
            f"since it began the kernel has killed {killed} of this machine for lack of memory, "
            f"and this may be one of them; {_REMEDY}",
            True,
        )
    if in_group is None and on_machine is None:
        return (
            "the reason is not known (the kernel counts no killed processes here)",
            False,
        )
    return (
        "it was killed or crashed, and not for lack of memory as far as the kernel's counts tell",
        False,
    )


def _rise(before: dict[str, Any], now: dict[str, Any], key: str) -> int | None:
    """The difference of two counts; None if one is not known."""
    first, last = before.get(key), now.get(key)
    if isinstance(first, int) and isinstance(last, int):
        return last - first
    return None


def _processes(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''}"


def _memory_group() -> tuple[str | None, Path | None]:
    """The name of the control group that limits this process's memory (v2, v1), and its file of
    counts."""
    for line in _text(_CGROUP).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not controllers:
            file = _CGROUP_ROOT / name.strip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            file = _CGROUP_ROOT / "memory" / name.strip("/") / "memory.oom_control"
        else:
            continue
        if file.is_file():
            # In a container each group is called "/"; inodes tell them apart.
            return f"{name} {file.parent.stat().st_ino}", file
    return None, None


def _field(path: Path, name: str) -> int | None:
    """The number after ``name`` in a file of such lines."""
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
