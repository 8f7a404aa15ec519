"""Boots a small Linux guest in QEMU: a distribution's kernel, an initramfs made on the spot,
software emulation, no network. `make test-nvme` prepares what that takes, and says where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from support.cpio import write_archive

GUEST = Path(os.environ.get("LSM_GUEST", ""))
KERNEL = GUEST / "vmlinuz"
BINARY = GUEST / "tests/guest/nvme_guest"
MODULE = GUEST / "libnvm.ko"

BAD_WRITE, BAD_READ = 1 << 20, 2 << 20
"""Bytes of a ``damaged`` medium in a sector that cannot be written, or read."""

_SECTOR_BYTES = 512
# random.trust_cpu: no wait for entropy; mitigations=off: of no use here, and slow under emulation;
# no_timer_check: a timer looks broken, and the kernel panics, if the host is busy for a moment.
_COMMAND_LINE = "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off no_timer_check"


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
    archive: Path | None = None,
    memory_mib: int = 512,
    timeout_secs: float = 240.0,
) -> str:
    """The output of the guest until it powered itself off; ``files`` lie at its root,
    and so do those of ``archive`` (``python_guest.pack``).

    Fails with that text if it does not end in time, which is many times what it takes: a machine
    that is busy with other work may be slow.
    """
    initramfs = folder / "initramfs.cpio"
    with open(initramfs, "wb") as file:
        write_archive(file, {"init": BINARY, **(files or {})})
        if archive is not None:
            with open(archive, "rb") as more:
                shutil.copyfileobj(more, file)
    log = folder / "serial.log"
    command = ["qemu-system-x86_64", "-M", "q35,accel=tcg", "-cpu", "max", "-smp", "2"]
    command += ["-m", str(memory_mib)]
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


def raw(image, drive):
    """Arguments for the medium ``drive``: the file ``image``."""
    return ["-drive", f"file={image},id={drive},if=none,format=raw"]


def read_only(image, drive):
    """A medium that refuses writes."""
    return ["-drive", f"file={image},id={drive},if=none,format=raw,readonly=on"]


def damaged(image, drive):
    """A medium with a block that cannot be written and one that cannot be read; no flush works."""
    faults = {"write": BAD_WRITE // _SECTOR_BYTES, "read": BAD_READ // _SECTOR_BYTES, "flush": -1}
    options = [f"driver=blkdebug,node-name={drive},image.driver=file,image.filename={image}"]
    for number, (kind, sector) in enumerate(faults.items()):
        rule = {"event": "none", "iotype": kind, "sector": sector, "errno": 5}
        options += [f"inject-error.{number}.{key}={value}" for key, value in rule.items()]
    return ["-blockdev", ",".join(options)]


def controller(name, address, *namespaces):
    """Arguments for an NVMe controller with ``namespaces``: (image, bytes per block, bytes of
    metadata per block, and the medium, if it is not ``raw``) each."""
    arguments = [
        "-device",
        f"nvme,id={name},serial=lsm-{name},addr={address},max_ioqpairs=16,mdts=10",
    ]
    for number, (image, block_bytes, metadata_bytes, *medium) in enumerate(namespaces, 1):
        drive = f"{name}{number}"
        arguments += (medium[0] if medium else raw)(image, drive)
        blocks = f"logical_block_size={block_bytes},physical_block_size={block_bytes}"
        blocks += f",ms={metadata_bytes}"
        arguments += ["-device", f"nvme-ns,drive={drive},bus={name},nsid={number},{blocks}"]
    return arguments
