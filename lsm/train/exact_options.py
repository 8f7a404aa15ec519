"""The inference of an exact evaluation, and its memory."""

from __future__ import annotations

import torch

from lsm.inference.driver import enough_bytes
from lsm.inference.options import InferenceOptions
from lsm.train.model import new_model
from lsm.train.setup import Setup


def exact_bytes(setup: Setup) -> int:
    """Memory of an exact evaluation: 0 without one. Raises ValueError for a model that cannot be
    computed layer by layer."""
    if not setup.config.train.eval.exact:
        return 0
    with torch.random.fork_rng(devices=[]):
        model = new_model(setup)
    seeds = {split: setup.task.seeds(setup.store, split) for split in ("valid", "test")}
    try:
        return max(
            enough_bytes(model.eval(), setup.store, exact_options(setup, ids), setup.world)
            for ids in seeds.values()
            if len(ids)
        )
    except ValueError as error:
        raise ValueError(f"train.eval.exact: {error}; or set it to false") from error


def exact_options(
    setup: Setup, ids: torch.Tensor, memory_bytes: int | None = None
) -> InferenceOptions:
    config = setup.config
    storage = config.storage
    if storage.engine == "memory":  # the rows in memory are those of the training
        storage = storage.model_copy(update={"engine": "auto"})
    return InferenceOptions(
        nodes=ids,
        outputs=("scores",),
        prediction="value",
        memory_bytes=memory_bytes,
        memory_key="memory.bytes",
        num_threads=config.train.num_threads,
        storage=storage,
        progress=False,
    )
