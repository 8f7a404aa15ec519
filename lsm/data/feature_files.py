"""The feature files of a store, as loaders and engines need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True)
class FeatureFiles:
    """``num_rows`` rows of ``dim`` values of ``dtype``, row-major, striped over ``paths`` in pages
    of ``stripe_bytes``: page p lies in file ``p % len(paths)``.

    file_sets: rows and files of each of several sets with rows of one size, which are numbered
    through; each set is striped over its files. Empty: all is one set.
    table: [N] int64, the row of each of N nodes; None: node i has row i.
    store: name of the store. digest: of the files' contents; the label of an NVMe namespace with a
    copy holds it.
    """

    paths: tuple[Path, ...]
    num_rows: int
    dim: int
    dtype: torch.dtype
    stripe_bytes: int = 4096
    store: str = ""
    digest: str = ""
    file_sets: tuple[tuple[int, int], ...] = ()
    table: torch.Tensor | None = field(default=None, compare=False, repr=False)

    @classmethod
    def join(cls, sets: Sequence[FeatureFiles]) -> FeatureFiles:
        """The rows of all ``sets``, which have one size, one after another. Rows of several formats
        are bytes."""
        first = sets[0]
        if len(sets) == 1:
            return first
        same = all((each.dim, each.dtype) == (first.dim, first.dtype) for each in sets)
        return cls(
            tuple(path for each in sets for path in each.paths),
            sum(each.num_rows for each in sets),
            first.dim if same else first.row_bytes,
            first.dtype if same else torch.uint8,
            first.stripe_bytes,
            file_sets=tuple((each.num_rows, len(each.paths)) for each in sets),
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * self.dtype.itemsize

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows, those of no node too."""
        return self.num_rows * self.row_bytes

    @property
    def folder(self) -> Path:
        """The directory of the files, which is that of the store."""
        return self.paths[0].parent
