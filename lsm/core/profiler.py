"""Spans of an iteration, and traces for chrome://tracing or Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
import torch.autograd.profiler
from torch.profiler import ProfilerActivity, profile, record_function, schedule

WARM_UP_STEPS = 2


_NO_SPAN: AbstractContextManager[None] = nullcontext()


def span(name: str) -> AbstractContextManager[None]:
    """A context that is marked as ``lsm/name`` in traces of torch.profiler and, once a GPU is in
    use, as an NVTX range for Nsight Systems. Without either it does nothing, because a mark that
    nobody reads takes 27 us."""
    uses_gpu = torch.cuda.is_initialized()
    if not (uses_gpu or torch.autograd.profiler._is_profiler_enabled):
        return _NO_SPAN
    return _marked(name, uses_gpu=uses_gpu)


@contextmanager
def _marked(name: str, *, uses_gpu: bool) -> Iterator[None]:
    if uses_gpu:
        torch.cuda.nvtx.range_push(f"lsm/{name}")
    try:
        with record_function(f"lsm/{name}"):
            yield
    finally:
        if uses_gpu:
            torch.cuda.nvtx.range_pop()


class StepProfiler:
    """Profiles ``num_steps`` training steps after WARM_UP_STEPS: all threads of this process and
    its GPU, if any. Writes ``directory/rank<rank>.json``. 0 steps: does nothing."""

    def __init__(self, num_steps: int, directory: Path, rank: int) -> None:
        self.path = directory / f"rank{rank}.json"
        self._left = WARM_UP_STEPS + num_steps if num_steps else 0
        self._profile = None
        if not num_steps:
            return
        directory.mkdir(parents=True, exist_ok=True)
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=WARM_UP_STEPS, active=num_steps, repeat=1),
            on_trace_ready=self._write,
            # Sampling, reads and copies run in threads of their own.
            experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True),
        )

    def __enter__(self) -> StepProfiler:
        if self._profile is not None:
            self._profile.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop()

    def step(self) -> None:
        """Must be called after each training step."""
        if self._profile is None:
            return
        self._profile.step()
        self._left -= 1
        if self._left == 0:
            self._stop()

    def _stop(self) -> None:
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    def _write(self, finished: profile) -> None:
        finished.export_chrome_trace(str(self.path))
