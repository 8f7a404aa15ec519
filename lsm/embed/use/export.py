"""Writes the embeddings of a run to files that other tools read, a block at a time."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from torch import Tensor

from lsm.core.arguments import option
from lsm.core.atomic_file import remove_left, replacing, sync_directory
from lsm.core.progress import counting
from lsm.data.names import escaped, write_names
from lsm.data.sink import FileSink, no_room
from lsm.embed.use.embeddings import Embeddings

ENTITIES, RELATIONS, RECIPROCAL = "entities", "relations", "reciprocal_relations"
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Table:
    """Rows to export."""

    name: str
    num_rows: int
    dim: int
    blocks: Callable[[], Iterable[tuple[int, Tensor]]]
    """First row and rows [n, dim] float32, in order."""
    names: Callable[[], Iterator[str]] | None
    """Names of the rows, in order; None: row numbers."""

    @property
    def num_bytes(self) -> int:
        return self.num_rows * self.dim * 4

    def named_rows(self) -> Iterator[tuple[str, list[float]]]:
        """The name or number of each row, with its values."""
        numbers = map(str, range(self.num_rows))
        names = numbers if self.names is None else self.names()
        for _, rows in self.blocks():
            yield from zip(islice(names, len(rows)), rows.tolist(), strict=True)


def export(
    run: Embeddings,
    out: str | Path,
    form: str,
    *,
    ids: bool = False,
    force: bool = False,
    progress: bool | None = None,
) -> list[Path]:
    """Writes the embeddings of ``run`` into the directory ``out``; returns the files.

    ``form``: npy (an array per table), safetensors (one file), tsv (name, then values), word2vec
    (text: counts, then name and values separated by blanks; blanks in names become ``_``). For npy
    and safetensors, separate .tsv files hold the names: id, tab, name. ``ids``: ids instead of
    names, so no store is needed. ``force``: replace files in ``out``.

    A file gets its name when it is complete. Memory: tens of MiB and the relations, whatever the
    number of entities. Raises ValueError, FileExistsError, OSError if the disk is full,
    RuntimeError if training has continued since the run was opened.
    """
    if form not in _WRITERS:
        raise ValueError(f"form (--format): expected one of {', '.join(_WRITERS)}, got {form!r}")
    out = Path(out)
    if out.exists() and not (out.is_dir() and (force or not any(out.iterdir()))):
        raise FileExistsError(f"{out}: exists; choose another path or pass {option('force')}")
    tables = list(_tables(run, with_names=not ids))
    paths: list[Path] = []
    num_rows = sum(table.num_rows for table in tables)
    with (
        _directory(out),
        counting("embeddings", num_rows, progress) as advance,
        ExitStack() as parts,
    ):
        for name in (*(table.name for table in tables), "embeddings"):
            remove_left(out, f"{name}.*")  # which a killed export may have made as large as these
        needed, free = sum(table.num_bytes for table in tables), shutil.disk_usage(out).free
        if form in ("npy", "safetensors") and needed > free:
            raise no_room(errno.ENOSPC, out, needed, free)

        def open_part(name: str) -> FileSink:
            """A new file, which gets its name once all are complete."""
            paths.append(out / name)
            return FileSink(parts.enter_context(replacing(out / name)), final=out / name)

        _WRITERS[form](open_part, tables, advance)
        if form in ("npy", "safetensors"):
            for table in tables:  # reciprocal relations share the relations' names
                if table.names is not None and table.name != RECIPROCAL:
                    write_names(open_part(f"{table.name}.tsv"), table.names())
        run.run.require_unchanged()
    sync_directory(out)
    return paths


@contextmanager
def _directory(out: Path) -> Iterator[None]:
    """Makes the directory ``out``, if it is missing; an error removes it again."""
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):  # files of others
                out.rmdir()
        raise


def _tables(run: Embeddings, *, with_names: bool) -> Iterator[Table]:
    store = run.store if with_names else None

    def table(name: str, rows: Tensor, names: Callable[[], Iterator[str]] | None) -> Table:
        return Table(name, len(rows), run.dim, lambda: [(0, rows)], names)

    yield Table(
        ENTITIES,
        run.num_entities,
        run.dim,
        lambda: run.run.blocks(_BLOCK_BYTES),
        store.entity_names if store else None,
    )
    relations = run.run.relations()
    if relations is not None:
        names = store.relation_names if store else None
        count = len(relations) // (2 if run.run.config.embed.reciprocal else 1)
        yield table(RELATIONS, relations[:count], names)
        if len(relations) > count:
            yield table(RECIPROCAL, relations[count:], names)


OpenPart = Callable[[str], FileSink]
Advance = Callable[[int], None]


def _write_rows(sink: FileSink, table: Table, advance: Advance) -> None:
    for _, rows in table.blocks():
        sink.write(np.ascontiguousarray(rows.numpy(), "<f4"))
        advance(len(rows))


def _write_npy(open_part: OpenPart, tables: list[Table], advance: Advance) -> None:
    for table in tables:
        with open_part(f"{table.name}.npy") as sink:
            sink.write_header(np.dtype("<f4"), table.num_rows, table.dim)
            _write_rows(sink, table, advance)


def _write_safetensors(open_part: OpenPart, tables: list[Table], advance: Advance) -> None:
    # An 8-byte length, a JSON header padded to align the data, then the data.
    header: dict[str, object] = {}
    end = 0
    for table in tables:
        begin, end = end, end + table.num_bytes
        shape, offsets = [table.num_rows, table.dim], [begin, end]
        header[table.name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open_part("embeddings.safetensors") as sink:
        sink.write(len(text).to_bytes(8, "little") + text)
        for table in tables:
            _write_rows(sink, table, advance)


def _write_text(
    sink: FileSink, table: Table, separator: str, advance: Advance, head: str = ""
) -> None:
    values = separator.join(["%.9g"] * table.dim)  # 9 digits restore a float32 exactly
    spell = escaped if separator == "\t" else _without_blanks
    with sink:
        sink.write(head.encode())
        rows = table.named_rows()
        while lines := [
            f"{spell(key)}{separator}{values % tuple(row)}\n" for key, row in islice(rows, 4096)
        ]:
            sink.write("".join(lines).encode())
            advance(len(lines))


def _write_tsv(open_part: OpenPart, tables: list[Table], advance: Advance) -> None:
    for table in tables:
        _write_text(open_part(f"{table.name}.tsv"), table, "\t", advance)


def _write_word2vec(open_part: OpenPart, tables: list[Table], advance: Advance) -> None:
    for table in tables:
        head = f"{table.num_rows} {table.dim}\n"
        _write_text(open_part(f"{table.name}.txt"), table, " ", advance, head)


def _without_blanks(name: str) -> str:
    return "_".join(name.split()) or "_"


_WRITERS: dict[str, Callable[[OpenPart, list[Table], Advance], None]] = {
    "npy": _write_npy,
    "safetensors": _write_safetensors,
    "tsv": _write_tsv,
    "word2vec": _write_word2vec,
}
