"""Reads edges from text (names or ids; TSV, blanks or CSV), or queries with ``?`` for one side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from lsm.data.names import look_up_names
from lsm.data.triples.lines import Lines, Malformed
from lsm.data.triples.store import TripleStore
from lsm.embed.run import EmbeddingRun

MISSING = -1
"""The id of ``?``."""
_LINES_AT_ONCE = 1 << 17
_MOST_SHOWN = 5
_MOST_TEXT = 100


@dataclass
class Rejected(Malformed):
    """Counts the bad lines of a file and keeps the first few."""

    lines: set[int] = field(default_factory=set)
    shown: dict[int, str] = field(default_factory=dict)

    def note(self, path: Path, where: str, text: str, why: str) -> None:
        """Counts a line. ``where``: its unit and number, such as ``line 7``."""
        number = int(where.split()[1])
        self.count += 1
        self.lines.add(number)
        if len(self.shown) < _MOST_SHOWN:
            self.shown[number] = f"{where}: {why}: {text[:_MOST_TEXT]!r}"

    def as_text(self, path: Path) -> str:
        """The count, and the first bad lines with their numbers."""
        more = self.count - len(self.shown)
        shown = "; ".join(self.shown[number] for number in sorted(self.shown))
        shown += f"; and {more} more" if more else ""
        lines = "1 line" if self.count == 1 else f"{self.count} lines"
        return f"{path}: {lines} cannot be used: {shown}"


@dataclass(frozen=True)
class EdgeFile:
    """A text file of edges: head, relation, tail; head, tail where the model has no relations."""

    path: Path
    run: EmbeddingRun
    store: TripleStore | None
    """The store with the names; None: the file has ids."""
    header: bool = False
    """True if the first line names the columns."""
    has_queries: bool = False
    """True if one side of each edge is ``?``."""

    def ids(self, rejected: Rejected) -> Iterator[list[int]]:
        """The ids of each good line, in order: head, relation and tail, or head and tail."""
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such file")
        lines = iter(self._lines(rejected))
        while chunk := list(islice(lines, _LINES_AT_ONCE)):
            chunk = [line for line in chunk if self._has_form(line, rejected)]
            ends = [cells[place] for _, _, cells in chunk for place in (0, -1)]
            kinds = [cells[1] for _, _, cells in chunk] if self._has_relations else []
            entities = self._look_up(ends, "entities")
            relations = self._look_up(kinds, "relations")
            if self.has_queries:
                entities["?"] = MISSING
            tables = [entities, relations, entities] if self._has_relations else [entities] * 2
            for number, text, cells in chunk:
                used = cells if self._has_relations else [cells[0], cells[-1]]
                row = [table[cell] for cell, table in zip(used, tables, strict=True)]
                unknown = [
                    repr(cell) for cell, found in zip(used, row, strict=True) if found is None
                ]
                if unknown:
                    why = f"unknown {' and '.join(unknown)}"
                    rejected.note(self.path, f"line {number}", text, why)
                else:
                    yield [found for found in row if found is not None]

    def cells(self, rejected: Rejected) -> Iterator[list[str]]:
        """The cells of each line that is not in ``rejected``, in order."""
        bad = rejected.lines
        for number, _, cells in self._lines(Rejected()):
            if number not in bad:
                yield cells

    def _lines(self, rejected: Rejected) -> Lines:
        is_csv = self.path.name.removesuffix(".gz").endswith(".csv")
        return Lines(self.path, is_csv=is_csv, header=self.header, comment=None, malformed=rejected)

    @property
    def _has_relations(self) -> bool:
        return self.run.config.embed.has_relations

    def _has_form(self, line: tuple[int, str, list[str]], rejected: Rejected) -> bool:
        number, text, cells = line
        columns = (3,) if self._has_relations else (2, 3)
        why = ""
        if len(cells) not in columns:
            why = f"expected {' or '.join(map(str, columns))} columns, got {len(cells)}"
        elif self.has_queries and ([cells[0], cells[-1]].count("?"), cells.count("?")) != (1, 1):
            why = "expected one ?, for head or tail"
        if why:
            rejected.note(self.path, f"line {number}", text, why)
        return not why

    def _look_up(self, names: list[str], kind: str) -> dict[str, int | None]:
        """The id of each name, or None. Takes one pass over the store's names."""
        unique = list(dict.fromkeys(names))
        if self.store is None:
            count = self.run.num_entities if kind == "entities" else self.run.num_relations
            return {name: _as_id(name, count) for name in unique}
        found = look_up_names(self.store.path / f"{kind}.tsv", unique)
        return {n: i if i >= 0 else None for n, i in zip(unique, found, strict=True)}


def _as_id(text: str, count: int) -> int | None:
    is_id = text.isascii() and text.isdecimal() and len(text) < 19
    return int(text) if is_id and int(text) < count else None
