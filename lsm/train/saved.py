"""A finished run in use: its configuration, its store and its model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from lsm.config.load import load_config
from lsm.config.schema import Config
from lsm.core.arguments import as_path
from lsm.data.graph_store import GraphStore
from lsm.distributed.environment import World
from lsm.embed.run_state import STATE_NAME
from lsm.run.record import CONFIG_NAME, last_store
from lsm.run.store import open_at
from lsm.train import checkpoint
from lsm.train.embedding_features import with_embeddings
from lsm.train.model import new_model
from lsm.train.setup import Setup
from lsm.train.tasks.choose import task_of
from lsm.train.tasks.task import Task

logger = logging.getLogger(__name__)

MODEL_NAME = "model.pt"
"""The weights of the model that a run has tested."""


def load_model(run: str | Path, store: GraphStore | str | Path | None = None) -> nn.Module:
    """Opens the model of a run of `lsm train`.

    The model takes a ``Batch``, as in training. Its weights are those that the run has tested. Of a
    run that has not ended they are the best so far, or else those of its last checkpoint.

    Args:
        run: The directory of the run (``run.dir``).
        store: The run's store, where it has moved; None: as the run names it.

    Returns:
        The model on the host, in evaluation mode.

    Raises:
        FileNotFoundError: There is no run, no model of it, or no store.
        ValueError: A file is damaged, or ``store`` is not the one that the run was trained on.
    """
    return SavedRun.open(run, store).load_model()


@dataclass(frozen=True)
class SavedRun:
    """A run whose files are read when they are asked for."""

    path: Path
    config: Config
    store: GraphStore

    @classmethod
    def open(cls, run: str | Path, store: GraphStore | str | Path | None = None) -> SavedRun:
        """As load_model(), without the model."""
        path = as_path("run", run)
        if not (path / CONFIG_NAME).is_file():
            raise FileNotFoundError(
                f"{path}: no run of `lsm train` (it has no {CONFIG_NAME}); give its run.dir"
            )
        if (path / STATE_NAME).is_file():
            raise ValueError(
                f"{path}: a run of `lsm embed train`, which has embeddings and no network; "
                "`lsm embed export`, score and predict read it"
            )
        config = load_config(path / CONFIG_NAME)
        if not isinstance(store, GraphStore):
            remedy = "give the store of the run"
            given = config.data.path if store is None else str(store)
            store = open_at(given, GraphStore.open, remedy)
        store = with_embeddings(store, config)
        _check_store(path, store)
        return cls(path, config, store)

    @cached_property
    def task(self) -> Task:
        """The task, with its files open."""
        task = task_of(self.config)
        task.open(self.store)
        return task

    def load_model(self) -> nn.Module:
        """The model, on the host and in evaluation mode."""
        setup = Setup(self.config, World(), torch.device("cpu"), self.store, self.task)
        with torch.random.fork_rng(devices=[]):  # first weights, which are replaced
            model = new_model(setup)
        path, weights = self._weights()
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(
                f"{path}: its weights are not those of the model that {self.path / CONFIG_NAME} "
                f"describes on {self.store.path} ({_in_one_line(error)})"
            ) from error
        return model.eval()

    def _weights(self) -> tuple[Path, dict[str, Tensor]]:
        """The weights to use, and their file."""
        tested = self.path / MODEL_NAME
        if tested.is_file():
            return tested, checkpoint.read(tested)
        found = checkpoint.list_checkpoints(self.path / "checkpoints")
        if not found:
            raise FileNotFoundError(
                f"{self.path}: no {MODEL_NAME} and no checkpoint; the run ended before it wrote one"
            )
        logger.info("%s has not ended; its model is that of %s", self.path, found[-1])
        content = checkpoint.load(found[-1])
        return found[-1], content["best_model"] or content["model"]


def _check_store(run: Path, store: GraphStore) -> None:
    """Raises ValueError unless ``store`` has the contents that the run was trained on. Runs of
    earlier versions have not recorded them."""
    trained = last_store(run)
    if trained not in (None, store.digest()):
        changed = (
            f"data.path: {store.path} is not the store that {run} was trained on, or has changed"
        )
        if store.given_features:
            changed += "; or data.features have, as by more epochs of `lsm embed train`,"
        raise ValueError(f"{changed} since; give that store, or train again")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
