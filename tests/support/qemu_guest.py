"""Boots a small Linux guest in QEMU: a distribution's kernel, an initramfs made on the spot,
software emulation, no network. `make test-nvme` prepares what that takes, and says where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

GUEST = Path(os.environ.get("LSM_GUEST", ""))
KERNEL = GUEST / "vmlinuz"
BINARY = GUEST / "tests/guest/nvme_guest"
MODULE = GUEST / "libnvm.ko"

# random.trust_cpu: no wait for entropy; mitigations=off: of no use here, and slow under emulation.
_COMMAND_LINE = "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off"
_DIRECTORY, _EXECUTABLE, _FILE = 0o040755, 0o100755, 0o100644


def missing() -> str:
    """Why no guest can be booted here; empty if one can."""
    if "LSM_GUEST" not in os.environ:
        return "`make test-nvme` makes a guest of the present code, and runs this"
    if shutil.which("qemu-system-x86_64") is None:
        return "no qemu-system-x86_64; `make test-nvme` installs it where it may"
    for path in (KERNEL, BINARY):
        if not path.exists():
            return f"no {path}; `make test-nvme` makes it"
    return ""


def boot(
    folder: Path,
    *,
    devices: list[str],
    command_line: str = "",
    files: dict[str, bytes] | None = None,
    timeout_secs: float = 240.0,
) -> str:
    """The output of the guest until it powered itself off; ``files`` lie at its root.

    Fails with that text if it does not end in time, which is many times what it takes: a machine
    that is busy with other work may be slow.
    """
    initramfs = folder / "initramfs.cpio"
    initramfs.write_bytes(_cpio({"init": BINARY.read_bytes(), **(files or {})}))
    log = folder / "serial.log"
    command = ["qemu-system-x86_64", "-M", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "512"]
    command += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    command += ["-serial", f"file:{log}", "-kernel", str(KERNEL), "-initrd", str(initramfs)]
    command += ["-append", f"{_COMMAND_LINE} {command_line}", *devices]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_secs, check=False
        )
    except subprocess.TimeoutExpired:
        text = log.read_text(errors="replace")
        raise AssertionError(f"the guest did not end within {timeout_secs} s:\n{text}") from None
    text = log.read_text(errors="replace") if log.exists() else ""
    assert result.returncode == 0, f"qemu failed: {result.stderr}\n{text}"
    assert "guest done" in text, f"the guest ended early:\n{text}"
    return text


def outcomes(text: str) -> dict[str, str]:
    """The results of the checks: name -> "ok", or why it failed or was skipped."""
    found = {}
    for line in text.splitlines():
        kind, _, rest = line.strip().partition(" ")
        if kind == "check":
            name, _, outcome = rest.partition(" ")
            found[name] = "ok" if outcome.startswith("ok") else outcome
    return found


def _cpio(files: dict[str, bytes]) -> bytes:
    """An archive in the format "newc" (Linux, driver-api/early-userspace/buffer-format)."""
    folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    members = [(name, _DIRECTORY, b"") for name in sorted(folders)]
    members += [
        (name, _EXECUTABLE if name == "init" else _FILE, data) for name, data in files.items()
    ]
    archive = bytearray()
    for number, (name, mode, data) in enumerate([*members, ("TRAILER!!!", 0, b"")], 1):
        path = name.encode() + b"\0"
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0]
        archive += b"070701" + b"".join(b"%08x" % field for field in fields) + path
        archive += bytes(-len(archive) % 4) + data
        archive += bytes(-len(archive) % 4)
    return bytes(archive)
