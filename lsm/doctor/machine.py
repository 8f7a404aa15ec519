"""Examines this machine for training jobs, by trying its parts."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mmap
import os
import platform
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from lsm.core.host_memory import machine_bytes
from lsm.core.os_error import in_words
from lsm.core.units import format_bytes
from lsm.doctor.finding import Finding
from lsm.doctor.nvme import examine_nvme
from lsm.doctor.requirements import examine_requirements
from lsm.storage.nvme.machine import Machine

_BLOCK_BYTES = 4096

RING_BYTES = 6 << 20
"""Memory that io_uring locks with the default options: buffers for 1.25 times the queue depth, and
the ring itself."""


TRAINING = "training"
"""Purpose of the parts that every training needs."""


@dataclass(frozen=True)
class Verdict:
    """True if training starts on this machine; ``line`` tells the place or the reason against
    it."""

    trains: bool
    line: str


def examine(path: Path | None = None) -> list[Finding]:
    """The findings about this machine and the store ``path`` (None: the working directory, which
    need not be one), grouped by purpose. Without the native module, only findings that do not need
    it."""
    place = Path() if path is None else path
    needed = [_cores(), _memory(), _versions(), *examine_requirements(path)]
    launchers = [
        _torchrun(),
        _launcher("SLURM", "srun", "no srun on PATH; launch/torchrun.sh needs none"),
        _launcher("MPI", "mpirun", "no mpirun on PATH; launch/torchrun.sh needs none"),
        _package("mpi4py", "for launch/mpi.sh: pip install mpi4py"),
    ]
    if not any(found.name == "native module" and found.state == "ok" for found in needed):
        groups = {TRAINING: needed, "launchers": launchers}
    else:
        groups = {
            TRAINING: [*needed, _engine()],
            "faster storage": [
                _direct_io(place),
                _liburing(),
                _io_uring(),
                _locked_memory(),
            ],
            "GPU training": [_gpus(), _cuda_build(), _training_device(), _peer_access()],
            "launchers": launchers,
            "DGL blocks": [_package("dgl", "for batch.to_dgl(): pip install dgl")],
            "GPUDirect Storage": [_package("cuda.bindings", "pip install cuda-bindings")],
            "NVMe queue pairs": examine_nvme(Machine()),
        }
    return [
        replace(finding, purpose=purpose)
        for purpose, findings in groups.items()
        for finding in findings
    ]


def verdict(findings: list[Finding]) -> Verdict:
    """The verdict: the device that trains and the engine that reads rows; or the reason against
    training."""
    missing = [found for found in findings if found.purpose == TRAINING and found.state == "no"]
    if missing:
        reasons = "; ".join(f"{found.name}: {found.detail}" for found in missing)
        return Verdict(False, f"trains here: no, {reasons}")
    by_name = {finding.name: finding for finding in findings}
    device = "on a GPU" if by_name["device=auto"].state == "ok" else "on the host"
    engine = by_name["storage.engine=auto"].detail.partition(":")[0]
    return Verdict(True, f"trains here: yes, {device}, {engine}")


def _cores() -> Finding:
    usable, all_cores = len(os.sched_getaffinity(0)), os.cpu_count()
    return Finding("cores", "info", f"{usable} usable of {all_cores}, {platform.machine()}")


def _memory() -> Finding:
    total, free = (format_bytes(machine_bytes(name)) for name in ("MemTotal", "MemAvailable"))
    return Finding("memory", "info", f"{free} available of {total}")


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else format_bytes(soft)
    if soft == resource.RLIM_INFINITY or soft >= RING_BYTES:
        return Finding("locked memory", "ok", limit)
    detail = (
        f"{limit}: io_uring needs {format_bytes(RING_BYTES)} to register its buffers, and is "
        "slower without; raise it: `ulimit -l unlimited`, LimitMEMLOCK=infinity for systemd, "
        "--ulimit memlock=-1 for docker"
    )
    return Finding("locked memory", "no", detail)


def _gpus() -> Finding:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding("gpus", "no", "none found (no nvidia-smi): training runs on the host")
    command = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        return Finding("gpus", "no", f"nvidia-smi failed: {in_words(error)}")
    names = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    return Finding("gpus", "ok" if names else "no", "; ".join(names) or "nvidia-smi lists none")


def _versions() -> Finding:
    names = ("torch", "torch-geometric", "lsm-gnn")
    found = [f"{name} {_version(name) or 'not installed'}" for name in names]
    return Finding("versions", "info", f"python {platform.python_version()}, " + ", ".join(found))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda_build() -> Finding:
    from lsm import native

    if not native.build_info()["cuda"]:
        detail = "built without CUDA: host only; LSM_CUDA=ON builds GPU code where nvcc is"
        return Finding("CUDA build", "no", detail)
    return Finding("CUDA build", "ok", f"toolkit {native.find_cuda().toolkit_version}")


def _training_device() -> Finding:
    from lsm.core.device import gpu_problem

    problem = gpu_problem(0)
    return Finding(
        "device=auto",
        "ok" if problem is None else "no",
        f"the host trains: {problem}" if problem else "a GPU trains",
    )


def _peer_access() -> Finding:
    from lsm import native

    gpus = native.find_cuda().gpus
    if len(gpus) < 2:
        detail = "fewer than two GPUs; comm.transport=ipc is for ranks that share one, too"
        return Finding("peer access", "info", detail)
    for index in range(len(gpus)):
        for gpu in gpus:
            problem = native.peer_access_problem(index, gpu.bus_id)
            if problem:
                detail = f"{problem}; comm.transport=auto takes NCCL or Gloo there"
                return Finding("peer access", "no", detail)
    return Finding("peer access", "ok", f"between {len(gpus)} GPUs, for comm.transport=ipc")


def _liburing() -> Finding:
    from lsm import native

    if native.build_info()["io_uring"]:
        return Finding("liburing", "ok", "built with it")
    return Finding("liburing", "no", "built without it: install liburing-dev and build again")


def _io_uring() -> Finding:
    from lsm import native

    problem = native.io_uring_problem()
    if problem:
        return Finding("io_uring", "no", problem)
    return Finding("io_uring", "ok", f"works, Linux {platform.release()}")


def _direct_io(path: Path) -> Finding:
    """Reads one aligned block with O_DIRECT from ``path``, from the features of the store ``path``
    on each of their disks, or from a new file in the nearest folder that exists."""
    name = "O_DIRECT"
    try:
        existing = [path] if path.is_file() else _feature_files(path)
        if existing:
            by_disk = {os.stat(file).st_dev: file for file in reversed(existing)}
            said = [_read_directly(file) for file in reversed(by_disk.values())]
            return Finding(name, "ok", "; ".join(said))
        folder = path.absolute()
        while not folder.is_dir():
            folder = folder.parent
        try:
            file = tempfile.NamedTemporaryFile(dir=folder, prefix=".lsm-doctor-")  # noqa: SIM115
        except OSError as error:
            return Finding(name, "info", f"not tried: no file can be made ({in_words(error)})")
        with file:
            file.write(bytes(_BLOCK_BYTES))
            file.flush()
            os.fsync(file.fileno())
            return Finding(name, "ok", _read_directly(Path(file.name)))
    except OSError as error:
        detail = f"{path}: {error.strerror}; engines with direct=auto use the page cache there"
        return Finding(name, "no", detail)


def _feature_files(path: Path) -> list[Path]:
    """The files of the features of the store ``path``; none if it is no store that can be read."""
    from lsm.data import format as layout
    from lsm.data.typed.format import read_graph_meta

    if not (path / layout.META).is_file():
        return []
    try:
        names = read_graph_meta(path).files
    except (OSError, ValueError):
        return []
    found = [path / name for name in names if name.rpartition("/")[2].startswith("features")]
    return sorted(file for file in found if file.is_file())


def _read_directly(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _BLOCK_BYTES) as block:  # page-aligned memory
            num_bytes = os.preadv(descriptor, [block], 0)
    finally:
        os.close(descriptor)
    return f"works on {path.parent} ({num_bytes} bytes read at an aligned offset)"


def _torchrun() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("torchrun", "no", "comes with torch, which is not installed")
    return Finding("torchrun", "ok", f"of torch {_version('torch')}")


def _launcher(name: str, program: str, missing: str) -> Finding:
    tool = shutil.which(program)
    if tool is None:
        return Finding(name, "no", missing)
    try:
        result = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=20)
    except (subprocess.SubprocessError, OSError) as error:
        return Finding(name, "no", f"{tool} failed: {in_words(error)}")
    if result.returncode != 0:
        said = (result.stderr or result.stdout).strip().splitlines() or ["without a word"]
        return Finding(name, "no", f"{tool} failed: {said[-1]}")
    return Finding(name, "ok", result.stdout.strip().partition("\n")[0] or tool)


def _package(name: str, remedy: str) -> Finding:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # its parent package is missing
        spec = None
    if spec is None:
        return Finding(name, "no", f"not installed; {remedy}")
    return Finding(name, "ok", _version(name) or "installed")


def _engine() -> Finding:
    from lsm.storage.engine import select_engine

    engine, reason = select_engine("auto")
    return Finding("storage.engine=auto", "ok", f"{engine}: {reason}")
