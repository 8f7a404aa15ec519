"""Random rows, and the file that holds them."""

import numpy as np
import pytest
import torch

from lsm.data.feature_files import FeatureFiles
from support.cached_features import DIM, NUM_NODES


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).standard_normal((NUM_NODES, DIM), dtype=np.float32)


@pytest.fixture(scope="module")
def row_store(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("features") / "features.bin"
    path.write_bytes(rows.tobytes() + bytes(-rows.nbytes % 4096))
    return FeatureFiles((path,), NUM_NODES, DIM, torch.float32)
