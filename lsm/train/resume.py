"""Finds the start of a run: from scratch, or from a checkpoint (``checkpoint.resume``)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from lsm.distributed import collectives
from lsm.run.directory import finished_run
from lsm.run.fingerprint import check_settings
from lsm.run.position import Position
from lsm.train import checkpoint
from lsm.train.checkpoint import State
from lsm.train.job import Job
from lsm.train.saved import MODEL_NAME

logger = logging.getLogger(__name__)


def find_state(job: Job) -> State:
    """The state that training starts from. Loads its weights and optimizer state into ``job``.

    Rank 0 decides and reads; the others receive. checkpoint.resume=never removes the checkpoints
    and results of an earlier run in ``run.dir``. Raises ValueError if no checkpoint there can be
    read, if it belongs to other settings, or if the run there has finished all epochs;
    FileNotFoundError if the named checkpoint is missing.
    """
    content = _read(job) if job.world.is_main else None
    content = collectives.broadcast_object(content, job.world)
    if content is None:
        return State()
    job.network.model.load_state_dict(content["model"])
    job.network.optimizer.load_state_dict(content["optimizer"])
    return State(Position(**content["position"]), content["best_model"])


def _read(job: Job) -> dict[str, Any] | None:
    """The contents of the checkpoint to continue from; None to start from scratch."""
    path, content = _choose(job)
    finished = _result(job).exists() and job.config.checkpoint.resume != "never"
    if finished and (path is None or path.resolve().parent != job.checkpoint_dir.resolve()):
        raise finished_run(job.run_dir, None)
    if path is not None and content is not None:
        settings = checkpoint.fingerprint(job)
        check_settings(path, content["settings"], settings, checkpoint.OPTIONAL)
        position = Position(**content["position"])
        if finished and (position.stopped_early or position.epoch >= job.config.train.epochs):
            raise finished_run(job.run_dir, position)
        logger.info("continuing from %s (%s)", path, position)
        num_later = checkpoint.remove_later(job.checkpoint_dir, position)
        if num_later:
            logger.info("%s: removed %d later checkpoints", job.checkpoint_dir, num_later)
    else:
        checkpoint.remove_all(job.checkpoint_dir)
    (job.run_dir / MODEL_NAME).unlink(missing_ok=True)  # the checkpoints have better ones
    _result(job).unlink(missing_ok=True)
    return content


def _choose(job: Job) -> tuple[Path | None, dict[str, Any] | None]:
    """The path and the contents of the checkpoint to continue from. auto: the newest that can be
    read. Raises ValueError if none can be read."""
    resume = job.config.checkpoint.resume
    if resume == "never":
        return None, None
    if resume != "auto":
        return Path(resume), checkpoint.load(Path(resume))
    found = checkpoint.list_checkpoints(job.checkpoint_dir)
    for path in reversed(found):
        try:
            return path, checkpoint.load(path)
        except checkpoint.DamagedError as error:
            logger.warning("%s; trying the one before", error)
    if found:
        raise ValueError(
            f"none of the {len(found)} checkpoints in {job.checkpoint_dir} can be read; set "
            "checkpoint.resume=never to start afresh, or choose another run.dir"
        )
    return None, None


def _result(job: Job) -> Path:
    return job.run_dir / "result.json"
