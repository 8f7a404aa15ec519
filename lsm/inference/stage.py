"""A stage of an inference: the rows of one layer and node type, from those before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lsm.core.units import format_bytes
from lsm.inference.arrays import ArrayFile
from lsm.storage.engine import Storage

Finish = Callable[[int, int, int], None]
"""Takes the first and the end of units whose rows are written, and the number of bad rows."""


@dataclass(frozen=True)
class Resources:
    """The threads and the memory of a stage.

    pool: threads that compute. num_threads: their number. free_bytes: memory to use.
    """

    pool: ThreadPoolExecutor
    num_threads: int
    free_bytes: int


class TooLittleMemoryError(ValueError):
    """The memory of a rank is too small for a stage.

    part: the part of the stage, in words. missing: bytes that it needs besides those that it was
    given. remedy: another one than more memory.
    """

    def __init__(self, part: str, missing: int, remedy: str = "use fewer threads") -> None:
        super().__init__(f"{part}: {format_bytes(missing)} of memory are missing")
        self.part, self.missing, self.remedy = part, missing, remedy


class Stage(ABC):
    """Some rows of all nodes of a type, made by units of fixed size. Its constructor and run()
    raise TooLittleMemoryError.

    name: for messages and bars. num_units: number of units. enough_bytes: memory next to the
    process itself with which they do not.
    """

    name: str
    num_units: int
    enough_bytes: int

    @abstractmethod
    def run(self, units: np.ndarray, finish: Finish) -> int:
        """Makes the rows of ``units`` [n] int64, ascending. Returns the bytes read from storage.
        Raises OSError, ValueError."""


@dataclass(frozen=True)
class Sink:
    """The places of the rows that a stage makes."""

    rows: ArrayFile | None = None
    """All rows, for the next stages."""
    writers: Sequence[Callable[[Tensor, Tensor], int]] = ()
    """Outputs: each takes ids and rows, and returns its number of bad rows."""

    def write(self, ids: Tensor, rows: Tensor) -> int:
        """Writes ``rows`` [n, width] of nodes ``ids`` [n], ascending. Returns the number of bad
        rows of the outputs."""
        if self.rows is not None:
            self.rows.write_at(ids, rows)
        return max((write(ids, rows) for write in self.writers), default=0)


def bytes_read(storages: Iterable[Storage]) -> int:
    """Bytes that ``storages`` have read."""
    return sum(int(each.stats()["bytes_read"]) for each in storages)


def sum_over(resources: Resources, work: Callable[[int], int], units: range) -> int:
    """The sum of ``work(unit)`` over ``units``, which the threads take in order. Raises the first
    error of a thread, once all have ended."""
    left = iter(units)

    def run() -> int:
        try:
            return sum(map(work, left))
        except BaseException:
            for _ in left:  # the other threads end
                pass
            raise

    futures = [resources.pool.submit(run) for _ in range(resources.num_threads)]
    return sum([each.result() for each in futures])


@contextmanager
def workers(num_threads: int) -> Iterator[ThreadPoolExecutor]:
    """A context with threads that compute a block each. torch uses one thread in each, so that its
    sums do not depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(num_threads, thread_name_prefix="lsm-infer") as pool:
            yield pool
    finally:
        torch.set_num_threads(before)
