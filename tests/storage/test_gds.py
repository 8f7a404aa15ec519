"""The engine gds, with a cuFile that reads into host memory: rows, batches, and errors.

The stand-in reads the structures of cufile.h through ctypes, declared here as the header has them.
"""

import ctypes
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsm.data.feature_files import FeatureFiles
from lsm.storage import gds
from lsm.storage.engine import Storage
from lsm.storage.gds import GdsStorage
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions

NUM_ROWS, ROW_BYTES, STRIPE = 40, 3000, 4096
COMPLETE, CANCELED, FAILED = 16, 8, 64


class Batch(ctypes.Structure):
    _fields_ = (
        ("devPtr_base", ctypes.c_void_p),
        ("file_offset", ctypes.c_long),
        ("devPtr_offset", ctypes.c_long),
        ("size", ctypes.c_size_t),
    )


class Params(ctypes.Structure):
    _fields_ = (
        ("mode", ctypes.c_int),
        ("batch", Batch),
        ("fh", ctypes.c_void_p),
        ("opcode", ctypes.c_int),
        ("cookie", ctypes.c_void_p),
    )


class Events(ctypes.Structure):
    _fields_ = (("cookie", ctypes.c_void_p), ("status", ctypes.c_int), ("ret", ctypes.c_ssize_t))


class Handle(ctypes.Union):
    _fields_ = (("fd", ctypes.c_int), ("handle", ctypes.c_void_p))


class Descr(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("handle", Handle), ("fs_ops", ctypes.c_void_p))


class Timespec(ctypes.Structure):
    _fields_ = (("secs", ctypes.c_long), ("nanosecs", ctypes.c_long))


class FakeCuFile:
    """The used part of cuda.bindings.cufile. Reads happen when their status is polled. ``broken``
    maps an offset to (status, ret), or to None: the read does not end. ``cancels``: True if such a
    read ends when it is cancelled."""

    class cuFileError(Exception):
        pass

    def __init__(self):
        self.version, self.max_batch = 2, 16
        self.broken, self.cancels = {}, True
        self.opened, self.files, self.batches, self.next_batch = 0, {}, {}, 1
        self.submitted = []  # the (offset, size) of each batch
        self.running = self.most_running = 0
        self.lock = threading.Lock()

    def use_count(self):
        return self.opened

    def driver_open(self):
        self.opened += 1

    def driver_get_properties(self, address):
        words = (ctypes.c_uint * 14).from_address(address)
        words[0], words[12] = self.version, self.max_batch

    def handle_register(self, address):
        description = Descr.from_address(address)
        assert description.type == 1
        handle = len(self.files) - 2**63  # an address, which the bindings take for a signed number
        self.files[handle] = description.handle.fd
        return handle

    def handle_deregister(self, handle):
        del self.files[handle]

    def batch_io_set_up(self, count):
        if count > self.max_batch:
            raise self.cuFileError("CU_FILE_BATCH_SIZE")
        with self.lock:
            self.batches[self.next_batch] = None
            self.next_batch += 1
            return self.next_batch - 1

    def batch_io_submit(self, batch, count, address, flags):
        assert flags == 0
        params = (Params * count).from_address(address)
        reads = []
        for p in params:
            assert (p.mode, p.opcode) == (1, 0)
            to = p.batch.devPtr_base + (p.batch.devPtr_offset or 0)
            handle = ctypes.c_int64(p.fh).value
            reads.append((p.cookie or 0, handle, p.batch.file_offset, p.batch.size, to))
        with self.lock:
            self.batches[batch] = reads
            self.submitted.append([(offset, size) for _, _, offset, size, _ in reads])
            self.running += count
            self.most_running = max(self.most_running, self.running)

    def batch_io_get_status(self, batch, min_count, count_address, address, timeout_address):
        limit = Timespec.from_address(timeout_address)
        count = ctypes.c_uint.from_address(count_address)
        assert 0 < min_count <= count.value
        time.sleep(0.002)
        left, ended = [], 0
        for read in self.batches[batch]:
            result = self.result(*read)
            if result is None:
                left.append(read)
                continue
            event = Events.from_address(address + ended * ctypes.sizeof(Events))
            event.cookie, (event.status, event.ret) = read[0], result
            ended += 1
        with self.lock:
            self.batches[batch] = left
            self.running -= ended
        count.value = ended
        if ended < min_count:
            time.sleep(limit.secs + limit.nanosecs * 1e-9)

    def result(self, _cookie, file, offset, size, to):
        if offset in self.broken:
            return self.broken[offset]
        data = os.pread(self.files[file], size, offset)
        ctypes.memmove(to, data, len(data))
        return COMPLETE, len(data)

    def batch_io_cancel(self, batch):
        if self.cancels:
            for _, _, offset, _, _ in self.batches[batch]:
                self.broken[offset] = CANCELED, 0

    def batch_io_destroy(self, batch):
        assert not self.batches.pop(batch)


class OnGpu(torch.Tensor):
    """Host memory that says it is a GPU's."""

    is_cuda = True


@pytest.fixture
def fake(monkeypatch):
    module = FakeCuFile()
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(cufile=module))
    return module


def make_files(directory, num_files):
    """Rows dealt to the files page by page, as a store's are, and the rows."""
    rows = np.random.default_rng(0).integers(0, 256, (NUM_ROWS, ROW_BYTES), dtype=np.uint8)
    flat = np.concatenate([rows.ravel(), np.zeros(-rows.size % STRIPE, np.uint8)])
    pages = flat.reshape(-1, STRIPE)
    paths = [directory / f"features.{i}.bin" for i in range(num_files)]
    for i, path in enumerate(paths):
        path.write_bytes(pages[i::num_files].tobytes())
    return rows, paths


def open_gds(paths, timeout_secs=20.0, **options):
    return GdsStorage(
        paths,
        num_rows=NUM_ROWS,
        row_bytes=ROW_BYTES,
        stripe_bytes=STRIPE,
        # Off: the stand-in reads with pread, which O_DIRECT holds to aligned memory.
        options=StorageOptions(timeout_secs=timeout_secs, direct="off", **options),
    )


def gpu_rows(num_rows):
    return torch.zeros(num_rows, ROW_BYTES, dtype=torch.uint8).as_subclass(OnGpu)


@pytest.mark.parametrize("num_files", [1, 3])
def test_rows(tmp_path, fake, num_files):
    rows, paths = make_files(tmp_path, num_files)
    ids, positions = torch.tensor([7, 39, 0, 7]), torch.tensor([4, 0, 2, 1])
    with open_gds(paths) as storage:
        assert storage.engine == "gds"
        for target in (torch.zeros(5, ROW_BYTES, dtype=torch.uint8), gpu_rows(5)):
            ticket = storage.submit(ids, target, positions)
            assert ticket.wait() is target
            assert ticket.done
            for node, place in zip(ids.tolist(), positions.tolist(), strict=True):
                assert np.array_equal(target[place].as_subclass(torch.Tensor), rows[node])
            assert not target[3].any()
        assert storage.submit(torch.tensor([], dtype=torch.int64), gpu_rows(0)).wait().numel() == 0
        with pytest.raises(ValueError, match=r"ids: expected ids in \[0, 40\)"):
            storage.submit(torch.tensor([40]), gpu_rows(1))
        with pytest.raises(ValueError, match=r"positions: expected ids in \[0, 5\), got 5"):
            storage.submit(torch.tensor([1]), gpu_rows(5), torch.tensor([5]))
        with pytest.raises(ValueError, match="positions: expected 2, one per id, got 1"):
            storage.submit(torch.tensor([1, 2]), gpu_rows(5), torch.tensor([3]))
    assert not fake.files
    assert not fake.batches


def test_a_request_is_one_call(tmp_path, fake):
    """As long as a batch takes its reads; else it is as few as there can be."""
    rows, paths = make_files(tmp_path, 1)
    with open_gds(paths) as storage:
        ids = torch.arange(0, 32, 2)  # no neighbours
        out = gpu_rows(16)
        storage.submit(ids, out).wait()
        assert [len(batch) for batch in fake.submitted] == [16]
        assert np.array_equal(out.as_subclass(torch.Tensor), rows[ids])
        storage.submit(torch.arange(0, 40, 2), gpu_rows(20)).wait()
        assert sorted(len(batch) for batch in fake.submitted) == [4, 16, 16]
    fake.submitted.clear()
    with open_gds(paths, queue_depth=5) as storage:
        storage.submit(ids, gpu_rows(16)).wait()
    assert sorted(len(batch) for batch in fake.submitted) == [1, 5, 5, 5]


def test_neighbours_are_one_read(tmp_path, fake):
    """In the file and in the output; a gap in either begins another read."""
    rows, paths = make_files(tmp_path, 1)
    ids, positions = torch.tensor([3, 4, 5, 7, 8, 2]), torch.tensor([1, 2, 3, 4, 6, 0])
    with open_gds(paths) as storage:
        out = gpu_rows(7)
        storage.submit(ids, out, positions).wait()
    sizes = [(offset // ROW_BYTES, size // ROW_BYTES) for offset, size in fake.submitted[0]]
    assert sizes == [(2, 4), (7, 1), (8, 1)]
    for node, place in zip(ids.tolist(), positions.tolist(), strict=True):
        assert np.array_equal(out[place].as_subclass(torch.Tensor), rows[node])


@pytest.fixture(scope="module")
def empty_files(tmp_path_factory):
    paths = [tmp_path_factory.mktemp("empty") / f"features.{i}.bin" for i in range(3)]
    for path in paths:
        path.touch()
        os.truncate(path, 1 << 20)
    return paths


@given(
    st.lists(st.integers(0, 30), max_size=20),
    st.sampled_from([100, 512, 3000, 4096, 9000, 30_000]),
    st.integers(1, 3),
    st.sampled_from([8192, 20_480, 32_768]),
    st.randoms(use_true_random=False),
)
def test_planned_reads(empty_files, ids, row_bytes, num_files, max_read_bytes, random):
    """Every byte of every row comes from its place, none twice, and no read is too long."""
    num_places = len(ids) + 3
    places = np.array(random.sample(range(num_places), len(ids)), dtype=np.int64)
    with Storage(
        empty_files[:num_files],
        num_rows=31,
        row_bytes=row_bytes,
        stripe_bytes=STRIPE,
        engine="posix",
        options=StorageOptions(direct="off"),
    ) as storage:
        reads = storage.handle().contiguous_reads(
            np.array(ids, dtype=np.int64), places, num_places * row_bytes, max_read_bytes
        )
    source = np.full(num_places * row_bytes, -1)  # the byte of the striped rows at each place
    for file, offset, length, begin in reads.T:
        assert length <= max_read_bytes
        at = offset + np.arange(length)
        assert (source[begin : begin + length] == -1).all()
        source[begin : begin + length] = (at // STRIPE * num_files + file) * STRIPE + at % STRIPE
    expected = np.full((num_places, row_bytes), -1)
    for node, place in zip(ids, places, strict=True):
        expected[place] = node * row_bytes + np.arange(row_bytes)
    np.testing.assert_array_equal(source, expected.ravel())
    assert reads[:2].T.tolist() == sorted(reads[:2].T.tolist())


def test_compatibility_mode(tmp_path, fake, caplog):
    """It warns, and holds few bounce buffers."""
    rows, paths = make_files(tmp_path, 1)
    open_gds(paths).close()
    assert not caplog.records
    fake.version, fake.max_batch = 0, 128
    ids = torch.arange(40).flip(0)
    with open_gds(paths) as storage:
        assert "compatibility mode" in caplog.text
        outs = [gpu_rows(40) for _ in range(4)]
        for ticket in [storage.submit(ids, out) for out in outs]:
            ticket.wait()
    assert all(np.array_equal(out.as_subclass(torch.Tensor), rows[ids]) for out in outs)
    assert fake.most_running <= gds.NUM_BATCHES * gds.COMPATIBLE_BATCH


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((FAILED, -5), r"features\.0\.bin: reading 3000 bytes at 6000: failed, .* -5"),
        ((COMPLETE, 10), "expected 3000 bytes at 6000, got 10; the file is truncated"),
    ],
)
def test_reads_that_fail(tmp_path, fake, result, message):
    rows, paths = make_files(tmp_path, 1)
    fake.broken[6000] = result
    with open_gds(paths) as storage:
        with pytest.raises(OSError, match=message):
            storage.submit(torch.tensor([9, 2, 5]), gpu_rows(3)).wait()
        out = gpu_rows(1)
        storage.submit(torch.tensor([9]), out).wait()
        assert np.array_equal(out[0].as_subclass(torch.Tensor), rows[9])
    assert not fake.batches


def test_a_batch_that_is_not_taken(tmp_path, fake, monkeypatch):
    _, paths = make_files(tmp_path, 1)

    def refuse(*_):
        raise fake.cuFileError("CU_FILE_IO_NOT_SUPPORTED")

    monkeypatch.setattr(fake, "batch_io_submit", refuse)
    with open_gds(paths) as storage, pytest.raises(OSError, match="batch of 1 reads: CU_FILE_IO"):
        storage.submit(torch.tensor([2]), gpu_rows(1)).wait()
    monkeypatch.setattr(fake, "handle_register", refuse)
    with pytest.raises(RuntimeError, match=r"features\.0\.bin: cuFile does not take the file"):
        open_gds(paths)


@pytest.mark.parametrize("cancels", [True, False])
def test_a_read_that_does_not_end(tmp_path, fake, cancels):
    _, paths = make_files(tmp_path, 1)
    fake.broken[6000], fake.cancels = None, cancels
    with open_gds(paths, timeout_secs=0.2) as storage:
        ticket = storage.submit(torch.tensor([2, 4]), gpu_rows(2))
        with pytest.raises(TimeoutError, match=r"1 of 1 batches of reads did not end in 0\.05 s"):
            ticket.wait(0.05)
        message = r"1 of 2 reads of a batch did not end in 0\.2 s" + ("$" if cancels else ", nor")
        with pytest.raises(TimeoutError, match=message):
            ticket.wait(20)
    # What cuFile may still write to is not freed, nor what it reads from closed.
    assert (len(storage._kept), len(fake.batches), len(fake.files)) == (
        (0, 0, 0) if cancels else (1, 1, 1)
    )


def test_close_ends_requests_that_wait(tmp_path, fake, monkeypatch):
    _, paths = make_files(tmp_path, 1)
    monkeypatch.setattr(gds, "NUM_BATCHES", 1)
    fake.broken[0] = None
    storage = open_gds(paths, timeout_secs=0.2)
    tickets = [storage.submit(torch.tensor([0]), gpu_rows(1)) for _ in range(2)]
    storage.close()
    with pytest.raises(RuntimeError, match="storage engine was closed"):
        tickets[1].wait(20)
    with pytest.raises(RuntimeError, match="storage engine is closed"):
        storage.submit(torch.tensor([0]), gpu_rows(1))
    storage.close()


def test_without_cufile(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda", None)
    _, paths = make_files(tmp_path, 1)
    files = FeatureFiles(tuple(paths), NUM_ROWS, ROW_BYTES, torch.uint8, STRIPE)
    with pytest.raises(RuntimeError, match=r"cuFile cannot be used .* pip install"):
        open_storage(files, StorageOptions(engine="gds"))


@pytest.mark.slow
def test_other_engines_do_not_load_cufile():
    """Nor any binding of CUDA."""
    code = (
        "import sys, lsm.storage.engine, lsm.storage.gds; sys.exit('cuda.bindings' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
