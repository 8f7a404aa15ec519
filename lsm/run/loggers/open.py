"""Opens the loggers that a configuration names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, util
from typing import Literal

from lsm.run.loggers.logger import LoggedRun, Logger

LoggerName = Literal["tensorboard", "csv", "wandb", "mlflow"]

_CLASSES = {
    "tensorboard": "TensorBoardLogger",
    "csv": "CsvLogger",
    "wandb": "WandbLogger",
    "mlflow": "MlflowLogger",
}
_PACKAGES = ("wandb", "mlflow")
"""Those that this project does not require."""


def check_installed(names: list[LoggerName]) -> None:
    """Raises ValueError, with the remedy, for a logger whose package is not installed."""
    for name in names:
        if name in _PACKAGES and util.find_spec(name) is None:
            raise ValueError(
                f"metrics.loggers: {name} is not installed: pip install {name}, or leave it out"
            )


def open_logger(name: LoggerName, run: LoggedRun) -> Logger:
    """The logger ``name`` of a run. Imports its package."""
    module = import_module(f"lsm.run.loggers.{name}")
    opens: Callable[[LoggedRun], Logger] = getattr(module, _CLASSES[name])
    return opens(run)
