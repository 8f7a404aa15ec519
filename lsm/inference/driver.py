"""Computes the rows of all nodes of a store by a model, from disk, and writes them to arrays."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lsm import native
from lsm.core import host_memory
from lsm.core.allocator import returning_freed_memory
from lsm.core.atomic_file import remove_left, write_bytes_atomic
from lsm.core.progress import counting
from lsm.core.units import format_bytes
from lsm.data.graph_store import GraphStore
from lsm.data.sink import no_room
from lsm.distributed import collectives
from lsm.distributed.environment import World
from lsm.distributed.machine_share import cores_per_rank
from lsm.distributed.rendezvous import different_keys
from lsm.inference.arrays import REMEDY, ArrayFile
from lsm.inference.cut import cut
from lsm.inference.network import Model, Network
from lsm.inference.options import WORK, InferenceOptions, check_out
from lsm.inference.outputs import Plan, Step
from lsm.inference.parquet import FILE, check_installed, parquet_bytes, write_parquet
from lsm.inference.plan import plan_inference
from lsm.inference.sampled import SampledNetwork, plan_sampled
from lsm.inference.stage import Resources, TooLittleMemoryError, workers
from lsm.inference.state import State
from lsm.run.common_folder import require_common_folder
from lsm.run.directory import RunDirectory

logger = logging.getLogger(__name__)

SUMMARY = "inference.json"
_WITHOUT_BOUND = 1 << 60
_IDLE_SHARE = 64  # of memory, which threads may keep for the next chunk
_ROUNDED = 20  # a message rounds to one place after the point


def infer(
    model: Model,
    store: GraphStore,
    out: Path,
    options: InferenceOptions,
    world: World | None = None,
) -> dict[str, Any]:
    """Writes the outputs of ``model`` for nodes of ``store`` into ``out``; continues where a killed
    call for the same outputs ended. A collective of ``world``.

    Returns a summary, which ``inference.json`` holds too. Raises ValueError for a model or options
    that do not fit, FileExistsError if ``out`` holds something else, OSError without room.
    """
    world = world or World()
    options.check()
    if options.format == "parquet":
        check_installed()
    check_out(out)
    threads = options.num_threads or cores_per_rank(world)
    with _evaluating(model), torch.inference_mode(), workers(threads) as pool:
        job = _Inference(model, store, out, options, world)
        with job.telling_memory(), returning_freed_memory(job.free_bytes // _IDLE_SHARE // threads):
            plan = job.plan(pool, threads)
            facts = job.facts(plan)
            job.check_alike(facts)
            with RunDirectory(out / WORK, "--out") if world.is_main else nullcontext():
                return job.run(plan, facts)


@contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """A context in which ``model`` is in evaluation mode, if it is a module."""
    if not isinstance(model, nn.Module):
        yield
        return
    training = [each for each in model.modules() if each.training]
    model.eval()
    try:
        yield
    finally:
        for each in training:
            each.training = True


def enough_bytes(
    model: Model, store: GraphStore, options: InferenceOptions, world: World | None = None
) -> int:
    """Memory next to the process itself with which infer() does not fail for outputs of nodes.
    Raises ValueError as it does."""
    world, options = world or World(), replace(options, memory_bytes=_WITHOUT_BOUND)
    threads = options.num_threads or cores_per_rank(world)
    with torch.inference_mode(), workers(threads) as pool:
        plan = _Inference(model, store, Path(), options, world).plan(pool, threads)
    return max(step.stage.enough_bytes for step in plan.steps)


class _Inference:
    def __init__(
        self, model: Model, store: GraphStore, out: Path, options: InferenceOptions, world: World
    ) -> None:
        self._store, self._out, self._options, self._world = store, out, options, world
        self._model, self._started = model, time.monotonic()
        own = options.edges
        self._topologies = {
            each: own[each].topology if each in own else store.edges(each).topology()
            for each in store.edge_types
        }
        self.network: Network | SampledNetwork
        if options.sampled is not None:
            self.network = SampledNetwork.of(model, store, options)
        else:
            self.network = cut(model, store, self._topologies, options)
        if options.node_type not in (None, self.network.node_type):
            raise ValueError(
                f"--node-type: the model has rows of {self.network.node_type}, got "
                f"{options.node_type}"
            )
        process = _own_bytes()
        given = options.memory_bytes
        if given is None:
            given = host_memory.default_bytes() // world.local_size + process
        self._given = given
        self.free_bytes, self._is_parquet = self._given - process, options.format == "parquet"

    @contextmanager
    def telling_memory(self) -> Iterator[None]:
        """A context whose errors of too little memory say how much is needed."""
        try:
            yield
        except TooLittleMemoryError as error:
            own, needed = self._given - self.free_bytes, self._given + error.missing
            raise ValueError(
                f"{self._options.memory_key}: expected at least "
                f"{format_bytes(needed + needed // _ROUNDED)} for {error.part} ("
                f"{format_bytes(own)} of it the process itself), got {format_bytes(self._given)}; "
                f"give more memory, or {error.remedy}"
            ) from None

    def plan(self, pool: ThreadPoolExecutor, num_threads: int) -> Plan:
        """The stages of the route that the options name."""
        network, store, options = self.network, self._store, self._options
        common = self._out / WORK, options, Resources(pool, num_threads, self.free_bytes)
        if isinstance(network, SampledNetwork):
            assert options.sampled is not None, "the network is sampled by it"
            return plan_sampled(network, store, options.sampled, *common)
        return plan_inference(network, store, self._topologies, *common)

    def check_alike(self, facts: dict[str, Any]) -> None:
        """Raises ValueError on all ranks unless they compute the same results. A collective."""
        if self._options.weights_may_differ:
            facts = {key: value for key, value in facts.items() if key != "model"}
        first, *others = collectives.gather_objects(facts, self._world)
        for rank, found in enumerate(others, start=1):
            if differing := different_keys(first, found):
                raise ValueError(
                    f"ranks would compute different results: {', '.join(differing)} of rank {rank} "
                    "differ from those of rank 0; give all ranks the same run, store and options"
                )

    def run(self, plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
        require_common_folder(self._out, self._world, "--out")
        state = State(self._out / WORK, self._world)
        done = state.start(facts)
        if self._world.is_main:
            last = max((n for n in range(len(plan.steps)) if done.is_sealed(n)), default=-1)
            for step in plan.steps[: last + 1]:
                self._free(step)
            try:
                self._create_files(plan, last)
            except OSError:
                if len(done.records) == 0:
                    self._remove()
                raise
        collectives.barrier(self._world)
        self._num_bytes = torch.zeros(2, dtype=torch.float64)
        for number, step in enumerate(plan.steps):
            if done.is_sealed(number):
                continue
            todo = done.todo(number, step.stage.num_units)
            self._run(step, todo, partial(state.add, number))
            for file in step.written:
                file.sync()
            collectives.barrier(self._world)
            if self._world.is_main:
                state.seal(number)  # before the rows are removed that it would be made of again
                self._free(step)
        return self._finish(plan, state.total().num_bad_rows)

    def _run(self, step: Step, todo: np.ndarray, finish: Any) -> None:
        """Makes this rank's part of the units ``todo``."""
        world, shown, stage = self._world, self._options.progress, step.stage
        part = np.array_split(todo, world.size)[world.rank]
        with counting(stage.name, len(part), shown if world.is_main else False) as advance:

            def finished(first: int, end: int, num_bad_rows: int) -> None:
                finish(first, end, num_bad_rows)
                advance(end - first)

            self._num_bytes[0] += stage.run(part, finished)
            share = len(part) / max(1, stage.num_units)
            self._num_bytes[1] += share * sum(file.num_bytes for file in step.written)
        for topology in self._topologies.values():
            native.check_mapped(topology.indptr)
            native.check_mapped(topology.indices)

    def _free(self, step: Step) -> None:
        """Removes the rows that nothing needs after ``step``."""
        for file in step.freed:
            file.path.unlink(missing_ok=True)

    def _create_files(self, plan: Plan, last_sealed: int) -> None:
        """Makes the files that the rest of the stages write, if the disk has room for them."""
        files = [*plan.outputs.arrays.values()]
        needed, most = sum(each.num_bytes for each in files), 0
        if self._is_parquet:
            needed += parquet_bytes(plan.outputs, self._store.nodes(self.network.node_type))
        held: dict[Path, ArrayFile] = {}
        for number, step in enumerate(plan.steps):
            for each in step.written:
                if each not in files and number > last_sealed:
                    held[each.path] = each
            most = max(most, sum(each.num_bytes for each in held.values()))
            for each in step.freed:
                held.pop(each.path, None)
        there = sum(
            path.stat().st_blocks * 512 for path in (self._out / WORK).iterdir() if path.is_file()
        )
        free = shutil.disk_usage(self._out).free
        if needed + most - there > free:
            raise no_room(errno.ENOSPC, self._out, needed + most - there, free, REMEDY)
        for step in plan.steps[last_sealed + 1 :]:
            for each in step.written:
                each.create()

    def _remove(self) -> None:
        """Removes an inference that has done nothing."""
        shutil.rmtree(self._out / WORK)
        with suppress(OSError):  # other files
            self._out.rmdir()

    def facts(self, plan: Plan) -> dict[str, Any]:
        """The facts that decide the results. Reads the weights, and the nodes or links."""
        nodes = plan.outputs.selection
        return {
            "store": self._store.digest(),
            "model": model_digest(self._model),
            "route": plan.route,
            "edges": [_digest(each.left_out) for each in self._options.edges.values()],
            "node type": self.network.node_type,
            "outputs": sorted(plan.outputs.arrays),
            "dtype": self._options.dtype,
            "nodes": "all" if nodes is None else _digest(nodes),
            **_sampling(self._options),
            **({} if self._options.links is None else self._options.links.facts()),
        }

    def _finish(self, plan: Plan, num_bad_rows: int) -> dict[str, Any]:
        """Moves the arrays to their place, and removes the rest."""
        outputs, network = plan.outputs, self.network
        moved = collectives.all_reduce_sum(self._num_bytes, self._world)
        links, num_rows = self._options.links, next(iter(outputs.arrays.values())).num_rows
        in_folder = self._store.is_typed and links is None
        folder = self._out / network.node_type if in_folder else self._out
        about = {"node_type": network.node_type, "nodes": num_rows}
        summary = {
            "store": str(self._store.path),
            **(about if links is None else links.summary),
            "route": plan.route,
            **_sampling(self._options),
            "outputs": {
                name: {"file": str(folder / file), "shape": [each.num_rows, *each.shape]}
                for name, each in outputs.arrays.items()
                for file in [FILE if self._is_parquet else f"{name}.npy"]
            },
            "rows_not_finite": num_bad_rows,
            "bytes_read": int(moved[0]),
            "bytes_written": int(moved[1]),
            "seconds": round(time.monotonic() - self._started, 3),
        }
        if self._world.is_main:
            if self._is_parquet:
                write_parquet(folder, outputs, self._store.nodes(network.node_type))
            else:
                outputs.move(folder)
                if outputs.selection is not None:
                    np.save(folder / "nodes.npy", outputs.selection.numpy())
            remove_left(self._out, SUMMARY)
            write_bytes_atomic(self._out / SUMMARY, (json.dumps(summary, indent=1) + "\n").encode())
            shutil.rmtree(self._out / WORK)
            if num_bad_rows:
                logger.warning(
                    "%d of %d rows have values that are not finite (NaN or infinite); look for bad "
                    "features with `lsm data verify %s`",
                    num_bad_rows,
                    num_rows,
                    self._store.path,
                )
        collectives.barrier(self._world)
        return summary


def model_digest(model: Model) -> str:
    """SHA-256 of the architecture and the weights of a model."""
    found = hashlib.sha256()
    parts: Sequence[Any] = [model] if isinstance(model, nn.Module) else model
    for part in parts:
        is_module = isinstance(part, nn.Module)
        text = repr(part) if is_module else getattr(part, "__qualname__", type(part).__name__)
        found.update(text.encode())
        weights: Mapping[str, Tensor] = part.state_dict() if is_module else {}
        for name, value in weights.items():
            found.update(name.encode())
            found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _sampling(options: InferenceOptions) -> dict[str, Any]:
    return {} if options.sampled is None else options.sampled.facts


def _digest(values: Tensor) -> str:
    return hashlib.sha256(values.numpy().data).hexdigest()


def _own_bytes() -> int:
    """Memory that the process takes already."""
    return host_memory.resident_bytes()["anonymous"]
