"""Sparse gradients by rows, summed by id without asking a GPU for the number of ids."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rows(NamedTuple):
    """A gradient of a table by rows: distinct ids [n] int64, but for unused places, and values
    [n, width]. is_unused [n, 1] bool. Unused places come last, with the lowest of the ids, and
    values of zero."""

    ids: Tensor
    values: Tensor
    is_unused: Tensor


def summed(gradient: Tensor) -> Rows:
    """The rows of ``gradient`` [rows, width], a sparse tensor, with those of the same id summed, in
    their order, in the place of one of them. The number of places stays."""
    ids, values = gradient._indices()[0], gradient._values()
    count = len(ids)
    if gradient.is_coalesced() or count < 2:
        return Rows(ids, values, torch.zeros(count, 1, dtype=torch.bool, device=ids.device))
    ids, order = ids.sort(stable=True)
    is_first = torch.ones_like(ids, dtype=torch.bool)
    torch.ne(ids[1:], ids[:-1], out=is_first[1:])
    place = is_first.cumsum(0) - 1
    # Ranges and not atomic additions, so that a GPU adds in the same order each time.
    lengths = torch.zeros_like(ids).scatter_add_(0, place, torch.ones_like(ids))
    sums = torch.segment_reduce(values[order], "sum", lengths=lengths, axis=0, unsafe=True)
    distinct = ids[:1].repeat(count).scatter_(0, place, ids)
    return Rows(distinct, sums, (lengths == 0).unsqueeze(1))


def merged(gradient: Tensor) -> Tensor:
    """``gradient`` with the rows of the same id summed, in as many places, or as many as its table
    has rows, if these are fewer."""
    ids, values, _ = summed(gradient)
    count = min(len(ids), len(gradient))
    if count < len(ids):  # a part would hold the memory of the whole
        ids, values = ids[:count].clone(), values[:count].clone()
    return of_rows(ids, values, gradient)


def of_rows(ids: Tensor, values: Tensor, table: Tensor) -> Tensor:
    """The sparse gradient of ``table`` [rows, width] with ``values`` [n, width] at ``ids`` [n]."""
    return torch.sparse_coo_tensor(ids.unsqueeze(0), values, table.shape, check_invariants=False)
