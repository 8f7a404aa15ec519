"""Every engine delivers the bytes of the file, counts its reads, and fails loudly."""

import ctypes
import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm import native
from lsm.storage.engine import Storage, select_engine
from lsm.storage.options import StorageOptions
from support.engines import ENGINES, QUEUED_ENGINES

PAGE = 4096

needs_io_uring = pytest.mark.skipif(
    "io_uring" not in ENGINES, reason=f"io_uring: {native.io_uring_problem()}"
)


def write_rows(directory: Path, rows: np.ndarray, num_files: int = 1, stripe: int = PAGE):
    """Writes rows page by page, round robin over the files: the definition, not the fast way."""
    data = rows.tobytes()
    contents = [bytearray() for _ in range(num_files)]
    for page, start in enumerate(range(0, len(data), stripe)):
        contents[page % num_files] += data[start : start + stripe]
    paths = []
    for k, content in enumerate(contents):
        paths.append(directory / f"features.{k}.bin")
        padding = -len(content) % PAGE
        paths[-1].write_bytes(bytes(content) + b"\0" * padding)
    return paths


def random_rows(num_rows: int, row_bytes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (num_rows, row_bytes), dtype=np.uint8)


def open_rows(paths, rows, engine, *, stripe=PAGE, **options) -> Storage:
    return Storage(
        paths,
        num_rows=len(rows),
        row_bytes=rows.shape[1],
        stripe_bytes=stripe,
        engine=engine,
        options=StorageOptions(**options),
    )


def read(storage: Storage, ids) -> np.ndarray:
    ids = torch.as_tensor(ids, dtype=torch.int64)
    out = torch.full((len(ids), storage.row_bytes), 0xEE, dtype=torch.uint8)
    return storage.submit(ids, out).wait(20).numpy()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("row_bytes", [1, 12, 1000, 4096, 5732, 70_001])
@pytest.mark.parametrize(("num_files", "stripe"), [(1, PAGE), (3, PAGE), (2, 4 * PAGE)])
def test_rows_equal_the_file(tmp_path, engine, row_bytes, num_files, stripe):
    rows = random_rows(400_000 // row_bytes + 3, row_bytes)
    paths = write_rows(tmp_path, rows, num_files, stripe)
    ids = np.random.default_rng(1).integers(0, len(rows), 500)
    ids[:3] = [0, len(rows) - 1, len(rows) - 1]
    with open_rows(paths, rows, engine, stripe=stripe, num_threads=2) as storage:
        assert np.array_equal(read(storage, ids), rows[ids])
        assert np.array_equal(read(storage, np.arange(len(rows))), rows)
        assert read(storage, []).shape == (0, row_bytes)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_layout_any_request(tmp_path_factory, data):
    row_bytes = data.draw(st.integers(1, 20_000), label="row_bytes")
    num_rows = data.draw(st.integers(1, 60), label="num_rows")
    num_files = data.draw(st.integers(1, 4), label="num_files")
    max_read_bytes = data.draw(st.integers(2, 8), label="max_read_pages") * PAGE
    ids = data.draw(st.lists(st.integers(0, num_rows - 1), max_size=80), label="ids")
    rows = random_rows(num_rows, row_bytes, seed=row_bytes)
    paths = write_rows(tmp_path_factory.mktemp("rows"), rows, num_files)
    for engine in QUEUED_ENGINES:
        with open_rows(
            paths, rows, engine, max_read_bytes=max_read_bytes, queue_depth=3, num_threads=2
        ) as storage:
            assert np.array_equal(read(storage, ids), rows[np.array(ids, dtype=np.int64)])


def blocks_of(ids, row_bytes: int) -> set[int]:
    return {
        block
        for i in ids
        for block in range(i * row_bytes // PAGE, ((i + 1) * row_bytes - 1) // PAGE + 1)
    }


def runs_of(blocks: set[int]) -> int:
    return sum(block - 1 not in blocks for block in blocks)


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
@pytest.mark.parametrize("row_bytes", [256, 1000, 4096, 6000])
def test_each_block_is_read_once_and_adjacent_blocks_together(tmp_path, engine, row_bytes):
    rows = random_rows(800, row_bytes)
    paths = write_rows(tmp_path, rows)
    ids = np.random.default_rng(2).choice(800, 300, replace=False)
    blocks = blocks_of(ids, row_bytes)
    # No run of blocks is longer than a read may be, so each run is one read.
    with open_rows(paths, rows, engine, max_read_bytes=8 << 20, queue_depth=4) as storage:
        read(storage, ids)
        stats = storage.stats()
    assert stats["reads"] == runs_of(blocks)
    assert stats["bytes_read"] == len(blocks) * PAGE
    assert stats["bytes_requested"] == 300 * row_bytes
    assert stats["read_amplification"] == len(blocks) * PAGE / (300 * row_bytes)
    assert 0 < stats["p50_us"] <= stats["p99_us"]


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_counters_agree_with_the_kernel(tmp_path, engine):
    """With direct reads the bytes we count are those that the kernel says this process read."""
    rows = random_rows(2000, PAGE)
    paths = write_rows(tmp_path, rows)
    with open(paths[0], "rb") as file:
        os.fsync(file.fileno())  # dirty pages would be written, not read, at the first direct read
    with open_rows(paths, rows, engine, direct="on") as storage:
        before = kernel_read_bytes()
        read(storage, np.random.default_rng(0).choice(2000, 500, replace=False))
        assert kernel_read_bytes() - before == storage.stats()["bytes_read"] == 500 * PAGE


def kernel_read_bytes() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_requests_from_many_threads_do_not_mix(tmp_path, engine):
    rows = random_rows(3000, 500)
    paths = write_rows(tmp_path, rows)
    wrong = []
    with open_rows(paths, rows, engine, queue_depth=8, num_threads=2) as storage:

        def work(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(10):
                ids = rng.integers(0, 3000, 200)
                if not np.array_equal(read(storage, ids), rows[ids]):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("row_bytes", "num_files"), [(1000, 1), (6000, 3)])
def test_rows_go_to_the_positions_asked_for(tmp_path, engine, row_bytes, num_files):
    rows = random_rows(800, row_bytes)
    paths = write_rows(tmp_path, rows, num_files)
    rng = np.random.default_rng(3)
    ids, positions = rng.integers(0, 800, 300), rng.choice(700, 300, replace=False)
    expected = np.full((700, row_bytes), 0xEE, np.uint8)  # rows not asked for keep what they hold
    expected[positions] = rows[ids]
    with open_rows(paths, rows, engine, num_threads=2) as storage:
        out = torch.full((700, row_bytes), 0xEE, dtype=torch.uint8)
        ticket = storage.submit(torch.from_numpy(ids), out, torch.from_numpy(positions))
        assert np.array_equal(ticket.wait(20), expected)
        none = torch.empty(0, dtype=torch.int64)
        storage.submit(none, out, none).wait(20)
        assert np.array_equal(out, expected)
        assert storage.stats()["bytes_requested"] == 300 * row_bytes


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
@pytest.mark.parametrize("short", [1, 4096, 5000])
def test_a_short_read_continues(tmp_path, engine, short):
    rows = random_rows(64, PAGE)
    paths = write_rows(tmp_path, rows)
    with open_rows(paths, rows, engine) as storage:
        for nth in range(1, 4):  # also of a slot that has had one before
            storage.inject_fault(native.Fault.short, nth=0, value=short)
            assert np.array_equal(read(storage, np.arange(16)), rows[:16])
            assert storage.stats()["short_reads"] == nth


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_a_read_error_names_file_offset_and_errno_and_spares_others(tmp_path, engine):
    rows = random_rows(64, PAGE)
    paths = write_rows(tmp_path, rows)
    with open_rows(paths, rows, engine) as storage:
        storage.inject_fault(native.Fault.error, nth=0, value=errno.EIO)
        with pytest.raises(OSError, match="offset 28672") as caught:
            read(storage, [7])
        assert caught.value.errno == errno.EIO
        assert caught.value.filename == str(paths[0])
        assert np.array_equal(read(storage, [7, 8]), rows[7:9])
        assert storage.stats()["errors"] == 1


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_an_interrupted_read_is_repeated(tmp_path, engine, code):
    rows = random_rows(64, PAGE)
    paths = write_rows(tmp_path, rows)
    with open_rows(paths, rows, engine) as storage:
        storage.inject_fault(native.Fault.error, nth=1, value=code)
        assert np.array_equal(read(storage, [3, 9, 20]), rows[[3, 9, 20]])


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_a_lost_completion_is_a_time_out_that_names_what_was_awaited(tmp_path, engine):
    rows = random_rows(64, PAGE)
    paths = write_rows(tmp_path, rows)
    with open_rows(paths, rows, engine) as storage:
        storage.inject_fault(native.Fault.stall)
        out = torch.zeros(2, PAGE, dtype=torch.uint8)
        ticket = storage.submit(torch.tensor([1, 40]), out)
        with pytest.raises(TimeoutError, match=r"reading 2 rows of .*0\.bin: 1 of 2 pieces"):
            ticket.wait(0.5)
        assert np.array_equal(read(storage, [5]), rows[[5]])  # the engine goes on


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_closing_with_reads_under_way_fails_them(tmp_path, engine):
    rows = random_rows(64, PAGE)
    paths = write_rows(tmp_path, rows)
    storage = open_rows(paths, rows, engine)
    storage.inject_fault(native.Fault.stall)
    ticket = storage.submit(torch.arange(1), torch.zeros(1, PAGE, dtype=torch.uint8))
    storage.close()
    # posix drops the stalled read with its thread, so only the time-out can tell.
    with pytest.raises((RuntimeError, TimeoutError)):
        ticket.wait(0.5)
    with pytest.raises(RuntimeError, match="closed"):
        storage.submit(torch.arange(1), torch.zeros(1, PAGE, dtype=torch.uint8))


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_abandoned_tickets_leave_their_output_alone(tmp_path, engine):
    rows = random_rows(4000, PAGE)
    paths = write_rows(tmp_path, rows)
    with open_rows(paths, rows, engine, queue_depth=2, num_threads=1) as storage:
        for _ in range(20):
            out = torch.zeros(500, PAGE, dtype=torch.uint8)
            ticket = storage.submit(torch.randint(0, 4000, (500,)), out)
            del ticket  # cancels
            before = out.clone()
            read(storage, [0])
            assert torch.equal(out, before)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_truncated_file_is_found_at_opening(tmp_path, engine):
    rows = random_rows(64, PAGE)
    paths = write_rows(tmp_path, rows)
    os.truncate(paths[0], 64 * PAGE - 1)
    with pytest.raises(OSError, match=r"truncated: expected at least 262144 bytes, got 262143"):
        open_rows(paths, rows, engine)


@pytest.mark.parametrize("engine", ["mmap", *QUEUED_ENGINES])
def test_a_file_truncated_while_in_use_is_an_error(tmp_path, engine):
    rows = random_rows(64, PAGE)
    paths = write_rows(tmp_path, rows)
    with open_rows(paths, rows, engine) as storage:
        assert np.array_equal(read(storage, [60]), rows[[60]])
        os.truncate(paths[0], 32 * PAGE)
        with pytest.raises(OSError, match="truncated"):
            read(storage, [60])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_file(tmp_path, engine):
    with pytest.raises(FileNotFoundError, match="absent"):
        open_rows([tmp_path / "absent.bin"], random_rows(1, 1), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [-1, 64, 2**40])
def test_an_id_out_of_range(tmp_path, engine, bad):
    rows = random_rows(64, 100)
    paths = write_rows(tmp_path, rows)
    with (
        open_rows(paths, rows, engine) as storage,
        pytest.raises(ValueError, match=rf"ids in \[0, 64\), got {bad} at position 1"),
    ):
        read(storage, [3, bad])


def test_wrong_outputs_and_ids(tmp_path):
    rows = random_rows(64, 100)
    paths = write_rows(tmp_path, rows)
    with open_rows(paths, rows, "posix") as storage:
        with pytest.raises(ValueError, match="expected 200 bytes"):
            storage.submit(torch.arange(2), torch.empty(199, dtype=torch.uint8))
        with pytest.raises(ValueError, match="contiguous"):
            storage.submit(torch.arange(2), torch.empty(2, 200, dtype=torch.uint8)[:, ::2])
        with pytest.raises(ValueError, match="int64"):
            storage.submit(torch.arange(2, dtype=torch.int32), torch.empty(200, dtype=torch.uint8))
        out = torch.empty(500, dtype=torch.uint8)
        with pytest.raises(ValueError, match=r"positions: .*\[0, 5\), got 5 at position 1"):
            storage.submit(torch.arange(2), out, torch.tensor([4, 5]))
        with pytest.raises(ValueError, match="positions: expected 2, one per id, got 3"):
            storage.submit(torch.arange(2), out, torch.arange(3))
        with pytest.raises(ValueError, match=r"multiple of 100 .* got 499"):
            storage.submit(torch.arange(2), out[:499], torch.arange(2))


@needs_io_uring
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue_depth": 0}, "queue_depth"),
        ({"queue_depth": 5000}, "queue_depth"),
        ({"num_threads": -1}, "num_threads"),
        ({"max_read_bytes": 4096}, "max_read_bytes"),
        ({"max_read_bytes": 10_000}, "max_read_bytes"),
        ({"direct": "maybe"}, "storage.direct"),
    ],
)
def test_options_out_of_range(tmp_path, options, message):
    rows = random_rows(4, 100)
    paths = write_rows(tmp_path, rows)
    with pytest.raises(ValueError, match=message):
        open_rows(paths, rows, "io_uring", **options)


def test_unknown_engine_is_named_with_the_choices():
    with pytest.raises(ValueError, match=r"memory, mmap, posix, io_uring.*'floppy'"):
        select_engine("floppy")


def test_features_larger_than_memory_are_refused_by_the_memory_engine(tmp_path):
    path = tmp_path / "huge.bin"
    path.touch()
    os.truncate(path, 1 << 40)  # sparse
    with pytest.raises(ValueError, match=r"1048576 MiB.*available; use storage\.engine"):
        Storage([path], num_rows=1 << 28, row_bytes=4096, engine="memory")


# A kernel file that has a size and bytes but no direct reads.
NO_DIRECT = Path("/sys/kernel/btf/vmlinux")


@pytest.mark.skipif(not NO_DIRECT.exists(), reason=f"{NO_DIRECT}: this kernel has no such file")
@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_without_direct_reads_auto_falls_back_and_says_so(engine, caplog):
    data = NO_DIRECT.read_bytes()
    rows = np.frombuffer(data[: len(data) // 512 * 512], np.uint8).reshape(-1, 512)
    ids = np.random.default_rng(0).integers(0, len(rows), 100)
    with open_rows([NO_DIRECT], rows, engine, direct="auto") as storage:
        assert not storage.direct
        assert np.array_equal(read(storage, ids), rows[ids])
    assert "does not support O_DIRECT" in caplog.text
    with pytest.raises(OSError, match=r"vmlinux"):
        open_rows([NO_DIRECT], rows, engine, direct="on")


PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14


def limit_locked_memory(num_bytes: int) -> None:
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)  # root may lock without limit
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (num_bytes, num_bytes))


REMEDY = "raise it: ulimit -l unlimited, LimitMEMLOCK=infinity for systemd"


@pytest.mark.slow
@needs_io_uring
@pytest.mark.parametrize(
    ("limit_kib", "num_rings", "message"),
    [
        (512, 1, "io_uring buffers are not registered (Cannot allocate memory)"),
        # Processes of other tests may leave the second ring more room, less, or none at all.
        (40, 2, "Cannot allocate memory"),
    ],
)
def test_with_little_locked_memory_io_uring_says_so_and_works(
    tmp_path, limit_kib, num_rings, message
):
    """Buffers and whole rings that cannot be had cost speed, not correctness. The memory of all
    processes of a user counts, so that a second rank may have less."""
    rows = random_rows(64, PAGE)
    paths = write_rows(tmp_path, rows)
    program = (
        "import torch; from lsm.storage.engine import Storage\n"
        f"keep = [Storage([{str(paths[0])!r}], num_rows=64, row_bytes=4096, engine='auto')\n"
        f"        for _ in range({num_rings})]\n"
        "storage = keep[-1]\n"
        "out = torch.zeros(2, 4096, dtype=torch.uint8)\n"
        "ids = torch.arange(64).repeat(20)\n"
        "more = torch.zeros(1280, 4096, dtype=torch.uint8)\n"
        "storage.submit(ids, more).wait(30)\n"
        "assert all(torch.equal(more[i], more[i % 64]) for i in range(1280))\n"
        "print(storage.submit(torch.tensor([1, 5]), out).wait(30).numpy().tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: limit_locked_memory(limit_kib << 10),
        check=True,
    )
    assert bytes.fromhex(done.stdout) == rows[[1, 5]].tobytes()
    assert message in done.stderr
    assert f"(RLIMIT_MEMLOCK) is {limit_kib} KiB" in done.stderr
    assert REMEDY in done.stderr


@pytest.mark.slow
@needs_io_uring
@pytest.mark.parametrize("command", ["select_engine()", "native.io_uring_problem()"])
def test_without_locked_memory_the_limit_is_named_and_not_seccomp(command):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from lsm import native; from lsm.storage.engine import select_engine; "
            f"print({command})",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: limit_locked_memory(0),
        check=True,
    )
    assert "the locked-memory limit (RLIMIT_MEMLOCK) is 0 KiB" in done.stdout
    assert REMEDY in done.stdout
    assert "seccomp" not in done.stdout
