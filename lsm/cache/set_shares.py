"""Divides memory among sets of rows of different sizes: one cache, or the rows of batches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_LEAST = 64
"""Each set has at least one part in so many."""


def set_shares(
    num_bytes: int, row_bytes: Mapping[str, int], requests: Mapping[str, Tensor]
) -> dict[str, int]:
    """The bytes of each set, of ``num_bytes`` in all.

    They hold the rows that are requested most, whatever their size, since a row saves as many bytes
    per request as it takes. The rest, if all requested rows fit, is divided by the bytes of the
    other rows. ``row_bytes``: by set. ``requests``: by set, those of each row in some batches, [N].
    """
    names = list(row_bytes)
    counts = torch.cat([requests[name] for name in names])
    sizes = torch.cat([torch.full_like(requests[name], row_bytes[name]) for name in names])
    order = counts.argsort(descending=True, stable=True)
    order = order[counts[order] > 0]
    kept = order[sizes[order].cumsum(0) <= num_bytes]
    is_kept = torch.zeros(len(counts), dtype=torch.bool)
    is_kept[kept] = True
    by_set = is_kept.split([len(requests[name]) for name in names])
    held = {
        name: int(part.sum()) * row_bytes[name] for name, part in zip(names, by_set, strict=True)
    }
    others = {name: len(requests[name]) * row_bytes[name] - held[name] for name in names}
    rest, all_others = num_bytes - sum(held.values()), sum(others.values())
    if all_others > 0:
        held = {name: held[name] + rest * others[name] // all_others for name in names}
    return _at_least(num_bytes // _LEAST, held)


def batch_shares(
    num_bytes: int, row_bytes: Mapping[str, int], requests: Mapping[str, Tensor]
) -> dict[str, int]:
    """The bytes of each set, of ``num_bytes`` for rows of batches: as many as its requests take.
    Arguments as for set_shares(); sets without any requests count all their rows."""
    taken = {name: int(requests[name].sum()) * size for name, size in row_bytes.items()}
    if not any(taken.values()):
        taken = {name: len(requests[name]) * size for name, size in row_bytes.items()}
    total = max(1, sum(taken.values()))
    shares = {name: num_bytes * each // total for name, each in taken.items()}
    return _at_least(num_bytes // _LEAST, shares)


def _at_least(least: int, shares: Mapping[str, int]) -> dict[str, int]:
    """``shares``; the larger ones raise the others to ``least``."""
    missing = sum(max(0, least - share) for share in shares.values())
    spare = sum(max(0, share - least) for share in shares.values())
    taken = min(1.0, missing / spare) if spare else 0.0
    return {
        name: least if share <= least else least + int((share - least) * (1 - taken))
        for name, share in shares.items()
    }
