"""Opens the directory of a run to read its embeddings.

A run directory holds ``config.yaml`` (the configuration), ``state.json`` (``run_state``: position,
table, relations), ``partitions.bin`` and ``relations-*.bin``, and once finished ``result.json``.
A run on a drive (``storage.devices``) has ``drive.json`` instead of ``partitions.bin``; its slots
lie from the first byte of the drive on.
Partition p has the entities ``starts[p]`` to ``starts[p + 1] - 1`` of the table in ``state.json``.
Its rows of ``width`` float32 values, of which the first ``dim`` are the embedding, lie in
``partitions.bin`` from byte ``slot_offset(p, slots[p])`` on (``PartitionLayout``), where ``slots``
are those of ``best`` or, without one, of ``table``. Relations are
rows of the same width; those from the number of relations on are reciprocal (``embed.reciprocal``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lsm.config.load import load_tree
from lsm.core.arguments import as_path
from lsm.core.files import read_exactly
from lsm.data.triples.store import TripleStore
from lsm.embed import run_state
from lsm.embed.config import EmbedConfig
from lsm.embed.run_state import RunState
from lsm.embed.store import contents, identity, open_store
from lsm.embed.table import drive as partition_drive
from lsm.embed.table import files as partition_files
from lsm.embed.table.layout import PartitionLayout
from lsm.embed.table.reader import (
    BYTES_AHEAD,
    DamagedError,
    StoredSlot,
    read_partitions,
)
from lsm.run.record import CONFIG_NAME
from lsm.storage.transfers import Transfers

_REMEDY = "restore the file, or train again with checkpoint.resume=never"
_MAY_CHANGE = ("eval.", "data.path=", "train.num_threads=", "storage.devices=")


class EmbeddingRun:
    """The embeddings that the last checkpoint of a run keeps, opened for reading: the result, once
    the run has finished."""

    def __init__(self, path: Path, config: EmbedConfig, state: RunState) -> None:
        """Use ``EmbeddingRun.open``."""
        self.path, self.config, self.state = path, config, state
        table = state.table
        self.layout = PartitionLayout(tuple(table.starts), table.width, table.num_slots)
        if config.storage.device is None:
            partition_drive.require_file(self._file)
            partition_files.check(self._file, self.layout)
        self._verified: set[int] = set()

    @classmethod
    def open(cls, path: str | Path, overrides: Sequence[str] = ()) -> EmbeddingRun:
        """Opens the run directory ``path``. ``overrides``: ``key=value`` of those settings that do
        not change the embeddings. Raises FileNotFoundError, or ValueError for damage."""
        path = as_path("run", path)
        if not (path / run_state.STATE_NAME).is_file():
            raise FileNotFoundError(
                f"{path}: no run of `lsm embed train` with a checkpoint; give its run.dir"
            )
        for override in overrides:
            if not override.startswith(_MAY_CHANGE):
                raise ValueError(
                    f"override {override!r}: expected one of {', '.join(_MAY_CHANGE)}, as the run "
                    "is trained"
                )
        config = load_tree(EmbedConfig, path / CONFIG_NAME, overrides)
        return cls(path, config, run_state.load_state(path))

    @property
    def num_entities(self) -> int:
        return self.layout.num_entities

    @property
    def num_relations(self) -> int:
        """Relations that have an embedding; 0 for a model without them."""
        kept = self.state.kept.relations
        return kept.rows // self.config.embed.relation_rows(1) if kept else 0

    @property
    def dim(self) -> int:
        """Floats of an embedding."""
        return self.state.table.dim

    def store(self) -> TripleStore:
        """The store that the run was trained on, which has the names. Raises ValueError for
        another."""
        store, settings = open_store(self.config), self.state.settings
        own, given = settings["store"], identity(store)
        different = [f"{key} {given[key]}, not {own[key]}" for key in own if own[key] != given[key]]
        if not different and any(
            settings.get(name, each) != each for name, each in contents(store).items()
        ):
            different = ["other contents"]
        if different:
            raise ValueError(
                f"data.path: {store.path} has {', '.join(different)}; give the store that the run "
                "was trained on with --store (in Python store=), or with data.path= of "
                "`lsm embed eval`"
            )
        return store

    def blocks(self, max_bytes: int = BYTES_AHEAD) -> Iterator[tuple[int, Tensor]]:
        """All embeddings by ascending id: (first id, [n, dim] float32). A block takes about
        ``max_bytes``, and is a view of memory of its own; the next one is read meanwhile. Checksums
        are verified: a partition that is damaged ends in an error before its last block. Raises
        OSError, RuntimeError if the run was trained on meanwhile."""
        for first, rows in self._read(range(self.layout.partitions), max_bytes):
            yield first, rows[:, : self.dim]

    def rows(self, ids: Sequence[int]) -> Tensor:
        """Embeddings of entities ``ids``, each read from disk by itself: [len(ids), dim] float32.
        The first read of a partition reads all of it, to verify its checksum. Raises OSError,
        RuntimeError if the run was trained on meanwhile."""
        slots, layout = self.state.kept.slots, self.layout
        rows = np.empty((len(ids), self.dim), np.float32)
        of_id = [bisect_right(layout.starts, number) - 1 for number in ids]
        for partition in sorted(set(of_id) - self._verified):
            for _ in self._read([partition]):
                pass
        with self._reading() as read:
            for row, number, partition in zip(rows, ids, of_id, strict=True):
                offset = layout.slot_offset(partition, slots[partition])
                read(row, offset + (number - layout.starts[partition]) * layout.row_bytes)
        return torch.from_numpy(rows)

    def require_unchanged(self) -> None:
        """Raises RuntimeError if the run has a later checkpoint than when it was opened: from then
        on training overwrites the rows that were read."""
        if run_state.load_state(self.path) != self.state:
            raise RuntimeError(
                f"{self.path}: the run was trained on meanwhile; read it again once it has finished"
            )

    def relations(self) -> Tensor | None:
        """Embeddings of relations, [rows, dim] float32; None for a model without them."""
        kept = self.state.kept.relations
        rows = run_state.load_relations(self.path, kept, self.layout.width)
        return None if rows is None else rows[:, : self.dim]

    def _read(
        self, partitions: Iterable[int], max_bytes: int = BYTES_AHEAD
    ) -> Iterator[tuple[int, Tensor]]:
        """First entity and rows [n, width] of blocks of ``partitions``, which are verified."""
        kept, listed = self.state.kept, list(partitions)
        sources = [(p, StoredSlot(kept.slots[p], kept.checksums[p])) for p in listed]
        with self._transfers() as transfers:
            try:
                yield from read_partitions(transfers, self.layout, sources, _REMEDY, max_bytes)
            except DamagedError:
                self.require_unchanged()  # or else the slot was written to since
                raise
        self._verified.update(listed)

    @contextmanager
    def _transfers(self) -> Iterator[Transfers]:
        """The file or drive, opened for reading. Raises ValueError for a drive of another run."""
        options = self.config.storage
        if options.engine == "io_uring":  # which may be missing where the run is read
            options = options.model_copy(update={"engine": "auto"})
        with Transfers(self._file, options, read_only=True) as transfers:
            if options.device is not None:
                partition_drive.check(transfers, self.layout, self.path)
            yield transfers

    @contextmanager
    def _reading(self) -> Iterator[Callable[[np.ndarray, int], None]]:
        """Fills an array from any byte of the file or drive on."""
        if self.config.storage.device is not None:
            with self._transfers() as transfers:
                yield lambda out, offset: partition_drive.read_at(transfers, out, offset)
            return
        with open(self._file, "rb", buffering=0) as file:
            yield lambda out, offset: read_exactly(file.fileno(), out, offset)

    @property
    def _file(self) -> Path:
        return self.path / partition_files.FILE_NAME
