"""A conversion that is killed, interrupted or runs out of disk leaves no store, and says why."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from lsm.data.convert.npy import convert_npy
from lsm.data.graph_store import GraphStore
from lsm.data.verify import verify_store
from lsm.data.writer import StoreWriter
from support.store_files import PEAK_MIB, python_command, random_graph, save_npy

pytestmark = pytest.mark.slow

CONVERT = (
    PEAK_MIB
    + """
import resource, sys
from lsm.data.convert.npy import convert_npy
limit = int(sys.argv[3])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
before = peak_mib()
try:
    convert_npy(sys.argv[1], sys.argv[2])
except OSError as error:
    sys.exit(f"error: {error}")
print(before, peak_mib())
"""
)


def sparse_graph(directory, num_rows, dim=1024, order="<"):
    """A graph whose features are a hole of ``num_rows`` x ``dim`` float32 zeros."""
    arrays = random_graph(num_nodes=1000)
    arrays["node_label"] = np.zeros(num_rows, np.int64)
    save_npy(directory, arrays)
    shape = {"descr": f"{order}f4", "fortran_order": False, "shape": (num_rows, dim)}
    with open(directory / "node_feat.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, shape)
        file.truncate(file.tell() + num_rows * dim * 4)
    return directory


def start(source, out, limit=0):
    command = python_command(CONVERT, source, out, limit)
    # A test run in the background may have been told to ignore signals; its children would inherit.
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )


def default_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_for_features(process, directory):
    """The temporary directory, once 16 MiB of features have been written to it."""
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        for file in directory.glob(".out.tmp-*/features.bin"):
            if file.stat().st_size >= 16 << 20:
                return file.parent
        time.sleep(0.005)
    raise AssertionError(f"no features were written: {process.communicate()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_in_the_middle(tmp_path, number):
    source = sparse_graph(tmp_path / "graph", num_rows=1 << 19)
    process = start(source, tmp_path / "out")
    directory = wait_for_features(process, tmp_path)
    os.kill(process.pid, number)
    _, error = process.communicate(timeout=300)
    assert process.returncode in (-number, 128 + number), error
    assert not (tmp_path / "out").exists()
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == [source]
        return
    with pytest.raises(ValueError, match="left by an interrupted conversion"):
        GraphStore.open(directory)
    assert len(verify_store(directory)) == 1
    assert not (directory / "meta.json").exists()
    # Under another name it is no store either.
    with pytest.raises(FileNotFoundError, match=r"no meta\.json"):
        GraphStore.open(directory.rename(tmp_path / "renamed"))
    small = save_npy(tmp_path / "small", random_graph())
    assert convert_npy(small, tmp_path / "out").num_nodes == 300


def replaced():
    try:
        signal.raise_signal(signal.SIGTERM)
    except SystemExit as error:
        raise SystemError("returned a result with an exception set") from error


def dropped():
    with contextlib.suppress(SystemExit):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("meet_signal", [replaced, dropped])
def test_a_signal_whose_exception_native_code_does_not_pass_on(tmp_path, meet_signal):
    source = save_npy(tmp_path / "graph", random_graph())
    store = convert_npy(source, tmp_path / "store")
    left = sorted(tmp_path.iterdir())

    def write():
        with StoreWriter(tmp_path / "out") as writer:
            meet_signal()
            writer.commit(store.meta)

    with pytest.raises(SystemExit) as end:
        write()
    assert end.value.code == 128 + signal.SIGTERM
    assert sorted(tmp_path.iterdir()) == left
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_signal_during_the_removal_of_files(tmp_path, monkeypatch):
    remove = shutil.rmtree

    def removed(directory):
        signal.raise_signal(signal.SIGTERM)
        remove(directory)

    monkeypatch.setattr(shutil, "rmtree", removed)
    with pytest.raises(SystemExit) as end, StoreWriter(tmp_path / "out"):
        pass
    assert end.value.code == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_a_killed_conversion_left_is_removed_by_the_next(tmp_path):
    source = sparse_graph(tmp_path / "graph", num_rows=1 << 19)
    small = save_npy(tmp_path / "small", random_graph())
    process = start(source, tmp_path / "out")
    directory = wait_for_features(process, tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    convert_npy(small, tmp_path / "out")
    assert (directory / "features.bin").exists()  # its process lives
    shutil.rmtree(tmp_path / "out")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=300)
    other_target = tmp_path / f".other.tmp-{process.pid}"
    with_data = tmp_path / f".out.tmp-{process.pid + 1}"
    for kept in (other_target, with_data):
        kept.mkdir()
        (kept / "thesis.tex").write_text("years of work")
    convert_npy(small, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["graph", "small", "out", other_target.name, with_data.name]
    )
    assert (with_data / "thesis.tex").exists()


REPLACE = """
import os, signal, sys
from lsm.data.convert.npy import convert_npy
rename, count = os.rename, 0
def rename_and_die(source, target):
    global count
    rename(source, target)
    count += 1
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
os.rename = rename_and_die
convert_npy(sys.argv[1], sys.argv[2], force=True)
"""


@pytest.mark.parametrize("num_renames", [1, 2])
def test_a_writer_killed_as_it_replaces_a_store(tmp_path, num_renames):
    """After the first rename the old store has lost its name; after the second it is in the way."""
    old = save_npy(tmp_path / "old", random_graph(num_nodes=200))
    new = save_npy(tmp_path / "new", random_graph(num_nodes=300))
    out = tmp_path / "out"
    convert_npy(old, out)
    killed = subprocess.run(python_command(REPLACE, new, out, num_renames), timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert out.exists() == (num_renames == 2)
    assert len(list(tmp_path.glob(".out.old-*"))) == 1
    with pytest.raises(FileExistsError, match="pass --force"):
        convert_npy(new, out)
    if num_renames == 1:
        assert GraphStore.open(out).num_nodes == 200
        assert verify_store(out) == []
    convert_npy(new, out, force=True)
    assert GraphStore.open(out).num_nodes == 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "out"]


def test_a_store_being_replaced_by_a_live_writer_is_left_alone(tmp_path):
    small = save_npy(tmp_path / "small", random_graph())
    process = subprocess.Popen(["sleep", "60"])
    try:
        moved = convert_npy(small, tmp_path / "first").path
        old = moved.rename(tmp_path / f".out.old-{process.pid}")
        convert_npy(small, tmp_path / "out")
        assert verify_store(old) == []
    finally:
        process.kill()
        process.wait(timeout=10)


def test_a_directory_that_a_process_with_this_number_left_is_removed(tmp_path):
    left = tmp_path / f".out.tmp-{os.getpid()}"
    (left / "split").mkdir(parents=True)
    convert_npy(save_npy(tmp_path / "small", random_graph()), tmp_path / "out")
    assert not left.exists()


def test_a_locked_directory_is_another_writer_wherever_that_runs(tmp_path):
    """Process numbers of another container mean nothing here; locks do."""
    left = tmp_path / ".out.tmp-4194303"
    (left / "split").mkdir(parents=True)
    assert not os.path.exists("/proc/4194303")
    descriptor = os.open(left, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        small = save_npy(tmp_path / "small", random_graph())
        convert_npy(small, tmp_path / "out")
        assert left.exists()
    finally:
        os.close(descriptor)
    convert_npy(small, tmp_path / "out", force=True)
    assert not left.exists()


def test_a_file_size_limit_is_reported(tmp_path):
    source = sparse_graph(tmp_path / "graph", num_rows=10_000)
    process = start(source, tmp_path / "out", limit=10 << 20)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "ulimit -f" in error
    assert error.count("\n") == 1, error
    assert "features.bin" in error
    assert list(tmp_path.iterdir()) == [source]


def test_too_little_room_is_found_beforehand(tmp_path, disk):
    source = sparse_graph(tmp_path / "graph", num_rows=3000)
    with pytest.raises(OSError, match=r"disk full: 12\.\d MiB \(\d+ bytes\) more needed, 8 MiB "):
        convert_npy(source, disk / "out")
    assert list(disk.iterdir()) == []


def test_a_store_of_edges_that_fits_is_not_refused(tmp_path, disk):
    source = tmp_path / "graph"
    (source / "nodes/item").mkdir(parents=True)
    (source / "nodes/item/num_nodes.txt").write_text("1000\n")
    (source / "edges/item,to,item").mkdir(parents=True)
    edges = np.random.default_rng(0).integers(0, 1000, (2, 1_500_000), dtype=np.int32)
    np.save(source / "edges/item,to,item/edge_index.npy", edges)
    store = convert_npy(source, disk / "out")  # 6 MB of 8 MiB
    assert store.num_edges == 1_500_000


def test_a_disk_that_fills_up_is_reported(tmp_path, disk, monkeypatch):
    # Beforehand there was room: another process took it.
    monkeypatch.setattr(StoreWriter, "require_bytes", lambda self, num_bytes: None)
    source = sparse_graph(tmp_path / "graph", num_rows=3000)
    with pytest.raises(OSError, match=r"disk full: .* more needed, .* free some space") as error:
        convert_npy(source, disk / "out")
    assert str(disk / "out") in str(error.value)
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("with_values", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_memory_does_not_grow_with_the_features(tmp_path, order, with_values):
    source = sparse_graph(tmp_path / "graph", num_rows=100_000, order=order)  # 390 MiB
    if with_values:
        num_edges = np.load(source / "edge_index.npy").shape[1]
        np.save(source / "edge_weight.npy", np.ones(num_edges, np.float32))
    process = start(source, tmp_path / "out")
    output, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    before, peak = map(float, output.split())
    assert (tmp_path / "out/features.bin").stat().st_size == 100_000 * 4096
    # The libraries take most of it.
    assert peak < 400
    assert peak - before < 150
