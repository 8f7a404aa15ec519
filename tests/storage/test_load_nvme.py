"""`lsm data load-nvme` writes the bytes that the engine will read, and touches no drive in use.

A drive is a file, described as the kernel would describe a block device."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lsm import native
from lsm.data.convert.npy import convert_npy
from lsm.data.graph_store import GraphStore
from lsm.storage.nvme.label import LABEL_BYTES, check_label
from lsm.storage.nvme.load import load_namespaces
from lsm.storage.nvme.machine import Machine, find_namespace, namespaces
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions
from support.command import lsm
from support.fake_machine import NETWORK, FakeMachine
from support.store_files import feature_bytes, random_graph, save_npy

DRIVE_BYTES = 1 << 20


@pytest.fixture
def store(tmp_path):
    """300 rows of 148 bytes, in one file."""
    arrays = save_npy(tmp_path / "arrays", random_graph())
    convert_npy(arrays, tmp_path / "store")
    return GraphStore.open(tmp_path / "store")


@pytest.fixture
def fake(tmp_path):
    return FakeMachine(tmp_path / "machine")


def noise(seed=0):
    return np.random.default_rng(seed).bytes(DRIVE_BYTES)


def yes(*_):
    return True


def load(store, devices, fake, confirm=yes):
    return load_namespaces(store, devices, confirm, machine=fake.machine, progress=False)


def dealt(data, count, stripe_bytes):
    """``data`` dealt round robin in pieces of ``stripe_bytes`` to ``count`` lists of bytes."""
    pieces = [data[i : i + stripe_bytes] for i in range(0, len(data), stripe_bytes)]
    return [b"".join(pieces[k::count]) for k in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("stripes", [1, 2])
def test_rows_lie_where_the_engine_looks_for_them(tmp_path, fake, count, stripes):
    arrays = save_npy(tmp_path / "arrays", random_graph(dim=61))
    convert_npy(arrays, tmp_path / "store", stripes=stripes)
    store = GraphStore.open(tmp_path / "store")
    devices = [fake.add_drive(k, noise(k), block_bytes=512 << 3 * (k % 2)) for k in range(count)]
    found = load(store, devices, fake)
    assert [namespace.functions for namespace in found] == [
        [f"0000:0{k + 1}:00.0"] for k in range(count)
    ]
    shares = dealt(feature_bytes(store.path), count, store.stripe_bytes)
    for k, device in enumerate(devices):
        content = device.read_bytes()
        assert content[: len(shares[k])] == shares[k]
        end = -(-len(shares[k]) // 4096) * 4096
        assert content[end:-LABEL_BYTES] == noise(k)[end:-LABEL_BYTES]
        check_label(content[-LABEL_BYTES:], store.feature_files, list(map(str, devices)), k)


def test_a_label_tells_other_features_and_another_order(tmp_path, store, fake):
    devices = [fake.add_drive(k, noise(k)) for k in range(2)]
    names = list(map(str, devices))
    load(store, devices, fake)
    labels = [device.read_bytes()[-LABEL_BYTES:] for device in devices]
    with pytest.raises(
        ValueError, match=r"nvme1n1: holds other features .* expected index 0, got 1"
    ):
        check_label(labels[1], store.feature_files, names[::-1], 0)
    with pytest.raises(ValueError, match="expected count 1, got 2"):
        check_label(labels[0], store.feature_files, names[:1], 0)
    with pytest.raises(ValueError, match="holds no features"):
        check_label(noise()[-LABEL_BYTES:], store.feature_files, names, 0)
    arrays = save_npy(tmp_path / "other", random_graph(seed=1))
    convert_npy(arrays, tmp_path / "other-store")
    other = GraphStore.open(tmp_path / "other-store")
    with pytest.raises(ValueError, match="expected features "):
        check_label(labels[0], other.feature_files, names, 0)


@pytest.mark.parametrize("block_bytes", [512, 4096])
def test_the_queue_code_reads_the_label(store, fake, block_bytes):
    device = fake.add_drive(0, noise())
    load(store, [device], fake)
    options = native.NvmeOptions()
    options.emulated.block_bytes = block_bytes
    assert native.read_last_page(options, str(device)) == device.read_bytes()[-LABEL_BYTES:]


def test_training_takes_only_devices_that_hold_its_features(store, fake, monkeypatch):
    devices = [str(fake.add_drive(k, noise(k))) for k in range(2)]
    options = StorageOptions(engine="nvme", transport="sysfs", devices=devices)
    read = lambda options, device: Path(device).read_bytes()[-LABEL_BYTES:]  # noqa: E731
    monkeypatch.setattr(native, "read_last_page", read)
    with pytest.raises(ValueError, match=r"nvme0n1: holds no features .*`lsm data load-nvme"):
        open_storage(store.feature_files, options)
    load(store, devices, fake)
    # Their labels are right, so the error is that these names are no PCI functions.
    with pytest.raises(ValueError, match="no PCI function at"):
        open_storage(store.feature_files, options)
    with pytest.raises(
        ValueError, match=r"storage.devices: expected .* 0000:01:00.0@2 .* got none"
    ):
        open_storage(store.feature_files, StorageOptions(engine="nvme", transport="sysfs"))


@pytest.mark.parametrize("transport", ["sysfs", "libnvm"])
def test_devices_that_are_not_there_are_named(store, transport):
    device = {"sysfs": "ffff:ff:1f.7", "libnvm": "/dev/libnvm99"}[transport]
    options = StorageOptions(engine="nvme", transport=transport, devices=[device])
    with pytest.raises((ValueError, OSError), match=device):
        open_storage(store.feature_files, options)
    options = StorageOptions(engine="nvme", transport=transport, devices=[f"{device}@0"])
    with pytest.raises(ValueError, match="expected DRIVE or DRIVE@NAMESPACE"):
        open_storage(store.feature_files, options)


def test_what_is_no_node_of_the_module_is_left_alone(store, tmp_path):
    """A file, whose registers would lie beyond its end, and a device of another driver."""
    file = tmp_path / "file"
    file.write_bytes(b"text")
    for node in (file, "/dev/null"):
        options = StorageOptions(engine="nvme", transport="libnvm", devices=[str(node)])
        with pytest.raises(OSError, match="is no device of the kernel module libnvm") as caught:
            open_storage(store.feature_files, options)
        assert caught.value.filename == str(node)
    assert file.read_bytes() == b"text"


def test_a_write_that_fails_leaves_no_label(store, fake, monkeypatch):
    device = fake.add_drive(0, noise())
    load(store, [device], fake)

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("lsm.data.sink.FileSink.write", fail)
    with pytest.raises(OSError, match="Input/output error"):
        load(store, [device], fake)
    with pytest.raises(ValueError, match="holds no features"):
        check_label(device.read_bytes()[-LABEL_BYTES:], store.feature_files, [str(device)], 0)


def test_a_device_that_holds_less_than_it_says_is_named(store, fake, monkeypatch, capsys):
    device = fake.add_drive(0, noise())
    monkeypatch.setattr("lsm.storage.nvme.load.Machine", lambda: fake.machine)

    def fill(*arguments):
        del arguments  # a traceback that refers to the buffer would keep it from being closed
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fill)
    assert lsm(monkeypatch, "data", "load-nvme", store.path, device, "--yes", device) == 1
    said = capsys.readouterr().err.strip()
    assert re.fullmatch(r"error: .*disk full: .* choose another: .*/nvme0n1", said), said
    with pytest.raises(ValueError, match="holds no features"):
        check_label(device.read_bytes()[-LABEL_BYTES:], store.feature_files, [str(device)], 0)


def test_a_store_that_cannot_be_read_is_named(store, fake, monkeypatch, capsys):
    device = fake.add_drive(0, noise())
    monkeypatch.setattr("lsm.storage.nvme.load.Machine", lambda: fake.machine)
    os.truncate(store.path / "features.bin", 4096)
    assert lsm(monkeypatch, "data", "load-nvme", store.path, device, "--yes", device) == 1
    said = capsys.readouterr().err.strip()
    assert re.fullmatch(r"error: .*features\.bin: truncated: .*", said), said
    assert device.read_bytes() == noise()


def mounted(fake, device):
    fake.write("proc/self/mountinfo", "30 1 259:0 / /data rw - ext4 /dev/nvme0n1 rw")


def mounted_under_another_number(fake, device):
    fake.write("proc/self/mountinfo", "30 1 0:44 / /data rw - btrfs /dev/nvme0n1 rw")


def swap(fake, device):
    fake.write("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme0n1 partition 8 0 -2")


def raid(fake, device):
    fake.write("sys/class/block/nvme0n1/holders/md0/dev", "9:0")


def partition_table(fake, device):
    device.write_bytes(bytes(510) + b"\x55\xaa" + bytes(DRIVE_BYTES - 512))


def gpt_of_large_blocks(fake, device):
    fake.write("sys/class/block/nvme0n1/queue/logical_block_size", "4096")
    device.write_bytes(bytes(4096) + b"EFI PART" + bytes(DRIVE_BYTES - 4104))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (mounted, "in use: nvme0n1 is mounted at /data"),
        (mounted_under_another_number, "in use: nvme0n1 is mounted at /data"),
        (swap, "in use: nvme0n1 is swap space"),
        (raid, "in use: nvme0n1 is part of md0"),
        (partition_table, "holds a partition table; it was left as it is"),
        (gpt_of_large_blocks, "holds a partition table; it was left as it is"),
    ],
)
def test_a_device_in_use_is_left_as_it_is(store, fake, use, message):
    free, device = fake.add_drive(1, noise(1)), fake.add_drive(0, noise())
    use(fake, device)
    before = device.read_bytes()
    with pytest.raises(ValueError, match=message):
        load(store, [free, device], fake)
    assert device.read_bytes() == before
    assert free.read_bytes() == noise(1)


def test_a_partitioned_device_and_a_partition_are_refused(store, fake):
    device = fake.add_drive(0, noise(), partitions=2)
    with pytest.raises(ValueError, match=r"it is partitioned \(nvme0n1p1, nvme0n1p2\)"):
        load(store, [device], fake)
    with pytest.raises(ValueError, match=r"got a partition of .*nvme0n1$"):
        load(store, [fake.machine.dev / "nvme0n1p1"], fake)
    fake.write("proc/self/mountinfo", "30 1 259:2 / /home rw - ext4 /dev/nvme0n1p2 rw")
    with pytest.raises(ValueError, match="nvme0n1p2 is mounted at /home"):
        load(store, [device], fake)
    assert device.read_bytes() == noise()


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (errno.EBUSY, ValueError, "in use: the kernel grants no exclusive access"),
        (errno.EACCES, PermissionError, "run as root"),
        (errno.EROFS, OSError, "write-protected: `blockdev --setrw`"),
    ],
)
def test_what_the_kernel_refuses_is_explained(store, fake, monkeypatch, code, kind, message):
    device = fake.add_drive(0, noise())
    really_open = os.open

    def refuse(path, flags, *rest, **named):
        if str(path) == str(device) and flags & os.O_EXCL:
            raise OSError(code, os.strerror(code), str(path))
        return really_open(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind, match=message):
        load(store, [device], fake)
    assert device.read_bytes() == noise()


@pytest.fixture
def block_device(tmp_path, fake):
    """A real block device, described as a namespace."""
    image = tmp_path / "image"
    image.write_bytes(noise())
    losetup = shutil.which("losetup") or "/usr/sbin/losetup"
    try:
        command = [losetup, "--find", "--show", str(image)]
        loop = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop device here (root and losetup are needed): {error}")
    try:
        node = fake.add_drive(0, noise())
        node.unlink()
        os.mknod(node, 0o600 | stat.S_IFBLK, os.stat(loop).st_rdev)
        yield node
    finally:
        subprocess.run([losetup, "--detach", loop], check=True)


def test_a_block_device_is_written_around_the_page_cache(store, fake, block_device):
    load(store, [block_device], fake)
    content = block_device.read_bytes()
    rows = feature_bytes(store.path)
    assert content[: len(rows)] == rows
    check_label(content[-LABEL_BYTES:], store.feature_files, [str(block_device)], 0)


def test_a_block_device_that_is_claimed_is_left_as_it_is(store, fake, block_device):
    claim = os.open(block_device, os.O_RDONLY | os.O_EXCL)  # as a mount would
    try:
        with pytest.raises(ValueError, match="in use: the kernel grants no exclusive access"):
            load(store, [block_device], fake)
    finally:
        os.close(claim)
    assert block_device.read_bytes() == noise()


def test_a_namespace_that_is_too_small_is_refused(store, fake):
    # 300 rows of 148 bytes and the label take 12 blocks of 4 KiB.
    small = fake.add_drive(0, noise()[: 11 * 4096 + 512])
    with pytest.raises(ValueError, match=r"too small: expected at least 48 KiB \(49152 bytes\)"):
        load(store, [small], fake)
    assert small.read_bytes() == noise()[: 11 * 4096 + 512]
    load(store, [fake.add_drive(1, noise()[: 12 * 4096])], fake)


def test_only_whole_nvme_namespaces_are_taken(store, fake):
    fake.add_function("0000:09:00.0", NETWORK)
    fake.write("sys/class/block/sda/size", "2048")
    (fake.machine.dev / "sda").write_bytes(noise())
    with pytest.raises(ValueError, match="expected an NVMe namespace, got another kind"):
        load(store, [fake.machine.dev / "sda"], fake)
    device = fake.add_drive(0, noise())
    with pytest.raises(FileNotFoundError, match=rf"no such block device; NVMe .* here: {device}"):
        load(store, [fake.machine.dev / "nvme7n1"], fake)
    with pytest.raises(ValueError, match="expected different ones"):
        load(store, [device, device], fake)


def test_a_drive_of_several_paths_names_all_its_functions(fake):
    device = fake.add_drive(0, noise())
    controller = fake.machine.sys / "devices/pci0000:00/0000:01:00.0/nvme/nvme0"
    subsystem = fake.machine.sys / "devices/virtual/nvme-subsystem/nvme-subsys0"
    subsystem.mkdir(parents=True)
    (subsystem / "nvme0").symlink_to(controller)
    link = fake.machine.sys / "class/block/nvme0n1/device"
    link.unlink()
    link.symlink_to(subsystem)
    (found,) = namespaces(fake.machine)
    assert found == find_namespace(device, fake.machine)
    assert (found.functions, found.model, found.serial) == (["0000:01:00.0"], "Fake 9000", "F0")
    assert (found.num_bytes, found.block_bytes, found.nsid) == (DRIVE_BYTES, 512, 1)


def run_command(monkeypatch, fake, *arguments, typed=""):
    """Exit code of `lsm data load-nvme` on the fake machine."""
    import io

    monkeypatch.setattr("lsm.storage.nvme.load.Machine", lambda: fake.machine)
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    return lsm(monkeypatch, "data", "load-nvme", *arguments)


def test_the_command_asks_for_the_name_of_the_device(store, fake, monkeypatch, capsys):
    device = fake.add_drive(0, noise())
    for typed in ("y\n", "nvme0n1\n", "\n", ""):
        assert run_command(monkeypatch, fake, store.path, device, typed=typed) != 0
        assert device.read_bytes() == noise()
    assert "Fake 9000, serial F0, 1 MiB; it holds data of another kind" in capsys.readouterr().out
    assert run_command(monkeypatch, fake, store.path, device, typed=f"{device}\n") == 0
    assert "loaded; in storage.devices (sysfs) it is 0000:01:00.0\n" in capsys.readouterr().out
    label = json.loads(device.read_bytes()[-LABEL_BYTES:].rstrip(b"\0"))
    assert label["store"] == store.name


def test_yes_stands_for_the_device_it_names_only(store, fake, monkeypatch):
    devices = [fake.add_drive(k, noise(k)) for k in range(2)]
    arguments = [store.path, *devices, "--yes", devices[0]]
    assert run_command(monkeypatch, fake, *arguments) != 0
    assert [device.read_bytes() for device in devices] == [noise(0), noise(1)]
    assert run_command(monkeypatch, fake, *arguments, "--yes", devices[1]) == 0


def test_a_real_machine_is_only_looked_at():
    for namespace in namespaces(Machine()):
        assert namespace.num_bytes > 0
