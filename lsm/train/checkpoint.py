"""Checkpoints: written atomically, found by name, loaded without running code.

A checkpoint holds the whole state of training: weights, optimizer state, position, and the running
sums of the epoch. Sampling, shuffling and dropout are functions of (seed, epoch, iteration, rank)
and need no state. Files are named ``step-EEEEEE-IIIIIIII.pt`` by the epoch and the iteration at
which training continues.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from lsm.config.schema import Config
from lsm.core.atomic_file import write_bytes_atomic
from lsm.run.fingerprint import settings_of
from lsm.train.checkpoint_files import list_checkpoints as list_checkpoints

SCHEMA_VERSION = 1


class DamagedError(ValueError):
    """A damaged file of a checkpoint. An earlier one may be whole."""


@dataclass
class Progress:
    """The position of training, and the state beside weights and optimizer."""

    epoch: int = 0
    """Epoch that training continues."""
    iteration: int = 0
    """Its next iteration."""
    loss_sum: float = 0.0
    """Sum of the epoch's seed losses so far, over all ranks."""
    num_correct: int = 0
    """Seeds of the epoch classified correctly so far (while training), over all ranks."""
    num_seeds: int = 0
    """Seeds of the epoch so far, over all ranks."""
    row_sums: dict[str, float] = field(default_factory=dict)
    """Sums of the epoch's row metrics so far (lsm.run.metrics.ROW_SUMS)."""
    bytes_read: int = 0
    """Bytes read from storage since the run began, over all ranks."""
    seconds: float = 0.0
    """Time spent since the run began, over its restarts."""
    best_epoch: int = -1
    """Epoch with the best validation accuracy; -1 before the first validation."""
    best_accuracy: float = -1.0
    """Its validation accuracy."""
    best_model: dict[str, torch.Tensor] = field(default_factory=dict)
    """Its weights; empty unless train.select is best."""

    def start_epoch(self, epoch: int) -> None:
        """Moves to the first iteration of ``epoch``."""
        self.epoch, self.iteration = epoch, 0
        self.loss_sum, self.num_correct, self.num_seeds = 0.0, 0, 0
        self.row_sums = {}


def fingerprint(config: Config, world_size: int, store: Any) -> dict[str, Any]:
    """The settings that a resumed run must share with its checkpoint for equal losses."""
    sampling = ("num_neighbors", "kind", "layer_dependency", "batch_dependency", "debias")
    train = ("batch_size", "seed", "lr", "weight_decay", "precision", "select")
    keys = settings_of(config, {"model": None, "train": train, "sampler": sampling})
    keys["model.num_layers"] = len(config.sampler.num_neighbors)
    keys["world size"] = world_size
    keys["store (name, nodes, edges, dim)"] = [
        store.name,
        store.num_nodes,
        store.num_edges,
        store.feature_dim,
    ]
    return keys


def save(
    directory: Path,
    progress: Progress,
    model: dict[str, torch.Tensor],
    optimizer: dict[str, Any],
    settings: dict[str, Any],
    keep: int,
) -> Path:
    """Writes a checkpoint at ``progress`` and deletes all but the ``keep`` newest.

    The file gets its name only once it is durable. Raises RuntimeError if it cannot be written.
    """
    path = directory / f"step-{progress.epoch:06d}-{progress.iteration:08d}.pt"
    write_atomic(
        path,
        {
            "schema_version": SCHEMA_VERSION,
            "progress": asdict(progress),
            "model": model,
            "optimizer": optimizer,
            "settings": settings,
        },
    )
    for old in list_checkpoints(directory)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def write_atomic(path: Path, value: Any) -> None:
    """``torch.save`` to ``path``, as write_bytes_atomic() writes."""
    content = io.BytesIO()  # torch.save to a file that fails midway ends the process
    torch.save(value, content)
    write_bytes_atomic(path, content.getbuffer())


def remove_all(directory: Path) -> int:
    """Deletes every checkpoint in ``directory``. Returns their number."""
    old = list_checkpoints(directory)
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def load(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint. Raises FileNotFoundError; DamagedError if its bytes cannot be
    read; ValueError, which names the file, for another schema."""
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist (checkpoint.resume)")
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # torch raises many types here; each means an unreadable file
        raise DamagedError(
            f"checkpoint {path} cannot be read: it is truncated, damaged or not a checkpoint"
        ) from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"checkpoint {path}: expected schema version {SCHEMA_VERSION}, got {version}; "
            "set checkpoint.resume=never to start afresh"
        )
    return content
