"""The feature files of a store, as loaders and engines need them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class FeatureFiles:
    """``num_rows`` rows of ``dim`` values of ``dtype``, row-major, striped over ``paths`` in pages
    of ``stripe_bytes``: page p lies in file ``p % len(paths)``.

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

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * self.dtype.itemsize

    @property
    def folder(self) -> Path:
        """The directory of the files, which is that of the store."""
        return self.paths[0].parent
