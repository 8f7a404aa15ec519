"""Tensors of ids."""

from __future__ import annotations

import torch


def as_int64(ids: torch.Tensor) -> torch.Tensor:
    """``ids`` as int64 where they have another integer type; a tensor of any other type, such as
    bool or float, as it is."""
    if ids.dtype == torch.int64:
        return ids
    is_integer = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
    return ids.to(torch.int64) if is_integer else ids


def vector_of_ids(ids: torch.Tensor) -> torch.Tensor:
    """``ids`` [N] of any integer type, contiguous, as int64. Raises ValueError for others."""
    ids = as_int64(ids)
    if ids.dim() != 1 or ids.dtype != torch.int64:
        raise ValueError(f"ids: expected [N] integers, got {list(ids.shape)} {ids.dtype}")
    return ids.contiguous()
