"""The outputs as one Parquet file, with the ids and the names of nodes."""

from __future__ import annotations

import os
from importlib import import_module, util
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lsm.data.node_data import NodeData
from lsm.data.sink import explaining_no_room
from lsm.inference.arrays import REMEDY, ArrayFile
from lsm.inference.outputs import Outputs

FILE = "nodes.parquet"
_MOST_BYTES, _MOST_ROWS = 16 << 20, 1 << 16  # of a row group


def check_installed() -> None:
    """Raises ValueError, with the remedy, without pyarrow."""
    if util.find_spec("pyarrow") is None:
        raise ValueError(
            "--format: parquet needs pyarrow, which is not installed: pip install pyarrow, or take "
            "--format npy"
        )


def parquet_bytes(outputs: Outputs, nodes: NodeData) -> int:
    """Bytes of the file, at most."""
    first, *_ = outputs.arrays.values()
    values = sum(each.num_bytes for each in outputs.arrays.values())
    return values + 8 * first.num_rows + nodes.name_bytes


def write_parquet(folder: Path, outputs: Outputs, nodes: NodeData) -> Path:
    """Writes ``nodes.parquet`` into ``folder``, a row for each node in order of ids: ``id``,
    ``name`` if nodes have names, then the outputs by their names. A value of several numbers is a
    list of fixed size. Some rows are in memory at a time. Returns the path."""
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    arrays = outputs.arrays
    opened = {name: np.load(each.path, mmap_mode="r") for name, each in arrays.items()}
    columns = {"id": pyarrow.int64()} | ({"name": pyarrow.string()} if nodes.has_names else {})
    columns |= {name: _column_type(pyarrow, each) for name, each in arrays.items()}
    schema = pyarrow.schema(list(columns.items()))
    num_rows = next(iter(arrays.values())).num_rows
    ids = None if outputs.selection is None else outputs.selection.tolist()
    names = nodes.names(ids) if nodes.has_names else iter(())
    path = next(iter(arrays.values())).path.with_name(FILE)
    row_bytes = sum(each.row_bytes for each in arrays.values())
    rows = max(1, min(_MOST_ROWS, _MOST_BYTES // row_bytes))
    with explaining_no_room(path, parquet_bytes(outputs, nodes), REMEDY):
        with open(path, "wb") as file:
            with parquet.ParquetWriter(file, schema) as writer:
                for first in range(0, num_rows, rows):
                    last = min(first + rows, num_rows)
                    values: list[Any] = [_ids(outputs.selection, first, last)]
                    if nodes.has_names:
                        values.append(list(islice(names, last - first)))
                    values += [
                        _column(pyarrow, each[first:last], schema.field(name).type)
                        for name, each in opened.items()
                    ]
                    writer.write_table(pyarrow.table(values, schema=schema))
            file.flush()
            os.fsync(file.fileno())
        folder.mkdir(parents=True, exist_ok=True)
        os.replace(path, folder / FILE)
    return folder / FILE


def _column_type(pyarrow: Any, array: ArrayFile) -> Any:
    kind = pyarrow.from_numpy_dtype(np.dtype(str(array.dtype).removeprefix("torch.")))
    return pyarrow.list_(kind, array.shape[0]) if array.shape else kind


def _column(pyarrow: Any, values: np.ndarray, kind: Any) -> Any:
    flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
    if values.ndim == 1:
        return flat
    return pyarrow.FixedSizeListArray.from_arrays(flat, type=kind)


def _ids(selection: torch.Tensor | None, first: int, last: int) -> np.ndarray:
    return np.arange(first, last) if selection is None else selection[first:last].numpy()
