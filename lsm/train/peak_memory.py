"""The memory that a run has taken."""

from __future__ import annotations

from typing import Any

from lsm.core import host_memory
from lsm.core.device import peak_bytes
from lsm.core.stream_pool import pool_facts
from lsm.distributed import collectives
from lsm.train.gpu_memory import device_terms
from lsm.train.job import Job


def peak_of(job: Job) -> dict[str, Any]:
    """Peaks of memory so far, with their budgets, for the summary. A collective."""
    peak = host_memory.peak_beside_files(job.memory.libraries)
    peak = max(collectives.gather_objects(peak, job.world))
    found = {"memory_bytes": job.memory.budget, "peak_memory_bytes": peak}
    if job.device.type == "cuda":
        cache_bytes = job.features.device_bytes
        found |= {"device": str(job.device), "cache_device_bytes": cache_bytes}
        found["peak_device_bytes"] = peak_bytes(job.device) + cache_bytes
        found |= pool_facts(job.device)
        found["budget_device_bytes"] = sum(device_terms(job).values())
    return found
