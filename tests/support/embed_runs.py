"""Runs of embeddings with known rows, made without training."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import torch

from lsm.core.section import dump_config
from lsm.data import TripleStore
from lsm.embed import run_state
from lsm.embed.run import CONFIG_NAME
from lsm.embed.run_state import RunState, TableState
from lsm.embed.store import identity
from lsm.embed.table import files as partition_files
from lsm.embed.table.layout import PartitionLayout
from lsm.run.position import Position
from lsm.storage.transfers import TransferOptions, Transfers
from support.triples import config


def make_run(
    path: Path,
    store: Path | None,
    starts: list[int],
    rows: np.ndarray | None,
    relations: np.ndarray | None = None,
    *more: str,
) -> Path:
    """A run directory whose partitions begin at ``starts``. ``rows``: [entities, dim]; None: a hole
    of zeros. Slots alternate; what is not the embedding of an entity is NaN."""
    settings = config(store or path, path, *more)
    chosen = settings.embed.for_graph(0 if relations is None else len(relations))
    settings = settings.model_copy(update={"embed": chosen})
    dim, width = settings.embed.dim, settings.embed.width
    layout = PartitionLayout.of(starts, width)
    slots = [p % 2 for p in range(layout.partitions)]
    path.mkdir()
    (path / CONFIG_NAME).write_text(dump_config(settings))
    with open(path / partition_files.FILE_NAME, "wb") as file:
        file.truncate(layout.file_bytes)
        for p, slot in enumerate(slots if rows is not None else []):
            for offset in (layout.slot_offset(p, 0), layout.slot_offset(p, 1)):
                file.seek(offset)
                file.write(np.full(layout.frame_bytes // 4, np.nan, np.float32).tobytes())
            content = np.full((layout.num_rows(p), width), np.nan, np.float32)
            content[:, :dim] = rows[starts[p] : starts[p + 1]]
            file.seek(layout.slot_offset(p, slot))
            file.write(content.tobytes())
    table = None
    if relations is not None:
        table = torch.full((len(relations), width), torch.nan)
        table[:, :dim] = torch.from_numpy(relations)
    checksums = checksums_of(path / partition_files.FILE_NAME, layout, slots)
    state = RunState(
        settings={"store": identity(TripleStore.open(store))} if store else {},
        position=Position(),
        table=TableState(starts=starts, width=width, dim=dim, slots=slots, checksums=checksums),
        relations=None,
    )
    run_state.save_state(path, state, table)
    return path


def checksums_of(file: Path, layout: PartitionLayout, slots: list[int]) -> list[int]:
    """Of the slots as they are."""
    memory = torch.frombuffer(mmap.mmap(-1, layout.frame_bytes), dtype=torch.uint8)
    with Transfers(file, TransferOptions(engine="posix"), read_only=True) as transfers:
        offsets = [layout.slot_offset(p, slot) for p, slot in enumerate(slots)]
        return [transfers.swap(memory, read_from=offset)[1] for offset in offsets]
