"""What is decided within a set compiles for the GPU too, without a warning."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_policies_compile_for_the_device(tmp_path):
    source = ROOT / "tests/native/device_policies.cu"
    assert {path.name for path in (ROOT / "cache/policy").glob("*.h")} - {"insertion_order.h"} <= {
        line.split("/")[-1].rstrip('"') for line in source.read_text().splitlines()
    }
    options = ["-std=c++20", f"-I{ROOT}", "-Werror", "all-warnings", "-c"]
    command = ["nvcc", *options, source, "-o", tmp_path / "policies.o"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
