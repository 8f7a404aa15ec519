"""Options of a run: its directory, checkpoints, metrics and ranks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from lsm.core.option_types import NonNegative, Positive, Seconds
from lsm.core.section import Section
from lsm.run.loggers.open import LoggerName


class RunOptions(Section):
    """Results of a run."""

    section: ClassVar[str] = "run"

    dir: Annotated[str, Field(min_length=1)] | None = None
    """Directory for metrics, checkpoints and the trained model. One run at a time may use it. null:
    runs/CONFIG/STORE, named after both, so that the same command finds its interrupted run. For a
    store outside stores/, a hash of its path is appended."""


def default_run_dir(config_name: str, store: str | None) -> str:
    """The directory for run.dir=null: named after the configuration and the store. A store outside
    stores/ adds a hash of its path, so that two stores of one name get two directories."""
    path = Path(store or ".").absolute()
    known = path.parent == Path("stores").absolute()
    suffix = "" if known else "-" + hashlib.sha256(bytes(path)).hexdigest()[:8]
    return str(Path("runs", config_name, path.name + suffix))


class CheckpointOptions(Section):
    """Saving and resuming."""

    section: ClassVar[str] = "checkpoint"

    every_steps: NonNegative = 0
    """Iterations between two checkpoints, counted from the start of the run. Within an optimiser
    step of several iterations, a checkpoint waits for its end. 0: none."""
    every_epochs: NonNegative = 1
    """Epochs between two checkpoints. 0: none."""
    keep: Positive = 3
    """Number of newest checkpoints to keep. Older ones are deleted."""
    resume: str = "auto"
    """Checkpoint to continue from. auto: continue an interrupted run in run.dir, or a finished one
    that is to have more epochs; refuse other finished runs. never: start afresh and replace the
    run in run.dir. Or the path of a checkpoint."""


def _loggers(value: Any) -> Any:
    """Also true and false, as of the earlier key metrics.tensorboard; and one name, or names
    separated by commas, from a command line."""
    if isinstance(value, bool):
        return ["tensorboard"] if value else []
    return value.split(",") if isinstance(value, str) else value


class MetricsOptions(Section):
    """Records and displays of a run."""

    section: ClassVar[str] = "metrics"

    jsonl: bool = True
    """Write run.dir/metrics.jsonl: one JSON line per iteration and per epoch."""
    loggers: Annotated[list[LoggerName], BeforeValidator(_loggers)] = Field(default=["tensorboard"])
    """Other places for the same numbers. tensorboard: events in run.dir/tensorboard. csv:
    run.dir/steps.csv and epochs.csv. wandb and mlflow, if their packages are installed: as their
    environment variables say; without MLFLOW_TRACKING_URI, in run.dir/mlflow.db."""
    progress: Literal["auto", "on", "off"] = "auto"
    """Progress bars on standard error of rank 0. auto: where that is a terminal."""
    log_every: Positive = 10
    """Iterations between two points of the loggers and two flushes of metrics.jsonl. On a GPU also
    between two readings of losses: a loss that is not finite, and a signal to several ranks, may be
    seen as many iterations late."""
    profile_steps: NonNegative = 0
    """Iterations to trace on each rank with torch.profiler, after two warm-up iterations. Traces go
    to run.dir/profile. 0: none."""


class DistOptions(Section):
    """Ranks of a job."""

    section: ClassVar[str] = "dist"

    timeout_secs: Seconds = 300.0
    """Longest wait for another rank, in seconds, when joining the job and in every exchange. A
    longer one is an error that names the rank."""
