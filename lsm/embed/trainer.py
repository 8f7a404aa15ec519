"""Trains embeddings, partition by partition: parse, open, train, close.

Every rank runs this, in lock-step over the steps of the order; ranks differ in the partitions that
they hold. Numbers are a function of the configuration, the store and the world size: neither the
engine, nor a checkpoint, nor an interruption changes a bit of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from lsm import native
from lsm.config.load import shared_settings
from lsm.core.atomic_file import write_bytes_atomic
from lsm.core.profiler import StepProfiler, span
from lsm.distributed import collectives, signals, watchdog
from lsm.distributed.collectives import World
from lsm.embed.config import EmbedConfig
from lsm.embed.evaluate import Blocks, Evaluator, as_record
from lsm.embed.job import EmbedJob, open_job
from lsm.embed.orders.itinerary import Step
from lsm.embed.run_state import (
    KeptTables,
    RunState,
    TableState,
    load_relations,
    save_state,
)
from lsm.embed.table.slots import SlotAccess
from lsm.links.ranking import Ranking
from lsm.run.directory import RunDirectory
from lsm.run.log import RunLog
from lsm.run.metrics import Metrics
from lsm.run.record import RunRecord, places

STEP_SCALARS = ("loss", "step_secs", "wait_secs")


def train(config: EmbedConfig) -> dict[str, Any]:
    """Trains and tests embeddings. Blocks until the run ends.

    Under torchrun, srun or mpirun, every process of the job calls it.

    Args:
        config: From ``lsm.embed.load_embed_config``.

    Returns:
        The summary that `lsm embed train` prints, the same on every rank.

    Raises:
        ValueError: The configuration cannot be run.
        Stopped: A signal asked a rank to stop. Every rank raises it, with a checkpoint written.
    """
    with (
        signals.on_signals(),
        collectives.joined(config.dist.timeout_secs, shared_settings(config)) as world,
    ):
        return _train(config, world)


def _train(config: EmbedConfig, world: World) -> dict[str, Any]:
    run_dir = collectives.broadcast_object(config.run_dir, world)
    with (
        RunLog(main=world.is_main) as log,
        RunDirectory(run_dir) if world.is_main else nullcontext(),
        open_job(config, world, run_dir) as job,
        _record(job, log) if world.is_main else nullcontext(),
        _metrics(config, job, log) as metrics,
        StepProfiler(config.metrics.profile_steps, run_dir / "profile", world.rank) as profiler,
    ):
        if config.embed.model == "auto":
            metrics.say(_chosen_model(job))
        trainer = EmbedTrainer(job, metrics, profiler)
        trainer.begin()
        while not trainer.is_done:
            trainer.train_epoch()
        return trainer.finish()


def _record(job: EmbedJob, log: RunLog) -> RunRecord:
    return RunRecord(
        job.run_dir,
        job.config,
        log,
        store=job.store.path,
        world_size=job.world.size,
        anew=job.config.checkpoint.resume == "never",
    )


def _metrics(config: EmbedConfig, job: EmbedJob, log: RunLog) -> Metrics:
    position = job.position
    return Metrics(
        config.metrics,
        job.run_dir,
        main=job.world.is_main,
        epochs=config.train.epochs,
        iterations=sum(map(job.batches.count, job.itinerary.epoch(position.epoch))),
        position=(position.epoch, position.iteration),
        step_scalars=STEP_SCALARS,
        in_words=_in_words,
        note=log.note,
    )


def _chosen_model(job: EmbedJob) -> str:
    count = job.store.num_relations
    relations = f"{count:,} relation{'' if count == 1 else 's'}" if count else "no relations"
    return f"embed.model=auto: {job.config.embed.model}, as {job.store.path} has {relations}"


def _in_words(record: dict[str, Any]) -> str:
    """The validation of an epoch, for its line to the user."""
    mrr = record.get("valid_mrr")
    return f"valid MRR {mrr:.4f}  " if mrr is not None else ""


class EmbedTrainer:
    """Moves the position of a job forward, one step of the order at a time."""

    def __init__(self, job: EmbedJob, metrics: Metrics, profiler: StepProfiler) -> None:
        self.job, self.metrics, self.position = job, metrics, job.position
        self._profiler = profiler
        self._evaluator = Evaluator(job.config, job.store, job.world)
        self._reduce = self._sum_relations if job.world.size > 1 else None
        self._last_time = time.perf_counter()
        self._bytes_before = (job.position.bytes_read, job.position.bytes_written)
        self._step = self._current_step()
        self._best = job.best  # on rank 0

    def begin(self) -> None:
        """Fills the buffer. A new run, whose table is on disk already, writes its first state."""
        self.job.buffer.fill(self._step)
        if self.job.is_new:
            self._name_slots()

    @property
    def is_done(self) -> bool:
        """True if there is no epoch left, or training stopped early."""
        return self.position.stopped_early or self.position.epoch >= self.job.config.train.epochs

    def train_epoch(self) -> None:
        """The rest of the current epoch, then validation, records and a checkpoint."""
        job, position, started = self.job, self.position, time.perf_counter()
        steps = job.itinerary.epoch(position.epoch)
        title = f"epoch {position.epoch + 1}/{job.config.train.epochs}"
        self.metrics.begin(title, sum(map(job.batches.count, steps)), position.iteration)
        next_step, first = self._place_in(steps)
        for step in steps[next_step:]:
            self._step = step
            # A checkpoint in the middle of an epoch has written what its step writes.
            is_saved = position.iteration > 0 and step.number == next_step
            (job.buffer.restart if is_saved else job.buffer.start)(step)
            if not job.config.storage.prefetch:
                job.buffer.finish()
            self._train_step(step, first)
            with span("await partition"):
                job.buffer.finish()
            first = 0
        self.metrics.end()
        record = {
            "epoch": position.epoch + 1,
            "loss": position.loss_sum / max(1, position.loss_count),
            "train_secs": time.perf_counter() - started,
        }
        position.epoch, position.iteration = position.epoch + 1, 0
        position.loss_sum, position.loss_count = 0.0, 0
        record |= self._validate() if self._validation_is_due() else {}
        record |= self._count_bytes() | {"seconds": time.perf_counter() - started}
        self.metrics.epoch(record)
        every = job.config.checkpoint.every_epochs
        is_best = job.keeps_best and position.best_epoch == position.epoch
        if is_best or self.is_done or (every and position.epoch % every == 0):
            self._save(is_best=is_best)

    def finish(self) -> dict[str, Any]:
        """Tests the embeddings that are kept, writes the summary, and returns it."""
        job, position = self.job, self.position
        best = collectives.broadcast_object(self._best, job.world)
        is_last = best is None or position.best_epoch == position.epoch
        test = self._evaluate("test") if is_last else self._test(best)
        self._count_time()
        summary = {
            "test_mrr": test.mrr if test else None,
            "test_hits_at_10": test.hits_at_10 if test else None,
            "epochs": position.epoch,
            "world_size": job.world.size,
            "partitions": job.layout.partitions,
            **self._count_bytes(),
            "seconds": round(position.seconds, 3),
            "test_hits_at_1": test.hits_at_1 if test else None,
            "test_hits_at_3": test.hits_at_3 if test else None,
            "protocol": test.protocol if test else None,
            "valid_mrr": position.best_mrr if position.best_epoch >= 0 else None,
            "best_epoch": position.best_epoch if position.best_epoch >= 0 else None,
            "kept_epoch": position.epoch if is_last else position.best_epoch,
            "stopped_early": position.stopped_early,
        }
        summary |= collectives.broadcast_object(places(job.run_dir, job.store.path), job.world)
        if job.world.is_main:
            result = json.dumps(summary) + "\n"
            write_bytes_atomic(job.run_dir / "result.json", result.encode())
        collectives.barrier(job.world)
        return summary

    def _current_step(self) -> Step:
        steps = self.job.itinerary.epoch(self.position.epoch)
        return steps[min(self._place_in(steps)[0], len(steps) - 1)]

    def _place_in(self, steps: Sequence[Step]) -> tuple[int, int]:
        """The step of the epoch that contains the next iteration, and the iteration's number in
        that step; the number of steps if the epoch has no iteration left."""
        left = self.position.iteration
        if left == 0:
            return 0, 0
        for step in steps:
            count = self.job.batches.count(step)
            if left < count:
                return step.number, left
            left -= count
        return len(steps), 0

    def _train_step(self, step: Step, first: int) -> None:
        """Trains the batches of ``step`` from ``first`` on while partitions move."""
        job, waiting_since = self.job, time.perf_counter()
        candidates = self._residents(step)
        for edges in job.batches.of(step, first):
            wait_secs = time.perf_counter() - waiting_since
            with span("step"):
                stop = self._train_batch(edges, candidates, wait_secs)
            self._profiler.step()
            self._checkpoint_step()
            if stop:
                self._stop()
            waiting_since = time.perf_counter()

    def _train_batch(
        self, edges: Tensor, candidates: list[tuple[int, int]], wait_secs: float
    ) -> bool:
        """Takes one optimiser step; returns True if it is the last because a rank was asked to
        stop."""
        job, position, started = self.job, self.position, time.perf_counter()
        where = f"epoch {position.epoch + 1}, iteration {position.iteration}"
        watchdog.at(where)
        at = (job.config.train.seed, position.epoch, position.iteration, job.world.rank)
        try:
            loss = job.edges.train(
                edges, candidates, native.batch_key(*at), position.iteration, self._reduce
            )
        except FloatingPointError as error:
            raise RuntimeError(f"{error}, at {where}") from None
        counts = [loss.sum, loss.count, signals.requested() is not None]
        sums = torch.tensor(counts, dtype=torch.float64)
        total, count, stopping = collectives.all_reduce_sum(sums, job.world).tolist()
        position.loss_sum += total
        position.loss_count += int(count)
        self.metrics.step(
            {
                "epoch": position.epoch + 1,
                "iteration": position.iteration,
                "loss": total / max(1.0, count),
                "num_edges": int(count) // 2,
                "step": self._step.number,
                "wait_secs": wait_secs,
                "step_secs": time.perf_counter() - started,
            }
        )
        position.iteration += 1
        return stopping > 0

    def _residents(self, step: Step) -> list[tuple[int, int]]:
        """Rows of the resident entities, by partition, in whatever frames they are."""
        first_row, num_rows = self.job.buffer.first_row, self.job.layout.num_rows
        return [(first_row(f), first_row(f) + num_rows(p)) for p, f in step.frames.items()]

    def _sum_relations(self, gradients: Tensor) -> None:
        gradients.copy_(collectives.all_reduce_sum(gradients.cpu(), self.job.world))

    def _validation_is_due(self) -> bool:
        every = self.job.schedule.eval_every
        return every > 0 and self.position.epoch % every == 0

    def _validate(self) -> dict[str, Any]:
        """The record of a validation. Training stops if too many were no better."""
        position, valid = self.position, self._evaluate("valid")
        if valid is None:
            return {}
        if valid.mrr > position.best_mrr:
            position.best_mrr, position.best_epoch = valid.mrr, position.epoch
            position.worse_evaluations = 0
        else:
            position.worse_evaluations += 1
        patience = self.job.config.train.patience
        position.stopped_early = 0 < patience <= position.worse_evaluations
        return as_record("valid", valid)

    def _evaluate(self, split: str) -> Ranking | None:
        job = self.job
        most = job.schedule.eval_edges if split == "valid" else 0
        watchdog.at(f"epoch {self.position.epoch}, split {split}")
        if job.world.size > 1:
            job.buffer.write_back(self._step)  # for the others to read
            collectives.barrier(job.world)
        with span("evaluate"):
            relations = None if job.relations is None else job.relations.cpu()
            return self._evaluator.evaluate(split, Blocks(self._blocks), relations, most)

    def _test(self, best: KeptTables) -> Ranking | None:
        """The ranking of the test edges by tables on disk."""
        job = self.job
        watchdog.at(f"epoch {self.position.best_epoch}, split test")
        relations = load_relations(job.run_dir, best.relations, job.layout.width)
        reads = [(p, SlotAccess(p, slot, 0)) for p, slot in enumerate(best.slots)]
        with span("evaluate"):
            blocks = Blocks(lambda: job.files.read_ahead(reads))
            return self._evaluator.evaluate("test", blocks, relations)

    def _blocks(self) -> Iterator[tuple[int, Tensor]]:
        """All rows, on the host; those that are not resident are read a block ahead."""
        job, frames = self.job, self._step.frames

        def source(partition: int) -> SlotAccess | Callable[[], Tensor]:
            if partition not in frames:
                return job.slots.read(partition)
            return lambda: job.buffer.partition(partition, frames[partition]).cpu()

        return job.files.read_ahead((p, source(p)) for p in range(job.layout.partitions))

    def _count_time(self) -> None:
        now = time.perf_counter()
        self.position.seconds += now - self._last_time
        self._last_time = now

    def _count_bytes(self) -> dict[str, int]:
        """Bytes of partitions over all ranks, since the run began. Every rank calls it."""
        stats = self.job.files.stats()
        moved = torch.tensor([stats["bytes_read"], stats["bytes_written"]], dtype=torch.float64)
        read, written = collectives.all_reduce_sum(moved, self.job.world).tolist()
        self.position.bytes_read = self._bytes_before[0] + int(read)
        self.position.bytes_written = self._bytes_before[1] + int(written)
        return {
            "bytes_read": self.position.bytes_read,
            "bytes_written": self.position.bytes_written,
        }

    def _checkpoint_step(self) -> None:
        every = self.job.config.checkpoint.every_steps
        if every and self.position.iteration % every == 0:
            self._save()

    def _stop(self) -> None:
        self._save()
        position = self.position
        raise signals.Stopped(
            f"stopped by a signal after epoch {position.epoch + 1}, iteration "
            f"{position.iteration - 1}; a checkpoint is in {self.job.run_dir}, and the same "
            "command continues"
        )

    def _save(self, *, is_best: bool = False) -> None:
        """Writes a checkpoint, after the metrics that lead up to it: every resident partition, then
        the file that names its slot. ``is_best``: the tables are the best so far."""
        job = self.job
        with span("checkpoint"):
            job.buffer.write_back(self._step)
            self._name_slots(is_best=is_best)

    def _name_slots(self, *, is_best: bool = False) -> None:
        """Syncs what every rank has written, and names it in the file of the state."""
        job = self.job
        job.files.sync()
        self._count_time()
        self._count_bytes()  # also the barrier after which every rank has synced
        if job.world.is_main:
            self.metrics.flush()
            slots = job.slots.current
            table = TableState(
                starts=list(job.layout.starts),
                width=job.layout.width,
                dim=job.config.embed.dim,
                slots=slots,
                checksums=[job.files.checksum(p, slot) for p, slot in enumerate(slots)],
                num_slots=job.layout.num_slots,
            )
            state = RunState(
                settings=job.settings,
                position=self.position,
                table=table,
                relations=None,
                best=self._best,
            )
            self._best = save_state(job.run_dir, state, job.relations, is_best=is_best).best
        collectives.barrier(job.world)
        job.slots.save(is_best=is_best)
