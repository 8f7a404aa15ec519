"""The nvme engine over emulated controllers: any format, any limit, and clear errors."""

import errno
import os

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm import native
from lsm.storage.engine import Storage
from support.gpus import WITHOUT_GPU
from support.nvme_rows import PAGE, open_rows, random_rows, read, write_stripes


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_layout_format_and_transfer_limit(tmp_path_factory, data):
    """Rows of any size, straddling blocks, on any number of namespaces and controllers."""
    row_bytes = data.draw(st.integers(1, 20_000), label="row_bytes")
    num_rows = data.draw(st.integers(1, 60), label="num_rows")
    num_files = data.draw(st.integers(1, 4), label="num_files")
    emulation = {
        "block_bytes": data.draw(st.sampled_from([512, 4096]), label="block_bytes"),
        "num_controllers": data.draw(st.integers(1, num_files), label="num_controllers"),
        "max_transfer_shift": data.draw(st.integers(0, 3), label="max_transfer_shift"),
        "reorder": data.draw(st.booleans(), label="reorder"),
    }
    ids = data.draw(st.lists(st.integers(0, num_rows - 1), max_size=80), label="ids")
    depth = data.draw(st.integers(1, 5), label="depth")
    rows = random_rows(num_rows, row_bytes)
    paths = write_stripes(tmp_path_factory.mktemp("rows"), rows, num_files)
    with open_rows(
        paths, rows, emulation=emulation, queue_depth=depth, num_threads=2, max_read_bytes=16 * PAGE
    ) as storage:
        assert np.array_equal(read(storage, ids), rows[np.array(ids, dtype=np.int64)])


def test_reads_longer_than_the_controller_takes_are_split(tmp_path):
    rows = random_rows(4, 100_000)
    paths = write_stripes(tmp_path, rows, 1)
    counts = {}
    for shift in (1, 3, 0):  # 8 KiB, 32 KiB, no limit
        with open_rows(
            paths, rows, emulation={"max_transfer_shift": shift}, max_read_bytes=1 << 20
        ) as storage:
            assert np.array_equal(read(storage, range(4)), rows)
            counts[shift] = storage.stats()["reads"]
    assert counts == {1: 49, 3: 13, 0: 1}


def test_a_small_block_costs_less(tmp_path):
    """512-byte rows read alone move one block of 512 bytes each."""
    rows = random_rows(800, 512)
    paths = write_stripes(tmp_path, rows, 1)
    with open_rows(paths, rows, emulation={"block_bytes": 512}) as storage:
        assert np.array_equal(read(storage, range(0, 800, 16)), rows[::16])
        assert storage.block_bytes == 512
        assert storage.stats()["bytes_read"] == 50 * 512


def outcomes(storage: Storage, rows: np.ndarray, ids: np.ndarray, timeout_secs: float) -> dict:
    """How single reads of ``ids`` end. Those that end well have the right bytes."""
    out = torch.zeros(len(ids), rows.shape[1], dtype=torch.uint8)
    reads = [(torch.from_numpy(ids[i : i + 1]), out[i], None) for i in range(len(ids))]
    ends: dict = {}
    for i, ticket in enumerate(storage.submit_together(reads)):
        end = "ok"
        try:
            ticket.wait(timeout_secs)
        except TimeoutError as error:
            end = "lost" if "did not complete within" in str(error) else str(error)
        except OSError as error:
            end = error.strerror.rsplit(": ", 1)[1].split(" (")[0]
        else:
            assert np.array_equal(out[i], rows[ids[i]])
        ends[end] = ends.get(end, 0) + 1
    return ends


def test_every_injected_fault_is_reported_and_no_byte_is_wrong(tmp_path):
    """Errors, delays, disorder and losses at once; losses come to more than the queue is deep, so
    queues are made anew on the way."""
    rows = random_rows(2000, PAGE)
    paths = write_stripes(tmp_path, rows, 2)
    faults = {
        "after": 1,  # the test read at opening
        "error_rate": 0.02,
        "loss_rate": 0.002,
        "delay_rate": 0.01,
        "reorder": True,
    }
    rng = np.random.default_rng(0)
    total: dict = {}
    with open_rows(
        paths,
        rows,
        emulation=faults | {"seed": 3, "num_controllers": 2},
        queue_depth=16,
        max_read_bytes=2 * PAGE,
        command_timeout_secs=0.1,
    ) as storage:
        for _ in range(20):
            ids = rng.permutation(2000)[:1000].astype(np.int64)
            for end, count in outcomes(storage, rows, ids, 10).items():
                total[end] = total.get(end, 0) + count
    assert sum(total.values()) == 20_000
    assert total["lost"] > 16
    assert total["ok"] > 15_000  # a machine that stands still for a while loses some more
    assert set(total) == {
        "ok",
        "lost",
        "unrecovered read error",
        "internal error",
        "data transfer error",
        "LBA out of range",
        "namespace not ready",
    }


def test_an_error_names_file_blocks_and_status(tmp_path):
    rows = random_rows(64, PAGE)
    paths = write_stripes(tmp_path, rows, 1)
    with open_rows(paths, rows) as storage:
        assert np.array_equal(read(storage, [60]), rows[[60]])
        os.truncate(paths[0], 32 * PAGE)  # the medium loses its blocks
        with pytest.raises(
            OSError,
            match=r"NVMe read of 8 blocks at LBA 480 of namespace 1 \(4096 bytes at offset 245760; "
            r"queue 1, command \d+\): unrecovered read error \(type 2, code 0x81\)",
        ) as caught:
            read(storage, [60])
        assert caught.value.errno == errno.EIO
        assert caught.value.filename == str(paths[0])
        assert np.array_equal(read(storage, [7]), rows[[7]])
        assert storage.stats()["errors"] == 1


def test_a_lost_completion_fails_within_its_bound_and_the_queue_goes_on(tmp_path):
    rows = random_rows(64, PAGE)
    paths = write_stripes(tmp_path, rows, 1)
    # With one read in flight a loss takes the whole queue, which is then made anew.
    with open_rows(paths, rows, queue_depth=1, command_timeout_secs=1.0) as storage:
        for _ in range(3):
            storage.inject_fault(native.Fault.stall)
            with pytest.raises(TimeoutError, match=r"LBA 40 .* did not complete within 1 s"):
                read(storage, [5])
            assert np.array_equal(read(storage, [1, 9, 30]), rows[[1, 9, 30]])


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ({"loss_rate": 1.0}, TimeoutError, "did not complete within 1 s; if an IOMMU"),
        ({"lost_data_rate": 1.0}, RuntimeError, "ended with success, but brought no data; if an"),
        ({"error_rate": 1.0}, OSError, r"failed: .* \(type \d, code 0x"),
    ],
)
def test_a_drive_whose_test_read_fails_is_refused(tmp_path, fault, error, message):
    rows = random_rows(64, PAGE)
    paths = write_stripes(tmp_path, rows, 2)
    way = "test read of the first block of namespace 1, submitted by the host into host memory, "
    with pytest.raises(error, match=way + message) as caught:
        open_rows(paths, rows, emulation=fault, command_timeout_secs=0.1)
    if error is OSError:
        assert caught.value.errno == errno.EIO
        assert caught.value.filename == str(paths[0])
    with open_rows(paths, rows) as storage:
        assert np.array_equal(read(storage, [1, 60]), rows[[1, 60]])


def test_a_test_read_takes_what_it_finds_for_data(tmp_path):
    """Blocks of zeros and of ones, in both formats of a drive."""
    for value in (0, 255):
        rows = np.full((64, PAGE), value, np.uint8)
        for block_bytes in (512, 4096):
            folder = tmp_path / f"{value}_{block_bytes}"
            folder.mkdir()
            paths = write_stripes(folder, rows, 1)
            with open_rows(paths, rows, emulation={"block_bytes": block_bytes}) as storage:
                assert np.array_equal(read(storage, [5]), rows[[5]])


def test_closing_with_reads_under_way_fails_them(tmp_path):
    rows = random_rows(64, PAGE)
    paths = write_stripes(tmp_path, rows, 1)
    storage = open_rows(paths, rows, emulation={"loss_rate": 1.0, "after": 1})
    out = torch.zeros(PAGE, dtype=torch.uint8)
    ticket = storage.submit(torch.tensor([1]), out)
    storage.close()
    with pytest.raises(RuntimeError, match="closed"):
        ticket.wait(5)


def test_a_controller_that_does_not_start_is_a_time_out(tmp_path):
    rows = random_rows(4, PAGE)
    paths = write_stripes(tmp_path, rows, 1)
    with pytest.raises(TimeoutError, match=r"did not report its start \(CSTS\.RDY = 1\)"):
        open_rows(paths, rows, emulation={"never_ready": True}, command_timeout_secs=0.2)


@pytest.mark.parametrize("block_bytes", [512, 4096])
def test_a_namespace_that_is_too_small_for_the_store(tmp_path, block_bytes):
    """The controller's word counts, not the size of a file; the last block may be a part."""
    rows = random_rows(65, PAGE)
    paths = write_stripes(tmp_path, rows, 2)  # 33 pages and 32
    before = [path.read_bytes() for path in paths]
    emulation = {"block_bytes": block_bytes, "num_controllers": 2}
    blocks = f"{32 * PAGE // block_bytes} blocks of {block_bytes} bytes"
    with pytest.raises(
        ValueError,
        match=rf"emulated controller of .*features\.0\.bin: namespace 1 has {blocks}, too small "
        "for the 135168 bytes of features on it; use a larger one, or more of them",
    ):
        open_rows(paths, rows, emulation=emulation | {"most_bytes": 32 * PAGE})
    enough = emulation | {"most_bytes": 33 * PAGE - block_bytes + 1}
    with open_rows(paths[:1], rows[:33], emulation=enough | {"num_controllers": 1}) as storage:
        assert storage.block_bytes == block_bytes
    assert [path.read_bytes() for path in paths] == before


def test_fewer_queues_than_threads_is_said(tmp_path, caplog):
    rows = random_rows(64, PAGE)
    paths = write_stripes(tmp_path, rows, 1)
    with open_rows(paths, rows, emulation={"num_queues": 2}, num_threads=5) as storage:
        assert np.array_equal(read(storage, range(64)), rows)
    assert "only 2 pairs of queues" in caplog.text


@pytest.mark.parametrize(
    ("emulation", "options", "message"),
    [
        ({"block_bytes": 1000}, {}, "block_bytes: expected 512 or 4096, got 1000"),
        ({"num_controllers": 2}, {}, "num_controllers: expected 1 to 1"),
        ({"colour": 1}, {}, "no 'colour'"),
        ({"max_queue_entries": 64}, {}, "queues of at most 64 entries, too few for 128 reads"),
        ({}, {"queue_depth": 0}, "queue_depth: expected at least 1, got 0"),
        ({}, {"command_timeout_secs": 0}, "command_timeout_secs"),
        ({}, {"max_read_bytes": 700}, "max_read_bytes: expected a multiple of the block"),
        ({}, {"submit_from": "moon"}, "submit_from: expected one of 'host' or 'gpu', got 'moon'"),
        ({}, {"submit_blocks": 0}, "storage.submit_blocks: expected at least 1, got 0"),
        (
            {},
            {"transport": "pigeon"},
            "transport: expected one of 'emulated', 'sysfs' or 'libnvm'",
        ),
    ],
)
def test_options_out_of_range(tmp_path, emulation, options, message):
    rows = random_rows(4, 100)
    paths = write_stripes(tmp_path, rows, 1)
    with pytest.raises(ValueError, match=message):
        open_rows(paths, rows, emulation=emulation, **options)


@WITHOUT_GPU
def test_submission_from_a_gpu_that_is_missing(tmp_path):
    """The options raise the error, and so does the native engine; submission from the host needs no
    GPU."""
    rows = random_rows(4, 100)
    paths = write_stripes(tmp_path, rows, 1)
    with pytest.raises(RuntimeError, match=r"submit_from=gpu: .* set storage\.submit_from=host"):
        open_rows(paths, rows, submit_from="gpu")
    with pytest.raises(RuntimeError, match=r"read_to=gpu: .* set storage\.read_to=host"):
        open_rows(paths, rows, read_to="gpu")
    with open_rows(paths, rows, submit_from="host", submit_blocks=3) as storage:
        assert np.array_equal(read(storage, range(4)), rows)


@pytest.mark.skipif(native.find_cuda().toolkit_version > 0, reason="built with CUDA")
@pytest.mark.parametrize("key", ["submit_from", "read_to"])
def test_the_native_engine_refuses_a_gpu_it_was_not_built_for(tmp_path, key):
    paths = write_stripes(tmp_path, random_rows(4, 100), 1)
    nvme = native.NvmeOptions()
    if key == "read_to":
        nvme.gpu = 0
    else:
        nvme.submission.device = 0
    with pytest.raises(RuntimeError, match=rf"{key}=gpu needs CUDA.*LSM_CUDA=ON"):
        native.open_storage(
            engine="nvme",
            paths=[str(path) for path in paths],
            file_sets=[(4, 1)],
            row_bytes=100,
            stripe_bytes=PAGE,
            queue_depth=8,
            num_threads=1,
            max_read_bytes=PAGE,
            max_gap_bytes=0,
            direct=native.DirectMode.auto,
            nvme=nvme,
        )


@pytest.mark.skipif(native.find_cuda().toolkit_version > 0, reason="built with CUDA")
def test_waves_need_a_gpu():
    with pytest.raises(RuntimeError, match=r"measuring reads by a GPU needs CUDA.*LSM_CUDA=ON"):
        native.measure_nvme_waves([1], PAGE, 32, into_device_memory=False, rounds=1, device=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_measurement_reads_right_bytes_with_few_doorbells(sparse):
    result = native.measure_nvme_reads(
        sparse=sparse,
        depth=1024,
        batch=256,
        read_bytes=PAGE,
        reads=256_000,
        file="",
        memory_bytes=1 << 20,
    )
    doorbells = (result["tail_writes"] + result["head_writes"]) / 256
    assert doorbells < (40 if sparse else 4)
