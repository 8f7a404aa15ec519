"""Reads the header of a .npy file, with any contents."""

from __future__ import annotations

import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class NpyHeader:
    """Type and shape of a .npy file, and the offset of its elements."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    data_offset: int


def read_header(file: BinaryIO, path: Path) -> NpyHeader:
    """The header at the start of ``file``. Raises ValueError, which names ``path``, if it is no
    .npy header."""
    file.seek(0)
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"unknown version {version}")
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read(file)
        if min(shape, default=0) < 0:
            raise ValueError(f"negative shape {shape}")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: bad .npy header: {error}") from None
    except (RecursionError, MemoryError, SyntaxError, TypeError, tokenize.TokenError):
        # NumPy parses the header as Python text; nonsense in it raises these.
        raise ValueError(f"{path}: bad .npy header: it cannot be parsed") from None
    return NpyHeader(dtype, shape, fortran_order, file.tell())
