"""Rows of nodes, against a dict from each node to its row."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsm import native
from lsm.data.feature_files import FeatureFiles
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions
from lsm.storage.read_scheduler import ReadScheduler
from lsm.storage.row_map import RowMap
from support.nvme_rows import write_stripes

ROWS = np.random.default_rng(0).integers(0, 256, (40, 24), dtype=np.uint8)


@given(
    first=st.integers(0, 2**40),
    table=st.none() | st.lists(st.integers(0, 2**40), min_size=1, max_size=20),
    num_nodes=st.integers(1, 20),
    data=st.data(),
)
def test_rows_are_those_of_a_dict(first, table, num_nodes, data):
    rows = list(range(num_nodes)) if table is None else table
    row_of = {first + i: row for i, row in enumerate(rows)}
    given_table = None if table is None else torch.tensor(table)
    row_map = RowMap(len(rows), first, given_table)
    ids = data.draw(st.lists(st.sampled_from(list(row_of))))
    found = row_map.rows(torch.tensor(ids, dtype=torch.int64))
    assert found.tolist() == [row_of[node] for node in ids]


def test_ids_that_are_rows_are_not_copied():
    ids = torch.tensor([4, 0, 4])
    assert RowMap(5).rows(ids) is ids


@pytest.mark.parametrize("row_map", [RowMap(3, 10), RowMap(3, 10, torch.tensor([2, 1, 0]))])
@pytest.mark.parametrize("node", [9, 13, -1])
def test_a_node_without_a_row_is_refused(row_map, node):
    with pytest.raises(ValueError, match=rf"in \[10, 13\), got {node} at position 1"):
        row_map.rows(torch.tensor([10, node]))


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "features.bin"
    path.write_bytes(ROWS.tobytes() + bytes(-ROWS.nbytes % 4096))
    return FeatureFiles((path,), len(ROWS), ROWS.shape[1], torch.uint8)


@pytest.mark.parametrize("engine", ["memory", "mmap", "posix"])
def test_an_engine_reads_the_rows_of_nodes(files, engine):
    """Alone, and collected by the read scheduler."""
    table = torch.from_numpy(np.random.default_rng(1).integers(0, len(ROWS), 90))
    ids = torch.tensor([1000, 1089, 1003, 1000])
    expected = torch.from_numpy(ROWS)[table[ids - 1000]]
    row_map = RowMap(90, 1000, table)
    with open_storage(files, StorageOptions(engine=engine), row_map) as storage:
        out = torch.empty_like(expected)
        assert torch.equal(storage.submit(ids, out).wait(), expected)
        with pytest.raises(ValueError, match=r"ids in \[1000, 1090\), got 7 at position 0"):
            storage.submit(torch.tensor([7]), out[:1])
        out, reads = torch.empty_like(expected), ReadScheduler([storage], 2)
        assert torch.equal(reads.submit(storage, ids, out).wait(), expected)


@pytest.mark.parametrize("engine", ["memory", "mmap", "posix", "io_uring"])
def test_rows_of_several_file_sets_are_numbered_through(tmp_path, engine):
    """Sets of one file, without rows, and striped, whose files end within a page."""
    if engine == "io_uring" and native.io_uring_problem():
        pytest.skip(native.io_uring_problem())
    tables, sets = [], []
    rng = np.random.default_rng(2)
    for number, (num_rows, num_files) in enumerate([(70, 1), (0, 1), (500, 3), (1, 2), (90, 1)]):
        tables.append(rng.integers(0, 256, (num_rows, 52), dtype=np.uint8))
        folder = tmp_path / str(number)
        folder.mkdir()
        paths = tuple(write_stripes(folder, tables[-1], num_files))
        dim, dtype = (13, torch.float32) if number else (52, torch.uint8)
        sets.append(FeatureFiles(paths, num_rows, dim, dtype))
    joined, expected = FeatureFiles.join(sets), torch.from_numpy(np.concatenate(tables))
    assert (joined.num_rows, joined.dim, joined.dtype) == (661, 52, torch.uint8)
    ids = torch.from_numpy(rng.permutation(661))
    with open_storage(joined, StorageOptions(engine=engine)) as storage:
        out = torch.empty_like(expected)
        assert torch.equal(storage.submit(ids, out).wait(), expected[ids])
    paths[0].write_bytes(b"")
    with pytest.raises(OSError, match=f"truncated: expected at least {90 * 52} bytes") as error:
        open_storage(joined, StorageOptions(engine=engine))
    assert error.value.filename == str(paths[0])
