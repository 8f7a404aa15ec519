"""Names of entities and relations while their source is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lsm.data.triples.lines import read_lines

_FILES = {
    "entities": ("entity_ids.del", "entities.txt"),
    "relations": ("relation_ids.del", "relations.txt"),
}


class NumberNames(Sequence[str]):
    """Ids as their own names: "0" to ``count - 1``."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        return str(range(self._count)[index])


@dataclass
class Names:
    """Ids by name. Of a source with names: in order of first appearance. Of a source with ids
    (``are_ids``): those of its file of names, if it has one."""

    ids: dict[str, int] = field(default_factory=dict)
    are_ids: bool = False
    largest: int = -1
    """Id seen, of a source with ids."""

    def as_sequence(self) -> Sequence[str]:
        """Names by id."""
        if self.are_ids and not self.ids:
            return NumberNames(self.largest + 1)
        return list(self.ids)


def read_names_of_ids(folder: Path, kind: str) -> Names:
    """Names of ``kind`` (entities, relations) from LibKGE's file in ``folder`` (id, tab, name) or
    one name a line; none without such a file. ValueError for a line that cannot be used."""
    names = Names(are_ids=True)
    path = next((folder / name for name in _FILES[kind] if (folder / name).is_file()), None)
    if path is None:
        return names
    for number, line in enumerate(read_lines(path)):
        try:
            text = line.rstrip(b"\r\n").decode("utf-8-sig" if number == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: line {number + 1}: not UTF-8 ({error.reason})") from None
        if path.suffix == ".del":
            given, separator, text = text.partition("\t")
            if not separator or given != str(number):
                raise ValueError(
                    f"{path}: line {number + 1}: expected {number}, a tab and a name, got "
                    f"{line[:200]!r}"
                )
        if not text:
            raise ValueError(f"{path}: line {number + 1}: expected a name, got an empty line")
        if names.ids.setdefault(text, number) != number:
            raise ValueError(f"{path}: line {number + 1}: {text[:200]!r} is named twice")
    return names
