"""Finds the parts that NVMe reads submitted by the GPU lack on this machine, and their remedies."""

from __future__ import annotations

import os
import platform

from lsm.core.units import format_bytes
from lsm.doctor.finding import Finding
from lsm.storage.nvme.machine import (
    Machine,
    PciFunction,
    namespaces,
    nvme_functions,
    pci_functions,
    use_of,
)

PAGE = "kernels/io/nvme/README.md"
LIBNVM_DRIVER = "libnvm helper"
"""Name under which the kernel module binds to controllers."""

_NVIDIA = 0x10DE
_DISPLAY = 0x03  # PCI base class of GPUs, also of those without a display
_SMALL_BAR_BYTES = 256 << 20


def examine_nvme(machine: Machine) -> list[Finding]:
    """The findings. The last one names all missing parts."""
    gpus = [
        found
        for found in pci_functions(machine)
        if found.vendor == _NVIDIA and found.class_code >> 16 == _DISPLAY
    ]
    findings = [
        _drives(machine),
        _iommu(nvme_functions(machine) + gpus),
        _bar1(gpus),
        _module(machine),
        _headers(machine),
        _huge_pages(machine),
    ]
    return [*findings, _summary(findings)]


def _drives(machine: Machine) -> Finding:
    """Finds a free controller, or the holders of all."""
    name = "NVMe drives"
    functions = nvme_functions(machine)
    if not functions:
        return Finding(name, "no", "no NVMe controller on the PCI bus; storage.transport=emulated")
    free = [found for found in functions if found.driver in ("", LIBNVM_DRIVER)]
    parts = [_describe(found, machine) for found in functions]
    if free:
        return Finding(name, "ok", "; ".join(parts))
    spare = next((each for each in namespaces(machine) if use_of(each, machine) is None), None)
    if spare is None:
        return Finding(name, "no", "; ".join(parts) + "; none can be spared: add a drive")
    address = spare.functions[0]
    advice = (
        f"none is free: write a store with `lsm data load-nvme STORE {spare.path}`, then "
        f"`echo {address} > /sys/bus/pci/devices/{address}/driver/unbind` as root"
    )
    return Finding(name, "no", "; ".join(parts) + "; " + advice)


def _describe(function: PciFunction, machine: Machine) -> str:
    if function.driver == "":
        return f"{function.address}: unbound, ready"
    if function.driver == LIBNVM_DRIVER:
        return f"{function.address}: bound to libnvm, ready"
    held = []
    for namespace in namespaces(machine):
        if function.address in namespace.functions:
            use = use_of(namespace, machine) or "not in use"
            size = format_bytes(namespace.num_bytes)
            held.append(f"{namespace.path} {size} {namespace.model}, {use}")
    return f"{function.address}: bound to {function.driver} ({'; '.join(held) or 'no namespace'})"


def _iommu(functions: list[PciFunction]) -> Finding:
    translated = [f"{found.address} ({found.dma})" for found in functions if found.dma != "direct"]
    if translated:
        detail = (
            f"translates the memory accesses of {', '.join(translated)}; boot with iommu=pt "
            "(or intel_iommu=off, amd_iommu=off), or switch VT-d / AMD-Vi off in the firmware"
        )
        return Finding("IOMMU", "no", detail)
    return Finding("IOMMU", "ok", "does not translate the accesses of NVMe drives and GPUs")


def _bar1(gpus: list[PciFunction]) -> Finding:
    """BAR1 is the window through which other devices reach a GPU's memory."""
    name = "GPU BAR1"
    if not gpus:
        return Finding(name, "no", "no NVIDIA GPU on the PCI bus")
    sizes = [(found.address, found.bars[1] if len(found.bars) > 1 else 0) for found in gpus]
    shown = ", ".join(f"{address}: {format_bytes(size)}" for address, size in sizes)
    if min(size for _, size in sizes) > _SMALL_BAR_BYTES:
        return Finding(name, "ok", shown)
    detail = (
        f"{shown}: too small for queues and rows; enable Above 4G Decoding and Resizable BAR in "
        "the firmware (data-centre GPUs show all of their memory)"
    )
    return Finding(name, "no", detail)


def _module(machine: Machine) -> Finding:
    from lsm import native

    name = "libnvm module"
    if not (machine.sys / "module/libnvm").exists():
        detail = f"not loaded: build it from github.com/ZaidQureshi/bam and insmod it ({PAGE})"
        return Finding(name, "no", detail)
    nodes = sorted(machine.dev.glob("libnvm[0-9]*"))
    if not nodes:
        detail = "loaded, but bound to no controller: unbind one from the nvme driver, then reload"
        return Finding(name, "no", detail)
    problem = native.libnvm_problem(os.fspath(nodes[0]))
    if problem:
        return Finding(name, "no", problem)
    return Finding(name, "ok", f"with GPU support: {', '.join(map(str, nodes))}")


def _headers(machine: Machine) -> Finding:
    """Finds the headers that the module's build needs: of the kernel and of NVIDIA's driver."""
    release = platform.release()
    missing = []
    if not (machine.lib_modules / release / "build").exists():
        missing.append(f"headers of Linux {release} (Debian: linux-headers-{release})")
    if not any(machine.usr_src.glob("nvidia-*/**/nv-p2p.h")):
        missing.append("nv-p2p.h in /usr/src/nvidia-* (install the driver with its kernel sources)")
    if missing:
        return Finding("driver headers", "no", "to build the libnvm module: " + "; ".join(missing))
    return Finding("driver headers", "ok", "of Linux and of the NVIDIA driver")


def _huge_pages(machine: Machine) -> Finding:
    """The `sysfs` transport takes its memory from huge pages; `libnvm` needs none."""
    try:
        lines = (machine.proc / "meminfo").read_text().splitlines()
    except OSError:
        lines = []
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    free = int(fields.get("HugePages_Free", "0"))
    size = int(fields.get("Hugepagesize", "2048 kB").split()[0]) * 1024
    if free:
        return Finding("huge pages", "ok", f"{format_bytes(free * size)} free")
    detail = "none free, for storage.transport=sysfs: echo 64 > /proc/sys/vm/nr_hugepages"
    return Finding("huge pages", "no", detail)


def _summary(findings: list[Finding]) -> Finding:
    """Huge pages do not count: only `sysfs`, where the host submits the reads, needs them."""
    name = "GPU-initiated IO"
    missing = [
        found.name for found in findings if found.state == "no" and found.name != "huge pages"
    ]
    # With the module at work, its headers are no longer needed.
    if "libnvm module" not in missing and "driver headers" in missing:
        missing.remove("driver headers")
    if missing:
        detail = f"missing: {', '.join(missing)}; {PAGE} goes through it. Without: emulated, sysfs"
        return Finding(name, "no", detail)
    return Finding(name, "ok", "storage.engine=nvme storage.transport=libnvm")
