"""Where a run starts: afresh, or from a checkpoint (``checkpoint.resume``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsm import checkpoint, dist
from lsm.checkpoint import Progress
from lsm.job import Job


def find_progress(job: Job) -> Progress:
    """The position that training starts from, its weights and optimizer state loaded into ``job``.

    Rank 0 decides and reads; the others receive. Starting afresh removes the checkpoints of an
    earlier run from ``run.dir``. Raises ValueError if the checkpoint is damaged or of a run with
    other settings, FileNotFoundError if the one asked for does not exist.
    """
    content = _read(job) if job.world.is_main else None
    content = dist.broadcast_object(content, job.world)
    if content is None:
        return Progress()
    job.model.load_state_dict(content["model"])
    job.optimizer.load_state_dict(content["optimizer"])
    return Progress(**content["progress"])


def _read(job: Job) -> dict[str, Any] | None:
    """The checkpoint to continue from; None to start afresh, with nothing in the way."""
    path = _choose(job)
    content = checkpoint.load(path) if path is not None else None
    if content is not None:
        settings = checkpoint.fingerprint(job.config, job.world.size, job.store)
        if not _is_finished(job):
            checkpoint.check_settings(path, content["settings"], settings)
        elif content["settings"] != settings or not _has_more_epochs(job, content):
            content = None
    if content is None:
        checkpoint.remove_all(job.checkpoint_dir)
    _result(job).unlink(missing_ok=True)
    return content


def _choose(job: Job) -> Path | None:
    resume = job.config.checkpoint.resume
    if resume == "never":
        return None
    if resume != "auto":
        return Path(resume)
    found = checkpoint.list_checkpoints(job.checkpoint_dir)
    return found[-1] if found else None


def _result(job: Job) -> Path:
    return job.run_dir / "result.json"


def _is_finished(job: Job) -> bool:
    """Whether the run in ``run.dir`` came to its end, so that auto means a new one unless it is to
    have more epochs."""
    return job.config.checkpoint.resume == "auto" and _result(job).exists()


def _has_more_epochs(job: Job, content: dict[str, Any]) -> bool:
    return content["progress"]["epoch"] < job.config.train.epochs
