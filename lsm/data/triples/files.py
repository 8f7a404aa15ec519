"""Reads triples from files: text with names, LibKGE's .del, or NumPy arrays of ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lsm.data.convert.array_file import ArrayFile
from lsm.data.triples.lines import Lines, Malformed
from lsm.data.triples.names import Names, read_names_of_ids
from lsm.data.triples.sort import as_triples

_CHUNK_LINES = 1 << 16
_MOST_ENTITIES = 1 << 40
_TEXT = (".tsv", ".txt", ".csv", ".del")
_STEMS = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}


@dataclass(frozen=True)
class TripleColumns:
    """The places of head, relation and tail in a line; two places: head and tail. A place is a
    number from 0 or, if the first line has names, a name."""

    places: tuple[str, ...] | None = None  # None: 0,1,2 of three columns, 0,1 of two
    header: bool = False
    comment: str | None = None

    def __post_init__(self) -> None:
        places = self.places
        if places is not None and (
            len(places) not in (2, 3) or len(set(places)) < len(places) or not all(places)
        ):
            raise ValueError(
                "--columns: expected two (head, tail) or three (head, relation, tail) different "
                f"ones, such as 0,1,2, got {','.join(places)!r}"
            )

    @property
    def named(self) -> bool:
        """True if places are names."""
        return self.places is not None and not all(place.isdecimal() for place in self.places)


class TripleFiles:
    """The files of a source, by split; or one file, from which splits are drawn (key ``all``).

    ``chunks`` gives provisional ids, which ``entities`` and ``relations`` name. ``has_relations``
    is known after the first chunk.
    """

    def __init__(self, src: Path, columns: TripleColumns, *, skip_malformed: bool = False) -> None:
        self.files = _find(src)
        self.entities, self.relations = Names(), Names()
        self.malformed = Malformed(skip_malformed)
        self.has_relations: bool | None = None
        self._columns = columns
        folder = src if src.is_dir() else src.parent
        have_ids = {_format(path) in (".del", ".npy") for path in self.files.values()}
        if len(have_ids) == 2:
            raise ValueError(f"{src}: expected all files to have names, or all ids; got both")
        if have_ids == {True}:
            self.entities = read_names_of_ids(folder, "entities")
            self.relations = read_names_of_ids(folder, "relations")

    def chunks(self, split: str) -> Iterator[np.ndarray]:
        """Triples [n, 3] int64 of the file of ``split``, in order; relation 0 where there are none.
        Raises ValueError with number and text of a malformed line."""
        path = self.files[split]
        if _format(path) == ".npy":
            yield from self._array_chunks(path)
        else:
            yield from self._text_chunks(path)

    def _array_chunks(self, path: Path) -> Iterator[np.ndarray]:
        with ArrayFile(path) as array:
            if len(array.shape) != 2 or array.dtype.kind not in "iu":
                raise ValueError(
                    f"{path}: expected whole numbers [n, columns], got {array.dtype} "
                    f"{list(array.shape)}"
                )
            places = self._places(path, array.shape[1], None)
            for first, rows in array.chunks():
                numbers = range(first, first + len(rows))
                triples = as_triples(rows, places)
                yield self._known(path, "row", numbers, triples)

    def _text_chunks(self, path: Path) -> Iterator[np.ndarray]:
        kind, columns = _format(path), self._columns
        lines = Lines(
            path,
            is_csv=kind == ".csv",
            header=columns.header or columns.named,
            comment=columns.comment,
            malformed=self.malformed,
        )
        parse = self._ids if kind == ".del" else self._named
        places: tuple[int, ...] = ()
        rows: list[tuple[int, int, int]] = []
        numbers: list[int] = []
        for number, text, cells in lines:
            if not places:
                places = self._places(path, len(cells), lines.header)
                wanted = max(places) + 1 if columns.places else len(cells)
            if len(cells) < wanted or (len(cells) > wanted and not columns.places):
                why = f"expected {wanted} columns, got {len(cells)}"
                self.malformed.note(path, f"line {number}", text, why)
                continue
            row = parse([cells[place] for place in places])
            if isinstance(row, str):
                self.malformed.note(path, f"line {number}", text, row)
                continue
            rows.append(row)
            numbers.append(number)
            if len(rows) == _CHUNK_LINES:
                yield self._known(path, "line", numbers, np.array(rows, np.int64))
                rows, numbers = [], []
        if rows:
            yield self._known(path, "line", numbers, np.array(rows, np.int64))

    def _ids(self, cells: list[str]) -> tuple[int, int, int] | str:
        if not all(cell.isascii() and cell.isdecimal() and len(cell) < 19 for cell in cells):
            return "expected ids, whole numbers from 0"
        return int(cells[0]), int(cells[1]) if len(cells) == 3 else 0, int(cells[-1])

    def _named(self, cells: list[str]) -> tuple[int, int, int] | str:
        if not all(cells):
            return "a name is empty"
        entities, relations = self.entities.ids, self.relations.ids
        head = entities.setdefault(cells[0], len(entities))
        tail = entities.setdefault(cells[-1], len(entities))
        if len(cells) == 2:
            return head, 0, tail
        return head, relations.setdefault(cells[1], len(relations)), tail

    def _known(
        self, path: Path, unit: str, numbers: Sequence[int], triples: np.ndarray
    ) -> np.ndarray:
        """The triples whose ids have a name or, without names, are not negative."""
        if not self.entities.are_ids:
            return triples
        columns = [(0, self.entities), (2, self.entities)]
        if self.has_relations:
            columns.append((1, self.relations))
        bad = np.zeros(len(triples), bool)
        for column, names in columns:
            ids = triples[:, column]
            bad |= (ids < 0) | (ids >= (len(names.ids) or _MOST_ENTITIES))
        for position in np.flatnonzero(bad).tolist():
            text = " ".join(map(str, triples[position].tolist()))
            self.malformed.note(path, f"{unit} {numbers[position]}", text, "an id is out of range")
        kept = triples[~bad]
        for column, names in columns:
            names.largest = max(names.largest, int(kept[:, column].max(initial=-1)))
        return kept

    def _places(self, path: Path, count: int, header: list[str] | None) -> tuple[int, ...]:
        """Columns of head, relation and tail, or of head and tail, out of ``count``."""
        places = _find_places(path, self._columns, count, header)
        has_relations = len(places) == 3
        if self.has_relations not in (None, has_relations):
            raise ValueError(
                f"{path}: expected all files to have relations or none; this one has "
                f"{len(places)} columns"
            )
        self.has_relations = has_relations
        return places


def _find_places(
    path: Path, columns: TripleColumns, count: int, header: list[str] | None
) -> tuple[int, ...]:
    if columns.places is None:
        if count not in (2, 3):
            raise ValueError(
                f"{path}: expected 3 columns (head, relation, tail) or 2 (head, tail), got "
                f"{count}; say which with --columns"
            )
        return tuple(range(count))
    if columns.named:
        known = header or []
        if any(place not in known for place in columns.places):
            raise ValueError(
                f"{path}: --columns: expected names of the first line "
                f"({', '.join(known) or 'there are none'}), got {','.join(columns.places)}"
            )
        places = tuple(known.index(place) for place in columns.places)
    else:
        places = tuple(map(int, columns.places))
    if max(places) >= count:
        raise ValueError(f"{path}: --columns: expected numbers below {count}, got {max(places)}")
    return places


def _find(src: Path) -> dict[str, Path]:
    if not src.exists():
        raise FileNotFoundError(f"{src}: no such file or directory")
    if not src.is_dir():
        _format(src)
        return {"all": src}
    found: dict[str, Path] = {}
    for split, stems in _STEMS.items():
        names = [f"{stem}{suffix}" for stem in stems for suffix in (*_TEXT, ".npy")]
        names += [f"{name}.gz" for name in names if not name.endswith(".npy")]
        present = [src / name for name in names if (src / name).is_file()]
        if len(present) > 1:
            raise ValueError(
                f"{src}: expected one file of {split}, got {present[0].name} and "
                f"{present[1].name}; remove one"
            )
        if present:
            found[split] = present[0]
    if "train" not in found:
        raise FileNotFoundError(
            f"{src}: expected train.tsv, .txt, .csv, .del (each also .gz) or .npy in it"
        )
    return found


def _format(path: Path) -> str:
    is_packed = path.suffix == ".gz"
    kind = Path(path.stem).suffix if is_packed else path.suffix
    if kind not in _TEXT and (kind != ".npy" or is_packed):
        raise ValueError(
            f"{path}: expected a file named .tsv, .txt, .csv, .del (each also .gz) or .npy"
        )
    return kind
