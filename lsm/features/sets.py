"""The rows of a batch, of one size or of several: a source of rows per size, over one space of ids.

Node types whose rows have the same size share a set: one planner, one set of tiers, one exchange of
rows. Ids stay in the space of all types, and each set's RowMap finds the rows of its own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from lsm import native
from lsm.comm.request import RowFormat
from lsm.core.counters import BY_SOURCE, STORAGE_SUMS
from lsm.features.cached import CachedFeatureLoader
from lsm.features.loader import FeatureLoader
from lsm.features.pending_batch import PendingBatch
from lsm.features.row_source import Announced, PendingRows, Rows, RowSource
from lsm.graph.types import NodeSpace, TypedMap


@dataclass(frozen=True)
class RowSet:
    """The rows of one size. They are delivered by ``rows``, for ids of the space of all types.

    formats: by node type, the values of a row, which take as many bytes in each type.
    """

    rows: FeatureLoader
    formats: Mapping[str, RowFormat]


class FeatureSets(RowSource):
    """All rows that a loader's batches need, whatever their sizes.

    Rows are a TypedMap of tensors, by node type, which share the memory of their set. Types without
    a set have no rows. A batch's reads of all sets are one wave.

    space: The node types. sets: Each holds types that follow one another in ``space``; several
    share one ReadScheduler. Ranks share the caches of all sets, each by an exchange of its own, or
    of none; the sets are the same on every rank. Precondition: the ids of a batch are grouped by
    type, in the order of ``space``.
    """

    def __init__(self, space: NodeSpace, sets: Sequence[RowSet]) -> None:
        self.sets = tuple(sets)
        loaders = [each.rows for each in sets]
        self._loaders = loaders
        self.reads = loaders[0].reads
        if any(loader.reads is not self.reads for loader in loaders):
            raise ValueError("sets: expected the ReadScheduler of the first in all of them")
        self.window = max(loader.window for loader in loaders)
        self.completed_ahead = max(loader.completed_ahead for loader in loaders)
        # Sets wait for other ranks one after another.
        self.peer_timeout_secs = sum(loader.peer_timeout_secs for loader in loaders)
        self._totals: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._parts = [_part_of(space, each) for each in sets]
        self._ends = [space.offsets[name] + space.counts[name] for name in space.types]

    @property
    def is_forked(self) -> bool:
        """As RowSource.is_forked."""
        return any(loader.is_forked for loader in self._loaders)

    def check_process(self) -> None:
        """As RowSource.check_process()."""
        for loader in self._loaders:
            loader.check_process()

    def claim(self) -> None:
        """As RowSource.claim()."""
        claimed: list[FeatureLoader] = []
        try:
            for loader in self._loaders:
                loader.claim()
                claimed.append(loader)
        except BaseException:
            for loader in claimed:
                loader.release()
            raise

    def release(self) -> None:
        """As RowSource.release()."""
        for loader in self._loaders:
            loader.release()

    def announce(self, ids: torch.Tensor, *, repeats: bool = False) -> Announced[Rows]:
        """As RowSource.announce(). Raises ValueError for ids that are not grouped by type.

        Sets that ranks share take part without ids as well."""
        for loader in self._loaders:  # before one of them waits for other ranks
            loader.check_usable()
        counts = native.count_by_range(ids, self._ends)
        announced = []
        for part in self._parts:
            begin = sum(counts[: part.first])
            end = begin + sum(counts[part.first : part.last])
            announced.append(part.rows.announce(ids[begin:end], repeats=repeats))
        return AnnouncedSets(self, announced, counts)

    def count_by_type(
        self, pending: Sequence[PendingRows[torch.Tensor]], counts: Sequence[int]
    ) -> dict[str, float]:
        """BY_SOURCE of each type, as NAME/TYPE, of rows that were started just now. ``counts``: ids
        by type."""
        found: dict[str, float] = {}
        for part, own in zip(self._parts, pending, strict=True):
            types = slice(part.first, part.last)
            if isinstance(own, PendingBatch):
                by_type = own.count_by_range(self._ends[types])
            else:
                one_source = "hits" if own.stats["hits"] else "misses"
                by_type = [
                    [count if name in ("requests", one_source) else 0 for name in BY_SOURCE]
                    for count in counts[types]
                ]
            for keys, values in zip(part.keys, by_type, strict=True):
                found |= zip(keys, values, strict=True)
        return found

    def add_by_type(self, counts: Mapping[str, float]) -> None:
        """Adds the ``counts`` of a delivered batch to stats()."""
        with self._counting:
            self._totals.update(counts)

    def leave(self) -> None:
        """As RowSource.leave()."""
        for loader in self._loaders:
            loader.leave()

    def leave_rows(self) -> None:
        """As RowSource.leave_rows()."""
        for loader in self._loaders:
            loader.leave_rows()

    def forget_announced(self) -> None:
        """As RowSource.forget_announced()."""
        for loader in self._loaders:
            loader.forget_announced()

    def set_scores(self, scores: torch.Tensor) -> None:
        """As CachedFeatureLoader.set_scores(), for the sets with a cache.

        Args:
            scores: Score of each node of the space, [N] float32.
        """
        for loader in self._loaders:
            if isinstance(loader, CachedFeatureLoader):
                loader.set_scores(scores)

    @property
    def engine(self) -> str:
        """The engine in use ("auto" resolved)."""
        return self.sets[0].rows.engine

    @property
    def device_bytes(self) -> int:
        """GPU memory of all sets, without delivered rows."""
        return sum(loader.device_bytes for loader in self._loaders)

    def stats(self) -> dict[str, int | float]:
        """The counters of FeatureLoader.stats(): sums over the sets, and of quantiles the maximum.

        Those of BY_SOURCE are also there by type, such as ``cache_hits/paper``.
        """
        found = [loader.stats() for loader in self._loaders]
        names = dict.fromkeys(name for each in found for name in each)
        totals = {
            name: (max if name in _QUANTILES else sum)(each.get(name, 0) for each in found)
            for name in names
        }
        requested = totals["bytes_requested"]
        totals["read_amplification"] = totals["bytes_read"] / requested if requested else 0.0
        with self._counting:
            return totals | {f"cache_{key}": count for key, count in self._totals.items()}

    def storage_sums(self) -> dict[str, int | float]:
        """As FeatureLoader.storage_sums(): sums over the sets."""
        found = [loader.storage_sums() for loader in self._loaders]
        return {name: sum(each[name] for each in found) for name in STORAGE_SUMS}

    def close(self) -> None:
        """Closes the loaders of all sets."""
        for loader in self._loaders:
            loader.close()

    def __enter__(self) -> FeatureSets:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def by_type(self, rows: Sequence[torch.Tensor], counts: Sequence[int]) -> Rows:
        """Each type's part of the ``rows`` of all sets, given the ``counts`` of ids by type."""
        found: TypedMap[str, torch.Tensor] = TypedMap()
        for part, held in zip(self._parts, rows, strict=True):
            begin = 0
            for number, (name, form) in enumerate(part.formats.items(), part.first):
                own = held[begin : begin + counts[number]]
                begin += counts[number]
                same = own.dtype == form.dtype and own.size(1) == form.dim
                found[name] = own if same else own.view(form.dtype).view(-1, form.dim)
        return found


Features = FeatureLoader | FeatureSets
"""The source of rows of a graph of one type, or of several."""


class AnnouncedSets:
    """The Announced of several sets."""

    def __init__(
        self, sets: FeatureSets, announced: Sequence[Announced[torch.Tensor]], counts: Sequence[int]
    ) -> None:
        self._sets, self._announced, self._counts = sets, announced, counts
        self.num_bytes = sum(each.num_bytes for each in announced)

    def start(self) -> PendingRows[Rows]:
        """As Announced.start()."""
        pending = [each.start() for each in self._announced]
        self._sets.reads.end_iteration()
        return PendingSets(self._sets, pending, self._counts)


class PendingSets:
    """The PendingRows of several sets."""

    def __init__(
        self, sets: FeatureSets, pending: Sequence[PendingRows[torch.Tensor]], counts: Sequence[int]
    ) -> None:
        self._sets, self._pending, self._counts = sets, pending, counts
        self._by_type = sets.count_by_type(pending, counts)
        self._is_counted = False

    @property
    def stats(self) -> dict[str, float]:
        """As PendingRows.stats: sums over the sets, and BY_SOURCE by type, as NAME/TYPE."""
        totals: Counter[str] = Counter()
        for each in self._pending:
            totals.update(each.stats)
        return dict(totals) | self._by_type

    @property
    def num_bytes(self) -> int:
        """As PendingRows.num_bytes."""
        return sum(each.num_bytes for each in self._pending)

    @property
    def arrived(self) -> bool:
        """As PendingRows.arrived."""
        return all(each.arrived for each in self._pending)

    def result(self, timeout_secs: float | None = None) -> Rows:
        """As PendingRows.result()."""
        rows = [each.result(timeout_secs) for each in self._pending]
        if not self._is_counted:
            self._sets.add_by_type(self._by_type)
        self._is_counted = True
        return self._sets.by_type(rows, self._counts)


@dataclass(frozen=True)
class _Part:
    """A RowSet with the numbers of its types, ``first`` to ``last - 1``, and the names of their
    counters."""

    rows: FeatureLoader
    formats: Mapping[str, RowFormat]
    first: int
    last: int
    keys: list[list[str]]


def _part_of(space: NodeSpace, given: RowSet) -> _Part:
    """Raises ValueError unless the types follow one another, with rows of one size."""
    names = tuple(given.formats)
    first = space.types.index(names[0]) if names and names[0] in space.types else 0
    last = first + len(names)
    if space.types[first:last] != names:
        raise ValueError(f"sets: expected types that follow one another, got {', '.join(names)}")
    for name, form in given.formats.items():
        if form.row_bytes != given.rows.row_bytes:
            raise ValueError(
                f"sets: expected rows of {given.rows.row_bytes} bytes for {name}, got "
                f"{form.row_bytes}"
            )
    keys = [[f"{counter}/{name}" for counter in BY_SOURCE] for name in names]
    return _Part(given.rows, given.formats, first, last, keys)


_QUANTILES = ("p50_us", "p99_us")
