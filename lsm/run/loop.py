"""The loop of every training run: epochs, validations, checkpoints, records and the end.

A ``Trainable`` does an iteration, a validation and a checkpoint; the loop decides when. Every rank
runs it, in lock-step.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from lsm.core.atomic_file import write_bytes_atomic
from lsm.core.device import memory_errors
from lsm.core.profiler import span
from lsm.distributed import collectives, signals, watchdog
from lsm.distributed.collectives import World
from lsm.run.position import Position
from lsm.run.record import places
from lsm.run.records import Records
from lsm.run.totals import Totals, read

Item = TypeVar("Item")
ItemTotals = TypeVar("ItemTotals", bound=Totals)


@dataclass(frozen=True)
class Validation:
    """The result of a validation, the same on every rank."""

    score: float | None
    """A number that is higher for a better model; None if there is nothing to validate on."""
    record: dict[str, Any] = field(default_factory=dict)
    """Numbers for the record of the epoch."""


class Trainable(Protocol[Item, ItemTotals]):
    """A model in training. Every rank calls each method, in the same order."""

    position: Position
    """The progress of training, which the loop moves."""
    first_keys: tuple[str, ...]
    """The order in which the summary starts, keys of the loop included."""
    loss_remedy: str
    """The next step of a user whose losses are not finite."""

    @property
    def num_iterations(self) -> int:
        """Iterations of the current epoch."""

    @property
    def is_between_steps(self) -> bool:
        """True if no gradients wait for the end of an optimiser step, which a checkpoint would
        lose. An epoch ends between steps."""

    def items(self) -> Iterator[Item]:
        """The batches of the current epoch from the current iteration on."""

    def train(self, item: Item) -> ItemTotals:
        """Does one iteration, which may end an optimiser step. Returns the totals of this rank,
        without waiting for numbers that a GPU computes. May raise FloatingPointError for a loss
        that is not finite; the loop adds the position."""

    def step_record(self, totals: ItemTotals) -> dict[str, Any]:
        """Numbers for the record of an iteration, from its totals over all ranks. The position may
        be a later one."""

    def epoch_record(self) -> dict[str, Any]:
        """Numbers for the record of the epoch that ends."""

    def validate(self) -> Validation:
        """Evaluates the model on the validation split."""

    def save(self, best: bool) -> None:
        """Writes a checkpoint. ``best``: it is that of the best validation so far."""

    def test(self) -> dict[str, Any]:
        """Tests the model to keep, writes it, and returns its part of the run's summary."""


@dataclass(frozen=True)
class Cadence:
    """The times at which a run validates, writes checkpoints and ends."""

    epochs: int
    """Maximum number of epochs."""
    eval_every: int | None
    """Epochs between two validations. The last epoch is always validated. 0: only the last; None:
    none."""
    patience: int
    """Validations that are no better, after which training stops. 0: it does not."""
    every_steps: int
    """Iterations between two checkpoints, each at the end of an optimiser step. 0: none."""
    every_epochs: int
    """Epochs between two checkpoints. 0: none."""
    plateau: int = 0
    """Validations in a row that are no better, which are a plateau. 0: none are."""
    saves_best: bool = False
    """Write a checkpoint after each validation that is the best so far."""
    saves_last: bool = False
    """Write a checkpoint after the last epoch."""
    read_every: int = 1
    """Iterations whose totals are read together, as reading waits for the device."""
    resume: str = "auto"
    """checkpoint.resume, by which the same command continues a run that was stopped."""

    @classmethod
    def of(cls, config: Any, eval_every: int | None, **others: Any) -> Cadence:
        """The times that the sections train and checkpoint of ``config`` name."""
        train, often = config.train, config.checkpoint
        steps, epochs = often.every_steps, often.every_epochs
        ends = train.epochs, eval_every, train.patience
        return cls(*ends, steps, epochs, resume=often.resume, **others)

    def validates(self, epoch: int) -> bool:
        """True if there is a validation after ``epoch``, counted from 1."""
        return self.eval_every is not None and (epoch == self.epochs or self.is_regular(epoch))

    def is_regular(self, epoch: int) -> bool:
        """True if there is a validation after ``epoch`` in a run of any length."""
        return bool(self.eval_every and epoch % self.eval_every == 0)


def read_every(config: Any, device: torch.device) -> int:
    """Iterations whose totals are read together: ``metrics.log_every`` on a GPU. On the host, which
    has nothing to wait for, each is read by itself."""
    return 1 if device.type == "cpu" else config.metrics.log_every


@dataclass
class _Unread:
    """An iteration whose totals are not read."""

    place: str
    """Its position, for messages."""
    iteration: int
    totals: Totals
    secs: dict[str, float]


class Loop:
    """Moves the position of a ``Trainable`` forward until training ends."""

    def __init__(
        self,
        trainee: Trainable[Any, Any],
        cadence: Cadence,
        records: Records,
        world: World,
        checkpoints: Path,
    ) -> None:
        """``checkpoints``: the place of checkpoints, for messages."""
        self._trainee, self._cadence, self._world = trainee, cadence, world
        self._records, self._metrics = records, records.metrics
        self._checkpoints = checkpoints
        self._last_time = time.perf_counter()
        self._unread: list[_Unread] = []
        self._is_stopping = False

    @property
    def position(self) -> Position:
        return self._trainee.position

    @property
    def is_done(self) -> bool:
        """True if there is no epoch left, or training stopped early."""
        return self.position.stopped_early or self.position.epoch >= self._cadence.epochs

    def run(self) -> dict[str, Any]:
        """Trains all epochs that are left, then tests.

        Returns:
            The summary of the run, which is also written to its directory.

        Raises:
            RuntimeError: A loss is not finite, or memory ran out.
            Stopped: A signal asked a rank to stop. Every rank raises it, with a checkpoint written.
        """
        while not self.is_done:
            self.train_epoch()
        return self._finish()

    def train_epoch(self) -> None:
        """Trains the rest of the current epoch, then validates, records and writes a checkpoint."""
        position, started = self.position, time.perf_counter()
        self._train_items()
        train_secs = time.perf_counter() - started
        epoch, best = position.epoch + 1, False
        record = {"epoch": epoch, "loss": position.loss_sum / max(1, position.loss_count)}
        validation = None
        if self._cadence.validates(epoch):
            validation = self._trainee.validate()
            best = self._compare(validation.score, epoch)
        record |= self._trainee.epoch_record() | {"train_secs": train_secs}
        record |= validation.record if validation else {}
        self._records.keep_directory(position)
        self._metrics.epoch(record | {"seconds": time.perf_counter() - started})
        position.start_epoch(epoch)
        cadence, every = self._cadence, self._cadence.every_epochs
        best = best and cadence.saves_best
        if best or (every and epoch % every == 0) or (self.is_done and cadence.saves_last):
            self._save(best)

    def _train_items(self) -> None:
        trainee, position = self._trainee, self.position
        every, num_iterations = self._cadence.every_steps, trainee.num_iterations
        title = f"epoch {position.epoch + 1}/{self._cadence.epochs}"
        self._metrics.begin(title, num_iterations, position.iteration)
        is_due = False
        waiting_since = time.perf_counter()
        for item in trainee.items():
            wait_secs = time.perf_counter() - waiting_since
            with memory_errors(f"at {position}"), span("step"):
                self._train(item, wait_secs)
            del item  # not kept while the next is awaited
            self._records.profiler.step()
            count = position.epoch * num_iterations + position.iteration
            is_due |= every > 0 and count % every == 0
            if trainee.is_between_steps:
                if is_due:
                    self._save()
                if self._is_stopping:
                    self._stop()
                is_due = False
            waiting_since = time.perf_counter()
        self._read()
        self._metrics.end()

    def _train(self, item: Any, wait_secs: float) -> None:
        """Does one iteration. Reads totals if it is time to."""
        position, started = self.position, time.perf_counter()
        watchdog.at(str(position))
        try:
            totals = self._trainee.train(item)
        except FloatingPointError as error:
            raise RuntimeError(f"{position}: {error}") from None
        totals.num_stopping = int(signals.requested() is not None)
        secs = {"wait_secs": wait_secs, "step_secs": time.perf_counter() - started}
        self._unread.append(_Unread(str(position), position.iteration, totals, secs))
        position.iteration += 1
        # Alone, a rank need not ask the others when it is told to stop.
        stops = self._world.size == 1 and totals.num_stopping
        if stops or position.iteration % self._cadence.read_every == 0:
            self._read()

    def _read(self) -> None:
        """Reads the totals that are not read, and records them. A collective."""
        unread, self._unread = self._unread, []
        if not unread:
            return
        started = time.perf_counter()
        found = read([each.totals for each in unread], self._world)
        unread[-1].secs["step_secs"] += time.perf_counter() - started
        for each, totals in zip(unread, found, strict=True):
            self._record(each, totals)

    def _record(self, step: _Unread, totals: Totals) -> None:
        """Records an iteration by its totals over all ranks."""
        if not math.isfinite(totals.loss):
            raise RuntimeError(
                f"{step.place}: the loss is {totals.loss}; {self._trainee.loss_remedy}"
            )
        self._is_stopping |= totals.num_stopping > 0
        record = {
            "epoch": self.position.epoch + 1,
            "iteration": step.iteration,
            "loss": totals.loss,
            **self._trainee.step_record(totals),
            **step.secs,
        }
        self.position.add(totals)
        self._metrics.step(record)

    def _compare(self, score: float | None, epoch: int) -> bool:
        """Compares a validation with the best one. Returns True if it is better. Training stops
        after too many that are not; one that only a run of this length has does not count."""
        position = self.position
        if score is None:
            return False
        if position.is_better(score):
            position.best_score, position.best_epoch = score, epoch
            position.worse_evaluations = 0
            return True
        if self._cadence.is_regular(epoch):
            position.worse_evaluations += 1
            worse, plateau = position.worse_evaluations, self._cadence.plateau
            position.stopped_early = 0 < self._cadence.patience <= worse
            position.num_plateaus += int(plateau > 0 and worse % plateau == 0)
        return False

    def _finish(self) -> dict[str, Any]:
        position, records = self.position, self._records
        summary = self._trainee.test()
        self._count_time()
        summary |= {
            "epochs": position.epoch,
            "world_size": self._world.size,
            "bytes_read": position.bytes_read,
            "seconds": round(position.seconds, 3),
            "best_epoch": position.best_epoch if position.best is not None else None,
            "stopped_early": position.stopped_early,
        }
        summary = {key: summary[key] for key in self._trainee.first_keys} | summary
        summary |= collectives.broadcast_object(places(records.path, records.store), self._world)
        if self._world.is_main:
            records.keep_directory(position)
            result = json.dumps(summary) + "\n"
            write_bytes_atomic(records.path / "result.json", result.encode())
        collectives.barrier(self._world)
        return summary

    def _stop(self) -> None:
        """Writes a checkpoint and raises Stopped, on every rank at the same iteration."""
        self._save()
        # No rank ends, and ends the job with it, before the file is written.
        collectives.barrier(self._world)
        position, continues = self.position, self._cadence.resume == "auto"
        how = "the same command continues" if continues else "checkpoint.resume=auto continues"
        raise signals.Stopped(
            f"stopped by a signal after epoch {position.epoch + 1}, iteration "
            f"{position.iteration - 1}; a checkpoint is in {self._checkpoints}, and {how}"
        )

    def _save(self, best: bool = False) -> None:
        """Writes a checkpoint after the metrics before it. Raises RuntimeError for a loss before it
        that is not finite."""
        self._read()
        self._count_time()
        self._records.keep_directory(self.position)
        self._metrics.flush()
        with span("checkpoint"):
            self._trainee.save(best)

    def _count_time(self) -> None:
        now = time.perf_counter()
        self.position.seconds += now - self._last_time
        self._last_time = now
