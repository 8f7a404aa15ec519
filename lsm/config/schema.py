"""The configuration of a training run: every section, composed.

A section is the options of its component (``lsm.storage.options``, ``lsm.cache.options``, ...) or,
where its component is the run itself, lies next to this file. Defaults live in these classes, so an
installed package needs no file. ``make configs`` generates ``configs/base.yaml`` from them, and
``lsm.config.load`` reads files and overrides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from lsm.cache.options import CacheOptions
from lsm.comm.options import CommOptions
from lsm.config.data import DataConfig, MemoryConfig
from lsm.config.links import LinksConfig
from lsm.config.train import TrainConfig
from lsm.core.section import Section
from lsm.loader.options import LoaderOptions
from lsm.nn.options import ModelOptions
from lsm.run.options import (
    CheckpointOptions,
    DistOptions,
    MetricsOptions,
    RunOptions,
    default_run_dir,
)
from lsm.sampler.options import SamplerOptions, TopologyOptions
from lsm.storage.options import StorageOptions


class Config(Section):
    """A training run: every section of its configuration."""

    run: RunOptions = RunOptions()
    """Directory of the results."""
    data: DataConfig = DataConfig()
    """The graph, as a store."""
    memory: MemoryConfig = MemoryConfig()
    """Budget of host memory, per rank."""
    topology: TopologyOptions = TopologyOptions()
    """Placement of the graph structure, for a job that trains on a GPU."""
    storage: StorageOptions = StorageOptions()
    """Reads of feature rows from storage."""
    cache: CacheOptions = CacheOptions()
    """Feature rows that stay in memory."""
    comm: CommOptions = CommOptions()
    """Exchange of rows between the caches of several ranks. A single rank, and a run without a
    cache, ignores it."""
    sampler: SamplerOptions = SamplerOptions()
    """Neighbour sampling."""
    loader: LoaderOptions = LoaderOptions()
    """Batches prepared ahead of training."""
    model: ModelOptions = ModelOptions()
    """The network."""
    links: LinksConfig = LinksConfig()
    """Link prediction, with train.task=link."""
    train: TrainConfig = TrainConfig()
    """Optimisation."""
    checkpoint: CheckpointOptions = CheckpointOptions()
    """Checkpoints, and resuming from them."""
    metrics: MetricsOptions = MetricsOptions()
    """Records and progress bars."""
    dist: DistOptions = DistOptions()
    """Jobs of several ranks."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that trains. auto: this rank's GPU if it works (see `lsm doctor`), else the CPU; cuda:
    an error if it does not work."""

    @model_validator(mode="after")
    def _layers_match_hops(self) -> Config:
        hops = len(self.sampler.num_neighbors)
        if self.model.num_layers not in (None, hops):
            raise ValueError(
                f"model.num_layers: expected {hops}, the number of hops in sampler.num_neighbors "
                f"(or null), got {self.model.num_layers}"
            )
        eval_hops = self.train.eval.num_neighbors
        if eval_hops is not None and len(eval_hops) != hops:
            raise ValueError(
                f"train.eval.num_neighbors: expected {hops} hops as in sampler.num_neighbors, "
                f"got {len(eval_hops)}"
            )
        return self

    @model_validator(mode="after")
    def _exact_evaluation_takes_nodes_of_any_time(self) -> Config:
        if self.train.eval.exact and self.sampler.time_attr is not None:
            raise ValueError(
                "train.eval.exact: expected false with sampler.time_attr, as it takes the "
                "neighbours of all times, got true"
            )
        return self

    @property
    def run_dir(self) -> Path:
        """Directory of the results: run.dir, or its default."""
        return Path(self.run.dir or default_run_dir("train", self.data.path))

    @property
    def eval_num_neighbors(self) -> list[int]:
        """Fanouts of validation and test."""
        default = self.sampler.chosen.eval_default(self.sampler.num_neighbors)
        return self.train.eval.num_neighbors or default

    @property
    def eval_batch_size(self) -> int:
        """Seeds per rank of a validation or test batch."""
        return self.train.eval.batch_size or self.train.batch_size
