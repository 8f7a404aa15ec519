"""The doctor's report agrees with a separate look at the machine."""

import json
import os
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import HeteroData
from typer import Exit

from lsm import native
from lsm.core.device import gpu_problem
from lsm.data.graph_store import GraphStore
from lsm.doctor import machine
from lsm.doctor.machine import RING_BYTES, examine
from lsm.storage.engine import select_engine
from lsm.storage.options import StorageOptions
from support.fake_machine import NVME_FINDINGS

NAMES = {
    "cores",
    "memory",
    "locked memory",
    "gpus",
    "versions",
    "temporary files",
    "packages",
    "native module",
    "store",
    "O_DIRECT",
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
    "cuda.bindings",
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
    assert set(found) == NAMES
    assert str(tmp_path) in found["O_DIRECT"].detail
    assert all(finding.detail for finding in found.values())
    assert f"{len(os.sched_getaffinity(0))} usable" in found["cores"].detail


def test_peer_access_is_that_of_every_pair(monkeypatch):
    def finding(count, refused=()):
        gpus = [SimpleNamespace(bus_id=f"0000:0{i}:00.0") for i in range(count)]
        monkeypatch.setattr(native, "find_cuda", lambda: SimpleNamespace(gpus=gpus))

        def problem(index, bus_id):
            return "peer access unavailable: no" if (index, bus_id) in refused else ""

        monkeypatch.setattr(native, "peer_access_problem", problem)
        return machine._peer_access()

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
    finding = findings(path)["O_DIRECT"]
    assert finding.state == ("ok" if supports_direct_io(file) else "no")
    assert list(tmp_path.iterdir()) == [file]


def test_o_direct_that_is_refused_is_explained(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("lsm.doctor.machine._read_directly", refuse)
    finding = findings(tmp_path)["O_DIRECT"]
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
    monkeypatch.chdir(tmp_path)
    doctor(as_json=True)
    report = json.loads(capsys.readouterr().out)
    doctor(as_json=False)
    table = capsys.readouterr().out.splitlines()
    engine, _ = select_engine("auto")
    place = "on the host" if gpu_problem(0) else "on a GPU"
    assert table[0] == report["verdict"] == f"trains here: yes, {place}, {engine}"
    assert report["trains"] is True
    listed = iter(table[1:])
    purpose = None
    for record in report["findings"]:
        if record["purpose"] != purpose:
            purpose = record["purpose"]
            assert next(listed).strip() == purpose
        line = next(listed)
        assert line.split(record["name"])[1].split()[0] == record["state"]
        if record["name"] != "memory":  # it changes meanwhile
            assert record["detail"] in line
    assert list(listed) == []


def test_what_is_missing_stands_under_its_purpose(tmp_path):
    purposes = {found.name: found.purpose for found in examine(tmp_path)}
    assert {name for name, purpose in purposes.items() if purpose == "NVMe queue pairs"} == {
        *NVME_FINDINGS
    }
    assert purposes["dgl"] == "DGL blocks"
    assert purposes["cuda.bindings"] == "GPUDirect Storage"
    assert {purposes[name] for name in ("torchrun", "SLURM", "MPI", "mpi4py")} == {"launchers"}
    assert {purposes[name] for name in ("gpus", "CUDA build", "device=auto")} == {"GPU training"}
    assert {purposes[name] for name in ("liburing", "io_uring")} == {"faster storage"}


def test_the_table_fits_80_columns(tmp_path, capsys, monkeypatch):
    from lsm.cli.doctor import doctor

    monkeypatch.setenv("COLUMNS", "80")
    place = tmp_path / ("long-" * 15)
    with pytest.raises(Exit):
        doctor(place)
    verdict, *lines = capsys.readouterr().out.splitlines()
    assert verdict.startswith("trains here: no, store: ")
    assert max(map(len, lines)) <= 80
    names = [line[2:].split("  ")[0] for line in lines if re.match("  [^ ]", line)]
    assert set(names) == NAMES  # none is folded


def test_the_memory_that_io_uring_locks_by_default():
    options = StorageOptions().resolved()
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


def test_o_direct_is_tried_on_the_features_of_every_disk(tmp_path, disk, monkeypatch):
    """Those of types, too, and where nothing can be written."""

    def refuse(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lsm.doctor.machine.tempfile.NamedTemporaryFile", refuse)
    finding = findings(tmp_path)["O_DIRECT"]
    assert finding.state == "info"
    assert "not tried: no file can be made" in finding.detail
    data = HeteroData()
    for name in ("paper", "author"):
        data[name].x = torch.zeros(300, 8)
    data["author", "writes", "paper"].edge_index = torch.zeros(2, 5, dtype=torch.long)
    store = GraphStore.from_pyg(data, tmp_path / "store")
    moved = store.nodes("author").feature_files.paths[0]
    shutil.move(moved, disk / "moved.bin")
    moved.symlink_to(disk / "moved.bin")
    (store.path / "features_of_mine.bin").write_bytes(b"")
    finding = findings(store.path)["O_DIRECT"]
    assert finding.state in ("ok", "no")  # as the file systems have it
    tried = []
    monkeypatch.setattr("lsm.doctor.machine._read_directly", lambda path: tried.append(path) or "")
    findings(store.path)
    assert sorted(tried) == sorted(
        store.nodes(name).feature_files.paths[0] for name in ("paper", "author")
    )
