"""A graph on which every example runs in seconds: as arrays, and as a store."""

import numpy as np
import pytest

from lsm.data.convert.npy import convert_npy
from lsm.data.synth import synthesize
from support.training import run_forked


@pytest.fixture(scope="session")
def example_arrays(tmp_path_factory):
    """A directory as `lsm data convert npy` takes it, with weights next to the edges."""
    folder = tmp_path_factory.mktemp("arrays")
    store = synthesize(folder / "store", nodes=4000, dim=32, classes=4, avg_degree=8)
    topology, arrays = store.topology(), folder / "my-graph"
    destinations = np.repeat(np.arange(store.num_nodes), np.diff(topology.indptr.numpy()))
    edges = np.stack([topology.indices.numpy(), destinations])
    shuffle = np.random.default_rng(0).permutation(store.num_edges)
    arrays.mkdir()
    np.save(arrays / "edge_index.npy", edges[:, shuffle])
    np.save(arrays / "edge_weight.npy", np.linspace(0.5, 1.5, store.num_edges))
    features = np.fromfile(folder / "store" / "features.bin", np.float32)
    np.save(arrays / "node_feat.npy", features.reshape(store.num_nodes, -1))
    np.save(arrays / "node_label.npy", store.labels().numpy())
    for split, name in (("train", "train_idx"), ("valid", "val_idx"), ("test", "test_idx")):
        np.save(arrays / f"{name}.npy", store.split(split).numpy())
    return arrays


@pytest.fixture(scope="session")
def example_store(example_arrays):
    store = example_arrays.parent / "stores" / "my-graph"
    convert_npy(example_arrays, store)
    return store


@pytest.fixture
def run_python():
    """Runs Python with arguments in a folder, as a fork; its output, or a failure that shows it."""

    def run(*arguments, cwd=None):
        done = run_forked(*arguments, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
