"""Prints facts about this machine that explain a failure later: GPU, driver, tools, packages,
memory. Standard library only; what is missing is said, and is no error."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("make", "cmake", "ninja", "c++", "nvcc", "compute-sanitizer", "ncu", "mpirun")
COMMANDS = (
    ["nvidia-smi"],
    ["nvidia-smi", "topo", "-m"],
    ["nvcc", "--version"],
    ["cmake", "--version"],
    ["c++", "--version"],
    ["df", "-h", ".", "/tmp", "/dev/shm"],
    ["free", "-m"],
    ["lscpu"],
)
PACKAGES = (
    *("torch", "torch-geometric", "numpy", "pydantic", "PyYAML", "typer", "rich", "tensorboard"),
    *("triton", "scipy", "hypothesis", "pytest", "pytest-timeout", "psutil", "pybind11"),
    *("cuda-bindings", "mpi4py", "cupy-cuda13x", "nvidia-nccl-cu13", "nvidia-cufile"),
)


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def main() -> None:
    print(f"{platform.platform()}, libc {' '.join(platform.libc_ver())}, Python {sys.version}")
    for path in map(Path, ("/etc/os-release", "/proc/driver/nvidia/version")):
        print(path, path.read_text() if path.exists() else "is not there", sep="\n")
    print(f"cores: {len(os.sched_getaffinity(0))}")
    for program in PROGRAMS:
        print(f"{program}: {shutil.which(program) or 'missing'}")
    for package in PACKAGES:
        print(f"{package}: {version_of(package)}")
    for command in COMMANDS:
        print(f"\n$ {' '.join(command)}", flush=True)
        try:
            subprocess.run(command, check=False, timeout=30)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(error)


if __name__ == "__main__":
    main()
