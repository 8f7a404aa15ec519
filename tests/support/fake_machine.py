"""A machine as the kernel would describe it, made of files: PCI functions and NVMe drives."""

from __future__ import annotations

import os
from pathlib import Path

from lsm.storage.nvme.machine import Machine

NVME, DISPLAY, NETWORK = 0x010802, 0x030200, 0x020000
NVME_FINDINGS = [
    "NVMe drives",
    "IOMMU",
    "GPU BAR1",
    "libnvm module",
    "driver headers",
    "huge pages",
    "GPU-initiated IO",
]
"""What the doctor reports about GPU-initiated IO, in this order."""


class FakeMachine:
    """Builds ``sys``, ``proc``, ``dev``, ... under ``root``, as Linux 6.1 lays them out."""

    def __init__(self, root: Path) -> None:
        self.machine = Machine(
            sys=root / "sys",
            proc=root / "proc",
            dev=root / "dev",
            usr_src=root / "src",
            lib_modules=root / "modules",
        )
        for folder in ("bus/pci/devices", "bus/pci/drivers", "class/block"):
            (self.machine.sys / folder).mkdir(parents=True)
        for folder in (self.machine.dev, self.machine.proc / "self", self.machine.usr_src):
            folder.mkdir(parents=True)
        self.write("proc/swaps", "Filename Type Size Used Priority")
        self.write("proc/self/mountinfo", "20 1 0:18 / /sys rw - sysfs sysfs rw")
        self.write("proc/meminfo", "HugePages_Free: 0\nHugepagesize: 2048 kB")

    def write(self, path: str, text: str) -> None:
        """Makes the small file ``path``, relative to the root."""
        file = self.machine.sys.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def add_function(
        self,
        address: str,
        class_code: int,
        *,
        vendor: int = 0x144D,
        driver: str = "",
        group: str = "",
    ) -> Path:
        """A PCI function with BARs of 16 KiB and 64 KiB; ``group``: the type of its IOMMU group."""
        folder = self.machine.sys / "devices/pci0000:00" / address
        self._write_all(
            folder,
            {
                "vendor": f"{vendor:#06x}",
                "class": f"{class_code:#08x}",
                "resource": "0x100000 0x103fff 0x40200\n0x200000 0x20ffff 0x40200\n0x0 0x0 0x0",
            },
        )
        (self.machine.sys / "bus/pci/devices" / address).symlink_to(folder)
        if driver:
            bound = self.machine.sys / "bus/pci/drivers" / driver
            bound.mkdir(exist_ok=True)
            (folder / "driver").symlink_to(bound)
        if group:
            kind = self.machine.sys / "kernel/iommu_groups" / address
            self._write_all(kind, {"type": group})
            (folder / "iommu_group").symlink_to(kind)
        return folder

    def add_drive(
        self,
        number: int,
        content: bytes,
        *,
        block_bytes: int = 512,
        partitions: int = 0,
        **function,
    ) -> Path:
        """Drive ``nvme<number>`` with one namespace of ``content``; returns its block device."""
        address = f"0000:0{number + 1}:00.0"
        folder = self.add_function(address, NVME, **{"driver": "nvme", **function})
        controller = folder / f"nvme/nvme{number}"
        fields = {
            "address": address,
            "transport": "pcie",
            "model": "Fake 9000  ",
            "serial": f"F{number}",
        }
        self._write_all(controller, fields)
        name = f"nvme{number}n1"
        block = controller / name
        sectors = len(content) // 512
        fields = {"size": str(sectors), "dev": f"259:{number * 8}", "nsid": "1"}
        self._write_all(block, {**fields, "queue/logical_block_size": str(block_bytes)})
        (block / "device").symlink_to(controller)
        (block / "holders").mkdir()
        for k in range(1, partitions + 1):
            part = block / f"{name}p{k}"
            self._write_all(
                part, {"partition": str(k), "dev": f"259:{number * 8 + k}", "size": "8"}
            )
            (part / "holders").mkdir()
            self._add_block(part)
        return self._add_block(block, content)

    def _add_block(self, folder: Path, content: bytes = b"") -> Path:
        (self.machine.sys / "class/block" / folder.name).symlink_to(folder)
        node = self.machine.dev / folder.name
        node.write_bytes(content)
        return node

    def _write_all(self, folder: Path, files: dict[str, str]) -> None:
        for name, text in files.items():
            self.write(os.path.relpath(folder / name, self.machine.sys.parent), text)
