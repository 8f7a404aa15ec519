"""Reads pairs of nodes from a file: .npy, or lines of ids or names."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from lsm import native
from lsm.data.arrays import load_array
from lsm.data.close_names import close_names
from lsm.data.convert.array_file import ArrayFile
from lsm.data.node_data import NodeData
from lsm.data.triples.lines import Lines, Malformed

_PAIRS_AT_ONCE = 1 << 20
_LOOKED_AT = 4096  # bytes of a file that is to be text
_NO_ID = 2**62  # for larger numbers


def read_pairs(given: str | Path | Tensor, ends: Sequence[NodeData], option: str) -> Tensor:
    """Pairs of nodes from a file or a tensor.

    Args:
        given: A .npy file of integers, [2, n] or [n, 2]; a text file with two ids or names a line,
            between tabs, blanks or, in a .csv, commas; or ids [2, n].
        ends: The nodes of the sources and of the destinations.
        option: The option that names the file, for errors.

    Returns:
        Sources and destinations: [2, n] int64, memory-mapped where the file allows it.

    Raises:
        FileNotFoundError: There is no such file.
        IsADirectoryError: It is a directory.
        ValueError: The pairs have another form, there are none, or a node does not exist.
    """
    if isinstance(given, Tensor):
        pairs, where, numbers = _of_tensor(given, option), option, None
    else:
        path, where = Path(given), f"{option}: {given}"
        if path.is_dir():
            raise IsADirectoryError(f"{where}: is a directory; expected a file of pairs")
        if not path.is_file():
            raise FileNotFoundError(f"{where}: no such file")
        if path.suffix == ".npy":
            pairs, numbers = _of_array(path, where), None
        else:
            _require_text(path, where)
            pairs, numbers = _of_lines(path, where, ends)
    if pairs.size(1) == 0:
        raise ValueError(f"{where}: expected at least one pair, got none")
    bad = first_bad(pairs, [end.num_nodes for end in ends])
    if bad is not None:
        place, side = bad
        unit = f"pair {place}" if numbers is None else f"line {numbers[place]}"
        nodes, found = ends[side], int(pairs[side, place])
        raise ValueError(
            f"{where}: {unit}: {'an id that large' if found == _NO_ID else found} is no node of "
            f"type {nodes.node_type}: expected an id from 0 to {nodes.num_nodes - 1}"
        )
    return pairs


def _require_text(path: Path, where: str) -> None:
    """Raises ValueError for a file of bytes, such as .npz, but for a packed one."""
    with open(path, "rb") as file:
        start = file.read(_LOOKED_AT)
    if b"\0" in start and path.suffix != ".gz":
        raise ValueError(
            f"{where}: expected a .npy file of pairs of ids, or lines of text, got a file of "
            "another kind; numpy.save() writes .npy"
        )


def first_bad(pairs: Tensor, num_nodes: Sequence[int]) -> tuple[int, int] | None:
    """The place of the first of ``pairs`` [2, n] with an end that is no node, and the side of it.
    ``num_nodes``: those of the sources' type and of the destinations'."""
    counts = torch.tensor(num_nodes)[:, None]
    for first in range(0, pairs.size(1), _PAIRS_AT_ONCE):
        part = pairs[:, first : first + _PAIRS_AT_ONCE]
        bad = ((part < 0) | (part >= counts)).t().nonzero()
        native.check_mapped(pairs)
        if len(bad):
            return first + int(bad[0, 0]), int(bad[0, 1])
    return None


def _of_tensor(pairs: Tensor, where: str) -> Tensor:
    is_integer = not (pairs.is_floating_point() or pairs.is_complex() or pairs.dtype == torch.bool)
    if pairs.dim() != 2 or pairs.size(0) != 2 or not is_integer:
        raise ValueError(
            f"{where}: expected pairs of ids, [2, n] of integers, got {pairs.dtype} "
            f"{list(pairs.shape)}"
        )
    return pairs.to("cpu", torch.int64)


def _of_array(path: Path, where: str) -> Tensor:
    try:
        with ArrayFile(path) as file:
            shape, dtype = file.shape, file.dtype
    except ValueError as error:
        raise ValueError(f"{where.partition(':')[0]}: {error}") from None
    if len(shape) != 2 or 2 not in shape or dtype.kind not in "iu":
        raise ValueError(
            f"{where}: expected pairs of ids, [2, n] or [n, 2] of integers, got {dtype} "
            f"{list(shape)}"
        )
    if shape == (2, 2):
        raise ValueError(
            f"{where}: [2, 2] may be two pairs by rows or by columns; give them as lines of text"
        )
    try:
        found = load_array(path, "int64", (None, None), in_memory=False)
    except ValueError:  # other integers, or in the order of columns
        with ArrayFile(path) as file:
            found = torch.from_numpy(file.read_all().astype("int64"))
    return found if shape[0] == 2 else found.t()


class _Refused(Malformed):
    """Refuses the first malformed line."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def note(self, path: Path, where: str, text: str, why: str) -> NoReturn:
        """Raises ValueError with the option, the file and the line."""
        raise ValueError(f"{self._where}: {where}: {why}: {text[:100]!r}")


def _cells(path: Path, where: str) -> Iterator[tuple[int, list[str]]]:
    """The number and both cells of each line. Raises ValueError for another form."""
    is_csv = path.name.removesuffix(".gz").endswith(".csv")
    refused = _Refused(where)
    lines = Lines(path, is_csv=is_csv, header=False, comment=None, malformed=refused)
    for number, text, cells in lines:
        if len(cells) != 2:
            why = f"expected two ids or names, got {len(cells)}"
            refused.note(path, f"line {number}", text, why)
        yield number, [cell.strip() for cell in cells]


def _of_lines(path: Path, where: str, ends: Sequence[NodeData]) -> tuple[Tensor, Sequence[int]]:
    """The pairs of a text file, and the number of each one's line."""
    ids, numbers = array("q"), array("q")
    for number, cells in _cells(path, where):
        if not all(map(_is_id, cells)):
            return _of_names(path, where, ends)
        ids.extend(min(int(cell), _NO_ID) for cell in cells)
        numbers.append(number)
    return torch.tensor(ids, dtype=torch.int64).view(-1, 2).t(), numbers


def _of_names(path: Path, where: str, ends: Sequence[NodeData]) -> tuple[Tensor, Sequence[int]]:
    lines = list(_cells(path, where))
    numbers, found = [number for number, _ in lines], []
    for side, nodes in enumerate(ends):
        column = [cells[side] for _, cells in lines]
        if nodes.has_names:
            found.append(nodes.look_up(column))
            continue
        for number, cell in zip(numbers, column, strict=True):
            if not _is_id(cell):
                raise ValueError(
                    f"{where}: line {number}: {cell!r} is no id, and nodes of type "
                    f"{nodes.node_type} have no names"
                )
        found.append([min(int(cell), _NO_ID) for cell in column])
    unknown = [place for place, both in enumerate(zip(*found, strict=True)) if -1 in both]
    if unknown:
        number, cells = lines[unknown[0]]
        side = 0 if found[0][unknown[0]] == -1 else 1
        close = " or ".join(map(repr, close_names(cells[side], ends[side].names())))
        remedy = f"; did you mean {close}?" if close else ""
        raise ValueError(
            f"{where}: line {number}: {cells[side]!r} is no node of type {ends[side].node_type}"
            f"{remedy}"
        )
    return torch.tensor(found, dtype=torch.int64), numbers


def _is_id(cell: str) -> bool:
    return cell.isascii() and cell.isdecimal()
