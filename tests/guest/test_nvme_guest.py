"""The queue code against QEMU's NVMe controller, which nobody here wrote.

One guest runs all checks of tests/guest/nvme_guest.cpp; each is a test here. `make test-nvme`
prepares the guest."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from support.qemu_guest import MODULE, boot, missing, outcomes

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
)
SYSFS = (
    "bad_devices",
    "bound",
    "locked_pages",
    "exclusive",
    "start_after_kill",
    "kernel_takes_over",
    "kernel_takes_over_after_kill",
    *COMMON,
)
LIBNVM = ("bound", "gpu_support", "nothing_left_mapped", *COMMON)
IMAGE_BYTES = 8 << 20


def controller(name, address, *namespaces):
    """Arguments for an NVMe controller with ``namespaces``: (image, bytes per block, bytes of
    metadata per block) each."""
    arguments = [
        "-device",
        f"nvme,id={name},serial=lsm-{name},addr={address},max_ioqpairs=16,mdts=10",
    ]
    for number, (image, block_bytes, metadata_bytes) in enumerate(namespaces, 1):
        drive = f"{name}{number}"
        arguments += ["-drive", f"file={image},id={drive},if=none,format=raw"]
        blocks = f"logical_block_size={block_bytes},physical_block_size={block_bytes}"
        blocks += f",ms={metadata_bytes}"
        arguments += ["-device", f"nvme-ns,drive={drive},bus={name},nsid={number},{blocks}"]
    return arguments


class Run:
    """A guest with two controllers that has run its checks. text: its output; before, after: the
    images of the namespaces."""

    def __init__(self, folder, transport, files=None):
        random = np.random.default_rng(6)
        self.before = {name: random.bytes(IMAGE_BYTES) for name in ("a1", "a2", "a3", "b1")}
        for name, content in self.before.items():
            (folder / name).write_bytes(content)
        of_a = [("a1", 512, 0), ("a2", 4096, 0), ("a3", 512, 8)]
        devices = controller("a", 4, *((folder / name, *blocks) for name, *blocks in of_a))
        devices += controller("b", 5, (folder / "b1", 512, 0))
        images = {f"images/{name}": content for name, content in self.before.items()}
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
        """Every check of the guest is a test, and none wrote to a namespace."""
        assert set(outcomes(self.text)) == set(names)
        assert digests(self.before) == digests(self.after)


def digests(images):
    return {name: hashlib.sha256(content).hexdigest() for name, content in images.items()}


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


def test_sysfs_is_complete_and_wrote_nothing(sysfs):
    sysfs.check_complete(SYSFS)


@pytest.mark.parametrize("name", LIBNVM)
def test_libnvm(libnvm, name):
    libnvm.check(name)


def test_libnvm_is_complete_and_wrote_nothing(libnvm):
    libnvm.check_complete(LIBNVM)


def test_a_controller_behind_an_iommu_is_refused(tmp_path):
    (tmp_path / "a1").write_bytes(bytes(1 << 20))
    devices = ["-device", "intel-iommu", *controller("a", 4, (tmp_path / "a1", 512, 0))]
    text = boot(tmp_path, devices=devices, command_line="guest=iommu intel_iommu=on")
    assert outcomes(text) == {"iommu": "ok"}, text
