"""The records of a run on one rank, opened together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsm.core.profiler import StepProfiler
from lsm.distributed.collectives import World
from lsm.run.directory import RunDirectory
from lsm.run.log import RunLog
from lsm.run.metrics import Metrics
from lsm.run.position import Position
from lsm.run.record import RunRecord


@dataclass(frozen=True)
class Records:
    """Metrics, traces and facts of a run."""

    path: Path
    """The run's directory."""
    store: Path
    metrics: Metrics
    profiler: StepProfiler
    directory: RunDirectory | None
    """On the rank that writes to it, if it can be created again in mid-run."""
    facts: RunRecord | None
    """On the rank that writes them."""

    def keep_directory(self, position: Position) -> None:
        """Creates the run's directory again if it was removed in mid-run, so that the progress of
        training is not lost with it."""
        if self.directory is None:
            return
        at = (position.epoch, position.iteration)
        if self.directory.check():
            self.metrics.reopen_lost(at)
            return
        self.metrics.reopen(at)
        if self.facts is not None:
            self.facts.write(anew=True)


@contextmanager
def open_records(
    config: Any,
    path: Path,
    world: World,
    log: RunLog,
    *,
    store: Path,
    store_digest: str | None = None,
    position: Position,
    num_iterations: int,
    num_before: int | None = None,
    in_words: Callable[[dict[str, Any]], str],
    step_scalars: Sequence[str],
    directory: RunDirectory | None = None,
) -> Iterator[Records]:
    """A context with the records of a run in ``path``.

    Args:
        config: A configuration with the sections run, train, checkpoint and metrics.
        path: The run's directory, locked by rank 0.
        world: The ranks.
        log: The run's log, which is opened.
        store: The store, for the user.
        store_digest: Of its contents; None: not known.
        position: The start of training.
        num_iterations: Iterations of the epoch that training starts in.
        num_before: Iterations of all epochs before it; None: each has as many.
        in_words: An epoch's record, all but the loss and the time, for the user.
        step_scalars: Names of a step's record, for the loggers.
        directory: The lock of ``path``, on the rank that has it, if the directory can be created
            again in mid-run.
    """
    with (
        RunRecord(
            path,
            config,
            log,
            store=store,
            store_digest=store_digest,
            world_size=world.size,
            anew=config.checkpoint.resume == "never",
        )
        if world.is_main
        else nullcontext() as facts,
        Metrics(
            config.metrics,
            path,
            main=world.is_main,
            epochs=config.train.epochs,
            iterations=num_iterations,
            iterations_before=num_before,
            position=(position.epoch, position.iteration),
            step_scalars=step_scalars,
            in_words=in_words,
            settings=config.model_dump(mode="json"),
            note=log.note,
        ) as metrics,
        StepProfiler(config.metrics.profile_steps, path / "profile", world.rank) as profiler,
    ):
        yield Records(path, store, metrics, profiler, directory, facts)
