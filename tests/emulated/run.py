"""Runs the tests on the emulated GPU, and proves that they find planted defects.

run.py BUILD [--full]: runs all of the memory build, a part of the race build, and a part of the
Python tests of twins and GPUs with the emulated GPU in their place; then every mutation in a run of
its own, which must fail with the expected message. --full: all of them.
"""

import os
import subprocess
import sys
from pathlib import Path

from mutations import MUTATIONS, Mutation

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


def run_python(build: Path, is_full: bool) -> bool:
    """Whether the tests of the twins pass."""
    root = Path(__file__).parents[2]
    paths = [Path(__file__).parent / "python", root]
    environment = {
        "LSM_EMULATED_CORE": str(next(build.glob("_core*.so")).resolve()),
        "LSM_EMULATED_PAGEABLE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, [*paths, os.environ.get("PYTHONPATH", "")])),
    }
    pytest = [sys.executable, "-m", "pytest", "-p", "emulated_core"]
    twins = [*PYTHON_TESTS, "tests/cache/test_planner_twin.py"] if is_full else PYTHON_TESTS
    gpus = FULL_GPU_TESTS if is_full else GPU_TESTS
    ended = [
        subprocess.run(
            [*pytest, *tests],
            cwd=root,
            env={**os.environ, **environment},
            timeout=TIMEOUT_SECS,
            check=False,
        )
        for tests in (twins, gpus)
    ]
    return all(run.returncode == 0 for run in ended)


def run(program: Path, tests: str, capture: bool, **environment: str):
    return subprocess.run(
        [program, f"--test-case=*{tests}*"],
        env={**os.environ, "TSAN_OPTIONS": SANITIZER, **environment},
        capture_output=capture,
        text=True,
        timeout=TIMEOUT_SECS,
        check=False,
    )


def is_found(build: Path, mutation: Mutation) -> bool:
    ended = run(
        build / f"emulated_{mutation.build}",
        mutation.tests,
        capture=True,
        LSM_EMULATED_PART="1",
        LSM_EMULATED_MUTATION=mutation.name,
    )
    found = ended.returncode != 0 and mutation.found in ended.stdout + ended.stderr
    print(f"{mutation.name:45} {mutation.build:6} {'found' if found else 'NOT FOUND'}", flush=True)
    if not found:
        print(ended.stdout, ended.stderr, sep="\n")
    return found


def main() -> None:
    build, is_full = Path(sys.argv[1]) / "tests/emulated", "--full" in sys.argv
    part = {} if is_full else {"LSM_EMULATED_PART": "1"}
    failed = run(build / "emulated_memory", "", capture=False).returncode != 0
    failed |= run(build / "emulated_race", "", capture=False, **part).returncode != 0
    failed |= not run_python(build, is_full)
    for mutation in MUTATIONS:
        failed |= not is_found(build, mutation)
    sys.exit(failed)


main()
