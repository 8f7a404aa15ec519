"""Everything that waits for a GPU, in one command: ``make first-gpu-run``.

Machine's facts, native self-test and bench (``make gpu-selftest``), build, tests of kernels; the
benchmarks with their targets; exchange, IPC, cuFile in compatibility mode; last, a few tests under
compute-sanitizer, in a process per tool, and two kernels under ncu. A step that fails does not keep
the others from being run. A call takes at most ``--limit-secs``; the next one goes on where it
stopped, from the record, which is one JSON file. Anew: after a change of the tree, or on another
GPU.

``--saved FOLDER`` takes over the record and the logs that FOLDER has, and leaves both there after
every step; ``--carried FOLDER`` has those of an earlier machine, gpu_selftest, and a module that
was built for this Python (``make lent-gpu``): both are for bench/lent_gpu.sh.

Needs a GPU with its driver, nvcc, a C++ compiler, and Python 3.11 or newer with torch for CUDA;
compute-sanitizer and ncu for their steps. With ``--offline`` nothing is installed, and make is not
needed; Python has to have all packages already. Those that are missing are named, and the native
steps are run without them.

Exit status: 0 all passed; 1 a step failed, or the GPU does not work; 75 not finished, call again;
77 no GPU; 78 something needed is missing. make itself says which, and ends with 2.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.machinery
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import saved_state
from gpu_driver import find_gpus, gpu_problem
from resumable import SAME, Record, Step, log_name, run_command, run_steps
from tree_hash import tree_hash

ROOT = Path(__file__).resolve().parents[1]
FAILED, UNFINISHED, NO_GPU, MISSING = 1, 75, 77, 78
LIMIT_SECS = 480
# Time for a stopped step to end, and for this script itself.
MARGIN_SECS = 20
BUILDING = ("pybind11", "pytest", "pytest-timeout", "hypothesis", "psutil", "scipy")
PROGRAMS = ("make", "c++", "nvcc")
OFFLINE_PROGRAMS = ("c++", "nvcc", "cmake", "ninja")
# Longest times of steps: one that hangs must not take a whole lease.
TEST_SECS, BENCH_SECS, WATCHED_SECS = 150, 200, 240
# One of each kind of kernel; a sanitizer takes minutes for all of them.
WATCHED_TESTS = (
    "tests/native/test_gpu_gather.py::test_gathers[4-none]",
    "tests/cache/test_gpu_executor.py::test_moves[2-512]",
    "tests/cache/test_gpu_planner.py::test_plans[lookahead-pool]",
    "tests/sampler/test_gpu_sampler.py::test_samples[fanouts0-int32-uva]",
    "tests/embed/test_gpu_kernels.py::test_updates[5-100-adagrad]",
)
# Part of the native bench, and the kernel of it that ncu measures.
NCU_KERNELS = {"gathers": "CopyRows", "planner": "LookUp"}


def missing(is_offline: bool) -> list[str]:
    """Programs and, where none can be installed, packages that are not there."""
    programs = OFFLINE_PROGRAMS if is_offline else PROGRAMS
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


def kernel_tests() -> list[str]:
    """The files of KERNEL_TESTS in the Makefile."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    found = re.search(r"^KERNEL_TESTS := (.*)$", makefile, re.MULTILINE)
    assert found is not None
    return found[1].split()


def gpu_test_files() -> list[str]:
    """Test files with tests for GPUs."""
    marked = re.compile(r"mark\.(multi)?gpu\b|\bON_A_GPU\b")
    paths = [
        path for path in (ROOT / "tests").rglob("test_*.py") if marked.search(path.read_text())
    ]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def build_step(python: str, is_offline: bool) -> Step:
    """Builds the Python module for this GPU. Online, make installs into an environment of its own;
    offline, CMake builds in place."""
    if not is_offline:
        settings = [f"PYTHON={sys.executable}", "LSM_CUDA=ON", "CUDA_ARCHS=native"]
        return Step("build", ["make", "--no-print-directory", "-C", str(ROOT), "build", *settings])
    configure = ["cmake", "-S", ".", "-B", "build/offline", "-G", "Ninja"]
    configure += [f"-DPython_EXECUTABLE={python}", "-DLSM_WERROR=OFF"]
    configure += ["-DLSM_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native"]
    return Step("build", ["sh", "-c", f"{shlex.join(configure)} && cmake --build build/offline"])


def carried_module(carried: Path) -> Path | None:
    """The module that was built elsewhere, if it is of this tree and for this Python."""
    module, tree = carried / f"_core{importlib.machinery.EXTENSION_SUFFIXES[0]}", carried / "tree"
    is_same = tree.exists() and tree.read_text().strip() == tree_hash(ROOT)
    return module if is_same and module.exists() else None


def loading_step(python: str, module: Path) -> Step:
    """Puts ``module`` where it is imported from; fails if it does not load, or has no GPU code."""
    check = "from lsm import native; assert native.build_info()['cuda']"
    commands = [["cp", str(module), "lsm/"], [python, "-c", check]]
    return Step("build", ["sh", "-c", " && ".join(map(shlex.join, commands))])


class Steps:
    """The steps of a run. ``selftest``: the program of ``make gpu-selftest``."""

    def __init__(self, python: str, selftest: Path, folder: Path) -> None:
        self._python, self._selftest, self._folder = python, selftest, folder

    def native(self) -> list[Step]:
        """Those that need neither the build nor any package."""
        facts = Step("facts", [self._python, "bench/machine_facts.py"], limit_secs=120)
        return [
            facts,
            *self._native("self-test", "--tests"),
            *self._native("native bench", "--bench"),
        ]

    def built(self) -> list[Step]:
        """Those that need the build."""
        kernels = kernel_tests()
        shared, multiple = (
            "tests/features/test_gpu_shared_features.py",
            "tests/train/test_multigpu.py",
        )
        gds = "tests/storage/test_gpu_gds.py"
        last = [shared, multiple, gds]
        between = [path for path in gpu_test_files() if path not in {*kernels, *last}]
        benches = ("gather", "cold", "planner", "sample", "embed", "training")
        return [
            *(self._test(path) for path in kernels),
            *(self._bench(part) for part in benches),
            self._profile(),
            *(self._test(path) for path in between),
            self._exchange(),
            *(self._test(path) for path in last),
            self._watched("memcheck"),
            *(
                step
                for part, kernel in NCU_KERNELS.items()
                for step in self._native(f"ncu {kernel}", "--bench", part, under=by_ncu(kernel))
            ),
            *self._native("self-test under memcheck", "--tests", under=watched_by("memcheck")),
            self._watched("synccheck"),
            self._watched("initcheck"),
        ]

    def _native(self, name: str, *arguments: str, under: Sequence[str] = ()) -> list[Step]:
        """gpu_selftest, if it is there; ``under``: a tool, beneath which the tests are fewer."""
        if not self._selftest.exists():
            return []
        short = {"LSM_EMULATED_PART": "1"} if under else {}
        command = [*under, str(self._selftest), *arguments]
        limit_secs = WATCHED_SECS if under else BENCH_SECS
        return [Step(name, command, environment=short, limit_secs=limit_secs)]

    def _test(self, path: str) -> Step:
        command = [self._python, "-m", "pytest", "-m", "gpu or multigpu", "-rs", path]
        return Step(f"test {path}", command, r"\b\d+ passed", limit_secs=TEST_SECS)

    def _bench(self, part: str) -> Step:
        result = self._folder / f"bench-{part}.json"
        command = [self._python, "bench/gpu.py", "--check", "--only", part, "--json", str(result)]
        return Step(f"bench {part}", command, result=result, limit_secs=BENCH_SECS)

    def _profile(self) -> Step:
        result = self._folder / "profile.json"
        command = [self._python, "bench/gpu_profile.py", "--json", str(result)]
        return Step("profile", command, result=result, limit_secs=BENCH_SECS)

    def _exchange(self) -> Step:
        result = self._folder / "bench-exchange.json"
        ranks = [self._python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        exchange = ["bench/exchange.py", "--device", "cuda", "--check", "--json", str(result)]
        return Step("bench exchange", [*ranks, *exchange], result=result, limit_secs=BENCH_SECS)

    def _watched(self, tool: str) -> Step:
        """One process of ``tool`` for all: each would spend most of its time on starting."""
        pytest = [self._python, "-m", "pytest", "--timeout=1800", *WATCHED_TESTS]
        environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        command = [*watched_by(tool), *pytest]
        return Step(tool, command, r"\b\d+ passed", None, environment, WATCHED_SECS)


def watched_by(tool: str) -> list[str]:
    """compute-sanitizer before a command."""
    return ["compute-sanitizer", f"--tool={tool}", "--error-exitcode=1", "--target-processes=all"]


def by_ncu(kernel: str) -> list[str]:
    """ncu before a command, for the third launch of a kernel; it leaves the clocks alone."""
    options = ["--clock-control", "none", "--set", "full", "--kernel-name-base", "demangled"]
    which = ["-k", f"regex:{kernel}", "--launch-skip", "2", "--launch-count", "1"]
    return ["ncu", *options, *which, "--kill", "yes"]


def commit_of(root: Path) -> str:
    """The commit of the tree; of a copy without history, LSM_COMMIT, or "unknown"."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    described = ""
    if shutil.which("git"):
        described = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return described.strip() or os.environ.get("LSM_COMMIT", "unknown")


def facts_of(gpus: Sequence[str]) -> dict:
    """Tree, GPUs and machine, by nothing but the standard library: nothing is built yet."""
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    return {
        "tree": tree_hash(ROOT),
        "gpu": list(gpus),
        "commit": commit_of(ROOT),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": machine,
        "command": "make first-gpu-run",
    }


def line_of(figure: dict) -> str:
    """A figure of the native bench, for people."""
    rest = ("figure", "variant", "value", "min", "max", "repeats", "unit")
    rest += ("beside", "beside_what", "ratio")
    sizes = [f"{name} {size}" for name, size in figure.items() if name not in rest]
    name = ", ".join(filter(None, [figure["figure"], figure.get("variant"), *sizes]))
    beside = f" ({figure['ratio']:.2f} of {figure['beside_what']})" if "ratio" in figure else ""
    return f"{name}: {figure['value']:.4g} {figure['unit']}{beside}"


def summary(record: Record, steps: Sequence[Step]) -> str:
    """Native figures, targets next to figures, and how many steps ended how."""
    lines = [line_of(figure) for figure in record.figures()]
    for what, line in record.reach().items():
        reached = "reached" if line["reached"] else "missed"
        lines.append(f"{what}: {line['measured']:.4g}, at least {line['at_least']:g}: {reached}")
    bad = ("failed", "timed out")
    lines += [
        f"{name}: {end['status']}" for name, end in record.steps.items() if end["status"] in bad
    ]
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
    options.add_argument("--saved", type=Path, help="folder that gets the record and logs.tgz")
    default = ROOT / "build/lent-gpu"
    options.add_argument("--carried", type=Path, default=default, help="folder with gpu_selftest")
    return options.parse_args(arguments)


class Run:
    """One call: its record, its logs and the folders that outlive the machine."""

    def __init__(self, args: argparse.Namespace, start: float) -> None:
        self.args = args
        self.path: Path = args.json.resolve()
        self.folder = self.path.parent
        self.logs = self.folder / "logs"
        margin = min(MARGIN_SECS, args.limit_secs / 4)
        self.deadline = start + args.limit_secs - margin

    def restore(self, facts: dict) -> None:
        """Takes over what an earlier machine, or an earlier call here, left."""
        for folder in (self.args.carried / "state", self.args.saved):
            if folder and saved_state.restore(folder, self.path, self.logs, facts, SAME):
                print(f"goes on from {folder.name}/{saved_state.RECORD}")

    def save(self) -> None:
        if self.args.saved:
            saved_state.save(self.path, self.logs, self.args.saved)

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def run(self, steps: Sequence[Step], record: Record) -> bool:
        """True if all steps have ended."""
        limits = {"deadline": self.deadline, "limit_secs": self.args.limit_secs}
        return run_steps(steps, record, **limits, logs=self.logs, after=self.save)

    def build(self) -> str:
        """In every call, because a machine starts bare: passed, failed or stopped."""
        module = carried_module(self.args.carried) if self.args.offline else None
        if module is not None:
            if self._build(loading_step(self.args.python, module), "load") == "passed":
                return "passed"
            (ROOT / "lsm" / module.name).unlink(missing_ok=True)
        return self._build(build_step(self.args.python, self.args.offline), "build")

    def _build(self, step: Step, verb: str) -> str:
        print(f"{verb} ..", end=" ", flush=True)
        ended = run_command(step, self.left(), self.logs / log_name(verb))
        print(f"{ended['status']} ({ended['seconds']:.0f} s)", flush=True)
        if ended["status"] != "passed":
            print("\n".join(ended["tail"]))
        return ended["status"]

    def say_no_gpu(self, steps: Steps) -> int:
        """The facts of the machine are saved, next to the carried state as it was."""
        print("no GPU: the NVIDIA driver shows none (see nvidia-smi); nothing was run")
        if self.args.saved:
            run_command(steps.native()[0], self.left(), self.logs / "facts.log")
            carried = self.args.carried / "state" / saved_state.RECORD
            kept = self.path if self.path.exists() else carried
            saved_state.save(kept, self.logs, self.args.saved)
        return NO_GPU

    def say_missing(self, lacking: Sequence[str]) -> None:
        print(
            f"missing: {', '.join(lacking)}; install them (packages without a network: pip "
            "download on a machine with one, then pip install --no-index --find-links FOLDER)"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    start, args = time.monotonic(), parse_args(arguments)
    run = Run(args, start)
    steps = Steps(args.python, args.carried / "gpu_selftest", run.folder)
    gpus = find_gpus()
    if not gpus:
        return run.say_no_gpu(steps)
    facts = facts_of(gpus)
    run.restore(facts)
    record = Record(run.path, facts)
    if record.has_restarted:
        print("the record is of another tree or GPU: starting over")
        shutil.rmtree(run.logs, ignore_errors=True)
    if args.again:
        record.forget("failed", "timed out")
    record.write()
    try:
        return run_all(run, steps, record)
    finally:
        run.save()


def run_all(run: Run, steps: Steps, record: Record) -> int:
    """The exit status."""
    problem = gpu_problem()
    if problem:
        print(f"the GPU does not work: {problem}; nothing was run")
        return FAILED
    if len(steps.native()) == 1:
        print(f"no gpu_selftest in {run.args.carried}: make gpu-selftest; its steps are left out")
    every = [*steps.native(), *steps.built()]
    is_done = run.run(steps.native(), record)
    status = after_native(run, steps, record) if is_done else UNFINISHED
    print(summary(record, every), f"record: {run.args.json}", sep="\n")
    if status == UNFINISHED:
        print("not finished: call it again to go on")
    return status


def after_native(run: Run, steps: Steps, record: Record) -> int:
    lacking = missing(run.args.offline)
    if lacking:
        run.say_missing(lacking)
        return MISSING
    if all(map(record.is_done, steps.built())):
        return status_of(record)
    built = run.build()
    run.save()
    if built != "passed":
        return UNFINISHED if built == "stopped" else FAILED
    return status_of(record) if run.run(steps.built(), record) else UNFINISHED


def status_of(record: Record) -> int:
    ends = {ended["status"] for ended in record.steps.values()}
    return FAILED if ends & {"failed", "timed out"} else 0


if __name__ == "__main__":
    sys.exit(main())
