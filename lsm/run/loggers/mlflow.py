"""MLflow. MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME hold; without the first, the numbers go to
the database ``mlflow.db`` of the run."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from lsm.run.loggers.logger import Kind, LoggedRun, Logger, writing_log

logger = logging.getLogger(__name__)

_LONGEST = 500
"""Characters of a parameter that MLflow takes."""
_MOST, _MOST_PARAMETERS = 1000, 100
"""Metrics, and parameters, of one call."""
_FOREIGN = re.compile(r"[^\w\-./ ]")
"""Characters that MLflow's names may not have."""


class MlflowLogger(Logger):
    """A run of MLflow, which a resumed run continues. ``step/NAME`` is over iterations, and
    ``epoch/NAME`` over epochs. A server that is gone in mid-run is one warning."""

    def __init__(self, run: LoggedRun) -> None:
        self._mlflow = import_module("mlflow")
        self._waiting: list[Any] = []
        self._has_ended = False
        database = f"sqlite:///{run.directory.absolute() / 'mlflow.db'}"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or database
        try:
            self._client = self._mlflow.MlflowClient(tracking_uri=uri)
            self._run_id = self._open(run)
        except self._mlflow.exceptions.MlflowException as error:
            raise RuntimeError(
                f"metrics.loggers: mlflow: {str(error).splitlines()[0]}; check MLFLOW_TRACKING_URI "
                f"({uri}), or leave mlflow out"
            ) from error

    def add(self, kind: Kind, at: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        for name, value in values.items():
            key = _FOREIGN.sub("_", f"{kind}/{name}")
            self._waiting.append(self._mlflow.entities.Metric(key, float(value), now, at))

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for begin in range(0, len(waiting), _MOST):
            self._call(self._client.log_batch, metrics=waiting[begin : begin + _MOST])

    def close(self) -> None:
        self.flush()
        self._call(self._client.set_terminated)

    def _open(self, run: LoggedRun) -> str:
        """The id of the run, kept in its directory; a new run has a new one."""
        path = run.directory / "mlflow.id"
        if not run.is_new and path.exists():
            return path.read_text().strip()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "lsm-gnn")
        there = self._client.get_experiment_by_name(name)
        experiment = there.experiment_id if there else self._client.create_experiment(name)
        run_id = self._client.create_run(experiment, run_name=run.directory.name).info.run_id
        parameters = [self._mlflow.entities.Param(*each) for each in _flat(run.settings)]
        for begin in range(0, len(parameters), _MOST_PARAMETERS):
            self._client.log_batch(run_id, params=parameters[begin : begin + _MOST_PARAMETERS])
        with writing_log(path):
            path.write_text(run_id)
        return run_id

    def _call(self, call: Callable[..., Any], **arguments: Any) -> None:
        """Calls the server, until an error."""
        if self._has_ended:
            return
        try:
            call(self._run_id, **arguments)
        except self._mlflow.exceptions.MlflowException as error:
            self._has_ended = True
            logger.warning(
                "metrics.loggers: mlflow takes no more numbers of this run: %s",
                str(error).splitlines()[0],
            )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each key with its full name and its value in words."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield _FOREIGN.sub("_", f"{prefix}{name}"), str(value)[:_LONGEST]
