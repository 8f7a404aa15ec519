"""Reads the header of a .npy file, whatever the file holds."""

from __future__ import annotations

import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class NpyHeader:
    """What a .npy file holds, and where its elements begin."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    data_offset: int


def read_header(file: BinaryIO, path: Path) -> NpyHeader:
    """The header at the start of ``file``; ValueError naming ``path`` if it is no .npy header."""
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
        # NumPy parses the header as Python text, and these are what nonsense in it leads to.
        raise ValueError(f"{path}: bad .npy header: it cannot be parsed") from None
    return NpyHeader(dtype, shape, fortran_order, file.tell())
