"""`lsm embed train` on a raw drive: Python itself in a guest, against QEMU's NVMe controller.

The guest runs tests/guest/embed_on_drive.py, whose checks are tests here. `make test-nvme` prepares
the guest."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import pytest

from support.python_guest import pack
from support.qemu_guest import boot, controller, damaged, missing, outcomes

PROGRAM = __file__.replace("test_embed_guest.py", "embed_on_drive.py")
CHECKS = ("other_data", "same_numbers", "resumes", "refused_flush", "learnt")
IMAGE_BYTES = 4 << 20
MEMORY_MIB = 3072


def reason() -> str:
    """Why this guest cannot be booted here; empty if it can."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    short = f"the guest takes {MEMORY_MIB} MiB, and {free} MiB of memory are free"
    return missing() or (short if free < MEMORY_MIB + 1024 else "")


pytestmark = [
    pytest.mark.qemu,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(reason()), reason=reason() or "QEMU is here"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Files of the three namespaces: empty, with other data, and one that cannot be flushed."""
    folder = tmp_path_factory.mktemp("images")
    contents = [bytes(IMAGE_BYTES), np.random.default_rng(8).bytes(IMAGE_BYTES), bytes(IMAGE_BYTES)]
    for name, content in zip(("d1", "d2", "d3"), contents, strict=True):
        (folder / name).write_bytes(content)
    return [folder / name for name in ("d1", "d2", "d3")]


@pytest.fixture(scope="module")
def text(images, tmp_path_factory):
    """The output of the guest."""
    folder = tmp_path_factory.mktemp("embed")
    drive = folder / "drive"
    for name, image in zip(("drive", "drive@2", "drive@3"), images, strict=True):
        (folder / name).write_bytes(image.read_bytes())
    (folder / "here").mkdir()
    archive = folder / "python.cpio"
    there = ["sysfs", "0000:00:04.0", "/tmp"]
    pack(archive, PROGRAM, ["emulated", str(drive), str(folder / "here")], there)
    media = [(images[0], 512, 0), (images[1], 4096, 0), (images[2], 512, 0, damaged)]
    yield boot(
        folder,
        devices=controller("d", 4, *media),
        command_line="guest=command",
        archive=archive,
        memory_mib=MEMORY_MIB,
        timeout_secs=1500,
    )
    for path in (archive, folder / "initramfs.cpio"):
        path.unlink()


@pytest.mark.parametrize("name", CHECKS)
def test_training_on_a_drive(text, name):
    assert outcomes(text).get(name) == "ok", text


def test_the_drive_holds_what_was_learnt(text, images):
    line = next(line for line in text.splitlines() if line.startswith("learnt "))
    found = json.loads(line.removeprefix("learnt "))
    content = images[0].read_bytes()
    rows = b"".join(content[first : first + size] for first, size in found["parts"])
    assert hashlib.sha256(rows).hexdigest() == found["sha256"]
    assert b'"kind": "lsm-gnn partitions"' in content[-4096:]


def test_a_refused_drive_was_not_written_to(text, images):
    assert outcomes(text)["other_data"] == "ok"
    assert images[1].read_bytes() == np.random.default_rng(8).bytes(IMAGE_BYTES)
