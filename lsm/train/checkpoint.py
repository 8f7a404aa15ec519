"""Checkpoints: written atomically, found by name, loaded without running code.

A checkpoint holds the whole state of training: weights, optimizer state, position, and the running
sums of the epoch. Sampling, shuffling and dropout are functions of (seed, epoch, iteration, rank)
and need no state. Files are named ``step-EEEEEE-IIIIIIII.pt`` by the epoch and the iteration at
which training continues.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch

from lsm.config.schema import Config
from lsm.core.atomic_file import half_written, write_bytes_atomic
from lsm.core.device import is_out_of_memory, memory_errors
from lsm.data.format import files_digest, without_scores
from lsm.run.fingerprint import contents_of, settings_of
from lsm.run.position import Position
from lsm.train.checkpoint_files import list_checkpoints as list_checkpoints
from lsm.train.checkpoint_files import place_of
from lsm.train.row_sizes import feature_dims
from lsm.train.schedule import depends_on_epochs, follows_plateaus
from lsm.train.setup import Setup

SCHEMA_VERSION = 2
_NAMES = "step-*.pt"

# Options that earlier checkpoints do not name; those have the defaults.
_LATER: dict[str, tuple[str, ...]] = {
    "model": ("args",),
    "sampler": ("edge_types", "disjoint", "time_attr", "temporal_strategy", "weight_attr"),
    "train": (
        *("optimizer", "momentum", "schedule", "warmup_iterations", "step_epochs", "step_factor"),
        *("task", "clip_norm", "label_smoothing", "class_weights", "loss", "metrics"),
        *("optimizer_args", "plateau_patience", "accumulate"),
    ),
}

_VALIDATION = ("train.eval.num_neighbors", "train.eval.exact")
"""The settings by which validations are measured."""
OPTIONAL = (*_VALIDATION, "train.eval_every")
"""Settings that count where a checkpoint has them."""


class DamagedError(ValueError):
    """A damaged file of a checkpoint. An earlier one may be whole."""


@dataclass
class State:
    """The state of training without weights and optimizer."""

    position: Position = field(default_factory=Position)
    best_model: dict[str, torch.Tensor] = field(default_factory=dict)
    """Weights of the best validation; empty unless train.select is best."""


def fingerprint(setup: Setup) -> dict[str, Any]:
    """The settings that a resumed run must share with its checkpoint for equal losses, and a best
    validation of the same measure."""
    config, store = setup.config, setup.store
    sampling = ["num_neighbors", "kind", "layer_dependency", "batch_dependency", "debias"]
    train = ["batch_size", "seed", "lr", "weight_decay", "precision", "select"]
    train += ["epochs"] if depends_on_epochs(config.train) else []
    sections = {"model": None, "train": train, "sampler": sampling}
    keys = settings_of(config, sections) | settings_of(config, _LATER)
    keys["model.num_layers"] = len(config.sampler.num_neighbors)
    keys["world size"] = setup.world.size
    keys |= setup.task.settings
    counts_plateaus = follows_plateaus(config.train)
    if counts_plateaus:
        keys["train.eval_every"] = config.train.eval_every
    if config.train.select == "best" or config.train.patience or counts_plateaus:
        keys |= dict(
            zip(_VALIDATION, (config.eval_num_neighbors, config.train.eval.exact), strict=True)
        )
    if store.is_typed:
        keys["data.input_type"] = setup.task.input_type(store)
    keys["store (name, nodes, edges, dim)"] = [
        store.name,
        store.num_nodes,
        store.num_edges,
        dict(feature_dims(store)) if store.is_typed else store.feature_dim,
    ]
    keys |= contents_of("data.path", files_digest(without_scores(store.meta.files)))
    if store.given_features:
        keys["data.features"] = store.given_features
    return keys


def save(
    directory: Path,
    state: State,
    model: dict[str, torch.Tensor],
    optimizer: dict[str, Any],
    settings: dict[str, Any],
    keep: int,
) -> Path:
    """Writes a checkpoint of ``state`` and deletes all but the ``keep`` newest, and those that a
    killed process left half written.

    The file gets its name only once it is durable. Raises RuntimeError if it cannot be written.
    """
    position = state.position
    path = directory / f"step-{position.epoch:06d}-{position.iteration:08d}.pt"
    write_atomic(
        path,
        {
            "schema_version": SCHEMA_VERSION,
            "position": position.model_dump(),
            "best_model": state.best_model,
            "model": model,
            "optimizer": optimizer,
            "settings": settings,
        },
    )
    for old in [*list_checkpoints(directory)[:-keep], *half_written(directory, _NAMES)]:
        old.unlink(missing_ok=True)
    return path


def write_atomic(path: Path, value: Any) -> None:
    """``torch.save`` to ``path``, as write_bytes_atomic() writes."""
    content = io.BytesIO()  # torch.save to a file that fails midway ends the process
    torch.save(value, content)
    write_bytes_atomic(path, content.getbuffer())


def remove_all(directory: Path) -> int:
    """Deletes every checkpoint in ``directory``, also half written ones. Returns the number of
    whole ones."""
    old = list_checkpoints(directory)
    for path in [*old, *half_written(directory, _NAMES)]:
        path.unlink(missing_ok=True)
    return len(old)


def remove_later(directory: Path, position: Position) -> int:
    """Deletes the checkpoints in ``directory`` that are later than ``position``, from which a run
    goes on: damaged ones, and those of a run that it replaces. Else they would count among the
    newest. Returns their number."""
    at = (position.epoch, position.iteration)
    later = [path for path in list_checkpoints(directory) if place_of(path) > at]
    for path in later:
        path.unlink(missing_ok=True)
    return len(later)


def load(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint. Raises FileNotFoundError; DamagedError if its bytes cannot be
    read; ValueError, which names the file, for another schema."""
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist (checkpoint.resume)")
    content = read(path)
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version == 1:
        content = _of_version_1(content)
    elif version != SCHEMA_VERSION:
        raise ValueError(
            f"checkpoint {path}: expected schema version {SCHEMA_VERSION}, got {version}; "
            "set checkpoint.resume=never to start afresh"
        )
    return content | {"settings": settings_of(Config(), _LATER) | content["settings"]}


def read(path: Path) -> Any:
    """The value in a file of ``write_atomic``. Raises DamagedError if its bytes are not those that
    were written, OSError if the file cannot be opened, RuntimeError if memory is too small."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise OSError(error.errno, f"checkpoint {path} cannot be read ({error.strerror})") from None
    with file, memory_errors(f"while reading the checkpoint {path}"):
        try:
            _check_sums(file)
            return torch.load(path, weights_only=True, map_location="cpu")
        except Exception as error:  # torch raises many types here; the others mean damage
            if is_out_of_memory(error):
                raise
            raise DamagedError(
                f"checkpoint {path} cannot be read: it is truncated, damaged or not a checkpoint"
            ) from error


def _check_sums(file: BinaryIO) -> None:
    """Raises ValueError or zipfile.BadZipFile unless every part of a file of torch.save() has its
    CRC-32, which torch.load() does not compare."""
    with zipfile.ZipFile(file) as parts:
        damaged = parts.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} differs")


def _of_version_1(content: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint of version 1, whose best epoch counts from 0, as one of this version."""
    progress = content.pop("progress")
    best_epoch = progress["best_epoch"]
    position = Position(
        epoch=progress["epoch"],
        iteration=progress["iteration"],
        loss_sum=progress["loss_sum"],
        loss_count=progress["num_seeds"],
        sums={"num_correct": progress["num_correct"], **progress["row_sums"]},
        bytes_read=progress["bytes_read"],
        seconds=progress["seconds"],
        best_epoch=best_epoch + 1 if best_epoch >= 0 else -1,
        best_score=progress["best_accuracy"],
    )
    return content | {"position": position.model_dump(), "best_model": progress["best_model"]}
