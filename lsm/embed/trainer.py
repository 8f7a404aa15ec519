"""Trains embeddings, partition by partition: parse, open, train, close.

Every rank runs this, in lock-step over the steps of the order; ranks differ in the partitions that
they hold. Numbers are a function of the configuration, the store and the world size: neither the
engine, nor a checkpoint, nor an interruption changes a bit of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lsm import native
from lsm.config.load import check_config, shared_settings
from lsm.core.profiler import span
from lsm.distributed import collectives, signals, watchdog
from lsm.distributed.collectives import World
from lsm.embed.config import EmbedConfig
from lsm.embed.evaluate import Evaluator, as_record
from lsm.embed.job import EmbedJob, open_job
from lsm.embed.orders.itinerary import Step
from lsm.embed.run_state import KeptTables, RunState, TableState, load_relations, save_state
from lsm.embed.table.slots import SlotAccess
from lsm.links.ranking import Ranking
from lsm.run.directory import RunDirectory
from lsm.run.log import RunLog
from lsm.run.loop import Cadence, Loop, Validation, read_every
from lsm.run.records import open_records
from lsm.run.totals import NO_SUM, Totals

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
    check_config(config, EmbedConfig, "lsm.embed.load_embed_config")
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
    ):
        trainer = EmbedTrainer(job)
        with open_records(
            job.config,
            run_dir,
            world,
            log,
            store=job.store.path,
            position=job.position,
            num_iterations=trainer.num_iterations,
            num_before=trainer.num_before,
            in_words=_in_words,
            step_scalars=STEP_SCALARS,
        ) as records:
            if config.embed.model == "auto":
                records.metrics.say(_chosen_model(job))
            trainer.fill_buffer()
            cadence = Cadence.of(
                job.config,
                job.schedule.eval_every,
                saves_best=job.keeps_best,
                saves_last=True,
                read_every=read_every(job.config, job.device),
            )
            return Loop(trainer, cadence, records, world, run_dir).run()


def _chosen_model(job: EmbedJob) -> str:
    count = job.store.num_relations
    relations = f"{count:,} relation{'' if count == 1 else 's'}" if count else "no relations"
    return f"embed.model=auto: {job.config.embed.model}, as {job.store.path} has {relations}"


def _in_words(record: dict[str, Any]) -> str:
    """The validation of an epoch, for its line to the user."""
    mrr = record.get("valid_mrr")
    return f"valid MRR {mrr:.4f}  " if mrr is not None else ""


@dataclass
class StepTotals(Totals):
    """Totals of an iteration, with its step of the order."""

    step: int = field(default=0, metadata=NO_SUM)


class EmbedTrainer:
    """Trains, validates and tests the tables of a job, one step of the order at a time."""

    first_keys: tuple[str, ...] = (
        *("test_mrr", "test_hits_at_10", "epochs", "world_size", "partitions"),
        *("bytes_read", "bytes_written", "seconds"),
    )

    def __init__(self, job: EmbedJob) -> None:
        self.job, self.position = job, job.position
        self._evaluator = Evaluator(job.config, job.store, job.world)
        self._reduce = self._sum_relations if job.world.size > 1 else None
        self._bytes_before = (job.position.bytes_read, job.position.bytes_written)
        self._best = job.best  # on rank 0
        self.loss_remedy = job.edges.loss_remedy
        earlier = map(job.itinerary.epoch, range(self.position.epoch))
        # Loaded in other orders, partitions make more or fewer batches.
        self.num_before = sum(job.batches.count(step) for steps in earlier for step in steps)
        steps = self._steps
        self._step = steps[min(self._place_in(steps)[0], len(steps) - 1)]

    def fill_buffer(self) -> None:
        """Reads the first partitions. A new run, whose table is on disk already, writes its first
        state."""
        self.job.buffer.fill(self._step)
        if self.job.is_new:
            self._name_slots(best=False)

    @property
    def num_iterations(self) -> int:
        """Iterations of the current epoch."""
        return sum(map(self.job.batches.count, self._steps))

    @property
    def is_between_steps(self) -> bool:
        """True: each iteration is an optimiser step."""
        return True

    def items(self) -> Iterator[Tensor]:
        """The batches of this rank in the rest of the current epoch. Partitions move meanwhile."""
        job, steps = self.job, self._steps
        # A checkpoint in the middle of an epoch has written the partitions that its step writes.
        is_saved = self.position.iteration > 0
        next_step, first = self._place_in(steps)
        for step in steps[next_step:]:
            self._step = step
            (job.buffer.restart if is_saved else job.buffer.start)(step)
            if not job.config.storage.prefetch:
                job.buffer.finish()
            yield from job.batches.of(step, first)
            with span("await partition"):
                job.buffer.finish()
            is_saved, first = False, 0

    def train(self, edges: Tensor) -> StepTotals:
        """Does one optimiser step on this rank's edges."""
        job, at = self.job, self.position
        key = native.batch_key(job.config.train.seed, at.epoch, at.iteration, job.world.rank)
        loss = job.edges.train(edges, self._residents(), key, at.iteration, self._reduce)
        step = self._step.number
        return StepTotals(loss_count=loss.count, unread={"loss_sum": loss.unread_sum}, step=step)

    def step_record(self, totals: StepTotals) -> dict[str, Any]:
        """Edges of an iteration, and its step."""
        return {"num_edges": totals.loss_count // 2, "step": totals.step}

    def epoch_record(self) -> dict[str, Any]:
        """Bytes of partitions since the run began."""
        return self._count_bytes()

    def validate(self) -> Validation:
        """Ranks validation edges."""
        valid = self._rank("valid", self.job.schedule.eval_edges)
        return Validation(valid.mrr if valid else None, as_record("valid", valid) if valid else {})

    def save(self, best: bool) -> None:
        """Writes every resident partition, then the file that names its slot."""
        self.job.buffer.write_back(self._step)
        self._name_slots(best)

    def test(self) -> dict[str, Any]:
        """Tests the embeddings that are kept."""
        position = self.position
        best = collectives.broadcast_object(self._best, self.job.world)
        is_last = best is None or position.best_epoch == position.epoch
        test = self._rank("test") if is_last else self._rank_kept(best)
        self._count_bytes()
        return {
            "test_mrr": test.mrr if test else None,
            "test_hits_at_10": test.hits_at_10 if test else None,
            "partitions": self.job.layout.partitions,
            "bytes_written": position.bytes_written,
            "test_hits_at_1": test.hits_at_1 if test else None,
            "test_hits_at_3": test.hits_at_3 if test else None,
            "protocol": test.protocol if test else None,
            "valid_mrr": position.best,
            "kept_epoch": position.epoch if is_last else position.best_epoch,
        }

    @property
    def _steps(self) -> Sequence[Step]:
        """Those of the current epoch."""
        return self.job.itinerary.epoch(self.position.epoch)

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

    def _residents(self) -> list[tuple[int, int]]:
        """Rows of the resident entities, by partition, wherever their frames are."""
        first_row, num_rows = self.job.buffer.first_row, self.job.layout.num_rows
        return [(first_row(f), first_row(f) + num_rows(p)) for p, f in self._step.frames.items()]

    def _sum_relations(self, gradients: Tensor) -> None:
        gradients.copy_(collectives.all_reduce_sum(gradients.cpu(), self.job.world))

    def _rank(self, split: str, most: int = 0) -> Ranking | None:
        """The ranking of ``split`` by the current tables, of at most ``most`` edges (0: all)."""
        job = self.job
        watchdog.at(f"epoch {self.position.epoch + 1}, split {split}")
        if job.world.size > 1:
            job.buffer.write_back(self._step)  # for the others to read
            collectives.barrier(job.world)
        with span("evaluate"):
            relations = None if job.relations is None else job.relations.cpu()
            return self._evaluator.evaluate(split, self._blocks, relations, most)

    def _rank_kept(self, best: KeptTables) -> Ranking | None:
        """The ranking of the test edges by tables on disk."""
        job = self.job
        watchdog.at(f"epoch {self.position.best_epoch}, split test")
        relations = load_relations(job.run_dir, best.relations, job.layout.width)
        reads = [(p, SlotAccess(p, slot, 0)) for p, slot in enumerate(best.slots)]
        with span("evaluate"):
            return self._evaluator.evaluate("test", lambda: job.files.read_ahead(reads), relations)

    def _blocks(self) -> Iterator[tuple[int, Tensor]]:
        """All rows, on the host; those that are not resident are read a block ahead."""
        job, frames = self.job, self._step.frames

        def source(partition: int) -> SlotAccess | Callable[[], Tensor]:
            if partition not in frames:
                return job.slots.read(partition)
            return lambda: job.buffer.partition(partition, frames[partition]).cpu()

        return job.files.read_ahead((p, source(p)) for p in range(job.layout.partitions))

    def _count_bytes(self) -> dict[str, int]:
        """Bytes of partitions over all ranks, since the run began. Every rank calls it."""
        stats = self.job.files.transfers.stats()
        moved = torch.tensor([stats["bytes_read"], stats["bytes_written"]], dtype=torch.float64)
        read, written = collectives.all_reduce_sum(moved, self.job.world).tolist()
        self.position.bytes_read = self._bytes_before[0] + int(read)
        self.position.bytes_written = self._bytes_before[1] + int(written)
        return {
            "bytes_read": self.position.bytes_read,
            "bytes_written": self.position.bytes_written,
        }

    def _name_slots(self, best: bool) -> None:
        """Syncs the slots that every rank has written, and names them in the file of the state."""
        job = self.job
        job.files.transfers.sync()
        self._count_bytes()  # also the barrier after which every rank has synced
        if job.world.is_main:
            slots = job.slots.current
            table = TableState(
                starts=list(job.layout.starts),
                width=job.layout.width,
                dim=job.config.embed.dim,
                slots=slots,
                checksums=[job.files.board.checksum(p, slot) for p, slot in enumerate(slots)],
                num_slots=job.layout.num_slots,
            )
            state = RunState(
                settings=job.settings,
                position=self.position,
                table=table,
                relations=None,
                best=self._best,
            )
            self._best = save_state(job.run_dir, state, job.relations, is_best=best).best
        collectives.barrier(job.world)
        job.slots.save(is_best=best)
