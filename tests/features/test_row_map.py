"""Nobody but storage takes an id for a row, or the number of rows for that of nodes: every loader
delivers the right rows of files whose rows lie elsewhere, and are fewer than the nodes."""

import numpy as np
import pytest
import torch

from lsm.data.feature_files import FeatureFiles
from lsm.features.open import open_features
from lsm.storage.options import StorageOptions
from lsm.storage.row_map import RowMap
from support.cached_features import (
    DIM,
    NUM_NODES,
    ROW_BYTES,
    batches,
    deliver,
    hot_scores,
    options,
)
from support.gpu_twin import open_twin

NUM_RANKS = 2
ROW_OF = torch.from_numpy(np.random.default_rng(2).permutation(NUM_NODES // 2)).repeat(2)
EVERY_TIER = {
    "victim_mode": "pool",
    "victim_bytes": 60 * ROW_BYTES,
    "constant_bytes": 20 * ROW_BYTES,
    "static_bytes": 10 * ROW_BYTES,
    "score": "hot",
}


@pytest.fixture
def files(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(RowMap, "of", classmethod(other_rows))
    return write_files(rows, tmp_path)


def other_rows(cls, store):
    assert store.num_rows < NUM_NODES
    return cls(NUM_NODES, table=ROW_OF)


def write_files(rows, folder):
    path, held = folder / "features.bin", rows[: NUM_NODES // 2]
    path.write_bytes(held.tobytes() + bytes(-held.nbytes % 4096))
    return FeatureFiles((path,), len(held), DIM, torch.float32)


def open_plain(files, storage):
    return open_features(files, storage=storage)


def open_host(files, storage):
    return open_features(files, options(**EVERY_TIER), storage, scores=hot_scores())


def open_gpu(files, storage):
    return open_twin(files, options(**EVERY_TIER), storage, scores=hot_scores())


@pytest.mark.parametrize("merge_iterations", [1, 3])
@pytest.mark.parametrize("opener", [open_plain, open_host, open_gpu])
def test_rows_of_nodes_come_from_their_places(files, rows, opener, merge_iterations):
    storage = StorageOptions(engine="posix", merge_iterations=merge_iterations)
    with opener(files, storage) as loader:
        for ids, _, delivered in deliver(loader, batches(12)):
            assert torch.equal(delivered, torch.from_numpy(rows)[ROW_OF[ids]])
        with pytest.raises(ValueError, match="ids"):
            loader.fetch(torch.tensor([NUM_NODES]))


def shared_case(context, files, expected):
    """Owners fetch the rows of their nodes for all ranks."""
    own = RowMap.of
    RowMap.of = classmethod(other_rows)
    try:
        group = context.group(2)
        if group is None:
            return
        storage = StorageOptions(engine="posix", timeout_secs=20)
        loader = open_features(files, options(), storage, group, scores=hot_scores())
        with loader:
            for ids, _, delivered in deliver(loader, batches(6, seed=context.rank)):
                assert torch.equal(delivered, expected[ROW_OF[ids]])
    finally:
        RowMap.of = own


def test_owners_read_rows_of_nodes_from_their_places(ranks, rows, tmp_path):
    ranks.check(shared_case, write_files(rows, tmp_path), torch.from_numpy(rows))
