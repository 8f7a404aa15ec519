"""Opens the rows of a store with types: a set for each type that has features."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from lsm.cache.options import CacheOptions
from lsm.cache.set_shares import set_shares
from lsm.comm.request import RowFormat
from lsm.core.option_types import settled
from lsm.data.graph_store import GraphStore
from lsm.features import builders
from lsm.features.sets import FeatureSets, RowSet
from lsm.features.tiers_gpu import GpuOptions
from lsm.storage.options import StorageOptions
from lsm.storage.read_scheduler import ReadScheduler
from lsm.storage.row_map import RowMap


def open_feature_sets(
    store: GraphStore,
    cache: CacheOptions | None = None,
    storage: StorageOptions | None = None,
    *,
    requests: Tensor | None = None,
    idle_bytes: int = 512 << 20,
    num_threads: int = 1,
) -> FeatureSets:
    """The rows of the types of ``store`` that have features.

    One ``cache.bytes`` is divided among the types so that it holds the rows that are requested
    most, whatever their size: a row saves as many bytes per request as it takes.

    Args:
        store: A store with types.
        cache: Options of a cache over storage; None: every row is read from storage.
        storage: The engine that reads rows, and its options.
        requests: Requests of each node in some batches, [N] over the one space of ids; None: the
            cache is divided by the bytes of features.
        idle_bytes: Most idle memory of returned rows that is kept for reuse.
        num_threads: Threads that plan, and threads that copy.

    Raises:
        ValueError: No type has features, or an option is invalid.
        OSError: A file cannot be opened or read.
    """
    space = store.node_space
    names = [name for name in space.types if store.nodes(name).features is not None]
    if not names:
        raise ValueError(
            f"{store.path}: no node type has features; give x to one of {', '.join(space.types)}"
        )
    options = None if cache is None else cache.resolved()
    caches = dict.fromkeys(names) if options is None else _divide(options, store, names, requests)
    scores = None if requests is None else requests.float()
    reads: ReadScheduler | None = None
    with ExitStack() as stack:
        sets = []
        for name in names:
            files = store.nodes(name).feature_files
            opening = builders.Opening(
                files,
                storage,
                None,
                gpu=GpuOptions(),
                scores=scores,
                share=None,
                idle_bytes=idle_bytes // len(names),
                num_threads=num_threads,
                nodes=RowMap(space.counts[name], first=space.offsets[name]),
                reads=reads,
            )
            own = caches[name]
            rows = builders.plain(opening) if own is None else builders.cached(opening, own)
            stack.callback(rows.close)
            reads = rows.reads
            sets.append(RowSet(rows, {name: RowFormat(files.dim, files.dtype)}))
        opened = FeatureSets(space, sets)
        stack.pop_all()  # the sets close their rows
    return opened


def _divide(
    cache: CacheOptions, store: GraphStore, names: Sequence[str], requests: Tensor | None
) -> dict[str, CacheOptions | None]:
    """The options of each type's part of ``cache``."""
    row_bytes = {name: store.nodes(name).known_features.row_bytes for name in names}
    space, total = store.node_space, settled(cache.bytes)
    by_type = {
        name: torch.zeros(space.counts[name], dtype=torch.int64)
        if requests is None
        else requests[space.offsets[name] :][: space.counts[name]]
        for name in names
    }
    shares = set_shares(total, row_bytes, by_type)
    return {name: _part_of(cache, share / total) for name, share in shares.items()}


def _part_of(cache: CacheOptions, share: float) -> CacheOptions:
    """A part of each of the memories of ``cache``."""

    def part(options: Any) -> dict[str, int]:
        return {"bytes": int(settled(options.bytes) * share)}

    update: dict[str, Any] = {
        name: own.model_copy(update=part(own))
        for name in ("victim", "constant", "static")
        if settled((own := getattr(cache, name)).bytes)
    }
    return cache.model_copy(update=update | part(cache) | {"score": "none"})
