"""The doctor's findings about GPU-initiated IO, on machines made of files."""

from __future__ import annotations

import platform

import pytest

from lsm import native
from lsm.doctor.nvme import examine_nvme
from support.fake_machine import DISPLAY, NVME, NVME_FINDINGS, FakeMachine

NVIDIA = 0x10DE


@pytest.fixture
def fake(tmp_path):
    return FakeMachine(tmp_path / "machine")


def examine(fake):
    findings = examine_nvme(fake.machine)
    assert [found.name for found in findings] == NVME_FINDINGS
    return {found.name: (found.state, found.detail) for found in findings}


def add_gpu(fake, bar1_bytes, group=""):
    folder = fake.add_function("0000:41:00.0", DISPLAY, vendor=NVIDIA, driver="nvidia", group=group)
    last = 0x1000000000 + bar1_bytes - 1
    text = f"0xa0000000 0xa0ffffff 0x40200\n0x1000000000 {last:#x} 0x14220c\n"
    (folder / "resource").write_text(text)


def add_module(fake, monkeypatch, problem=""):
    fake.write("sys/module/libnvm/refcnt", "0")
    (fake.machine.dev / "libnvm0").touch()
    monkeypatch.setattr(native, "libnvm_problem", lambda path: problem and f"{path}: {problem}")


def test_a_machine_with_nothing(fake):
    found = examine(fake)
    assert found["NVMe drives"] == (
        "no",
        "no NVMe controller on the PCI bus; storage.transport=emulated",
    )
    assert found["IOMMU"][0] == "ok"
    assert found["GPU BAR1"] == ("no", "no NVIDIA GPU on the PCI bus")
    assert found["libnvm module"][0] == "no"
    assert "not loaded: build it" in found["libnvm module"][1]
    assert f"headers of Linux {platform.release()}" in found["driver headers"][1]
    assert "nv-p2p.h" in found["driver headers"][1]
    assert "nr_hugepages" in found["huge pages"][1]
    state, detail = found["GPU-initiated IO"]
    assert state == "no"
    assert "missing: NVMe drives, GPU BAR1, libnvm module, driver headers;" in detail


def test_a_machine_with_everything(fake, monkeypatch):
    fake.add_function("0000:01:00.0", NVME, driver="libnvm helper")
    add_gpu(fake, 128 << 30)
    add_module(fake, monkeypatch)
    fake.write("proc/meminfo", "HugePages_Total: 64\nHugePages_Free: 32\nHugepagesize: 2048 kB")
    fake.write("src/nvidia-550.54/nvidia/nv-p2p.h", "")
    fake.write(f"modules/{platform.release()}/build/Makefile", "")
    found = examine(fake)
    assert {state for state, _ in found.values()} == {"ok"}
    assert found["NVMe drives"][1] == "0000:01:00.0: bound to libnvm, ready"
    assert found["GPU BAR1"][1] == "0000:41:00.0: 128 GiB"
    assert found["libnvm module"][1] == f"with GPU support: {fake.machine.dev}/libnvm0"
    assert found["huge pages"][1] == "64 MiB free"


def test_headers_are_not_missed_where_the_module_works(fake, monkeypatch):
    fake.add_function("0000:01:00.0", NVME, driver="libnvm helper")
    add_gpu(fake, 128 << 30)
    add_module(fake, monkeypatch)
    found = examine(fake)
    assert found["driver headers"][0] == "no"
    assert found["GPU-initiated IO"] == ("ok", "storage.engine=nvme storage.transport=libnvm")


def test_the_drive_that_can_be_spared_is_named(fake):
    fake.add_drive(0, bytes(1 << 20), partitions=1)
    fake.write("proc/self/mountinfo", "30 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw")
    spare = fake.add_drive(1, bytes(1 << 20))
    state, detail = examine(fake)["NVMe drives"]
    assert state == "no"
    assert "0000:01:00.0: bound to nvme" in detail
    assert "Fake 9000, nvme0n1p1 is mounted at /" in detail
    assert f"lsm data load-nvme STORE {spare}`" in detail
    assert "echo 0000:02:00.0 > /sys/bus/pci/devices/0000:02:00.0/driver/unbind" in detail


def test_no_drive_can_be_spared(fake):
    fake.add_drive(0, bytes(1 << 20), partitions=2)
    state, detail = examine(fake)["NVMe drives"]
    assert state == "no"
    assert "it is partitioned (nvme0n1p1, nvme0n1p2)" in detail
    assert "add a drive" in detail
    assert "load-nvme" not in detail


def test_an_unbound_drive_is_ready(fake):
    fake.add_drive(0, bytes(1 << 20), driver="")
    assert examine(fake)["NVMe drives"] == ("ok", "0000:01:00.0: unbound, ready")


@pytest.mark.parametrize(("kind", "state"), [("DMA-FQ", "no"), ("identity", "ok")])
def test_an_iommu_that_translates_is_in_the_way(fake, kind, state):
    fake.add_function("0000:01:00.0", NVME, group=kind)
    add_gpu(fake, 1 << 30, group=kind)
    found, detail = examine(fake)["IOMMU"]
    assert found == state
    if state == "no":
        assert f"0000:01:00.0 ({kind}), 0000:41:00.0 ({kind})" in detail
        assert "iommu=pt" in detail


def test_a_small_window_to_the_gpu_is_explained(fake):
    add_gpu(fake, 256 << 20)
    state, detail = examine(fake)["GPU BAR1"]
    assert state == "no"
    assert "0000:41:00.0: 256 MiB: too small" in detail
    assert "Above 4G Decoding" in detail


def test_what_is_wrong_with_the_module_is_said(fake, monkeypatch):
    fake.write("sys/module/libnvm/refcnt", "0")
    assert "bound to no controller" in examine(fake)["libnvm module"][1]
    add_module(fake, monkeypatch, "was built without GPU support")
    problem = f"{fake.machine.dev}/libnvm0: was built without GPU support"
    assert examine(fake)["libnvm module"] == ("no", problem)
