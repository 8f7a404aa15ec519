"""Chooses the training device, and checks that it works and that its memory suffices."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from lsm import native
from lsm.core import stream_pool
from lsm.core.units import format_bytes

logger = logging.getLogger(__name__)

HOST = torch.device("cpu")
MIN_CAPABILITY = (8, 0)

# torch's error for host memory has no class of its own.
_HOST_ALLOCATOR = "DefaultCPUAllocator: can't allocate memory"
OUT_OF_MEMORY_REMEDY = (
    "make cache.bytes, cache.static.bytes, train.batch_size or sampler.num_neighbors smaller"
)


# Queues of work that a GPU takes at the same time, at most 32. With CUDA's eight, streams share
# them, and work waits behind that of other streams: samplers, planner, executor, copies, training
# and NCCL have one each.
_CONNECTIONS = ("CUDA_DEVICE_MAX_CONNECTIONS", "32")


@dataclass(frozen=True)
class GpuPlace:
    """A GPU on which native code runs; in tests its twin, the same code on the host."""

    device: torch.device
    """Of tensors."""
    number: int
    """For native functions: the GPU's, or native.TWIN."""

    @classmethod
    def of(cls, device: torch.device) -> GpuPlace:
        """The GPU ``device``."""
        return cls(device, device.index)

    @classmethod
    def twin(cls) -> GpuPlace:
        """The twin of a GPU."""
        return cls(torch.device("cpu"), native.TWIN)

    @property
    def is_twin(self) -> bool:
        """True for a twin."""
        return self.number < 0


def use_all_connections() -> None:
    """Sets CUDA_DEVICE_MAX_CONNECTIONS if it is not set; CUDA reads it when a process first uses a
    GPU."""
    os.environ.setdefault(*_CONNECTIONS)


def as_device(name: str, value: torch.device | str | int) -> torch.device:
    """``value`` as the host or a GPU, with its number: "cuda" is the current one. Raises
    ValueError, with ``name``, for another."""
    try:
        device = torch.device("cuda", value) if isinstance(value, int) else torch.device(value)
        is_known = device.type in ("cpu", "cuda")
    except (RuntimeError, TypeError):
        is_known = False
    if not is_known:
        raise ValueError(f"{name}: expected cpu, cuda or a GPU such as cuda:0, got {value!r}")
    if str(device) == "cuda":
        current = torch.cuda.current_device() if torch.cuda.is_available() else 0
        return torch.device("cuda", current)
    return device


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device that ``name`` (auto, cpu, cuda) stands for in this process; a GPU is made current.

    auto takes the GPU of this local rank (gpu_of) if it works, else the host, and logs the reason
    against a GPU that exists. Raises RuntimeError, with the problem and the remedy, if ``name`` is
    cuda and the GPU does not work. Calls use_all_connections().
    """
    if name == "cpu":
        return torch.device("cpu")
    use_all_connections()
    index = gpu_of(local_rank, len(native.find_cuda().gpus))
    problem = gpu_problem(index)
    if problem is None:
        device = torch.device("cuda", index)
        torch.cuda.set_device(device)
        stream_pool.trim_when_memory_ends()
        return device
    if name == "cuda":
        raise RuntimeError(f"device=cuda: {problem}; or set device=cpu (see `lsm doctor`)")
    if native.find_cuda().gpus or torch.cuda.is_available():
        logger.warning("device=auto trains on the host: %s", problem)
    return torch.device("cpu")


def gpu_of(local_rank: int, num_gpus: int) -> int:
    """The visible GPU of a local rank: the one with its number, modulo the visible GPUs. Launchers
    may show each rank only its own, and ranks may share a GPU."""
    return local_rank % num_gpus if num_gpus else local_rank


def gpu_problem(
    index: int, cuda: Any = torch.cuda, info: native.CudaInfo | None = None
) -> str | None:
    """The problem of GPU ``index``, with its remedy; None if it can train. ``cuda``, ``info``: GPUs
    as torch and the native module see them."""
    info = info or native.find_cuda()
    if not info.toolkit_version:
        return "the native module was built without CUDA; build again with LSM_CUDA=ON and nvcc"
    if 0 < info.driver_version < info.toolkit_version // 1000 * 1000:
        return (
            f"the driver serves CUDA up to {_version(info.driver_version)}, and this was built "
            f"with {_version(info.toolkit_version)}; update the driver, or build with an older "
            "toolkit"
        )
    if info.driver_version == 0:
        return (
            "no NVIDIA driver was found (libcuda.so); install one, or give the container its GPUs "
            "(docker run --gpus all)"
        )
    if info.problem:
        return f"the CUDA runtime finds no GPU ({info.problem}); see nvidia-smi"
    if not cuda.is_available():
        return "torch finds no GPU; install a build of torch with CUDA (pytorch.org)"
    count = min(len(info.gpus), cuda.device_count())
    if index >= count:
        return (
            f"GPU {index} is not among the {count} that torch and the CUDA runtime show; look at "
            "CUDA_VISIBLE_DEVICES"
        )
    gpu = info.gpus[index]
    capability = (gpu.capability_major, gpu.capability_minor)
    if capability < MIN_CAPABILITY:
        return (
            f"{gpu.name} has compute capability {capability[0]}.{capability[1]}, and "
            f"{MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]} or newer is needed"
        )
    return None


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@contextmanager
def memory_errors(doing: str) -> Iterator[None]:
    """A context that turns torch's out-of-memory errors into RuntimeErrors with a remedy. Where the
    memory is a GPU's, it trims the native pool first, whose bytes the error names."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        first = str(error).strip().partition("\n")[0]
        facts = "; ".join(filter(None, (first, stream_pool.trim_current())))
        raise RuntimeError(
            f"the GPU ran out of memory {doing} ({facts}); {OUT_OF_MEMORY_REMEDY}; the last "
            "checkpoint resumes"
        ) from error
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise RuntimeError(
            f"the host ran out of memory {doing}; {OUT_OF_MEMORY_REMEDY}; the last checkpoint "
            "resumes"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """True for an error of too little memory of the host."""
    return isinstance(error, MemoryError) or _HOST_ALLOCATOR in str(error)


def current(device: torch.device) -> AbstractContextManager[None]:
    """A context in which the GPU ``device`` is this thread's current one. Does nothing for the
    host.

    Tensors on a GPU go to native code through DLPack. torch refuses that for any GPU but the
    current one, which is GPU 0 in a new thread.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def used_here(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, which this thread's current stream uses from now on, whatever stream it was
    allocated in. Once it is released, torch's allocator keeps its memory until that stream has done
    the work that it then has. Does nothing for the host."""
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """``tensor`` of the host or of ``device`` on ``device``. The current stream copies it, through
    page-locked memory, and this thread does not wait."""
    if tensor.device.type == device.type:
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def page_locked(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` of the host in page-locked memory, from which a GPU copies while this thread goes
    on. Raises RuntimeError, with a remedy, if no more can be locked."""
    if tensor.is_pinned():
        return tensor
    locked = empty_locked(tensor.shape, tensor.dtype, "make loader.prefetch smaller")
    locked.numpy()[...] = tensor.numpy()  # torch would start OpenMP threads
    return locked


def seed_generators(seed: int, device: torch.device) -> None:
    """Seeds torch's default generators of the host and of ``device``.

    ``torch.manual_seed`` also goes to GPUs of other kinds, where there is no driver, and formats
    the stack for each: 0.2 ms.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)


_OWN = threading.local()


@contextmanager
def copies_to(device: torch.device) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """A context with a function that copies tensors of the host to the GPU ``device``, in a stream
    of this thread's own, so that they wait for no other work. All have arrived when it ends."""
    if not hasattr(_OWN, "streams"):
        _OWN.streams = {}
    if device not in _OWN.streams:
        _OWN.streams[device] = torch.cuda.Stream(device)
    stream = _OWN.streams[device]

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        locked = page_locked(tensor)
        return stream_pool.allocated(lambda: locked.to(device, non_blocking=True))

    with torch.cuda.stream(stream):
        yield copy
    stream.synchronize()


def device_of(rows: torch.Tensor | Mapping[str, torch.Tensor]) -> torch.device:
    """The GPU that some of ``rows``, a tensor or tensors by type, are on; or the host."""
    tensors = [rows] if isinstance(rows, torch.Tensor) else rows.values()
    return next((each.device for each in tensors if each.is_cuda), HOST)


def empty_rows(num_rows: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory of empty_locked() for rows, [num_rows, dim]."""
    return empty_locked((num_rows, dim), dtype, "make loader.staging_bytes smaller")


def empty_locked(shape: Sequence[int], dtype: torch.dtype, remedy: str) -> torch.Tensor:
    """Page-locked host memory from torch's pool, not initialised. Raises RuntimeError, with
    ``remedy``, if no more can be locked."""
    with locking(math.prod(shape) * dtype.itemsize, remedy):
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)


@contextmanager
def locking(num_bytes: int, remedy: str) -> Iterator[None]:
    """Says of errors inside how much was to be page-locked, and ``remedy``."""
    try:
        yield
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        raise RuntimeError(
            f"could not page-lock {format_bytes(num_bytes)} of host memory ({first}); "
            f"{remedy}, or raise `ulimit -l` and the container's limits"
        ) from error


def peak_bytes(device: torch.device) -> int:
    """Peak memory of the GPU ``device`` that torch has held for this process, without the cache,
    which torch does not hold."""
    return torch.cuda.max_memory_allocated(device)
