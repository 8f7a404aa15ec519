"""Everything that waits for a GPU, in one command: ``make first-gpu-run``.

Builds, runs the tests for GPUs, their kernels under compute-sanitizer, and the benchmarks with
their targets. A step that fails does not keep the others from being run. A call takes at most
``--limit-secs``; the next one goes on where it stopped, from the record, which is one JSON file.
Anew: after a change of the tree, or on another machine.

Needs a GPU with its driver, nvcc, a C++ compiler, make, and Python 3.11 or newer with torch for
CUDA; compute-sanitizer for its steps. Without a network (``make first-gpu-run OFFLINE=1``) Python
has to have all packages already; those that are missing are named.

Exit status: 0 all passed; 1 a step failed; 75 not finished, call again; 77 no GPU; 78 something
needed is missing. make itself says which, and ends with 2.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from resumable import Record, Step, run_command, run_steps

ROOT = Path(__file__).resolve().parents[1]
FAILED, UNFINISHED, NO_GPU, MISSING = 1, 75, 77, 78
LIMIT_SECS = 480
# Time for a stopped step to end, and for this script itself.
MARGIN_SECS = 20
SANITIZERS = ("memcheck", "synccheck", "initcheck")
BENCH_PARTS = ("gather", "cold", "planner", "sample", "training", "embed")
BUILDING = ("pybind11", "pytest", "pytest-timeout", "hypothesis", "psutil", "scipy")
PROGRAMS = ("make", "c++", "nvcc")
OFFLINE_PROGRAMS = ("cmake", "ninja")
FACTS = "import json; from lsm.core import record; print(json.dumps(record.make({})))"


def find_gpus() -> list[str]:
    """The names of the GPUs that the driver shows; needs no package."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    names = []
    for index in range(count.value):
        driver.cuDeviceGetName(name, len(name), index)
        names.append(name.value.decode())
    return names


def missing(is_offline: bool) -> list[str]:
    """Programs and, where none can be installed, packages that are not there."""
    programs = PROGRAMS + (OFFLINE_PROGRAMS if is_offline else ())
    lacking = [program for program in programs if shutil.which(program) is None]
    if not is_offline:
        return lacking
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in (*project["dependencies"], *BUILDING):
        name = re.split(r"[<>=~! ]", requirement)[0]
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            lacking.append(name)
    return lacking


def gpu_test_files() -> list[str]:
    """Test files with tests for GPUs."""
    marked = re.compile(r"mark\.(multi)?gpu\b|\bON_A_GPU\b")
    paths = [
        path for path in (ROOT / "tests").rglob("test_*.py") if marked.search(path.read_text())
    ]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def kernel_tests() -> list[str]:
    """Those that the Makefile has for sanitizers, one by one: each takes long there."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    found = re.search(r"^KERNEL_TESTS := (.*)$", makefile, re.MULTILINE)
    assert found is not None
    return [
        f"{path}::{name}"
        for path in found[1].split()
        for name in re.findall(r"^def (test_\w+)", (ROOT / path).read_text(), re.MULTILINE)
    ]


def make_command(*goal: str, is_offline: bool) -> list[str]:
    """make with this Python: it installs into an environment of its own, or offline nothing."""
    settings = [f"PYTHON={sys.executable}", "LSM_CUDA=ON", "CUDA_ARCHS=native"]
    return [
        "make",
        "--no-print-directory",
        "-C",
        str(ROOT),
        *goal,
        *settings,
        *(["OFFLINE=1"] if is_offline else []),
    ]


def all_steps(python: str, is_offline: bool, folder: Path) -> list[Step]:
    """After the build."""

    def test(name: str, tests: str, *more: str) -> Step:
        goal = ("test-gpu", "BUILT=1", f"GPU_TESTS={tests}", *more)
        command = make_command(*goal, is_offline=is_offline)
        return Step(name, command, passed=r"\b\d+ passed")

    steps = [test(f"test {path}", path) for path in gpu_test_files()]
    for part in BENCH_PARTS:
        result = folder / f"bench-{part}.json"
        command = [python, "bench/gpu.py", "--check", "--only", part, "--json", str(result)]
        steps.append(Step(f"bench {part}", command, result=result))
    result = folder / "bench-exchange.json"
    ranks = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    exchange = ["bench/exchange.py", "--device", "cuda", "--check", "--json", str(result)]
    steps.append(Step("bench exchange", [*ranks, *exchange], result=result))
    for tool in SANITIZERS:
        for tests in kernel_tests():
            steps.append(test(f"{tool} {tests}", tests, f"SANITIZER={tool}"))
    return steps


def facts_of(python: str, gpus: Sequence[str]) -> dict:
    """Commit, machine and GPUs. Raises RuntimeError if torch cannot be imported."""
    done = subprocess.run(
        [python, "-c", FACTS], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{python} cannot import torch and this package: {last}")
    return json.loads(done.stdout) | {"gpu": list(gpus), "command": "make first-gpu-run"}


def summary(record: Record, steps: Sequence[Step]) -> str:
    """Targets beside figures, and how many steps ended how."""
    lines = []
    for what, line in record.reach().items():
        reached = "reached" if line["reached"] else "missed"
        lines.append(f"{what}: {line['measured']:.4g}, at least {line['at_least']:g}: {reached}")
    ends = [record.steps[step.name]["status"] for step in steps if record.is_done(step)]
    counts = ", ".join(f"{ends.count(end)} {end}" for end in dict.fromkeys(ends))
    return "\n".join([*lines, f"{len(ends)} of {len(steps)} steps: {counts or 'none'}"])


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = ROOT / "build/first-gpu-run/record.json"
    options.add_argument("--json", type=Path, default=default, help="the record, and the state")
    options.add_argument("--python", default=sys.executable, help="has the package, or will")
    options.add_argument("--offline", action="store_true", help="install nothing")
    options.add_argument("--limit-secs", type=float, default=LIMIT_SECS, help="of this call")
    options.add_argument("--again", action="store_true", help="also steps that failed or timed out")
    return options.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    start, args = time.monotonic(), parse_args(arguments)
    gpus = find_gpus()
    if not gpus:
        print("no GPU: the NVIDIA driver shows none (see nvidia-smi); nothing was run")
        return NO_GPU
    lacking = missing(args.offline)
    if lacking:
        print(
            f"missing: {', '.join(lacking)}; install them (packages without a network: pip "
            "download on a machine with one, then pip install --no-index --find-links FOLDER)"
        )
        return MISSING
    deadline = start + args.limit_secs - min(MARGIN_SECS, args.limit_secs / 4)
    folder = args.json.resolve().parent
    build = Step("build", make_command("build", is_offline=args.offline))
    print("build ..", end=" ", flush=True)
    built = run_command(build, deadline - time.monotonic(), folder / "build.log")
    print(f"{built['status']} ({built['seconds']:.0f} s)", flush=True)
    if built["status"] != "passed":
        print("\n".join(built["tail"]))
        return UNFINISHED if built["status"] == "stopped" else FAILED
    try:
        facts = facts_of(args.python, gpus)
    except RuntimeError as error:
        print(error)
        return MISSING
    record = Record(args.json.resolve(), facts)
    if record.has_restarted:
        print("the record is of another commit or machine: starting over")
    if args.again:
        record.forget("failed", "timed out")
    steps = all_steps(args.python, args.offline, folder)
    is_done = run_steps(
        steps, record, deadline=deadline, limit_secs=args.limit_secs, logs=folder / "logs"
    )
    print(summary(record, steps), f"record: {args.json}", sep="\n")
    if not is_done:
        print("not finished: call it again to go on")
        return UNFINISHED
    ends = {ended["status"] for ended in record.steps.values()}
    return FAILED if ends & {"failed", "timed out"} else 0


if __name__ == "__main__":
    sys.exit(main())
