"""``LSM_CUDA=AUTO`` falls back to the host, and says why; CMake's configuration only."""

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from support.training import REPOSITORY

PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(configured LANGUAGES CXX)
include({REPOSITORY}/cmake/cuda.cmake)
message(STATUS "GPU code: ${{LSM_BUILDS_CUDA}}")
"""
CMAKES = [
    path for path in ("/usr/bin/cmake", shutil.which("cmake")) if path and Path(path).exists()
]
NVCC = shutil.which("nvcc")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CMAKES, reason="takes cmake")]


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    """Python environments by their torch: of the host, of CUDA, or none."""

    def make(version):
        folder = tmp_path_factory.mktemp("environment") / "venv"
        venv.create(folder)
        python = folder / "bin" / "python"
        if version is not None:
            path = "import sysconfig; print(sysconfig.get_path('purelib'))"
            listed = subprocess.run([python, "-c", path], capture_output=True, text=True)
            torch = Path(listed.stdout.strip()) / "torch"
            torch.mkdir()
            (torch / "__init__.py").write_text("")
            (torch / "version.py").write_text(f"cuda: Optional[str] = {version}\n")
        return python

    return {"host": make("None"), "cuda": make("'13.0'"), "none": make(None)}


def configure(folder, python, nvcc, cmake=CMAKES[-1], mode="AUTO"):
    """Status and output of CMake, in a project that builds nothing."""
    folder.mkdir(exist_ok=True)
    (folder / "CMakeLists.txt").write_text(PROJECT)
    settings = [
        f"-DLSM_CUDA={mode}",
        f"-DPython_EXECUTABLE={python}",
        "-DCMAKE_CUDA_ARCHITECTURES=90",
    ]
    result = subprocess.run(
        [cmake, "-G", "Ninja", "-S", folder, "-B", folder / "build", *settings],
        env=os.environ | {"CUDACXX": str(nvcc)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    return result.returncode, " ".join((result.stdout + result.stderr).split())


@pytest.fixture
def old_nvcc(tmp_path):
    """An nvcc without C++20, such as one that this CMake does not know enough of."""
    script = (
        f'#!/bin/sh\ncase "$*" in *c++20*) echo \'no c++20\' >&2; exit 1;; esac\nexec {NVCC} "$@"\n'
    )
    path = tmp_path / "nvcc"
    path.write_text(script)
    path.chmod(0o755)
    return path


def test_a_torch_of_the_host_takes_no_cuda_though_pip_hides_it(environments, tmp_path):
    """pip's isolation is a sitecustomize that leaves only the build's requirements on the path."""
    isolation = tmp_path / "isolation"
    isolation.mkdir()
    (isolation / "sitecustomize.py").write_text(
        "import sys; sys.path = [path for path in sys.path if 'site-packages' not in path]"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={isolation} exec {environments["host"]} "$@"\n')
    python.chmod(0o755)
    status, output = configure(tmp_path / "p", python, NVCC or "no-nvcc")
    assert status == 0, output
    assert "torch was built without CUDA: building without GPU code" in output


def test_no_nvcc_is_the_host_or_an_error(environments, tmp_path):
    missing = tmp_path / "no-nvcc"
    status, output = configure(tmp_path / "auto", environments["cuda"], missing)
    assert (status, "GPU code: FALSE" in output) == (0, True), output
    status, output = configure(tmp_path / "on", environments["cuda"], missing, mode="ON")
    assert status == 1
    assert "LSM_CUDA=ON, but no nvcc" in output


@pytest.mark.skipif(NVCC is None, reason="takes nvcc")
def test_tools_that_do_not_fit_are_the_host_or_an_error(environments, old_nvcc, tmp_path):
    status, output = configure(tmp_path / "auto", environments["none"], old_nvcc)
    assert (status, "GPU code: FALSE" in output) == (0, True), output
    assert "cannot compile GPU code together: building without GPU code; a newer CMake" in output
    status, output = configure(tmp_path / "on", environments["none"], old_nvcc, mode="ON")
    assert status == 1
    assert "LSM_CUDA=ON, but CMake" in output
    assert "no c++20" in output or "CUDA20" in output  # of nvcc, or of a CMake that is too old


@pytest.mark.skipif(NVCC is None, reason="takes nvcc")
def test_the_cmake_of_the_system_configures(environments, tmp_path):
    """Debian's 3.25.1 does not know C++20 of nvcc 13, newer ones do."""
    status, output = configure(tmp_path / "p", environments["cuda"], NVCC, CMAKES[0])
    assert status == 0, output
    builds = "GPU code: CUDA" in output
    assert builds != ("cannot compile GPU code together" in output)
