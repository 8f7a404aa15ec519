"""Trains a node classifier on a store: parse, build, train, close.

Every rank runs this; ranks differ only in their share of each global batch. Losses are a function
of the configuration, the store and the world size. The engine, the read-ahead and interruptions
change no bit of them.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from lsm import native
from lsm.config.load import shared_settings
from lsm.config.schema import Config
from lsm.core import host_memory
from lsm.core.atomic_file import write_bytes_atomic
from lsm.core.counters import COUNTERS, EXCHANGED, READ_AHEAD, SPANS
from lsm.core.device import memory_errors, peak_bytes
from lsm.core.profiler import StepProfiler, span
from lsm.core.units import format_bytes
from lsm.distributed import collectives, signals, watchdog
from lsm.distributed.collectives import World
from lsm.loader.batch import Batch, to_device
from lsm.nn.models import loss_sum
from lsm.run.directory import RunDirectory
from lsm.run.log import RunLog
from lsm.run.metrics import STORAGE_SUMS, Metrics, in_words, row_metrics
from lsm.run.record import RunRecord, places
from lsm.train import checkpoint
from lsm.train.cache_remarks import without_hits
from lsm.train.checkpoint import Progress
from lsm.train.evaluate import Evaluation, count_correct, evaluate, labels_of
from lsm.train.job import Job, open_job
from lsm.train.placement import device_budget
from lsm.train.resume import find_progress

logger = logging.getLogger(__name__)


def train(config: Config) -> dict[str, Any]:
    """Trains and tests a node classifier. Blocks until the run ends.

    Under torchrun, srun or mpirun, every process of the job calls it.

    Args:
        config: From ``lsm.load_config``.

    Returns:
        The summary that `lsm train` prints, the same on every rank.

    Raises:
        ValueError: The configuration cannot be run.
        Stopped: A signal asked a rank to stop. Every rank raises it, with a checkpoint written.
    """
    with (
        signals.on_signals(),
        collectives.joined(config.dist.timeout_secs, shared_settings(config)) as world,
    ):
        return _train(config, world)


def _train(config: Config, world: World) -> dict[str, Any]:
    """``train`` on a rank that has joined its job. Closes the job at its end."""
    with (
        RunLog(main=world.is_main) as log,
        open_job(config, world) as job,
        RunDirectory(job.run_dir) if world.is_main else nullcontext() as directory,
    ):
        progress = find_progress(job)
        with (
            _record(config, job, log) if world.is_main else nullcontext() as record,
            _metrics(config, job, progress, log) as metrics,
            StepProfiler(
                config.metrics.profile_steps, job.run_dir / "profile", world.rank
            ) as profiler,
        ):
            trainer = Trainer(job, progress, metrics, profiler, directory, record)
            while progress.epoch < config.train.epochs:
                trainer.train_epoch()
            return trainer.finish()


def _record(config: Config, job: Job, log: RunLog) -> RunRecord:
    return RunRecord(
        job.run_dir,
        config,
        log,
        store=job.store.path,
        world_size=job.world.size,
        anew=config.checkpoint.resume == "never",
    )


def _metrics(config: Config, job: Job, progress: Progress, log: RunLog) -> Metrics:
    return Metrics(
        config.metrics,
        job.run_dir,
        main=job.world.is_main,
        epochs=config.train.epochs,
        iterations=len(job.loaders["train"]),
        position=(progress.epoch, progress.iteration),
        in_words=partial(in_words, in_memory=job.keeps_features),
        note=log.note,
    )


def _place(batch: Batch) -> str:
    """The place of training, in words: epochs count from 1, iterations from 0."""
    return f"epoch {batch.epoch + 1}, iteration {batch.iteration}"


class Trainer:
    """Moves a job's ``Progress`` forward, one iteration and one epoch at a time."""

    def __init__(
        self,
        job: Job,
        progress: Progress,
        metrics: Metrics,
        profiler: StepProfiler,
        directory: RunDirectory | None = None,
        record: RunRecord | None = None,
    ) -> None:
        """``directory`` and ``record``: the run's, on the rank that writes to them."""
        self.job = job
        self._directory, self._run_record = directory, record
        self._profiler = profiler
        self.progress = progress
        self.metrics = metrics
        self._train = job.config.train
        self._settings = checkpoint.fingerprint(job.config, job.world.size, job.store)
        self._storage_seen: dict[str, float] = dict.fromkeys(STORAGE_SUMS, 0)
        self._last_time = time.perf_counter()
        self._said_useless = False

    def train_epoch(self) -> None:
        """Trains the rest of the current epoch, then validates, records and writes a checkpoint."""
        progress, loader = self.progress, self.job.loaders["train"]
        start = time.perf_counter()
        title = f"epoch {progress.epoch + 1}/{self._train.epochs}"
        self.metrics.begin(title, len(loader), progress.iteration)
        self.job.model.train()
        waiting_since = time.perf_counter()
        for batch in loader.iterate(progress.epoch, progress.iteration):
            wait_secs = time.perf_counter() - waiting_since
            where = f"at {_place(batch)}"
            with memory_errors(where), span("step"):
                stop = self._train_step(batch, wait_secs)
            del batch  # not kept while the next is awaited
            self._profiler.step()
            self._checkpoint_step()
            if stop:
                self._stop()
            waiting_since = time.perf_counter()
        self.metrics.end()
        train_secs = time.perf_counter() - start
        valid = self._validate() if self._validation_is_due() else None
        self._keep_directory()
        record = {
            "epoch": progress.epoch + 1,
            "loss": progress.loss_sum / progress.num_seeds,
            "train_accuracy": progress.num_correct / progress.num_seeds,
            "valid_accuracy": valid.accuracy if valid else None,
            "train_secs": train_secs,
            "seconds": time.perf_counter() - start,
            "bytes_read": progress.bytes_read,
            **self._mean_read_ahead(),
            **row_metrics(progress.row_sums, self.job.store.row_bytes),
            **({f"valid_{name}": count for name, count in valid.rows.items()} if valid else {}),
        }
        self.metrics.epoch(record)
        self._say_useless_cache(record)
        progress.start_epoch(progress.epoch + 1)
        every = self.job.config.checkpoint.every_epochs
        if every and progress.epoch % every == 0:
            self._save()

    def finish(self) -> dict[str, Any]:
        """Tests the selected model, writes it and the summary, and returns the summary."""
        job, progress = self.job, self.progress
        if self._train.select == "best":
            job.model.load_state_dict(progress.best_model)
        test = self._evaluate("test")
        self._count_time()
        summary = {
            "test_accuracy": test.accuracy,
            "epochs": self._train.epochs,
            "world_size": job.world.size,
            "engine": job.features.engine,
            "bytes_read": progress.bytes_read,
            "seconds": round(progress.seconds, 3),
            "valid_accuracy": progress.best_accuracy if progress.best_epoch >= 0 else None,
            "best_epoch": progress.best_epoch + 1 if progress.best_epoch >= 0 else None,
            "test_requests": test.rows["requests"],
            "test_misses": test.rows["misses"],
        }
        peak = host_memory.peak_beside_files(job.memory.libraries)
        peak = max(collectives.gather_objects(peak, job.world))
        summary |= {"memory_bytes": job.memory.budget, "peak_memory_bytes": peak}
        self.metrics.say(
            f"memory: peak {format_bytes(peak)} per rank (planned "
            f"{format_bytes(job.memory.total)} of a budget of {format_bytes(job.memory.budget)})"
        )
        if job.device.type == "cuda":
            cache_bytes = job.loaders["train"].features.device_bytes
            summary |= {"device": str(job.device), "cache_device_bytes": cache_bytes}
            summary["peak_device_bytes"] = peak_bytes(job.device) + cache_bytes
            summary["budget_device_bytes"] = device_budget(job.config, job.world, job.store)
        summary |= collectives.broadcast_object(places(job.run_dir, job.store.path), job.world)
        if job.world.is_main:
            self._keep_directory()
            weights = {name: value.cpu() for name, value in job.model.state_dict().items()}
            checkpoint.write_atomic(job.run_dir / "model.pt", weights)
            result = json.dumps(summary) + "\n"
            write_bytes_atomic(job.run_dir / "result.json", result.encode())
        collectives.barrier(job.world)
        return summary

    def _train_step(self, batch: Batch, wait_secs: float) -> bool:
        """Does one optimiser step on this rank's share of a global batch. Returns True if a rank
        was asked to stop."""
        job, progress, start = self.job, self.progress, time.perf_counter()
        watchdog.at(_place(batch))
        # Dropout becomes a function of these four, so that a resumed run draws the same masks.
        key = (self._train.seed, batch.epoch, batch.iteration, job.world.rank)
        torch.manual_seed(native.batch_key(*key))
        num_seeds = job.loaders["train"].global_batch_size(batch.iteration)
        with span("copy"):
            batch = to_device(batch, job.device)
        bf16 = self._train.precision == "bf16"
        with span("forward"), torch.autocast(job.device.type, torch.bfloat16, enabled=bf16):
            scores = job.parallel(batch)
        labels = labels_of(batch)
        local_loss = loss_sum(scores, labels)
        job.optimizer.zero_grad()
        with span("backward"), watchdog.awaiting("the exchange of gradients"):
            # DDP averages over ranks, and ranks may have different numbers of seeds, even none.
            # With this factor the average is the gradient of the mean over the global batch.
            (local_loss * (job.world.size / num_seeds)).backward()
        with span("optimizer"):
            job.optimizer.step()

        counts: list[float] = [local_loss.item(), count_correct(scores, labels)]
        counts += [sum(batch.num_sampled_nodes), sum(batch.num_sampled_edges)]
        counts += [*self._new_reads(), *(batch.stats[name] for name in (*COUNTERS, *EXCHANGED))]
        counts.append(signals.requested() is not None)
        sums = collectives.all_reduce_sum(torch.tensor(counts, dtype=torch.float64), job.world)
        *totals, num_stopping = sums.tolist()
        self._record(batch, num_seeds, totals, wait_secs, time.perf_counter() - start)
        progress.iteration = batch.iteration + 1
        return num_stopping > 0

    def _record(
        self, batch: Batch, num_seeds: int, totals: list[float], wait_secs: float, step_secs: float
    ) -> None:
        """Adds a step's totals over ranks to the progress and the metrics."""
        progress = self.progress
        loss_total, num_correct, num_nodes, num_edges, *row_totals = totals
        rows = dict(zip((*STORAGE_SUMS, *COUNTERS, *EXCHANGED), row_totals, strict=True))
        rows |= {name: batch.stats[name] for name in ("sample_secs", *SPANS)}
        read_ahead = {name: batch.stats[name] for name in READ_AHEAD}
        loss = loss_total / num_seeds
        if not torch.isfinite(torch.tensor(loss)):
            raise RuntimeError(
                f"the loss is {loss} at {_place(batch)}; lower train.lr, or look for bad "
                "features with `lsm data verify`"
            )
        progress.loss_sum += loss_total
        progress.num_correct += int(num_correct)
        progress.num_seeds += num_seeds
        progress.bytes_read += int(rows["bytes_read"])
        for name, value in (rows | read_ahead).items():
            progress.row_sums[name] = progress.row_sums.get(name, 0) + value
        self.metrics.step(
            {
                "epoch": batch.epoch + 1,
                "iteration": batch.iteration,
                "loss": loss,
                "num_seeds": num_seeds,
                "num_nodes": int(num_nodes),
                "num_edges": int(num_edges),
                "bytes_read": int(rows["bytes_read"]),
                "wait_secs": wait_secs,
                "step_secs": step_secs,
                **read_ahead,
                **row_metrics(rows, self.job.store.row_bytes),
            }
        )

    def _mean_read_ahead(self) -> dict[str, float]:
        """READ_AHEAD of this rank, mean over the epoch's iterations."""
        sums, steps = self.progress.row_sums, len(self.job.loaders["train"])
        return {name: sums.get(name, 0) / steps for name in READ_AHEAD}

    def _validation_is_due(self) -> bool:
        done, every = self.progress.epoch + 1, self._train.eval_every
        return done == self._train.epochs or (every > 0 and done % every == 0)

    def _validate(self) -> Evaluation:
        """Evaluates on the validation nodes. Keeps the model if it is the best so far."""
        progress = self.progress
        valid = self._evaluate("valid")
        accuracy = valid.accuracy
        if accuracy is not None and accuracy > progress.best_accuracy:
            progress.best_epoch, progress.best_accuracy = progress.epoch, accuracy
            if self._train.select == "best":
                weights = self.job.model.state_dict()
                progress.best_model = {name: value.clone() for name, value in weights.items()}
        return valid

    def _evaluate(self, split: str) -> Evaluation:
        loader = self.job.loaders[split]
        self.metrics.begin(split, len(loader))
        watchdog.at(f"epoch {self.progress.epoch + 1}, split {split}")
        job = self.job
        with memory_errors(f"while testing on the split {split}"), span("evaluate"):
            evaluation = evaluate(job.model, loader, job.world, job.device, self.metrics.advance)
        self.metrics.end()
        reads = torch.tensor(self._new_reads(), dtype=torch.float64)
        self.progress.bytes_read += int(collectives.all_reduce_sum(reads, self.job.world)[0].item())
        return evaluation

    def _say_useless_cache(self, record: dict[str, Any]) -> None:
        """Warns once of a cache that serves no rows."""
        job = self.job
        if self._said_useless or not job.world.is_main or job.config.cache.policy == "none":
            return
        remark = without_hits(record, job.config.cache, job.store.num_nodes)
        if remark is not None:
            self._said_useless = True
            logger.warning("%s", remark)

    def _new_reads(self) -> list[float]:
        """STORAGE_SUMS of this rank since the last call."""
        seen, stats = self._storage_seen, self.job.features.stats()
        self._storage_seen = {name: stats[name] for name in STORAGE_SUMS}
        if self.job.features.engine == "memory":
            self._storage_seen["bytes_read"] = 0  # copies of rows, and none of them from a drive
        return [self._storage_seen[name] - seen[name] for name in STORAGE_SUMS]

    def _count_time(self) -> None:
        now = time.perf_counter()
        self.progress.seconds += now - self._last_time
        self._last_time = now

    def _checkpoint_step(self) -> None:
        progress, every = self.progress, self.job.config.checkpoint.every_steps
        step = progress.epoch * len(self.job.loaders["train"]) + progress.iteration
        if every and step % every == 0:
            self._save()

    def _stop(self) -> None:
        """Writes a checkpoint and raises Stopped, on every rank at the same iteration."""
        self._save()
        collectives.barrier(
            self.job.world
        )  # no rank ends, and ends the job with it, before the file is written
        progress = self.progress
        raise signals.Stopped(
            f"stopped by a signal after epoch {progress.epoch + 1}, iteration "
            f"{progress.iteration - 1}; a checkpoint is in {self.job.checkpoint_dir}, and the same "
            "command continues"
        )

    def _keep_directory(self) -> None:
        """Creates the run's directory again if it was removed in mid-run, so that the progress of
        training is not lost with it."""
        if self._directory is None:
            return
        at = (self.progress.epoch, self.progress.iteration)
        if self._directory.check():
            self.metrics.reopen_lost(at)
            return
        self.metrics.reopen(at)
        if self._run_record is not None:
            self._run_record.write_again()

    def _save(self) -> None:
        """Writes a checkpoint on rank 0, after the metrics before it."""
        self._count_time()
        if not self.job.world.is_main:
            return
        self._keep_directory()
        self.metrics.flush()
        checkpoint.save(
            self.job.checkpoint_dir,
            self.progress,
            self.job.model.state_dict(),
            self.job.optimizer.state_dict(),
            self._settings,
            self.job.config.checkpoint.keep,
        )
