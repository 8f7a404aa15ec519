"""Trains a network on a store: parse, build, train, close.

Every rank runs this; ranks differ only in their share of each global batch. Losses are a function
of the configuration, the store and the world size. The engine, the read-ahead and interruptions
change no bit of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from lsm import native
from lsm.config.load import check_config, shared_settings
from lsm.config.schema import Config
from lsm.core.allocator import release_freed_memory
from lsm.core.counters import READ_AHEAD, SPANS
from lsm.core.device import memory_errors, seed_generators
from lsm.core.profiler import span
from lsm.distributed import collectives, signals, watchdog
from lsm.distributed.collectives import World
from lsm.loader.batch import Batch, to_device
from lsm.run.common_folder import require_common_folder
from lsm.run.directory import RunDirectory
from lsm.run.log import RunLog
from lsm.run.loop import Cadence, Loop, Validation, read_every
from lsm.run.metrics import Metrics
from lsm.run.records import open_records
from lsm.run.totals import OF_RANK, Totals
from lsm.train import checkpoint
from lsm.train.cache_remarks import without_hits
from lsm.train.checkpoint import State
from lsm.train.evaluate import Evaluation, evaluate
from lsm.train.exact import evaluate_exactly
from lsm.train.job import Job, open_job
from lsm.train.peak_memory import peak_of
from lsm.train.resume import find_state
from lsm.train.row_metrics import STEP_SCALARS, NewReads, RowMetrics, in_words
from lsm.train.row_sizes import row_sizes
from lsm.train.saved import MODEL_NAME
from lsm.train.schedule import follows_plateaus
from lsm.train.tasks.choose import task_of
from lsm.train.tasks.task import Task

logger = logging.getLogger(__name__)


def train(config: Config, task: Task | None = None) -> dict[str, Any]:
    """As ``lsm.fit``, in an environment that is set up, for any task (None: that of
    ``train.task``)."""
    check_config(config, Config, "lsm.load_config")
    with (
        signals.on_signals(),
        collectives.joined(config.dist.timeout_secs, shared_settings(config)) as world,
    ):
        return _train(config, task or task_of(config), world)


def _train(config: Config, task: Task, world: World) -> dict[str, Any]:
    """``train`` on a rank that has joined its job. Closes the job at its end."""
    with (
        RunLog(main=world.is_main) as log,
        open_job(config, world, task) as job,
        RunDirectory(job.run_dir) if world.is_main else nullcontext() as directory,
    ):
        if config.train.eval.exact:
            require_common_folder(job.run_dir, world, "run.dir, with train.eval.exact")
        state = find_state(job)
        with open_records(
            config,
            job.run_dir,
            world,
            log,
            store=job.store.path,
            store_digest=job.store.digest(),
            position=state.position,
            num_iterations=len(job.loaders["train"]),
            in_words=partial(in_words, metric=task.metric, in_memory=job.keeps_features),
            step_scalars=STEP_SCALARS,
            directory=directory,
        ) as records:
            trainer = Trainer(job, state, records.metrics)
            options = config.train
            plateau = options.plateau_patience if follows_plateaus(options) else 0
            often = read_every(config, job.device)
            cadence = Cadence.of(config, options.eval_every, plateau=plateau, read_every=often)
            return Loop(trainer, cadence, records, world, job.checkpoint_dir).run()


@dataclass
class StepTotals(Totals):
    """Totals of an iteration. The losses are those of the seeds."""

    num_nodes: int = 0
    num_edges: int = 0
    rows: dict[str, float] = field(default_factory=dict)
    """New reads, COUNTERS and EXCHANGED."""
    spans: dict[str, float] = field(default_factory=dict, metadata=OF_RANK)
    """Seconds of this rank, and its depth of reading ahead."""

    @property
    def bytes_read(self) -> int:
        """Bytes read from storage meanwhile."""
        return int(self.rows["bytes_read"])


def _named(split: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` by the name of their split: ``valid_accuracy``."""
    return {f"{split}_{name}": value for name, value in values.items()}


_FIRST_KEYS = ("epochs", "world_size", "engine", "bytes_read", "seconds")


class Trainer:
    """Trains, validates and tests the network of a job."""

    loss_remedy = "lower train.lr, or look for bad features with `lsm data verify`"

    def __init__(self, job: Job, state: State, metrics: Metrics) -> None:
        self.job, self.position = job, state.position
        self._best_model, self._metrics = state.best_model, metrics
        self._settings = checkpoint.fingerprint(job)
        self._reads = NewReads(job.features)
        self._row_metrics = RowMetrics(row_sizes(job.store))
        self.first_keys: tuple[str, ...] = (f"test_{job.task.metric}", *_FIRST_KEYS)
        self._said_useless = False
        self._step_seeds = 0  # of the current optimiser step, over all ranks

    @property
    def num_iterations(self) -> int:
        """Iterations of an epoch."""
        return len(self.job.loaders["train"])

    @property
    def is_between_steps(self) -> bool:
        """True unless gradients wait for more iterations of train.accumulate."""
        done = self.position.iteration
        return done % self.job.config.train.accumulate == 0 or done == self.num_iterations

    def items(self) -> Iterator[Batch]:
        """The batches of this rank in the rest of the current epoch."""
        self.job.network.model.train()
        return iter(self.job.loaders["train"].iterate(self.position.epoch, self.position.iteration))

    def train(self, batch: Batch) -> StepTotals:
        """Adds the gradient of this rank's share of a global batch to that of the optimiser step.
        After the last iteration of a step, changes the weights."""
        job, settings = self.job, self.job.config.train
        network, step = job.network, job.network.schedule.step_of(batch.iteration)
        # Dropout becomes a function of these four, so that a resumed run draws the same masks.
        key = (settings.seed, batch.epoch, batch.iteration, job.world.rank)
        seed_generators(native.batch_key(*key), job.device)
        if batch.iteration == step.start:
            self._step_seeds = sum(map(job.loaders["train"].global_batch_size, step))
            network.optimizer.zero_grad()
        with span("copy"):
            batch = to_device(job.task.on_host(batch), job.device)
        local_loss, counts = job.task.loss_sum(self._forward, batch)
        with span("backward"), watchdog.awaiting("the exchange of gradients"):
            # DDP averages over ranks, and ranks may have different numbers of seeds, even none.
            # With this factor averages add up to the gradient of the mean over the step's seeds:
            # those of earlier iterations are the same on every rank, and their average is, too.
            (local_loss * (job.world.size / self._step_seeds)).backward()
        with span("optimizer"):
            if batch.iteration == step[-1]:
                iteration = batch.epoch * self.num_iterations + batch.iteration
                network.step(iteration, self.position.num_plateaus)
            else:
                network.keep_gradients()
        return StepTotals(
            loss_count=batch.batch_size,
            unread={"loss_sum": local_loss.detach(), **counts},
            num_nodes=sum(batch.num_sampled_nodes),
            num_edges=sum(batch.num_sampled_edges),
            rows=self._reads.take()
            | {name: batch.stats[name] for name in self._row_metrics.counters},
            spans={name: batch.stats[name] for name in ("sample_secs", *SPANS, *READ_AHEAD)},
        )

    def _forward(self, batch: Batch) -> torch.Tensor:
        with span("forward"), self.job.autocast():
            return self.job.network.parallel(batch)

    def step_record(self, totals: StepTotals) -> dict[str, Any]:
        """Sizes, bytes and tiers of an iteration."""
        return {
            "num_seeds": totals.loss_count,
            "num_nodes": totals.num_nodes,
            "num_edges": totals.num_edges,
            "bytes_read": totals.bytes_read,
            **{name: totals.spans[name] for name in READ_AHEAD},
            **self._row_metrics.record(totals.rows | totals.spans),
        }

    def epoch_record(self) -> dict[str, Any]:
        """Accuracy, depth of reading ahead, bytes and tiers of the epoch."""
        position, sums = self.position, self.position.sums
        record = {
            **_named("train", self.job.task.metrics(sums, position.loss_count)),
            f"valid_{self.job.task.metric}": None,
            "bytes_read": position.bytes_read,
            **{name: sums.get(name, 0) / self.num_iterations for name in READ_AHEAD},
            **self._row_metrics.record(sums),
        }
        self._say_useless_cache(record | {"epoch": position.epoch + 1})
        return record

    def validate(self) -> Validation:
        """Evaluates on the validation nodes. Keeps the weights that are to be tested."""
        valid = self._evaluate("valid")
        score = self._score(valid.metrics[self.job.task.metric])
        if self.job.config.train.select == "best" and self.position.is_better(score):
            weights = self.job.network.model.state_dict()
            self._best_model = {name: value.clone() for name, value in weights.items()}
        return Validation(score, _named("valid", valid.metrics | valid.rows))

    def _score(self, value: float | None) -> float | None:
        """The score of a value of the task's metric, which is higher for a better model; or the
        value of a score."""
        return value if value is None or not self.job.task.lower_is_better else -value

    def save(self, best: bool) -> None:
        """Writes a checkpoint on rank 0."""
        job = self.job
        if job.world.is_main:
            checkpoint.save(
                job.checkpoint_dir,
                State(self.position, self._best_model),
                job.network.model.state_dict(),
                job.network.optimizer.state_dict(),
                self._settings,
                job.config.checkpoint.keep,
            )

    def test(self) -> dict[str, Any]:
        """Tests the selected model and writes it."""
        job = self.job
        if self._best_model:
            job.network.model.load_state_dict(self._best_model)
        elif job.config.train.select == "best" and job.world.is_main:
            logger.warning(
                "no validation had a value of %s, so the model of the last epoch is tested",
                job.task.metric,
            )
        test = self._evaluate("test")
        if job.world.is_main:
            weights = {name: value.cpu() for name, value in job.network.model.state_dict().items()}
            checkpoint.write_atomic(job.run_dir / MODEL_NAME, weights)
        return {
            **_named("test", test.metrics),
            "engine": job.features.engine,
            f"valid_{job.task.metric}": self._score(self.position.best),
            "test_requests": test.rows["requests"],
            "test_misses": test.rows["misses"],
            **self._memory(),
        }

    def _memory(self) -> dict[str, Any]:
        """The memory that the run took, which the user is told."""
        taken = peak_of(self.job)
        self._metrics.say(self.job.memory.peak_in_words(taken["peak_memory_bytes"]))
        return taken

    def _evaluate(self, split: str) -> Evaluation:
        job, loader = self.job, self.job.loaders[split]
        job.network.share_buffers(job.world)
        self._metrics.begin(split, len(loader))
        watchdog.at(f"epoch {self.position.epoch + 1}, split {split}")
        release_freed_memory()  # blocks of one split would stay; those of the next have other sizes
        try:
            with memory_errors(f"while testing on the split {split}"), span("evaluate"):
                if job.config.train.eval.exact:
                    found = evaluate_exactly(job, split)
                else:
                    found = evaluate(job, loader, self._metrics.advance)
        except FloatingPointError as error:
            raise RuntimeError(
                f"epoch {self.position.epoch + 1}, split {split}: {error}; {self.loss_remedy}"
            ) from None
        release_freed_memory()
        self._metrics.end()
        reads = torch.tensor(self._reads.take()["bytes_read"], dtype=torch.float64)
        self.position.bytes_read += int(collectives.all_reduce_sum(reads, job.world).item())
        self.position.bytes_read += found.bytes_read
        return found

    def _say_useless_cache(self, record: dict[str, Any]) -> None:
        """Warns once of a cache that serves no rows."""
        job = self.job
        if self._said_useless or not job.world.is_main or job.config.cache.policy == "none":
            return
        remark = without_hits(
            record, job.config.cache, job.store.num_nodes, num_ranks=job.world.size
        )
        if remark is not None:
            self._said_useless = True
            logger.warning("%s", remark)
