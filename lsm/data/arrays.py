"""Reads the .npy files of a store as tensors, into memory or mapped."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import EllipsisType

import numpy as np
import torch

from lsm import native
from lsm.core.files import read_exactly
from lsm.data.format import CONVERT_AGAIN, FEATURE_DTYPES
from lsm.data.npy_header import read_header

VALUE_DTYPES = ("bool", *(name for name in FEATURE_DTYPES if name != "bfloat16"))
"""Dtypes of values of edges, by their NumPy names; NumPy has no bfloat16."""


def load_array(
    path: Path,
    dtype: str | None,
    shape: tuple[int | EllipsisType | None, ...],
    in_memory: bool,
    remedy: str = CONVERT_AGAIN,
) -> torch.Tensor:
    """The array in ``path``, mapped (copy on write) unless ``in_memory``.

    ``shape``: None is any number, ``...`` any further dimensions; ``dtype``: None is any of
    VALUE_DTYPES; ``remedy``: of damage. Raises ValueError for another array or a damaged file,
    OSError if it cannot be read.
    """
    with open(path, "rb", buffering=0) as file:
        header = read_header(file, path)
        problem = array_problem(header.dtype, header.shape, dtype, shape)
        if header.fortran_order and len(header.shape) > 1:
            problem = "expected rows, got columns"
        if problem is not None:
            raise ValueError(f"{path}: {problem}; {remedy}")
        num_elements = math.prod(header.shape)
        needed = header.data_offset + num_elements * header.dtype.itemsize
        size = os.fstat(file.fileno()).st_size
        if size < needed:
            raise ValueError(
                f"{path}: truncated: expected {needed} bytes for {header.dtype} "
                f"{list(header.shape)}, got {size}; {remedy}"
            )
        # Unaligned elements, of a foreign writer, cannot be mapped; they are read.
        if in_memory or num_elements == 0 or header.data_offset % header.dtype.itemsize:
            array = np.empty(header.shape, header.dtype)
            try:
                read_exactly(file.fileno(), array, header.data_offset)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from None
            return torch.from_numpy(array)
    mapped = torch.frombuffer(
        native.MappedFile(str(path)),
        dtype=getattr(torch, str(header.dtype)),
        count=num_elements,
        offset=header.data_offset,
    )
    return mapped.view(header.shape)


def array_problem(
    found: np.dtype,
    found_shape: tuple[int, ...],
    dtype: str | None,
    shape: tuple[int | EllipsisType | None, ...],
) -> str | None:
    """The fault of an array that is not of ``dtype`` and ``shape``, as for ``load_array``; None if
    it is."""
    is_of = found == dtype if dtype else found.isnative and str(found) in VALUE_DTYPES
    if is_of and _fits(found_shape, shape):
        return None
    sizes = ", ".join("n" if n is None else "..." if n is ... else str(n) for n in shape)
    return f"expected {dtype or 'numbers'} [{sizes}], got {found} {list(found_shape)}"


def _fits(found: tuple[int, ...], expected: tuple[int | EllipsisType | None, ...]) -> bool:
    if expected[-1] is ...:
        expected = expected[:-1]
        found = found[: len(expected)]
    pairs = zip(expected, found, strict=False)
    return len(expected) == len(found) and all(n is None or n == m for n, m in pairs)
