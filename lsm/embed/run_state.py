"""The state of a run on disk: one small file, renamed into place, that names all the rest.

``state.json`` holds the position, and names the slot of every partition and the file of relations,
of the tables that training continues from and, where ``train.select`` is best, of the best so far.
A killed run's later writes lie in other slots and other files.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from lsm.core.atomic_file import half_written, write_bytes_atomic
from lsm.core.versioned_json import read_versioned
from lsm.embed.table.files import FILE_NAME
from lsm.run.position import Position

SCHEMA_VERSION = 1
STATE_NAME = "state.json"
_REMEDY = "set checkpoint.resume=never to start afresh, or choose another run.dir"


class TableState(BaseModel, extra="forbid"):
    """The table of entities in ``partitions.bin``."""

    starts: list[int] = Field(min_length=2)
    """First entity of each partition, and the end."""
    width: int = Field(ge=1)
    """Floats of a row: the embedding, then optimiser state."""
    dim: int = Field(ge=1)
    """Floats of the embedding."""
    slots: list[int]
    """Slot of each partition."""
    checksums: list[int]
    """Checksums of those slots (kernels/core/checksum.h)."""
    num_slots: int = Field(default=2, ge=2, le=3)
    """Slots that each partition has."""


class RelationsState(BaseModel, extra="forbid"):
    """The table of relations."""

    file: str
    """In the directory of the state; float32, row by row."""
    rows: int = Field(ge=1)
    crc32: int


class KeptTables(BaseModel, extra="forbid"):
    """The tables to read: one slot per entity partition, and the relation table."""

    slots: list[int]
    checksums: list[int]
    relations: RelationsState | None


class RunState(BaseModel, extra="forbid"):
    """All that training continues from."""

    schema_version: int = SCHEMA_VERSION
    settings: dict[str, Any]
    """Those that a resumed run must share to give the same numbers."""
    position: Position
    table: TableState
    relations: RelationsState | None
    best: KeptTables | None = None
    """Of the best validation, if it is kept."""
    crc32: int | None = None
    """Checksum of the file, which begins with it, without it. Earlier versions have none."""

    @property
    def kept(self) -> KeptTables:
        """The tables to read: the best, or the last."""
        if self.best is not None:
            return self.best
        slots, checksums = self.table.slots, self.table.checksums
        return KeptTables(slots=slots, checksums=checksums, relations=self.relations)


def load_state(run_dir: Path) -> RunState:
    """The state in ``run_dir``. FileNotFoundError without one, ValueError for a damaged one."""
    path = run_dir / STATE_NAME
    state = read_versioned(path, RunState, SCHEMA_VERSION, _REMEDY)
    content = path.read_bytes()
    if state.crc32 is not None and content != _with_checksum(content):
        raise ValueError(f"{path}: damaged: its checksum differs; {_REMEDY}")
    table, slots = state.table, set(range(state.table.num_slots))
    counts = {len(table.starts) - 1, len(table.slots), len(table.checksums)}
    counts |= {len(state.kept.slots), len(state.kept.checksums)}
    is_named = slots.issuperset(table.slots) and slots.issuperset(state.kept.slots)
    if len(counts) > 1 or not is_named or table.dim > table.width:
        raise ValueError(f"{path}: it contradicts itself; {_REMEDY}")
    return state


def save_state(
    run_dir: Path, state: RunState, relations: Tensor | None, *, is_best: bool = False
) -> RunState:
    """Writes ``state`` with the table ``relations``, and removes tables that it does not name, and
    files that a killed process left half written. ``is_best``: its tables are the best so far.
    Returns the state with the name of the file. Raises RuntimeError if there is no room."""
    named = None
    if relations is not None:
        at = state.position
        name = f"relations-{at.epoch:06d}-{at.iteration:08d}.bin"
        content = relations.detach().cpu().contiguous().numpy().tobytes()
        write_bytes_atomic(run_dir / name, content)
        named = RelationsState(file=name, rows=len(relations), crc32=zlib.crc32(content))
    state = state.model_copy(update={"relations": named})
    if is_best:
        last = state.model_copy(update={"best": None})
        state = state.model_copy(update={"best": last.kept})
    text = state.model_dump_json(exclude={"crc32"}) + "\n"
    write_bytes_atomic(run_dir / STATE_NAME, _with_checksum(text.encode()))
    files = {table.file for table in (named, state.kept.relations) if table is not None}
    for path in [*run_dir.glob("relations-*.bin"), *_half_written(run_dir)]:
        if path.name not in files:
            path.unlink(missing_ok=True)
    return state


def _with_checksum(content: bytes) -> bytes:
    """A state as JSON that begins with the checksum of the rest, in place of one that it has."""
    rest = re.sub(rb'^\{"crc32":\d+,', b"{", content)
    return b'{"crc32":%d,' % zlib.crc32(rest) + rest[1:]


def load_relations(run_dir: Path, named: RelationsState | None, width: int) -> Tensor | None:
    """The table of relations ``named``: [rows, width] float32. ValueError for a damaged one."""
    if named is None:
        return None
    path = run_dir / named.file
    content = path.read_bytes()
    if zlib.crc32(content) != named.crc32:
        raise ValueError(f"{path}: its checksum differs from that in {STATE_NAME}; {_REMEDY}")
    table = torch.frombuffer(bytearray(content), dtype=torch.float32)
    return table.view(named.rows, width)


def remove_run(run_dir: Path) -> None:
    """Deletes the state, then all that it names."""
    (run_dir / STATE_NAME).unlink(missing_ok=True)
    for path in [*run_dir.glob("relations-*.bin"), *_half_written(run_dir), run_dir / FILE_NAME]:
        path.unlink(missing_ok=True)


def _half_written(run_dir: Path) -> list[Path]:
    return [*half_written(run_dir, "relations-*.bin"), *half_written(run_dir, STATE_NAME)]
