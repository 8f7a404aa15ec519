"""lsm/_core.pyi agrees with the native module."""

import subprocess
import sys
from pathlib import Path

import pytest

pybind11 = pytest.importorskip("pybind11")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or pybind11.version_info < (3,),
    reason="the stub is of Python 3.11 and pybind11 3; those of others differ",
)
def test_the_stub_of_the_native_module_is_current(tmp_path):
    pytest.importorskip("pybind11_stubgen")
    generated = tmp_path / "_core.pyi"
    command = [sys.executable, ROOT / "cmake/stubs.py", generated]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300)
    committed = (ROOT / "lsm/_core.pyi").read_text()
    assert generated.read_text() == committed, "a binding has changed: run `make stubs`"
