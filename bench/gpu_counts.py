"""Counts an iteration's demands on a GPU, on the emulated one: ``python bench/gpu.py --count``.

Two hops are sampled, their ids are pushed and planned on the GPU, and the plan is replayed: one
GPU, rows in its memory, misses in page-locked memory. Counts are means over iterations after a
warm-up in which the cache fills and memory grows. In a second run the threads of a pipeline do the
same, and the waits of the thread that takes the batches are counted: that one would train. All
figures are counts, which are the same on every machine; times need a GPU. ``make test-emulated``
builds the module that this loads in place of lsm._core, and holds the figures.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build/emulated"
FANOUTS = [10, 5]
IDS = 100_000  # unit of the counts of planning


@dataclass
class Counts:
    """As CallCounts (tests/emulated/runtime/counts.h)."""

    launches: float
    waits: float
    to_gpu_bytes: float
    from_gpu_bytes: float
    far_bytes: float
    allocations: float
    host_accesses: float
    waits_of_thread: float
    """Of the waits, those of the thread that reads the counts."""

    def __add__(self, other: Counts) -> Counts:
        return self._each(lambda name: getattr(self, name) + getattr(other, name))

    def __sub__(self, other: Counts) -> Counts:
        return self._each(lambda name: getattr(self, name) - getattr(other, name))

    def times(self, factor: float) -> Counts:
        return self._each(lambda name: round(getattr(self, name) * factor, 1))

    @staticmethod
    def _each(value: Callable[[str], float]) -> Counts:
        return Counts(*(value(field.name) for field in fields(Counts)))


def load_emulated() -> Callable[[], Counts]:
    """Puts the emulated GPU in place of the twins. Returns a function that reads its counts. Raises
    SystemExit, with the remedy, if it was not built."""
    core = os.environ.get("LSM_EMULATED_CORE") or next(map(str, BUILT.glob("_core*.so")), "")
    if not core:
        raise SystemExit(f"no emulated GPU in {BUILT.relative_to(ROOT)}: run make test-emulated")
    os.environ |= {"LSM_EMULATED_CORE": core, "LSM_EMULATED_PAGEABLE": "1"}
    sys.path += [str(ROOT), str(ROOT / "tests/emulated/python")]
    import emulated_core  # noqa: F401

    library, size = ctypes.CDLL(core), len(fields(Counts))

    def read() -> Counts:
        counts = (ctypes.c_int64 * size)()
        library.emulated_call_counts(counts)
        return Counts(*counts)

    return read


class Parts:
    """Adds up the counts of each part of an iteration."""

    def __init__(self, read: Callable[[], Counts]) -> None:
        self._read = read
        self.sums: dict[str, Counts] = {}

    def run(self, part: str, work: Callable):
        before = self._read()
        result = work()
        taken = self._read() - before
        self.sums[part] = self.sums[part] + taken if part in self.sums else taken
        return result


class Setting:
    """The store, and what the batches of both runs are made of."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        import torch
        from gpu_training import make_store

        nodes = options.nodes
        self.store = make_store(directory / "rows", nodes, 12 * nodes, options.dim, skew=2)
        self.window = 16
        generator = torch.Generator().manual_seed(1)
        self.seeds = [
            torch.randperm(nodes, generator=generator)[: options.seeds]
            for _ in range(options.warmup + options.iterations + self.window - 1)
        ]

    def sampler(self):
        from lsm.sampler.neighbor_gpu import DeviceNeighborSampler

        topology = self.store.topology()
        return DeviceNeighborSampler(topology, topology, FANOUTS, device=-1, num_slots=2)

    def features(self):

        from lsm.cache.options import CacheOptions
        from lsm.core.device import GpuPlace
        from lsm.features import builders
        from lsm.features.tiers_gpu import GpuOptions
        from lsm.storage.options import StorageOptions

        store = self.store
        cache = CacheOptions(bytes=store.num_nodes * store.row_bytes // 4, window=self.window)
        storage = StorageOptions(engine="memory")
        gpu = GpuOptions(planner="device", staging="gather")
        opening = builders.Opening(
            store.feature_files,
            storage,
            GpuPlace.twin(),
            gpu=gpu,
            scores=None,
            share=None,
            idle_bytes=512 << 20,
            num_threads=1,
        )
        return builders.cached(opening, cache.resolved())


def count_pipeline(read: Callable[[], Counts], setting: Setting) -> tuple[Counts, int]:
    """The counts of an epoch of a pipeline, read by the thread that takes its batches; and how many
    batches these are."""
    from lsm.loader.pipeline import Pipeline
    from lsm.loader.rows_in_flight import RunAhead
    from lsm.sampler.name import BatchName
    from lsm.storage.read_ahead import ReadAhead

    sampler, seeds = setting.sampler(), setting.seeds
    with setting.features() as rows:
        pipeline = Pipeline(
            lambda iteration: (seeds[iteration], BatchName(iteration=iteration)),
            lambda drawn: sampler.sample(*drawn),
            rows,
            first=0,
            last=len(seeds),
            policy=RunAhead(ReadAhead.fixed(4), 1 << 30, num_threads=2, timeout_secs=60.0),
        )
        try:
            before = read()
            taken = sum(len(prepared.x) > 0 for prepared in pipeline)
            return read() - before, taken
        finally:
            pipeline.close()


def count(read: Callable[[], Counts], options: argparse.Namespace, directory: Path) -> dict:
    """The counts of each part, and those that the project has limits for."""
    from lsm.sampler.name import BatchName

    setting = Setting(options, directory)
    store, sampler = setting.store, setting.sampler()
    parts, moved, planned = Parts(read), 0, 0
    graphs = []
    total = options.warmup + options.iterations
    with setting.features() as rows:

        def sample(iteration: int):
            seeds = setting.seeds[iteration]
            return parts.run(
                "sample", lambda: sampler.sample(seeds, BatchName(iteration=iteration)).n_id
            )

        ahead = setting.window - 1
        for iteration in range(total + ahead):
            if iteration == options.warmup + ahead:
                parts.sums.clear()
                moved = planned = 0
            graphs.append(sample(iteration))
            parts.run("push", lambda: rows.announce(graphs[-1]))
            if iteration < ahead:
                continue
            ids = graphs[iteration - ahead]
            batch = parts.run("plan", lambda ids=ids: rows.prefetch(ids))
            # Staged rows are read there, and the batch, which is the host's memory here, written
            # and read for the rows that are inserted.
            counters = batch.plan.counters
            inserted = counters["misses"] + counters["victim_hits"] - counters["bypasses"]
            moved += counters["misses"] + len(ids) + inserted
            planned += len(ids)
            parts.run("replay", batch.result)
    made = summary(parts.sums, options.iterations, planned, moved * store.row_bytes)
    taken, batches = count_pipeline(read, setting)
    made["counts"]["host waits of the thread that trains"] = {
        "now": taken.waits_of_thread,
        "at_most": 0,
    }
    return {**made, "pipeline": {"batches": batches, **vars(taken)}}


def summary(sums: dict[str, Counts], iterations: int, planned: int, row_bytes: int) -> dict:
    """``row_bytes``: that kernels read and wrote of rows in host memory."""
    total = sum(sums.values(), start=Counts(*[0] * len(fields(Counts))))
    planning = sums["push"] + sums["plan"] + sums["replay"]
    crossed = planning.to_gpu_bytes + planning.from_gpu_bytes + planning.far_bytes - row_bytes
    figures = {
        "launches per iteration": (total.launches / iterations, 25),
        "host waits per iteration": (total.waits / iterations, 5),
        "bytes over PCIe per 100K planned ids, without rows": (crossed * IDS / planned, 1.2e6),
        "host loads and stores per 100K planned ids": (
            planning.host_accesses * IDS / planned,
            None,
        ),
        "allocations per iteration": (total.allocations / iterations, 0),
    }
    return {
        "counts": {
            what: {"now": round(now, 1), "at_most": wanted}
            for what, (now, wanted) in figures.items()
        },
        "per_iteration": {part: vars(taken.times(1 / iterations)) for part, taken in sums.items()},
        "planned_ids_per_iteration": planned / iterations,
    }


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", type=Path, help="file for the record")
    options.add_argument("--nodes", type=int, default=20_000)
    options.add_argument("--dim", type=int, default=16, help="float32 values per row")
    options.add_argument("--seeds", type=int, default=64, help="per iteration")
    options.add_argument("--warmup", type=int, default=24, help="iterations that are not counted")
    options.add_argument("--iterations", type=int, default=8)
    return options.parse_args(arguments)


def main() -> None:
    options = parse_args()
    read = load_emulated()
    from common import make_record

    with TemporaryDirectory() as directory:
        results = count(read, options, Path(directory))
    made = make_record({"bench": "gpu counts", **results}, options)
    print(json.dumps(made))
    if options.json:
        options.json.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
