"""Code that host and device share compiles for the GPU, too, without a warning."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

NVME_HOST_DEVICE = {
    "command.h",
    "completion.h",
    "contiguous.h",
    "memory_order.h",
    "prp.h",
    "queue_pair.h",
    "sparse.h",
    "spec.h",
}


def compile_for_device(source: Path, target: Path) -> None:
    options = ["-std=c++20", f"-I{ROOT}", "-Werror", "all-warnings", "-c"]
    command = ["nvcc", *options, source, "-o", target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def included(source: Path) -> set[str]:
    return {line.split("/")[-1].rstrip('"') for line in source.read_text().splitlines()}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_policies_compile_for_the_device(tmp_path):
    source = ROOT / "tests/native/gpu_policies.cu"
    headers = {path.name for path in (ROOT / "cache/policy").glob("*.h")}
    assert headers - {"insertion_order.h", "line.h"} <= included(source)
    compile_for_device(source, tmp_path / "policies.o")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvme_queue_code_compiles_for_the_device(tmp_path):
    source = ROOT / "tests/native/gpu_nvme.cu"
    assert included(source) >= NVME_HOST_DEVICE
    compile_for_device(source, tmp_path / "nvme.o")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvme_kernels_compile(tmp_path):
    compile_for_device(ROOT / "kernels/io/nvme/gpu/gpu_reads.cu", tmp_path / "kernels.o")
