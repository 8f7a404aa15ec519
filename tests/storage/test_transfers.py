"""Long transfers: bytes arrive, faults are told, nothing hangs."""

import errno
import mmap
import os

import numpy as np
import pytest
import torch

from lsm import native
from lsm.storage.engine import nvme_options
from lsm.storage.options import StorageOptions
from lsm.storage.transfers import TransferOptions, Transfers
from support.engines import QUEUED_ENGINES

PAGE = 4096
ENGINES = (*QUEUED_ENGINES, "nvme")
pytestmark = pytest.mark.parametrize("engine", ENGINES)


def aligned(num_bytes):
    return torch.frombuffer(mmap.mmap(-1, num_bytes), dtype=torch.uint8)


def random_block(seed, num_bytes):
    block = aligned(num_bytes)
    block.numpy()[:] = np.random.default_rng(seed).integers(256, size=num_bytes, dtype=np.uint8)
    return block


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "partitions.bin"
    path.write_bytes(bytes(64 * PAGE))
    return path


def opened(path, engine, **options):
    options = {"chunk_bytes": 2 * PAGE, "queue_depth": 3, "timeout_secs": 60.0} | options
    return Transfers(path, TransferOptions(engine=engine, **options))


@pytest.mark.parametrize("pages", [1, 5, 6, 13])
def test_a_block_is_written_where_it_should_be(engine, file, pages):
    block = random_block(0, pages * PAGE)
    with opened(file, engine) as transfers:
        transfers.swap(block, write_to=3 * PAGE)
        transfers.sync()
        assert transfers.stats()["bytes_written"] == pages * PAGE
    content = file.read_bytes()
    assert content[3 * PAGE : (3 + pages) * PAGE] == block.numpy().tobytes()
    assert not any(content[: 3 * PAGE])
    assert not any(content[(3 + pages) * PAGE :])


@pytest.mark.parametrize("chunk_pages", [1, 3, 64])
def test_a_swap_writes_the_old_and_reads_the_new(engine, file, chunk_pages):
    old, new = random_block(1, 9 * PAGE), random_block(2, 9 * PAGE)
    content = bytearray(64 * PAGE)
    content[32 * PAGE : 41 * PAGE] = new.numpy().tobytes()
    file.write_bytes(content)
    memory = aligned(9 * PAGE).copy_(old)
    with opened(file, engine, chunk_bytes=chunk_pages * PAGE) as transfers:
        written, read = transfers.swap(memory, write_to=PAGE, read_from=32 * PAGE)
        again, _ = transfers.swap(memory, write_to=20 * PAGE)
    assert memory.equal(new)
    assert file.read_bytes()[PAGE : 10 * PAGE] == old.numpy().tobytes()
    assert read == again != written


def test_a_block_may_be_read_from_where_it_is_written(engine, file):
    block = random_block(3, 8 * PAGE)
    before = block.clone()
    with opened(file, engine) as transfers:
        written, read = transfers.swap(block, write_to=0, read_from=0)
    assert written == read
    assert block.equal(before)


def test_any_change_changes_the_checksum(engine, file):
    block = random_block(4, 4 * PAGE)
    with opened(file, engine) as transfers:
        sums = {transfers.swap(block, write_to=0)[0]}
        for change in range(64):
            copy = aligned(4 * PAGE).copy_(block)
            copy[(change * 997) % len(copy)] ^= 1 << change % 8
            sums.add(transfers.swap(copy, write_to=0)[0])
        swapped = aligned(4 * PAGE).copy_(block.view(4, PAGE)[[1, 0, 2, 3]].reshape(-1))
        sums.add(transfers.swap(swapped, write_to=0)[0])
    assert len(sums) == 66


@pytest.mark.parametrize("nth", [0, 1, 3])
def test_short_transfers_continue(engine, file, nth):
    old, new = random_block(5, 8 * PAGE), random_block(6, 8 * PAGE)
    with opened(file, engine) as transfers:
        transfers.swap(new, write_to=32 * PAGE)
        memory = aligned(8 * PAGE).copy_(old)
        transfers.inject_fault(native.Fault.short, nth, PAGE + 512)
        transfers.swap(memory, write_to=0, read_from=32 * PAGE)
        assert transfers.stats()["short_transfers"] == 1
    assert memory.equal(new)
    assert file.read_bytes()[: 8 * PAGE] == old.numpy().tobytes()


def test_a_file_cut_within_a_block_is_an_error(engine, file):
    if engine == "nvme":
        pytest.skip("a drive has no end within a block")
    with opened(file, engine, timeout_secs=20) as transfers:
        os.truncate(file, PAGE + 100)
        with pytest.raises(OSError, match=r"less than a block was transferred, twice|nothing was"):
            transfers.swap(aligned(4 * PAGE), read_from=0)


def test_an_error_of_the_disk_is_raised_and_the_engine_goes_on(engine, file):
    block = random_block(7, 8 * PAGE)
    with opened(file, engine) as transfers:
        transfers.inject_fault(native.Fault.error, 2, errno.EIO)
        with pytest.raises(OSError, match="write of 8192 bytes at offset") as caught:
            transfers.swap(block, write_to=0)
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(file))
        transfers.swap(block, write_to=0)
    assert file.read_bytes()[: 8 * PAGE] == block.numpy().tobytes()


def test_a_lost_transfer_ends_in_a_timeout(engine, file):
    block = random_block(8, 8 * PAGE)
    with opened(file, engine, timeout_secs=0.3) as transfers:
        transfers.inject_fault(native.Fault.stall, 1)
        with pytest.raises(TimeoutError, match=r"32768 bytes were not moved in 0.3 s"):
            transfers.swap(block, read_from=0)
        with pytest.raises(RuntimeError, match="failed before"):
            transfers.swap(block, read_from=0)


def test_a_read_past_the_end_is_an_error(engine, file):
    why = "LBA" if engine == "nvme" else "nothing was transferred"
    with opened(file, engine) as transfers, pytest.raises(OSError, match=why):
        transfers.swap(aligned(4 * PAGE), read_from=62 * PAGE)


def test_a_full_disk_is_an_error(engine, disk):
    path = disk / "partitions.bin"
    path.touch()
    os.truncate(path, 64 << 20)
    with opened(path, engine) as transfers, pytest.raises(OSError, match="write of") as caught:
        transfers.swap(aligned(16 << 20), write_to=0)
    assert caught.value.errno == (errno.EIO if engine == "nvme" else errno.ENOSPC)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"write_to": 100}, "multiples of 4096"),
        ({"read_from": -4096}, "multiples of 4096"),
        ({}, "an offset to write or to read"),
    ],
)
def test_unaligned_arguments_are_refused(engine, file, changes, message):
    with opened(file, engine) as transfers, pytest.raises(ValueError, match=message):
        transfers.swap(aligned(PAGE), **changes)


def test_chunks_are_whole_blocks(engine, file):
    with pytest.raises(ValueError, match=r"storage.chunk_bytes: expected a multiple of 4KiB"):
        opened(file, engine, chunk_bytes=5000)


@pytest.mark.parametrize("faults", [{"reorder": True}, {"delay_rate": 0.2, "delay_secs": 0.01}])
def test_a_drive_may_answer_late_and_in_any_order(engine, file, faults):
    if engine != "nvme":
        pytest.skip("faults of an emulated controller")
    old, new = random_block(9, 24 * PAGE), random_block(10, 24 * PAGE)
    options = TransferOptions(engine="nvme", chunk_bytes=PAGE, queue_depth=7, timeout_secs=60.0)
    nvme = nvme_options(StorageOptions(emulation=faults))
    with Transfers(file, options, nvme) as transfers:
        transfers.swap(aligned(24 * PAGE).copy_(new), write_to=30 * PAGE)
        memory = aligned(24 * PAGE).copy_(old)
        transfers.swap(memory, write_to=0, read_from=30 * PAGE)
        transfers.sync()
    assert memory.equal(new)
    assert file.read_bytes()[: 24 * PAGE] == old.numpy().tobytes()


def test_an_error_of_the_drive_is_raised_with_its_status(engine, file):
    if engine != "nvme":
        pytest.skip("faults of an emulated controller")
    nvme = nvme_options(StorageOptions(emulation={"error_rate": 1.0}))
    options = TransferOptions(engine="nvme", timeout_secs=60.0)
    with Transfers(file, options, nvme) as transfers:
        with pytest.raises(OSError, match=r"write of 4096 bytes at offset 0: \w+") as caught:
            transfers.swap(aligned(PAGE), write_to=0)
        assert caught.value.errno == errno.EIO
        with pytest.raises(OSError, match="flush: "):
            transfers.sync()
