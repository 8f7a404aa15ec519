"""Converts triples, or edges without relations, to a store for embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lsm.core.progress import counting
from lsm.data.triples.files import TripleColumns, TripleFiles
from lsm.data.triples.sort import write_all
from lsm.data.triples.store import TripleStore
from lsm.data.triples.writer import MEMORY_BYTES, ProvisionalTriples, write_triples
from lsm.data.writer import StoreWriter


def convert_triples(
    src: str | Path,
    out: str | Path,
    *,
    columns: Sequence[str] | None = None,
    header: bool = False,
    comment: str | None = None,
    skip_malformed: bool = False,
    valid_fraction: float = 0.05,
    test_fraction: float = 0.05,
    seed: int = 0,
    name: str | None = None,
    force: bool = False,
    memory_bytes: int = MEMORY_BYTES,
    progress: bool | None = None,
) -> TripleStore:
    """Writes the store ``out`` from ``src`` and opens it.

    ``src``: a directory with files of train and, if there are any, valid (val, dev) and test; or
    one file, of which ``valid_fraction`` and ``test_fraction`` are drawn by ``seed``. A file is
    .tsv or .txt (tabs, or blanks), .csv, or LibKGE's .del (ids), each also .gz; or .npy, ids
    [n, columns]. Names of ids: ``entity_ids.del`` and ``relation_ids.del`` (id, tab, name), or
    ``entities.txt`` and ``relations.txt`` (one a line); numbers without such a file.
    ``columns``: the places of head, relation and tail, or of head and tail: numbers from 0, or
    names of the first line. ``comment``: lines that start so are left out.

    ``seed`` also shuffles the entities: an id is a place in that shuffle. A triple that occurs
    again in its split is left out. ``TripleMeta.counts`` counts the oddities of the source.
    ``memory_bytes`` bounds the sort; names and 17 bytes per entity come on top.
    Raises ValueError or OSError, naming the line of a malformed triple, and leaves nothing behind.
    """
    src = Path(src)
    places = TripleColumns(None if columns is None else tuple(columns), header, comment)
    files = TripleFiles(src, places, skip_malformed=skip_malformed)
    source: dict[str, Any] = {"format": "triples"}
    if "all" in files.files:
        _check_fractions(valid_fraction, test_fraction)
        source |= {"valid_fraction": valid_fraction, "test_fraction": test_fraction}
    stem = src.resolve().name.partition(".")[0] if src.is_file() else src.resolve().name
    total = sum(path.stat().st_size for path in files.files.values())
    with StoreWriter(out, force=force, kind="triples") as writer:
        writer.require_bytes(total)
        with counting("triples", None, progress) as advance:
            spooled = {
                split: _spool(writer.scratch() / f"{split}.ids", files, split, advance)
                for split in files.files
            }
        triples = ProvisionalTriples(
            splits=spooled,
            entities=files.entities.as_sequence(),
            relations=files.relations.as_sequence() if files.has_relations else [],
            fractions=(valid_fraction, test_fraction),
            num_malformed=files.malformed.count,
        )
        try:
            meta = write_triples(writer, triples, name or stem, seed, source, memory_bytes)
        except ValueError as error:
            raise ValueError(f"{src}: {error}") from None
        writer.commit(meta)
    return TripleStore.open(out)


def _check_fractions(valid: float, test: float) -> None:
    if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
        raise ValueError(
            "--valid-fraction, --test-fraction: expected at least 0 and a sum below 1, got "
            f"{valid} and {test}"
        )


def _spool(path: Path, files: TripleFiles, split: str, advance: Callable[[int], None]) -> Path:
    with open(path, "wb", buffering=0) as file:
        for chunk in files.chunks(split):
            write_all(file, path, chunk)
            advance(len(chunk))
    return path
