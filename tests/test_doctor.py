"""The doctor reports what a separate look at the machine shows."""

import json
import os
from types import SimpleNamespace

import pytest
from fake_machine import NVME_FINDINGS

from lsm import doctor, native
from lsm.device import gpu_problem
from lsm.doctor import RING_BYTES, examine
from lsm.storage import StorageOptions, select_engine

NAMES = {
    "cores",
    "memory",
    "locked memory",
    "gpus",
    "versions",
    "native module",
    "CUDA build",
    "device=auto",
    "peer access",
    "liburing",
    "io_uring",
    "torchrun",
    "SLURM",
    "MPI",
    "mpi4py",
    "dgl",
    "kvikio",
    "storage.engine=auto",
    *NVME_FINDINGS,
}


def findings(path):
    return {finding.name: finding for finding in examine(path)}


def supports_direct_io(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def test_every_part_is_reported(tmp_path):
    found = findings(tmp_path)
    assert set(found) == NAMES | {f"O_DIRECT on {tmp_path}"}
    assert all(finding.detail for finding in found.values())
    assert f"{len(os.sched_getaffinity(0))} usable" in found["cores"].detail


def test_peer_access_is_that_of_every_pair(monkeypatch):
    def finding(count, refused=()):
        gpus = [SimpleNamespace(bus_id=f"0000:0{i}:00.0") for i in range(count)]
        monkeypatch.setattr(native, "find_cuda", lambda: SimpleNamespace(gpus=gpus))

        def problem(index, bus_id):
            return "peer access unavailable: no" if (index, bus_id) in refused else ""

        monkeypatch.setattr(native, "peer_access_problem", problem)
        return doctor._peer_access()

    assert finding(1).state == "info"
    assert finding(3).state == "ok"
    said = finding(3, {(2, "0000:01:00.0")})
    assert said.state == "no"
    assert said.detail.startswith("peer access unavailable: no; comm.transport=auto takes")


@pytest.mark.parametrize("make", ["folder", "file", "missing"])
def test_o_direct_is_tried_on_the_path_and_nothing_is_left(tmp_path, make):
    file = tmp_path / "features.bin"
    file.write_bytes(bytes(8192))
    path = {"folder": tmp_path, "file": file, "missing": tmp_path / "a" / "b"}[make]
    finding = findings(path)[f"O_DIRECT on {path}"]
    assert finding.state == ("ok" if supports_direct_io(file) else "no")
    assert list(tmp_path.iterdir()) == [file]


def test_o_direct_that_is_refused_is_explained(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("lsm.doctor._read_directly", refuse)
    finding = findings(tmp_path)[f"O_DIRECT on {tmp_path}"]
    assert finding.state == "no"
    assert "Invalid argument; engines with direct=auto use the page cache" in finding.detail


def test_auto_is_the_engine_that_opening_a_store_would_take(tmp_path, monkeypatch):
    engine, reason = select_engine("auto")
    assert findings(tmp_path)["storage.engine=auto"].detail == f"{engine}: {reason}"
    monkeypatch.setattr(native, "io_uring_problem", lambda: "the kernel says no")
    found = findings(tmp_path)
    assert found["io_uring"].state == "no"
    assert found["storage.engine=auto"].detail == "posix: the kernel says no"


def test_table_and_json_say_the_same(tmp_path, capsys, monkeypatch):
    from lsm.cli.doctor import doctor

    monkeypatch.setenv("COLUMNS", "300")
    doctor(tmp_path, as_json=True)
    records = json.loads(capsys.readouterr().out)
    doctor(tmp_path, as_json=False)
    table = capsys.readouterr().out
    engine, _ = select_engine("auto")
    place = "on the host" if gpu_problem(0) else "on a GPU"
    assert table.splitlines()[0] == f"trains here: yes, {place}, {engine}"
    for record in records:
        assert record["name"] in table
        if record["name"] != "memory":  # it changes meanwhile
            assert record["detail"] in table


def test_the_memory_that_io_uring_locks_by_default():
    options = StorageOptions()
    buffers = options.queue_depth * 5 // 4 * options.max_read_bytes
    assert buffers < RING_BYTES < buffers + (2 << 20)


def test_launchers_are_found_where_they_are(tmp_path, monkeypatch):
    program = tmp_path / "srun"
    program.write_text("#!/bin/sh\necho slurm 1.2.3")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = findings(tmp_path)
    assert (found["SLURM"].state, found["SLURM"].detail) == ("ok", "slurm 1.2.3")
    assert found["MPI"].state == "no"
    assert "no mpirun on PATH" in found["MPI"].detail
    assert found["torchrun"].state == "ok"
    program.write_text("#!/bin/sh\nexit 1")
    assert findings(tmp_path)["SLURM"].state == "no"
