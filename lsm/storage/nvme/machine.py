"""Reads NVMe namespaces and PCI functions from ``/sys`` and ``/proc``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

NVME_CLASS = 0x010802
"""PCI class of an NVM Express controller: mass storage, non-volatile memory, NVMe interface."""

_SECTOR_BYTES = 512  # the unit of `size` in sysfs, whatever the device's own block


@dataclass(frozen=True)
class Machine:
    """Folders in which the kernel describes the machine; tests pass their own."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    usr_src: Path = Path("/usr/src")
    lib_modules: Path = Path("/lib/modules")


@dataclass(frozen=True)
class Namespace:
    """An NVMe namespace that the kernel's driver shows as a block device.

    functions: PCI addresses of its controllers (several where the drive has several paths).
    """

    path: Path
    num_bytes: int
    block_bytes: int
    nsid: int
    model: str
    serial: str
    functions: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class PciFunction:
    """A PCI function.

    driver: the driver bound to it; "" without one. dma: translation of its memory accesses:
    "direct" (no IOMMU, or one that passes them through) or the IOMMU group's type. bars: bytes of
    the window of each base address register."""

    address: str
    vendor: int
    class_code: int
    driver: str
    dma: str
    bars: list[int]


def find_namespace(device: str | Path, machine: Machine) -> Namespace:
    """The namespace whose block device is ``device``, a path such as ``/dev/nvme0n1``. Raises
    FileNotFoundError if the path is missing, ValueError for anything but a whole NVMe namespace.
    """
    path = Path(device)
    folder = machine.sys / "class/block" / path.resolve().name
    if not path.exists() or not folder.exists():
        known = ", ".join(str(found.path) for found in namespaces(machine)) or "none"
        raise FileNotFoundError(f"{device}: no such block device; NVMe namespaces here: {known}")
    if (folder / "partition").exists():
        whole = machine.dev / folder.resolve().parent.name
        raise ValueError(f"{device}: expected a whole namespace, got a partition of {whole}")
    controllers = _controllers(folder)
    if not controllers:
        raise ValueError(f"{device}: expected an NVMe namespace, got another kind of block device")
    return Namespace(
        path=path,
        num_bytes=int(_text(folder / "size")) * _SECTOR_BYTES,
        block_bytes=int(_text(folder / "queue/logical_block_size")),
        nsid=int(_text(folder / "nsid")),
        model=_text(controllers[0] / "model"),
        serial=_text(controllers[0] / "serial"),
        functions=[_text(controller / "address") for controller in controllers],
    )


def namespaces(machine: Machine) -> list[Namespace]:
    """All namespaces that the kernel's driver shows, by name."""
    folder = machine.sys / "class/block"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    whole = [name for name in names if re.fullmatch(r"nvme\d+n\d+", name)]
    paths = [machine.dev / name for name in whole]
    return [find_namespace(path, machine) for path in paths if path.exists()]


def use_of(namespace: Namespace, machine: Machine) -> str | None:
    """A use of the namespace, in words, or None: partitions, a mount, swap space, or block devices
    on it."""
    folder = machine.sys / "class/block" / namespace.path.resolve().name
    number = _text(folder / "dev")
    partitions = sorted(path.parent.name for path in folder.glob("*/partition"))
    for name in [folder.name, *partitions]:
        where = _mount_point(name, _text(folder / name / "dev") or number, machine)
        if where is not None:
            return f"{name} is mounted at {where}"
        if any(line.split()[0] == f"/dev/{name}" for line in _lines(machine.proc / "swaps")):
            return f"{name} is swap space"
        holders_of = folder if name == folder.name else folder / name
        holders = sorted(path.name for path in _entries(holders_of / "holders"))
        if holders:
            return f"{name} is part of {', '.join(holders)}"
    if partitions:
        return f"it is partitioned ({', '.join(partitions)})"
    return None


def nvme_functions(machine: Machine) -> list[PciFunction]:
    """All NVMe controllers on the PCI bus, by address."""
    return [found for found in pci_functions(machine) if found.class_code == NVME_CLASS]


def pci_functions(machine: Machine) -> list[PciFunction]:
    """All functions on the PCI bus, by address."""
    return [
        PciFunction(
            address=folder.name,
            vendor=int(_text(folder / "vendor") or "0", 16),
            class_code=int(_text(folder / "class") or "0", 16),
            driver=(folder / "driver").resolve().name if (folder / "driver").exists() else "",
            dma=_dma(folder),
            bars=list(_bars(folder / "resource")),
        )
        for folder in _entries(machine.sys / "bus/pci/devices")
    ]


def _controllers(folder: Path) -> list[Path]:
    """Folders of the PCI controllers behind block device ``folder``."""
    device = folder / "device"
    if not re.fullmatch(r"nvme\d+n\d+", folder.name):
        return []
    found = [device, *(path for path in _entries(device) if re.fullmatch(r"nvme\d+", path.name))]
    return [path for path in found if _text(path / "transport") == "pcie"]


def _dma(folder: Path) -> str:
    group = folder / "iommu_group"
    if not group.exists():
        return "direct"
    kind = _text(group / "type") or "unknown"
    return "direct" if kind == "identity" else kind


def _bars(resource: Path) -> Iterator[int]:
    for line in _lines(resource)[:6]:
        first, last = (int(part, 16) for part in line.split()[:2])
        yield last - first + 1 if last else 0


def _mount_point(name: str, number: str, machine: Machine) -> str | None:
    # Some file systems (btrfs) show a device number of their own, so names are compared, too.
    for line in _lines(machine.proc / "self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()[1:2]
        if fields[2] == number or source == [f"/dev/{name}"]:
            return fields[4]
    return None


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _text(path: Path) -> str:
    """Contents of a small file without surrounding space; "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
