"""Weights & Biases. WANDB_PROJECT, WANDB_MODE and its other variables hold."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from importlib import import_module

from lsm.run.loggers.logger import Kind, LoggedRun, Logger, writing_log

_AXES: dict[Kind, str] = {"step": "iteration", "epoch": "epoch"}


class WandbLogger(Logger):
    """A run of wandb, which a resumed run continues. ``step/NAME`` is over iterations, and
    ``epoch/NAME`` over epochs."""

    def __init__(self, run: LoggedRun) -> None:
        wandb = import_module("wandb")
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "lsm-gnn"),
                name=os.environ.get("WANDB_NAME", run.directory.name),
                dir=str(run.directory),
                id=os.environ.get("WANDB_RUN_ID", _run_id(run)),
                resume="allow",
                config=dict(run.settings),
            )
        except wandb.errors.Error as error:
            problem = str(error).splitlines()[0].rstrip(".")
            raise RuntimeError(
                f"metrics.loggers: wandb: {problem}; log in by `wandb login`, "
                "set WANDB_MODE=offline, or leave wandb out"
            ) from error
        for kind, axis in _AXES.items():
            self._run.define_metric(axis)
            self._run.define_metric(f"{kind}/*", step_metric=axis)

    def add(self, kind: Kind, at: int, values: Mapping[str, float]) -> None:
        named = {f"{kind}/{name}": value for name, value in values.items()}
        self._run.log(named | {_AXES[kind]: at})

    def flush(self) -> None:
        """As Logger.flush(). wandb's process takes each number at once."""

    def close(self) -> None:
        self._run.finish()


def _run_id(run: LoggedRun) -> str:
    """The name that wandb knows a run by, kept in its directory; a new run has a new one."""
    path = run.directory / "wandb.id"
    with writing_log(path):
        if run.is_new or not path.exists():
            path.write_text(uuid.uuid4().hex[:16])
        return path.read_text().strip()
