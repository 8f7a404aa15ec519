"""Runs the tests on the emulated GPU, and proves that they find planted defects.

run.py [--full]: runs a part of both builds, and of Python tests of twins and GPUs with the
emulated GPU in their place; and every mutation in a run of its own, which must fail with the
expected message. --full: all of them. As many run at a time as the machine has cores.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build/emulated"
TIMEOUT_SECS = 900
# A report ends the run: the tests have to be without any.
SANITIZER = "halt_on_error=1:second_deadlock_stack=1:exitcode=66"

PYTHON_TESTS = [
    "tests/cache/test_executor_twin.py",
    "tests/native/test_gather_twin.py",
    "tests/embed/test_gpu_twin.py",
    "tests/sampler/test_sampler_twin.py",
    "tests/sampler/test_typed_sampler_twin.py",
    "--deselect=tests/sampler/test_typed_sampler_twin.py::test_larger_graphs",
    "tests/bench/test_gpu_counts.py",
]
# Tests of GPUs that need no tensor of torch there.
GPU_TESTS = ["tests/storage/test_gpu_nvme.py", "-k", "not waves"]
FULL_GPU_TESTS = ["tests/storage/test_gpu_nvme.py", "tests/cache/test_gpu_planner.py"]


Ended = tuple[bool, str]
"""Whether a run ended as it should, and its output."""


def run(command: list[str | Path], **environment: str) -> Ended:
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TSAN_OPTIONS": SANITIZER, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECS,
        check=False,
    )
    return ended.returncode == 0, ended.stdout


def run_python(tests: list[str]) -> Ended:
    paths = [Path(__file__).parent / "python", ROOT]
    return run(
        [sys.executable, "-m", "pytest", "-p", "emulated_core", *tests],
        LSM_EMULATED_CORE=str(next(BUILT.glob("_core*.so"))),
        LSM_EMULATED_PAGEABLE="1",
        OMP_WAIT_POLICY="passive",
        PYTHONPATH=os.pathsep.join(map(str, [*paths, os.environ.get("PYTHONPATH", "")])),
    )


def find(mutation: Mutation) -> Ended:
    has_passed, output = run(
        [BUILT / f"emulated_{mutation.build}", f"--test-case=*{mutation.tests}*"],
        LSM_EMULATED_PART="1",
        LSM_EMULATED_MUTATION=mutation.name,
    )
    return not has_passed and mutation.found in output, output


def parts(is_full: bool) -> dict[str, Callable[[], Ended]]:
    """All runs by their names, those that take longest first."""
    part = {} if is_full else {"LSM_EMULATED_PART": "1"}
    twins = [*PYTHON_TESTS, "tests/cache/test_planner_twin.py"] if is_full else PYTHON_TESTS
    gpus = FULL_GPU_TESTS if is_full else GPU_TESTS
    tests = {
        "race": partial(run, [BUILT / "emulated_race"], **part),
        "memory": partial(run, [BUILT / "emulated_memory"], **part),
        "tests of twins": partial(run_python, twins),
        "tests of GPUs": partial(run_python, gpus),
    }
    planted = {f"planted: {m.name}": partial(find, m) for m in MUTATIONS}
    return tests | planted


def timed(name: str, start: Callable[[], Ended]) -> bool:
    started = time.monotonic()
    is_right, output = start()
    print(
        f"{name:65} {time.monotonic() - started:4.0f} s {'' if is_right else 'FAILED'}", flush=True
    )
    if not is_right:
        print(output, flush=True)
    return is_right


def main() -> None:
    runs = parts("--full" in sys.argv)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        are_right = list(threads.map(timed, runs, runs.values()))
    sys.exit(not all(are_right))


main()
