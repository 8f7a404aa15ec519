"""bench/lent_gpu.sh from end to end in a copy without history: its real steps, with stand-ins for
the driver, the compiler, Python's modules and the native program."""

import importlib.machinery
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from support.training import REPOSITORY

sys.path.append(str(REPOSITORY / "bench"))
import saved_state
from tree_hash import tree_hash

pytestmark = pytest.mark.slow

SCRIPTS = ("lent_gpu.sh", "first_gpu_run.py", "resumable.py", "saved_state.py", "tree_hash.py")
SCRIPTS += ("gpu_driver.py", "machine_facts.py")
# In place of the Python that runs tests and benches: says what it was asked, and how it ends.
PYTHON = """#!/bin/sh
case "$*" in
  "-m zipfile"*|bench/first_gpu_run.py*|*gpu_driver.py*|bench/machine_facts.py*)
    exec {python} "$@";;
esac
echo "$*" >>{log}
case "$*" in
  *build_info*) cat lsm/_core* >>{log}; exec grep -q works lsm/_core*;;
  *test_gpu_sampler.py) echo 1 failed; exit 1;;
  *"-m pytest"*) echo 3 passed;;
esac
"""
SELFTEST = """#!/bin/sh
echo "gpu_selftest $*" >>{log}
echo '{{"figure": "gather", "row_bytes": 256, "value": 2000, "unit": "GB/s"}}'
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The folder of a libcuda.so.1 that plays a GPU."""
    folder = tmp_path_factory.mktemp("driver")
    source = REPOSITORY / "tests/bench/libcuda_stand_in.c"
    library = folder / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=300)
    return folder


class Machine:
    """A bare machine with a copy of the tree; ``saved`` is all that comes back from it."""

    def __init__(self, folder: Path, driver: Path) -> None:
        self.tree, self.saved, self.log = folder / "tree", folder / "out", folder / "log"
        self.variables = {**os.environ, "LD_LIBRARY_PATH": str(driver), "STAND_IN_GPU": "H100"}
        (self.tree / "bench").mkdir(parents=True)
        for name in SCRIPTS:
            shutil.copy(REPOSITORY / "bench" / name, self.tree / "bench")
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(REPOSITORY / name, self.tree)
        for path in REPOSITORY.glob("tests/**/test_*gpu*.py"):
            target = self.tree / path.relative_to(REPOSITORY)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        programs = self.tree.parent / "programs"
        programs.mkdir()
        for name in ("cmake", "ninja", "c++", "nvcc", "compute-sanitizer", "ncu"):
            self.play(programs / name, "echo 1 passed")
        self.python = programs / "python"
        self._program(self.python, PYTHON.format(python=sys.executable, log=self.log))
        self.variables["PATH"] = f"{programs}:/usr/bin:/bin"
        self.variables["PYTHON"] = str(self.python)
        carried = self.tree / "build/lent-gpu"
        (carried / "wheels").mkdir(parents=True)
        with zipfile.ZipFile(carried / "wheels/carried-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("carried/__init__.py", "")
        self._program(carried / "gpu_selftest", SELFTEST.format(log=self.log))

    def play(self, program: Path, script: str) -> None:
        """Plays a program; what it is asked for its version is no step."""
        known = f'case "$*" in *--version) exit;; esac; echo {program.name} $* >>{self.log}'
        self._program(program, f"#!/bin/sh\n{known}\n{script}\n")

    def play_compiler(self, script: str) -> None:
        self.play(self.python.parent / "cmake", script)

    def _program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def call(self, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.tree / "bench/lent_gpu.sh", self.saved],
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def asked(self) -> list[str]:
        """The commands since the last time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def record(self) -> dict:
        return json.loads((self.saved / "record.json").read_text())


@pytest.fixture
def machine(tmp_path, driver):
    return Machine(tmp_path, driver)


def names_in(archive: Path) -> set[str]:
    with tarfile.open(archive) as packed:
        return set(packed.getnames())


def test_a_lease(machine):
    done = machine.call()
    assert done.returncode == 1, done.stdout + done.stderr  # one test fails
    record, asked = machine.record(), machine.asked()
    assert asked[0] == "gpu_selftest --tests"
    assert asked[2].startswith("cmake -S . -B build/offline -G Ninja")
    assert asked[4].endswith("tests/features/test_gpu_cached_features.py")
    failed = [name for name, end in record["steps"].items() if end["status"] == "failed"]
    assert failed == ["test tests/sampler/test_gpu_sampler.py"]
    assert record["steps"]["self-test"]["figures"][0]["row_bytes"] == 256
    assert "gather, row_bytes 256: 2000 GB/s" in done.stdout
    assert (machine.tree / "build/lent-gpu-site/carried/__init__.py").exists()
    saved = sorted(path.name for path in machine.saved.iterdir())
    assert saved == ["logs.tgz", "record.json"]
    assert {"logs/facts.log", "logs/self-test.log", "logs/build.log"} <= names_in(
        machine.saved / "logs.tgz"
    )
    # All is done: a second call asks for nothing.
    assert machine.call().returncode == 1
    assert machine.asked() == []


def carry(machine: Machine, *steps: str) -> None:
    """The state of an earlier lease that ended after these steps."""
    state = machine.tree / "build/lent-gpu/state"
    state.mkdir()
    ended = {name: {"status": "passed"} for name in steps}
    record = {"tree": tree_hash(machine.tree), "gpu": ["H100"], "steps": ended}
    (state / "record.json").write_text(json.dumps(record))
    log = machine.tree.parent / "earlier.log"
    log.write_text("of the earlier lease")
    with tarfile.open(state / "logs.tgz", "w:gz") as logs:
        logs.add(log, "logs/earlier.log")


@pytest.mark.parametrize("content", ["works", "of another system", "of another tree"])
def test_a_module_that_was_built_elsewhere(machine, content):
    """Spares the build if it loads, and is of this tree."""
    carried = machine.tree / "build/lent-gpu"
    (machine.tree / "lsm").mkdir()
    module = f"_core{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    (carried / module).write_text(content)
    is_other = content == "of another tree"
    (carried / "tree").write_text("0" * 16 if is_other else tree_hash(machine.tree) + "\n")
    machine.call()
    asked = machine.asked()
    assert (content in "".join(asked)) == (not is_other)
    assert any(line.startswith("cmake") for line in asked) == (content != "works")
    assert (machine.tree / "lsm" / module).exists() == (content == "works")
    assert any(line.endswith("test_gpu_gather.py") for line in asked)


def test_another_machine_goes_on_from_what_came_back(machine):
    carry(machine, "facts", "self-test")
    machine.play_compiler("exit 1")
    done = machine.call()
    assert "goes on from state/record.json" in done.stdout
    asked = machine.asked()
    assert asked[0] == "gpu_selftest --bench"
    assert asked[1].startswith("cmake")
    assert set(machine.record()["steps"]) == {"facts", "self-test", "native bench"}
    assert "logs/earlier.log" in names_in(machine.saved / "logs.tgz")


@pytest.mark.parametrize("change", ["tree", "gpu"])
def test_another_tree_or_gpu_starts_over(machine, change):
    carry(machine, "facts", "self-test")
    machine.play_compiler("exit 1")
    if change == "tree":
        with (machine.tree / "bench/machine_facts.py").open("a") as file:
            file.write("# changed\n")
    machine.call(STAND_IN_GPU="H200" if change == "gpu" else "H100")
    assert machine.asked()[0] == "gpu_selftest --tests"
    assert machine.record()["gpu"] == ["H200" if change == "gpu" else "H100"]
    assert "logs/earlier.log" not in names_in(machine.saved / "logs.tgz")


def test_a_machine_without_a_gpu_says_so_and_keeps_the_state(machine):
    carry(machine, "facts", "self-test")
    done = machine.call(LD_LIBRARY_PATH="")
    assert done.returncode == 77
    assert done.stdout.startswith("no GPU: ")
    assert machine.asked() == []
    assert list(machine.record()["steps"]) == ["facts", "self-test"]
    assert "logs/facts.log" in names_in(machine.saved / "logs.tgz")


def test_a_gpu_that_does_not_work_is_said(machine):
    done = machine.call(STAND_IN_BROKEN="cuCtxSynchronize")
    assert done.returncode == 1
    assert done.stdout.startswith("the GPU does not work: cuCtxSynchronize failed with error 999")
    assert machine.asked() == []


def test_a_call_ends_in_time_and_the_next_one_goes_on(machine):
    machine.play_compiler("sleep 300")
    done = machine.call(LIMIT_SECS="25")
    assert done.returncode == 75, done.stdout + done.stderr
    first = machine.record()["steps"]
    assert first["facts"]["status"] == "passed"
    machine.asked()
    machine.play_compiler("exit 1")
    assert machine.call().returncode == 1
    asked = machine.asked()
    if first.get("self-test", {}).get("status") == "passed":
        assert "gpu_selftest --tests" not in asked
    assert set(machine.record()["steps"]) == {"facts", "self-test", "native bench"}


def test_logs_that_come_back_are_small(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(8):
        (logs / f"{number}.log").write_bytes(os.urandom(4 << 20) + b"the end")
    saved_state.save(tmp_path / "none.json", logs, tmp_path / "out")
    archive = tmp_path / "out/logs.tgz"
    assert archive.stat().st_size < 16 << 20
    with tarfile.open(archive) as packed:
        file = packed.extractfile("logs/3.log")
        assert file is not None
        assert file.read().endswith(b"the end")
