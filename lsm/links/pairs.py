"""Pairs of places that hold the same id."""

from __future__ import annotations

import torch
from torch import Tensor

from lsm import native


def mask_equal(scores: Tensor, ids: Tensor, wanted: Tensor) -> None:
    """Makes scores [c, k] -inf where ids[column] == wanted[row]."""
    if scores.device.type == "cpu" and scores.dtype == torch.float32:
        native.mask_equal(scores.numpy(), ids.numpy(), wanted.numpy())
        return
    rows, columns = equal_pairs(ids, wanted)
    if len(rows):
        scores[rows, columns] = -torch.inf


def equal_pairs(columns: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Every row and column with ``columns[column] == wanted[row]``: [p] each, rows ascending. Both
    lists of ids may contain duplicates."""
    if columns.device.type == "cpu":
        rows, places = torch.from_numpy(native.find_pairs(columns.numpy(), wanted.numpy()))
        return rows, places
    return equal_pairs_by_torch(columns, wanted)


def equal_pairs_by_torch(columns: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`equal_pairs` on any device."""
    ordered, places = columns.sort(stable=True)
    rows, found = pairs_in_sorted(ordered, wanted)
    return rows, places[found]


def in_sorted(ordered: Tensor, values: Tensor) -> Tensor:
    """True for each of ``values`` [n] that is in ``ordered``, ids in ascending order: [n] bool.
    torch.isin() sorts the values and takes three times as long for a million."""
    if not len(ordered):
        return torch.zeros(len(values), dtype=torch.bool, device=values.device)
    places = torch.searchsorted(ordered, values.contiguous()).clamp_(max=len(ordered) - 1)
    return ordered[places] == values


def pairs_in_sorted(ordered: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Every row and place with ``ordered[place] == wanted[row]``: [p] each, both ascending.
    ``ordered``: ids, ascending, which may repeat."""
    wanted = wanted.contiguous()  # a column has strides; torch would copy it twice
    first = torch.searchsorted(ordered, wanted)
    num_equal = torch.searchsorted(ordered, wanted, right=True) - first
    rows = torch.repeat_interleave(num_equal)
    before = torch.cumsum(num_equal, 0) - num_equal
    return rows, torch.arange(len(rows), device=rows.device) - before[rows] + first[rows]
