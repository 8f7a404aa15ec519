"""Answers of a run by name, as the command line prints and writes them."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lsm.core.atomic_file import replacing
from lsm.data.names import escaped
from lsm.data.sink import FileSink
from lsm.embed.use.edge_files import MISSING, EdgeFile, Rejected
from lsm.embed.use.embeddings import TARGETS, Embeddings, Key

log = logging.getLogger(__name__)

Scored = list[tuple[str, float]]
"""Names, or ids as text, and scores, best first."""
_LINES_AT_ONCE = 1 << 14


def neighbors_by_name(
    run: Embeddings, keys: Sequence[str], k: int, measure: str, *, ids: bool = False
) -> dict[str, Scored]:
    """Name and score of the entities nearest to each of ``keys``, best first. ``ids``: keys and
    answers are ids. Raises ValueError for an unknown key."""
    entities: list[Key] = [_as_id(key, "NAME") for key in keys] if ids else list(keys)
    numbers, scores = run.neighbors(entities, k, measure)
    flat = numbers.flatten().tolist()
    names = list(map(str, flat)) if ids else run.entity_names(flat)
    pairs = list(zip(names, scores.flatten().tolist(), strict=True))
    return {key: pairs[i * k : (i + 1) * k] for i, key in enumerate(keys)}


def query_row(
    run: Embeddings, head: str | None, relation: str | None, tail: str | None, *, ids: bool
) -> list[int]:
    """The ids of one query, as :class:`EdgeFile` has them. ``ids``: the texts are ids. Raises
    ValueError for an unknown name, or if not exactly one of ``head`` and ``tail`` is given."""
    given = tail if head is None else head
    if given is None or (head is not None and tail is not None):
        raise ValueError(
            "--head, --tail: expected one of the two, whose other side is predicted, got "
            f"{'none' if given is None else 'both'}; or --queries FILE"
        )
    options = run.run.config.embed
    if options.has_relations == (relation is None):
        raise ValueError(
            f"--relation: expected {'one' if relation is None else 'none'}, as embed.model="
            f"{options.model} {'has' if relation is None else 'has no'} relations"
        )
    entity = run.entity_ids([_as_id(given, "--head, --tail") if ids else given])
    row = [*entity, MISSING] if tail is None else [MISSING, *entity]
    if relation is not None:
        row[1:1] = run.relation_ids([_as_id(relation, "--relation") if ids else relation])
    return row


def predicted(
    run: Embeddings, rows: Sequence[Sequence[int]], k: int, *, ids: bool, unknown_only: bool
) -> list[Scored]:
    """The best answers to the queries ``rows``: ids, with MISSING for the predicted side. ``ids``:
    answers are ids."""
    found: list[Scored] = [[] for _ in rows]
    for place, side in ((0, "tails"), (-1, "heads")):
        numbers = [number for number, row in enumerate(rows) if row[place] == MISSING]
        if not numbers:
            continue
        given = [rows[number][-1 - place] for number in numbers]
        kinds = [rows[number][1] for number in numbers] if len(rows[0]) == 3 else None
        answers, scores = run.predict(
            **{side: given}, relations=kinds, k=k, unknown_only=unknown_only
        )
        kept = answers >= 0
        flat = answers[kept].tolist()
        names = iter(map(str, flat) if ids else run.entity_names(flat))
        for number, row, mask in zip(numbers, scores, kept, strict=True):
            values = row[mask].tolist()
            found[number] = list(zip(islice(names, len(values)), values, strict=True))
    return found


def completed(query: Sequence[str], found: Scored) -> Iterator[tuple[list[str], float]]:
    """The edges that complete a query (its missing side is ``?``), each with its score."""
    place = query.index("?")
    for name, score in found:
        yield [*query[:place], name, *query[place + 1 :]], score


def as_record(query: Sequence[str], found: Scored) -> dict[str, Any]:
    """A query and its answers for JSON. The predicted side is null."""
    head, *relation, tail = (None if cell == "?" else cell for cell in query)
    kind = {"relation": relation[0]} if relation else {}
    return {"head": head, **kind, "tail": tail, "predictions": found}


def read_queries(file: EdgeFile) -> tuple[list[list[str]], list[list[int]]]:
    """The cells of queries, and their ids. Raises ValueError with the numbers of bad lines."""
    rejected = Rejected()
    rows = list(file.ids(rejected))
    _require_usable(file, rejected, len(rows), "correct them")
    return list(file.cells(rejected)), rows


def scored(
    run: Embeddings, file: EdgeFile, target: str, *, skip_malformed: bool
) -> Iterator[tuple[list[str], float]]:
    """The cells and the score of each line of ``file``, in order. Holds 28 bytes per line. Raises
    ValueError with the numbers of bad lines; with ``skip_malformed``, logs them and leaves them
    out."""
    if target not in TARGETS:  # fails before the file is read
        raise ValueError(f"--target: expected {' or '.join(TARGETS)}, got {target!r}")
    rejected = Rejected()
    columns = 3 if run.run.config.embed.has_relations else 2
    flat = array("q")
    for row in file.ids(rejected):
        flat.extend(row)
    edges = torch.from_numpy(np.frombuffer(flat, np.int64).reshape(-1, columns))
    remedy = "correct them, or pass --skip-malformed to leave them out"
    _require_usable(file, rejected, len(edges), None if skip_malformed else remedy)
    parts = run.score(edges, target=target).split(_LINES_AT_ONCE)
    scores = chain.from_iterable(part.tolist() for part in parts)
    yield from zip(file.cells(rejected), scores, strict=True)


def as_lines(edges: Iterable[tuple[Sequence[str], float]]) -> Iterator[str]:
    """Lines of names and a score, separated by tabs. Tabs and line ends in names are escaped. Nine
    digits of a score give the same float32 back."""
    for cells, score in edges:
        yield "\t".join([*map(escaped, cells), f"{score:.9g}"]) + "\n"


def write_lines(path: Path, lines: Iterable[str], *, force: bool) -> int:
    """Writes ``lines`` to ``path``, which gets its name when the file is complete. Returns the
    number of lines. Raises FileExistsError unless ``force``."""
    if path.exists() and not force:
        raise FileExistsError(f"{path}: exists; choose another --out or pass --force")
    lines, count = iter(lines), 0
    with replacing(path) as temporary, FileSink(temporary, final=path) as sink:
        while some := list(islice(lines, _LINES_AT_ONCE)):
            sink.write("".join(some).encode())
            count += len(some)
    return count


def _require_usable(file: EdgeFile, rejected: Rejected, count: int, remedy: str | None) -> None:
    """Raises ValueError if lines are bad. ``remedy``: its advice; None: bad lines are left out."""
    if rejected.count and remedy:
        raise ValueError(f"{rejected.as_text(file.path)}; {remedy}")
    if rejected.count:
        log.warning("%s; left out", rejected.as_text(file.path))
    if not count:
        raise ValueError(f"{file.path}: no line to use")


def _as_id(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{what}: expected an id with --ids, got {text!r}")
    return int(text)
