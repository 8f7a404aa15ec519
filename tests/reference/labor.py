"""LABOR in plain Python, by its definition."""

from __future__ import annotations

from typing import Any

import numpy as np

_MASK = 2**32 - 1


def mix32(x: int) -> int:
    """MurmurHash3's 32-bit finaliser."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> shift
        x = x * factor & _MASK
    return x ^ x >> 16


def source_draw(
    native: Any, sampling: Any, name: tuple[int, int, int, int, int], hop: int, node: int
) -> int:
    """The draw of ``node`` at a hop of the batch ``name``: (seed, epoch, iteration, rank, step).
    ``native`` gives philox2x32 and batch_key, which have tests of their own."""
    seed, epoch, iteration, _, step = name
    layer, period = 0 if sampling.layer_dependency else hop, sampling.batch_dependency
    low, high = node & _MASK, node >> 32
    if period == 1:
        of_batch, generation = native.batch_key(seed, epoch, iteration, 0), 0
    else:
        of_batch = native.batch_key(seed, period, 0, 1)
        phase = mix32(low ^ high * 0x9E3779B1 & _MASK ^ of_batch & _MASK) * period >> 32
        generation = (step + phase) // period
    key = native.batch_key(of_batch, generation, layer, 1)
    return int(native.philox2x32([low, high ^ key >> 32], key & _MASK)[0])


def smallest(draws: list[int], count: int) -> list[int]:
    """The positions of the ``count`` smallest draws, the first of equal ones, in order."""
    return sorted(np.argsort(np.array(draws, np.int64), kind="stable")[:count].tolist())
