"""A conversion of triples that is killed or runs out of disk leaves no store, and memory is bounded
by the budget of the sort, whatever the number of triples."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest

from lsm.data import TripleStore
from lsm.data.triples.convert import convert_triples
from lsm.data.verify import verify_store
from lsm.data.writer import StoreWriter
from support.store_files import PEAK_MIB, python_command

pytestmark = pytest.mark.slow

CONVERT = (
    PEAK_MIB
    + """
import resource, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
from lsm.data.triples.convert import convert_triples
limit, memory_bytes = int(sys.argv[3]), int(sys.argv[4])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
before = peak_mib()
try:
    convert_triples(sys.argv[1], sys.argv[2], memory_bytes=memory_bytes)
except OSError as error:
    sys.exit(f"error: {error}")
print(before, peak_mib())
"""
)
NUM_TRIPLES = 2_000_000
SMALL = 8 << 20


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder with two million random triples."""
    folder = tmp_path_factory.mktemp("many")
    rows = np.random.default_rng(0).integers(0, [50_000, 9, 50_000], (NUM_TRIPLES, 3), np.int32)
    np.save(folder / "train.npy", rows)
    return folder


def start(source, out, limit=0, memory_bytes=SMALL):
    command = python_command(CONVERT, source, out, limit, memory_bytes)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )


def wait_for(process, folder, pattern, num_bytes):
    """The first file by ``pattern`` in the temporary directory, once it has ``num_bytes``."""
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        for file in folder.glob(f".out.tmp-*/{pattern}"):
            try:
                if file.stat().st_size >= num_bytes:
                    return file
            except FileNotFoundError:
                continue  # a run that was merged
        time.sleep(0.002)
    raise AssertionError(f"no {pattern} was written: {process.communicate()}")


STAGES = {
    "reading": ("scratch/train.ids", 4 << 20),
    "sorting": ("scratch/train.3.run", 1),
    "merging": ("edges/train.npy", 4 << 20),
}


@pytest.mark.parametrize(
    ("stage", "number"),
    [*((stage, signal.SIGKILL) for stage in STAGES), ("merging", signal.SIGTERM)],
)
def test_a_signal_in_the_middle(source, tmp_path, stage, number):
    process = start(source, tmp_path / "out")
    wait_for(process, tmp_path, *STAGES[stage])
    os.kill(process.pid, number)
    _, error = process.communicate(timeout=300)
    assert process.returncode in (-number, 128 + number), error
    assert not (tmp_path / "out").exists()
    left = list(tmp_path.iterdir())
    if number == signal.SIGTERM:
        assert left == []
        return
    with pytest.raises(ValueError, match="left by an interrupted conversion"):
        TripleStore.open(left[0])
    np.save(tmp_path / "train.npy", np.array([[0, 0, 1]]))
    convert_triples(tmp_path / "train.npy", tmp_path / "out", valid_fraction=0, test_fraction=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "train.npy"]
    assert verify_store(tmp_path / "out") == []


def test_a_file_size_limit_is_reported(source, tmp_path):
    process = start(source, tmp_path / "out", limit=10 << 20)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "ulimit -f" in error
    assert "train.ids" in error
    assert error.count("\n") == 1, error
    assert list(tmp_path.iterdir()) == []


def save_triples(folder, count):
    rows = np.random.default_rng(0).integers(0, [1000, 9, 1000], (count, 3))
    folder.mkdir()
    np.save(folder / "train.npy", rows.astype(np.uint16))
    return folder


def test_too_little_room_is_found_before_the_source_is_read(tmp_path, disk):
    source = save_triples(tmp_path / "graph", 2_000_000)
    with pytest.raises(OSError, match=r"disk full: 11\.4 MiB .* more needed, .* choose another"):
        convert_triples(source, disk / "out")
    assert list(disk.iterdir()) == []


def test_too_little_room_is_found_before_the_sort(tmp_path, disk):
    source = save_triples(tmp_path / "graph", 200_000)  # 4.6 MiB and 5.3 MiB more
    with pytest.raises(OSError, match=r"disk full: 5\.3 MiB .* more needed, .* choose another"):
        convert_triples(source, disk / "out")
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize(("count", "file"), [(400_000, "train.ids"), (250_000, ".run")])
def test_a_disk_that_fills_up_is_reported(tmp_path, disk, monkeypatch, count, file):
    # Beforehand there was room: another process took it.
    monkeypatch.setattr(StoreWriter, "require_bytes", lambda self, num_bytes: None)
    source = save_triples(tmp_path / "graph", count)
    with pytest.raises(OSError, match=r"disk full: .* more needed, .* free some space") as error:
        convert_triples(source, disk / "out", memory_bytes=SMALL)
    assert file in str(error.value)
    assert list(disk.iterdir()) == []


def test_memory_is_that_of_the_sort(source, tmp_path):
    """Sorted at once, the keys and their order would take 150 MiB."""
    process = start(source, tmp_path / "out", memory_bytes=16 << 20)
    output, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    before, peak = map(float, output.split())
    assert TripleStore.open(tmp_path / "out").num_edges["train"] == pytest.approx(2e6, rel=1e-3)
    # A read of 16 MiB, one ahead, and both as int64: 100 MiB.
    assert peak - before < 120
