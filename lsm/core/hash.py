"""The hash of ids that caches and owners share."""

from __future__ import annotations

import numpy as np


def mix64(x: np.ndarray) -> np.ndarray:
    """The 64-bit finaliser of MurmurHash3, as in ``kernels/core/hash.h``."""
    shift = np.uint64(33)
    x = x ^ x >> shift
    x = x * np.uint64(0xFF51AFD7ED558CCD)
    x = x ^ x >> shift
    x = x * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ x >> shift
