"""The engine gds, with a kvikio that reads into host memory: the bytes it asks for, and errors."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lsm.storage.engine import StorageOptions, open_storage
from lsm.storage.gds import GdsStorage

NUM_ROWS, ROW_BYTES, STRIPE = 40, 3000, 4096


class Future:
    def __init__(self, result):
        self.result = result

    def done(self):
        return self.result is not None

    def get(self):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class FakeFile:
    """Reads at once; ``broken`` maps an offset to what its future gives."""

    broken = {}  # noqa: RUF012
    reads = []  # noqa: RUF012

    def __init__(self, path, mode):
        assert mode == "r"
        self.content = np.fromfile(path, np.uint8)

    def pread(self, buffer, size, file_offset):
        self.reads.append((file_offset, size))
        if file_offset in self.broken:
            return Future(self.broken[file_offset])
        part = self.content[file_offset : file_offset + size]
        buffer[: len(part)] = torch.from_numpy(part)
        return Future(len(part))

    def close(self):
        pass


class Defaults:
    """kvikio.defaults, as of 25.04."""

    def __init__(self, is_compatible=False):
        self.values = {"gds_threshold": 1 << 20, "num_threads": 1}
        self.is_compatible = is_compatible

    def set(self, name, value):
        assert name in self.values
        self.values[name] = value

    def is_compat_mode_preferred(self):
        return self.is_compatible


class OnGpu(torch.Tensor):
    """Host memory that says it is a GPU's."""

    is_cuda = True


@pytest.fixture
def fake(monkeypatch):
    for name in ("KVIKIO_GDS_THRESHOLD", "KVIKIO_NTHREADS"):
        monkeypatch.delenv(name, raising=False)
    module = SimpleNamespace(CuFile=FakeFile, defaults=Defaults())
    monkeypatch.setitem(sys.modules, "kvikio", module)
    monkeypatch.setattr(FakeFile, "broken", {})
    monkeypatch.setattr(FakeFile, "reads", [])
    return FakeFile


def make_files(directory, num_files):
    """Rows dealt to the files page by page, as a store's are, and the rows."""
    rows = np.random.default_rng(0).integers(0, 256, (NUM_ROWS, ROW_BYTES), dtype=np.uint8)
    flat = np.concatenate([rows.ravel(), np.zeros(-rows.size % STRIPE, np.uint8)])
    pages = flat.reshape(-1, STRIPE)
    paths = [directory / f"features.{i}.bin" for i in range(num_files)]
    for i, path in enumerate(paths):
        path.write_bytes(pages[i::num_files].tobytes())
    return rows, paths


def open_gds(paths, timeout_secs=20.0):
    return GdsStorage(
        paths,
        num_rows=NUM_ROWS,
        row_bytes=ROW_BYTES,
        stripe_bytes=STRIPE,
        options=StorageOptions(timeout_secs=timeout_secs),
    )


@pytest.mark.parametrize("num_files", [1, 3])
def test_rows(tmp_path, fake, num_files):
    rows, paths = make_files(tmp_path, num_files)
    ids, positions = torch.tensor([7, 39, 0, 7]), torch.tensor([4, 0, 2, 1])
    with open_gds(paths) as storage:
        assert storage.engine == "gds"
        host = torch.zeros(5, ROW_BYTES, dtype=torch.uint8)
        out = torch.zeros(5, ROW_BYTES, dtype=torch.uint8).as_subclass(OnGpu)
        for target in (host, out):
            storage.submit(ids, target, positions).wait()
            for node, place in zip(ids.tolist(), positions.tolist(), strict=True):
                assert np.array_equal(target[place].as_subclass(torch.Tensor), rows[node])
            assert not target[3].any()
        with pytest.raises(ValueError, match=r"ids: expected ids in \[0, 40\)"):
            storage.submit(torch.tensor([40]), out)
        with pytest.raises(ValueError, match="positions: expected rows of the 5"):
            storage.submit(torch.tensor([1]), out, torch.tensor([5]))


def test_neighbours_are_one_read(tmp_path, fake):
    """In the file and in the output; a gap in either begins another read."""
    rows, paths = make_files(tmp_path, 1)
    ids, positions = torch.tensor([3, 4, 5, 7, 8, 2]), torch.tensor([1, 2, 3, 4, 6, 0])
    with open_gds(paths) as storage:
        out = torch.zeros(7, ROW_BYTES, dtype=torch.uint8).as_subclass(OnGpu)
        storage.submit(ids, out, positions).wait()
    sizes = [(offset // ROW_BYTES, size // ROW_BYTES) for offset, size in fake.reads]
    assert sizes == [(3, 3), (7, 1), (8, 1), (2, 1)]
    for node, place in zip(ids.tolist(), positions.tolist(), strict=True):
        assert np.array_equal(out[place].as_subclass(torch.Tensor), rows[node])


def test_kvikio_reads_rows_by_cufile_and_several_at_a_time(tmp_path, fake, monkeypatch, caplog):
    _, paths = make_files(tmp_path, 1)
    open_gds(paths).close()
    assert sys.modules["kvikio"].defaults.values == {"gds_threshold": 0, "num_threads": 16}
    assert not caplog.records
    monkeypatch.setenv("KVIKIO_NTHREADS", "3")
    defaults = Defaults(is_compatible=True)
    monkeypatch.setattr(sys.modules["kvikio"], "defaults", defaults)
    open_gds(paths).close()
    assert defaults.values == {"gds_threshold": 0, "num_threads": 1}
    assert "compatibility mode" in caplog.text


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (OSError("bad sector"), OSError, r"features\.0\.bin: reading 3000 bytes at 6000: bad"),
        (10, OSError, "expected 3000 bytes at 6000, got 10; the file is truncated"),
    ],
)
def test_reads_that_fail(tmp_path, fake, result, error, message):
    _, paths = make_files(tmp_path, 1)
    fake.broken[6000] = result
    with open_gds(paths) as storage:
        out = torch.zeros(1, ROW_BYTES, dtype=torch.uint8).as_subclass(OnGpu)
        with pytest.raises(error, match=message):
            storage.submit(torch.tensor([2]), out).wait()


def test_a_read_that_does_not_end(tmp_path, fake):
    _, paths = make_files(tmp_path, 1)
    fake.broken[6000] = None
    with open_gds(paths, timeout_secs=0.2) as storage:
        out = torch.zeros(1, ROW_BYTES, dtype=torch.uint8).as_subclass(OnGpu)
        with pytest.raises(TimeoutError, match=r"1 reads by kvikio did not end in 0\.2 s"):
            storage.submit(torch.tensor([2]), out).wait()


def test_without_kvikio(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kvikio", None)
    _, paths = make_files(tmp_path, 1)
    store = SimpleNamespace(
        feature_paths=paths, num_nodes=NUM_ROWS, row_bytes=ROW_BYTES, stripe_bytes=STRIPE
    )
    with pytest.raises(RuntimeError, match=r"kvikio cannot be imported .* pip install"):
        open_storage(store, "gds")
