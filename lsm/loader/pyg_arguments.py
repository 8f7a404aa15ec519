"""Arguments of PyG's loaders, and of the DataLoader under them, that the loaders here lack."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from lsm.core.suggest import unknown_argument

_THREADS = "sampling and reads run on threads; set num_threads for sampling, prefetch for reads"
_ORDER = "use shuffle, seed, rank and world_size, or the ids in input_nodes"
_LOOP = "change the batch in your loop"

# For each argument PyG's defaults, which ask for nothing and are taken, and the remedy.
MISSING: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "data": ((), "pass a store, or its path, as the first argument"),
    "replace": ((False,), "neighbours are drawn without replacement"),
    "directed": ((True,), "edges lead from the sampled neighbours to the node"),
    "subgraph_type": (
        ("directional",),
        "edges lead from the sampled neighbours to the node (directional); add the reverse edges "
        "with torch_geometric.utils.to_undirected(batch.edge_index)",
    ),
    "input_id": (
        (None,),
        "batch.input_id holds the seeds' positions in input_nodes; index numbers of your own by it",
    ),
    "transform": ((None,), _LOOP),
    "transform_sampler_output": ((None,), _LOOP),
    "collate_fn": ((None,), _LOOP),
    "is_sorted": ((False, True), "stores are sorted"),
    "filter_per_worker": ((None, False, True), "there are no workers"),
    "custom_cls": ((None,), "batch.to_pyg() gives PyG's own classes"),
    "dataset": ((), "pass a store, or its path, as the first argument"),
    "neighbor_sampler": ((None,), "use sampler, which has sample() and edge_ids()"),
    "num_workers": ((0,), _THREADS),
    "persistent_workers": ((False,), _THREADS),
    "prefetch_factor": ((None,), _THREADS),
    "worker_init_fn": ((None,), _THREADS),
    "multiprocessing_context": ((None,), _THREADS),
    "pin_memory": (
        (False,),
        "use lsm.open_features(store, cache, device='cuda'), whose rows need no copy",
    ),
    "pin_memory_device": (("",), "use device of lsm.open_features(store, cache, device='cuda')"),
    "timeout": ((0,), "use timeout_secs"),
    "in_order": ((True,), "batches come in the order of their iterations"),
    "batch_sampler": ((None,), _ORDER),
    "generator": ((None,), _ORDER),
}


def check_extra_arguments(loader: type, given: Mapping[str, Any]) -> None:
    """Raises TypeError, with a remedy, for an argument in ``given`` of ``loader`` unless it has
    PyG's default."""
    parameters = inspect.signature(loader).parameters.values()
    known = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
    for name, value in given.items():
        defaults, remedy = MISSING.get(name, ((), ""))
        if any(_is(value, default) for default in defaults):
            continue
        if remedy:
            raise TypeError(f"{loader.__name__}: {name} of PyG's loader is not supported: {remedy}")
        raise unknown_argument(loader.__name__, name, known)


def _is(value: Any, default: Any) -> bool:
    """True if ``value`` is ``default``, or PyG's enumerator of that name."""
    plain = getattr(value, "value", value)
    return value is default or (isinstance(plain, str | Real | np.bool_) and plain == default)
