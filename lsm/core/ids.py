"""Tensors of ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def as_int64(ids: torch.Tensor) -> torch.Tensor:
    """``ids`` as int64 where they have another integer type; a tensor of any other type, such as
    bool or float, as it is."""
    if ids.dtype == torch.int64:
        return ids
    is_integer = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
    return ids.to(torch.int64) if is_integer else ids


def tensor_of_integers(name: str, values: Any) -> torch.Tensor:
    """``values`` as a tensor: one, an array, or a sequence of numbers. An empty one of floats, as
    an empty list is, becomes int64. Raises ValueError, with ``name``, for others."""
    if isinstance(values, np.ndarray):
        values = np.asarray(values, order="C")  # torch takes no negative strides, as of [::-1]
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name}: expected a tensor of integers, got {values!r:.80}") from None
    is_empty = tensor.numel() == 0 and tensor.is_floating_point()
    return tensor.long() if is_empty else tensor


def vector_of_ids(ids: Any, name: str = "ids") -> torch.Tensor:
    """``ids`` [N] of any integer type, a tensor or a sequence, contiguous, as int64. Raises
    ValueError, with ``name``, for others."""
    ids = as_int64(tensor_of_integers(name, ids))
    if ids.dim() != 1 or ids.dtype != torch.int64:
        remedy = (
            "; mask.nonzero().view(-1) gives those of a mask" if ids.dtype == torch.bool else ""
        )
        raise ValueError(
            f"{name}: expected [N] integers, got {list(ids.shape)} {ids.dtype}{remedy}"
        )
    return ids.contiguous()
