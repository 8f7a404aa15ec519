"""Plain NumPy and torch references of what the native code computes: slow, short, independent."""

from __future__ import annotations

import numpy as np


def unique_relabel(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values of ``ids`` in first-seen order, and the index of each id among them."""
    local: dict[int, int] = {}
    inverse = [local.setdefault(int(i), len(local)) for i in ids]
    return np.array(list(local), dtype=np.int64), np.array(inverse, dtype=np.int64)


def gather_rows(source: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """``source[ids]``."""
    return np.stack([source[i] for i in ids]) if len(ids) else source[:0].copy()
