"""The start of training from Python, before torch is imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lsm.config.schema import Config

_ENVIRONMENT = {
    # torch reads it when it loads OpenMP. By default OpenMP's idle threads spin, and take cores
    # from the threads that sample and read.
    "OMP_WAIT_POLICY": "passive",
    # DDP would warn, once per rank, about an option that lsm.train.job sets on purpose.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # Makes a GPU add up matrix products in the same order in every run.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


def prepare_environment() -> None:
    """Sets variables that torch reads at its import, unless they are set."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def fit(config: Config) -> dict[str, Any]:
    """Trains and tests a network of nodes or of links. Blocks until the run ends.

    Under torchrun, srun or mpirun, every process of the job calls it. Sets the environment
    variables OMP_WAIT_POLICY, TORCH_CPP_LOG_LEVEL and CUBLAS_WORKSPACE_CONFIG unless they are
    set; the first two work only if torch is not imported yet.

    Args:
        config: From ``lsm.load_config``.

    Returns:
        The summary that `lsm train` prints, the same on every rank.

    Raises:
        ValueError: The configuration cannot be run.
        Stopped: A signal asked a rank to stop. Every rank raises it, with a checkpoint written
            unless memory was still being planned.
    """
    prepare_environment()
    from lsm.train.trainer import train

    return train(config)
