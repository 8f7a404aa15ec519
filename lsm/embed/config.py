"""The configuration of an embedding run; ``configs/embed/`` holds some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lsm.config.load import find_config, load_tree
from lsm.core.arguments import as_path
from lsm.core.limits import MOST_THREADS
from lsm.core.option_types import AutoAtLeastOne, AutoCount, NonNegative, Positive, Seed
from lsm.core.section import Section
from lsm.embed.options import EmbedOptions
from lsm.run.fingerprint import settings_of
from lsm.run.options import DistOptions, MetricsOptions, RunOptions, default_run_dir
from lsm.storage.transfers import TransferOptions

FOLDER = "embed"


class EmbedDataConfig(Section):
    """The triples to train on."""

    section: ClassVar[str] = "data"

    path: str | None = None
    """Store directory, as written by `lsm data convert triples`. Required."""


class EmbedTrainConfig(Section):
    """Optimisation of embeddings."""

    section: ClassVar[str] = "train"

    batch_size: AutoAtLeastOne = "auto"
    """Edges per rank and iteration. auto: 1024; when partitions are on disk, at most a 32nd of the
    nodes in memory, but at least 128. In larger batches of a few partitions, nodes repeat too often
    for their updates."""
    epochs: Positive = 60
    """Maximum number of passes over the training edges. train.patience may end training earlier."""
    seed: Seed = 0
    """Seed of initial embeddings, shuffling, negatives, dropout and the names of partitions."""
    num_threads: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    """Threads of torch per rank. 0: this machine's cores divided by its ranks."""
    precision: Literal["fp32", "tf32"] = "fp32"
    """Precision of matrix products. tf32: a GPU multiplies with 10 bits of mantissa; sums, rows and
    state stay float32."""
    eval_every: AutoCount = "auto"
    """Epochs between two validations. The last epoch is always validated. 0: only the last. auto:
    5, fewer above 10 million training edges, and 1 above 25 million. Without validation edges:
    none."""
    eval_edges: AutoCount = "auto"
    """Validation edges to rank: the first ones in an order drawn by train.seed. 0: all. auto: as
    many as keep validation at about a tenth of the arithmetic of training, but at least 1,000.
    Never more than eval.edges."""
    patience: NonNegative = 2
    """Number of validations without a higher MRR after which training stops. 0: train all epochs.
    Without validations it has no effect."""
    select: Literal["best", "last"] = "best"
    """Embeddings to test and keep: those of the validation with the highest MRR (half as much disk
    again), or those of the last epoch. Without validations: those of the last epoch."""


class EmbedEvalConfig(Section):
    """Link prediction on the validation and test edges, both sides of each."""

    section: ClassVar[str] = "eval"

    candidates: Literal["all", "uniform", "degree"] = "all"
    """Entities to rank an edge's own entity against. all: every entity; uniform: a sample of
    distinct entities; degree: a sample drawn in proportion to degree in the training edges."""
    sample: Positive = 10_000
    """uniform, degree: size of the sample."""
    filtered: bool = True
    """Leave out entities that complete another edge of the graph. Takes 32 bytes of memory per
    edge."""
    edges: NonNegative = 0
    """Edges to rank: the first ones of the split in an order drawn by train.seed. 0: all."""


class EmbedCheckpointConfig(Section):
    """Saving and resuming."""

    section: ClassVar[str] = "checkpoint"

    every_steps: NonNegative = 0
    """Iterations between two checkpoints, counted from the start of the run. 0: none."""
    every_epochs: NonNegative = 1
    """Epochs between two checkpoints. 0: none. The end of training always writes one."""
    resume: Literal["auto", "never"] = "auto"
    """auto: continue an interrupted run in run.dir, or a finished one if train.epochs was raised;
    refuse other finished runs. never: start afresh and replace the contents of run.dir."""


class EmbedConfig(Section):
    """An embedding run: every section of its configuration."""

    run: RunOptions = RunOptions()
    """Directory of the results and of the partitions."""
    data: EmbedDataConfig = EmbedDataConfig()
    """The graph, as a store of triples."""
    embed: EmbedOptions = EmbedOptions()
    """Model, loss and optimiser of embeddings, and their partitions."""
    train: EmbedTrainConfig = EmbedTrainConfig()
    """Optimisation."""
    eval: EmbedEvalConfig = EmbedEvalConfig()
    """Validation and test."""
    storage: TransferOptions = TransferOptions()
    """Reads and writes of partitions."""
    checkpoint: EmbedCheckpointConfig = EmbedCheckpointConfig()
    """Checkpoints, and resuming from them."""
    metrics: MetricsOptions = MetricsOptions()
    """Records and progress bars."""
    dist: DistOptions = DistOptions()
    """Jobs of several ranks."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that trains and whose memory holds the partitions of the buffer. auto: this rank's GPU
    if it works (see `lsm doctor`), else the CPU; cuda: an error if the GPU does not work. The two
    devices draw different negatives, so their results differ."""

    @property
    def run_dir(self) -> Path:
        """Directory of the results: run.dir, or its default."""
        return Path(self.run.dir or default_run_dir(FOLDER, self.data.path))


def load_embed_config(name_or_path: str | Path, overrides: Sequence[str] = ()) -> EmbedConfig:
    """Reads a configuration of embeddings from a YAML file.

    Keys that neither the file nor an override mentions have their defaults; run.dir is then named
    after the file and the store.

    Args:
        name_or_path: A file, or the name of one in ``configs/embed/`` (``base``).
        overrides: ``key=value`` each, applied in order.

    Returns:
        The configuration, checked.

    Raises:
        ValueError: A key is unknown, or its value has a wrong type or is out of range. The error
            names the full key.
        OSError: The file cannot be read.
    """
    given = as_path("config", name_or_path)
    name = str(name_or_path).removeprefix(f"{FOLDER}/")
    path = find_config(given if given.is_file() else name, FOLDER)
    config = load_tree(EmbedConfig, path, overrides)
    if config.run.dir is None and config.data.path is not None:
        run_dir = default_run_dir(f"{FOLDER}-{path.stem}", config.data.path)
        return config.model_copy(update={"run": RunOptions(dir=run_dir)})
    return config


_MEASURE = {"eval": ("candidates", "edges", "filtered", "sample"), "train": ("eval_edges",)}
VALIDATION = tuple(f"{section}.{key}" for section, keys in _MEASURE.items() for key in keys)
"""The settings by which validations are measured."""


def fingerprint(
    config: EmbedConfig, world_size: int, store: dict[str, object]
) -> dict[str, object]:
    """The settings that a resumed run must share with its checkpoint to give the same numbers, and
    a best validation of the same measure. ``store``: the identity of the store."""
    of_training = ("batch_size", "precision", "seed", "select")
    keys = settings_of(config, {"embed": None, "train": of_training})
    keys["embed.shift_scores"] = config.embed.partition_shift != 0
    if config.train.select == "best" or config.train.patience:
        keys |= settings_of(config, _MEASURE)
        if config.eval.candidates == "all":
            del keys["eval.sample"]
    return keys | {"world size": world_size, "store": store}
