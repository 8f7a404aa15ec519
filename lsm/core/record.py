"""Provenance of a measurement: commit, command, configuration and machine."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from lsm.version import __version__


def make(results: dict[str, Any], config: dict[str, Any] | None = None) -> dict[str, Any]:
    """``results`` plus commit, command, config and machine, ready for JSON."""
    # Absolute paths belong to one machine; their last part is kept.
    arguments = [Path(each).name if each.startswith("/") else each for each in sys.argv]
    return {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": shlex.join(arguments),
        "config": config or {},
        "machine": machine(),
        **results,
    }


def machine() -> dict[str, str | int]:
    """Processor, cores, memory, kernel and versions; no host name and no path."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lsm": __version__,
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str:
    """The commit of the source tree ("-dirty": it has changes). For a copy without history,
    LSM_COMMIT, or "unknown"."""
    root = Path(__file__).resolve().parents[2]
    described = ""
    # Installed packages may lie in somebody else's repository.
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        with contextlib.suppress(FileNotFoundError):
            described = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return described or os.environ.get("LSM_COMMIT", "unknown")
