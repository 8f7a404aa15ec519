"""The task that a configuration names."""

from __future__ import annotations

from lsm.config.schema import Config
from lsm.train.tasks.link_prediction import LinkPrediction
from lsm.train.tasks.node_prediction import NodePrediction
from lsm.train.tasks.task import Task


def task_of(config: Config) -> Task:
    """The task that ``train.task`` names."""
    return LinkPrediction(config) if config.train.task == "link" else NodePrediction.of(config)
