"""Small file systems, for tests of disks that are full or read-only."""

import subprocess
from pathlib import Path

import pytest


def _mount(*arguments: str | Path) -> None:
    """Skips the test where nothing can be mounted."""
    command = ["mount", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


def mount_memory(mount_point: Path, size: str) -> None:
    mount_point.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", mount_point)


def make_read_only(mount_point: Path) -> None:
    _mount("-o", "remount,ro", mount_point)


def unmount(mount_point: Path) -> None:
    subprocess.run(["umount", str(mount_point)], check=True, timeout=30)
