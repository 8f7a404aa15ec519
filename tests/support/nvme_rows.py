"""Rows on emulated NVMe controllers."""

from pathlib import Path

import numpy as np
import torch

from lsm.storage.engine import Storage
from lsm.storage.options import StorageOptions

PAGE = 4096


def random_rows(num_rows: int, row_bytes: int) -> np.ndarray:
    return np.random.default_rng(row_bytes).integers(0, 256, (num_rows, row_bytes), dtype=np.uint8)


def write_stripes(directory: Path, rows: np.ndarray, num_files: int) -> list[Path]:
    """The rows page by page, round robin over the files, whose ends are no multiple of a block."""
    data = rows.tobytes()
    contents = [bytearray() for _ in range(num_files)]
    for page, start in enumerate(range(0, len(data), PAGE)):
        contents[page % num_files] += data[start : start + PAGE]
    paths = [directory / f"features.{k}.bin" for k in range(num_files)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(bytes(content))
    return paths


def open_rows(paths, rows, *, emulation=None, **options) -> Storage:
    return Storage(
        paths,
        num_rows=len(rows),
        row_bytes=rows.shape[1],
        engine="nvme",
        options=StorageOptions(emulation=emulation or {}, **options),
    )


def read(storage: Storage, ids) -> np.ndarray:
    ids = torch.as_tensor(ids, dtype=torch.int64)
    out = torch.full((len(ids), storage.row_bytes), 0xEE, dtype=torch.uint8)
    return storage.submit(ids, out).wait(20).numpy()
