"""The inference of an exact evaluation, and its memory."""

from __future__ import annotations

import torch
from torch import nn

from lsm.inference.driver import enough_bytes
from lsm.inference.options import InferenceOptions
from lsm.train.model import new_model
from lsm.train.sampling import left_out
from lsm.train.setup import Setup


def exact_bytes(setup: Setup) -> int:
    """Memory of an exact evaluation: 0 without one. Raises ValueError for a model that cannot be
    computed layer by layer."""
    if not setup.config.train.eval.exact:
        return 0
    with torch.random.fork_rng(devices=[]):
        model = new_model(setup)
    try:
        if missing := left_out(setup.config):
            raise ValueError(
                f"sampler.edge_types leaves out {missing[0]}, whose edges it would take"
            )
        needed = (
            enough_bytes(model.eval(), setup.store, exact_options(setup, model, each), setup.world)
            for each in ("valid", "test")
            if len(setup.task.seeds(setup.store, each))
        )
        return max(needed, default=0)
    except ValueError as error:
        raise ValueError(f"train.eval.exact: {error}; or set it to false") from error


def exact_options(
    setup: Setup, model: nn.Module, split: str, memory_bytes: int | None = None
) -> InferenceOptions:
    """The inference that evaluates ``split``: scores of its nodes, or ranks of its links."""
    config, store = setup.config, setup.store
    storage = config.storage
    if storage.engine == "memory":  # the rows in memory are those of the training
        storage = storage.model_copy(update={"engine": "auto"})
    return InferenceOptions(
        **setup.task.exact_outputs(model, store, split),
        prediction="value",
        memory_bytes=memory_bytes,
        memory_key="memory.bytes",
        num_threads=config.train.num_threads,
        storage=storage,
        weights_may_differ=True,
        progress=False,
    )
