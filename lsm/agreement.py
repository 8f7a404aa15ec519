"""Whether all ranks of a job were started alike."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch.distributed as torch_dist

from lsm import dist
from lsm.config import Config
from lsm.dist import World

# Where a rank finds and puts things may differ between machines.
_MAY_DIFFER = ("run.dir", "data.path")


def check_agreement(config: Config, store_path: Path, world: World) -> None:
    """ValueError, on every rank alike, unless all have the same configuration and the same store
    (by what its meta.json says: sizes and checksums). Names both ranks and what differs."""
    if world.size == 1:
        return
    settings = _flat(config.model_dump(mode="json"))
    for key in _MAY_DIFFER:
        del settings[key]
    meta = hashlib.sha256((Path(store_path) / "meta.json").read_bytes()).hexdigest()[:12]
    digest = hashlib.sha256(json.dumps([settings, meta], sort_keys=True).encode()).hexdigest()
    if len(set(_gathered(digest, world))) == 1:
        return
    everyone = _gathered((settings, meta, str(store_path)), world)
    first_settings, first_meta, first_path = everyone[0]
    for rank, (settings, meta, path) in enumerate(everyone):
        differing = [key for key in settings if settings[key] != first_settings[key]]
        if differing:
            listed = ", ".join(
                f"{key} ({first_settings[key]} on rank 0, {settings[key]} on rank {rank})"
                for key in differing
            )
            raise ValueError(f"ranks were started with different configurations: {listed}")
        if meta != first_meta:
            raise ValueError(
                f"data.path: ranks opened different stores: {first_path} (meta.json {first_meta}) "
                f"on rank 0, {path} ({meta}) on rank {rank}"
            )


def _gathered(value: Any, world: World) -> list[Any]:
    everyone: list[Any] = [None] * world.size
    with dist.peers("the comparison of configurations"):
        torch_dist.all_gather_object(everyone, value)
    return everyone


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
