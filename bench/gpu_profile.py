"""Where a GPU's time goes: ``python bench/gpu_profile.py``; prints one JSON record.

For a batch of embeddings by some models and methods, and for an iteration of training behind a
cache, as bench/gpu.py has them: milliseconds of the wall and of kernels, launches, and the kernels
and operators that take most, by torch's profiler, which slows the host down. A GPU whose kernels
take less than the wall waits for the thread that launches them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpu
import gpu_embed
import gpu_training
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from common import make_record

WARM_UP, BATCHES, MOST = 3, 10, 12
EMBEDDINGS = (("complex", "stored"), ("complex", "fused"), ("transe_l1", "stored"))


def profiled(work: Callable[[], Any]) -> dict:
    """Of one call of ``work``; means over some."""
    for _ in range(WARM_UP):
        work()
    gpu.synchronize()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu.on_gpu() else [])]
    with profile(activities=activities) as made:
        start = time.perf_counter()
        for _ in range(BATCHES):
            work()
        gpu.synchronize()
        seconds = time.perf_counter() - start
    events = made.key_averages()
    kernels = [each for each in events if each.device_type == DeviceType.CUDA]
    operators = [each for each in events if each.device_type == DeviceType.CPU]
    return {
        "ms": 1e3 * seconds / BATCHES,
        "gpu_ms": sum(each.self_device_time_total for each in kernels) / 1e3 / BATCHES,
        "launches": sum(each.count for each in kernels) / BATCHES,
        "kernels": longest(kernels, "self_device_time_total"),
        "operators": longest(operators, "self_cpu_time_total"),
    }


def longest(events: list, time_of: str) -> list[dict]:
    ordered = sorted(events, key=lambda each: -getattr(each, time_of))[:MOST]
    return [
        {
            "name": each.key[:120],
            "ms": getattr(each, time_of) / 1e3 / BATCHES,
            "calls": each.count / BATCHES,
        }
        for each in ordered
    ]


def profile_embeddings(options: argparse.Namespace) -> dict:
    torch.set_float32_matmul_precision("high")
    edges, results = gpu_embed.random_edges(options, gpu.GPU), {}
    for model, method in EMBEDDINGS:
        if method in gpu_embed.methods(model, gpu.GPU):
            chosen = gpu_embed.options_of(options, model, method)
            train = gpu_embed.new_training(chosen, edges, options, gpu.GPU)
            results[f"{model}_{method}"] = profiled(train)
    torch.set_float32_matmul_precision("highest")
    return results


def profile_training(options: argparse.Namespace, directory: Path) -> dict:
    store, placed = gpu_training.new_store(options, gpu.GPU, directory)
    results = {}
    for way in ("cached", "resident"):
        with gpu_training.open_loop(store, placed, gpu.GPU, way, options) as (loop, _):
            results[way] = profiled(loop.step)
    return results


def run(options: argparse.Namespace) -> dict:
    with TemporaryDirectory() as directory:
        results = {
            "bench": "gpu_profile",
            "gpu": gpu.gpu_facts(),
            "embed": profile_embeddings(options),
            "training": profile_training(options, Path(directory)),
        }
    return make_record(results, options)


def main() -> None:
    options = gpu.parse_args()
    problem = gpu.gpu_problem(gpu.GPU.index)
    if problem:
        raise SystemExit(f"no GPU to profile: {problem}")
    made = run(options)
    if options.json:
        options.json.write_text(json.dumps(made, indent=1) + "\n")
    print(json.dumps(made))


if __name__ == "__main__":
    main()
