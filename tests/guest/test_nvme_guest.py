"""The queue code against QEMU's NVMe controller, which nobody here wrote.

One guest runs all checks of tests/guest/nvme_guest.cpp; each is a test here. `make test-nvme`
prepares the guest."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from support.qemu_guest import (
    BAD_WRITE,
    MODULE,
    boot,
    controller,
    damaged,
    missing,
    outcomes,
    read_only,
)

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(bool(missing()), reason=missing() or "QEMU is here"),
]

COMMON = (
    "identity",
    "metadata",
    "num_queues",
    "transfers",
    "offsets",
    "depths",
    "queues",
    "out_of_range",
    "engine_one_namespace",
    "engine_two_namespaces",
    "engine_two_drives",
    "engine_too_small",
    "engine_named_twice",
    "last_page",
    "partitions",
    "doorbells",
    "past_the_end",
    "read_only",
    "bad_medium",
)
SYSFS = (
    "bad_devices",
    "bound",
    "locked_pages",
    "exclusive",
    "start_after_kill",
    "kernel_takes_over",
    "kernel_takes_over_after_kill",
    "killed_writer",
    *COMMON,
)
LIBNVM = ("bound", "gpu_support", "nothing_left_mapped", *COMMON)
IMAGE_BYTES = 8 << 20
READ_ONLY = ("a1", "a2", "a3", "b1", "c3")
# As in tests/guest/transfer_checks.h.
PARTITIONS, FRAME_BYTES = 4, 131 * 4096
AFTER_BAD = 4 << 20


class Run:
    """A guest with three controllers that has run its checks. text: its output; before, after: the
    images of the namespaces."""

    def __init__(self, folder, transport, files=None):
        random = np.random.default_rng(6)
        names = ("a1", "a2", "a3", "b1", "c1", "c2", "c4")
        self.before = {name: random.bytes(IMAGE_BYTES) for name in names}
        self.before["c3"] = self.before["b1"]
        for name, content in self.before.items():
            (folder / name).write_bytes(content)
        of_a = [("a1", 512, 0), ("a2", 4096, 0), ("a3", 512, 8)]
        devices = controller("a", 4, *((folder / name, *blocks) for name, *blocks in of_a))
        devices += controller("b", 5, (folder / "b1", 512, 0))
        of_c = [("c1", 512, 0), ("c2", 4096, 0), ("c3", 512, 0, read_only), ("c4", 512, 0, damaged)]
        devices += controller("c", 6, *((folder / name, *blocks) for name, *blocks in of_c))
        images = {f"images/{name}": self.before[name] for name in ("a1", "a2", "a3", "b1")}
        self.text = boot(
            folder,
            devices=devices,
            command_line=f"guest={transport}",
            files={**images, **(files or {})},
        )
        self.after = {name: (folder / name).read_bytes() for name in self.before}

    def check(self, name):
        """Passes, skips or fails as the guest's check ``name`` did."""
        outcome = outcomes(self.text).get(name, "did not run")
        if outcome.startswith("skipped"):
            pytest.skip(outcome)
        assert outcome == "ok", self.text

    def check_complete(self, names):
        """Every check of the guest is a test, and those that read wrote to no namespace."""
        assert set(outcomes(self.text)) == set(names)
        assert digests(self.before, READ_ONLY) == digests(self.after, READ_ONLY)

    def check_written(self):
        """The namespaces hold the partitions that the guest wrote, and nothing else of it."""
        for name in ("c1", "c2"):
            assert self.after[name] == with_partitions(self.before[name], self.before["b1"])
        before, after = self.before["c4"], self.after["c4"]
        frame = self.before["b1"][:FRAME_BYTES]
        assert after[AFTER_BAD : AFTER_BAD + FRAME_BYTES] == frame
        kept = [(0, BAD_WRITE), (BAD_WRITE + FRAME_BYTES, AFTER_BAD), (AFTER_BAD + FRAME_BYTES, -1)]
        for first, end in [*kept, (BAD_WRITE, BAD_WRITE + 512)]:
            assert before[first:end] == after[first:end]


def with_partitions(image, source):
    """``image`` after training wrote version 0 of every partition to slot 0, and version 1 to
    slot 1: parts of ``source``."""
    written = bytearray(image)
    for number in range(2 * PARTITIONS):
        first = number * 131 % 1024 * 4096
        offset = number * FRAME_BYTES
        written[offset : offset + FRAME_BYTES] = source[first : first + FRAME_BYTES]
    return bytes(written)


def digests(images, names):
    return {name: hashlib.sha256(images[name]).hexdigest() for name in names}


@pytest.fixture(scope="module")
def sysfs(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("sysfs"), "sysfs")


@pytest.fixture(scope="module")
def libnvm(tmp_path_factory):
    if not MODULE.exists():
        pytest.skip("no kernel module: LIBNVM_KO=path/to/libnvm.ko make test-nvme")
    return Run(tmp_path_factory.mktemp("libnvm"), "libnvm", {"libnvm.ko": MODULE.read_bytes()})


@pytest.mark.parametrize("name", SYSFS)
def test_sysfs(sysfs, name):
    sysfs.check(name)


def test_sysfs_is_complete_and_reads_write_nothing(sysfs):
    sysfs.check_complete(SYSFS)


def test_partitions_written_over_sysfs_are_on_the_drive(sysfs):
    sysfs.check_written()


@pytest.mark.parametrize("name", LIBNVM)
def test_libnvm(libnvm, name):
    libnvm.check(name)


def test_libnvm_is_complete_and_reads_write_nothing(libnvm):
    libnvm.check_complete(LIBNVM)


def test_partitions_written_over_libnvm_are_on_the_drive(libnvm):
    libnvm.check_written()


def test_a_controller_behind_an_iommu_is_refused(tmp_path):
    (tmp_path / "a1").write_bytes(bytes(1 << 20))
    devices = ["-device", "intel-iommu", *controller("a", 4, (tmp_path / "a1", 512, 0))]
    text = boot(tmp_path, devices=devices, command_line="guest=iommu intel_iommu=on")
    assert outcomes(text) == {"iommu": "ok"}, text
