"""lsm/_core.pyi agrees with the native module."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="stubs are of Python 3.11; those of others differ"
)
def test_the_stub_of_the_native_module_is_current(tmp_path):
    pytest.importorskip("pybind11_stubgen")
    generated = tmp_path / "_core.pyi"
    command = [sys.executable, ROOT / "cmake/stubs.py", generated]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300)
    committed = (ROOT / "lsm/_core.pyi").read_text()
    assert generated.read_text() == committed, "a binding has changed: run `make stubs`"
