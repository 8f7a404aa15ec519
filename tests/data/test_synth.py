"""Synthetic graphs: the promised shape, reproducible, and worth learning from."""

import numpy as np
import pytest
import scipy.sparse
import torch
from typer.testing import CliRunner

from lsm.cli.data import app
from lsm.data import synth
from lsm.data.graph_store import GraphStore
from lsm.data.synth import synthesize
from lsm.data.verify import verify_store
from support.store_files import feature_bytes


def adjacency(store):
    """[N, N] with a one at (destination, source)."""
    topology = store.topology()
    ones = np.ones(store.num_edges, np.float32)
    shape = (store.num_nodes, store.num_nodes)
    return scipy.sparse.csr_matrix((ones, topology.indices.numpy(), topology.indptr.numpy()), shape)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    out = tmp_path_factory.mktemp("synth") / "large"
    return synthesize(out, nodes=200_000, dim=8, classes=10, avg_degree=15.0, homophily=0.6, seed=4)


def test_counts_and_contents(large):
    assert (large.num_nodes, large.feature_dim, large.num_classes) == (200_000, 8, 10)
    # The sample mean of a heavy-tailed law is itself spread: 10% is many of its quartiles.
    assert large.num_edges == pytest.approx(15 * 200_000, rel=0.1)
    assert verify_store(large.path) == []
    shares = [large.split(name).numel() / 200_000 for name in ("train", "valid", "test")]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.01)
    assert np.bincount(large.labels()) == pytest.approx(np.full(10, 20_000), rel=0.05)


def test_sources_ascend_without_self_loops_and_duplicates(large):
    topology = large.topology()
    destinations = np.repeat(np.arange(200_000), np.diff(topology.indptr.numpy()))
    sources = topology.indices.numpy()
    assert (sources != destinations).all()
    assert (np.diff(destinations * 200_000 + sources) > 0).all()


def hill_exponent(degrees, share):
    """Exponent of the density's power law, from the largest ``share`` of ``degrees``."""
    tail = np.sort(degrees)[-int(share * len(degrees)) :].astype(float)
    return 1 + 1 / np.log(tail / tail[0]).mean()


def test_degrees_have_power_law_tails(large):
    matrix = adjacency(large)
    in_degrees = np.asarray(matrix.sum(1)).ravel()
    out_degrees = np.asarray(matrix.sum(0)).ravel()
    # Hill's estimate from 2,000 values: standard deviation 1.5 / sqrt(2000) = 0.034. It is biased
    # a little, by the removal of duplicates among the largest degrees.
    assert hill_exponent(in_degrees, 0.01) == pytest.approx(2.5, abs=0.2)
    # Popularity k**-0.7 makes a density with exponent 1 + 1/0.7.
    assert hill_exponent(out_degrees, 0.01) == pytest.approx(1 + 1 / 0.7, abs=0.25)
    assert in_degrees.max() > 100 * 15


def test_homophily_is_the_share_of_edges_inside_plus_chance(large):
    topology, labels = large.topology(), large.labels().numpy()
    destinations = np.repeat(np.arange(200_000), np.diff(topology.indptr.numpy()))
    inside = (labels[topology.indices.numpy()] == labels[destinations]).mean()
    assert inside == pytest.approx(0.6 + 0.4 / 10, abs=0.02)


def test_popular_nodes_are_anywhere_among_the_ids(large):
    popularity = np.bincount(large.topology().indices.numpy(), minlength=200_000)
    hottest = np.argsort(popularity)[-2000:]
    assert hottest.mean() == pytest.approx(100_000, rel=0.1)


def ridge_accuracy(features, labels, train, test, num_classes):
    """Test accuracy of one-against-all ridge regression."""
    x = np.hstack([features, np.ones((len(features), 1), np.float32)])
    targets = np.eye(num_classes, dtype=np.float32)[labels[train]]
    gram = x[train].T @ x[train] + np.eye(x.shape[1], dtype=np.float32)
    weights = np.linalg.solve(gram, x[train].T @ targets)
    return ((x[test] @ weights).argmax(1) == labels[test]).mean()


def test_labels_can_be_learnt_and_the_neighbourhood_helps(tmp_path):
    store = synthesize(tmp_path / "out", nodes=20_000, dim=64, classes=10, seed=1)
    rows = np.frombuffer(feature_bytes(store.path), np.float32).reshape(-1, 64)
    matrix = adjacency(store)
    mean = scipy.sparse.diags(1 / np.maximum(1, np.asarray(matrix.sum(1)).ravel())) @ matrix
    propagated = (mean @ (mean @ rows)).astype(np.float32)
    labels, train, test = store.labels().numpy(), store.split("train"), store.split("test")
    alone = ridge_accuracy(rows, labels, train, test, 10)
    with_graph = ridge_accuracy(propagated, labels, train, test, 10)
    assert 0.2 < alone < 0.6  # chance is 0.1
    assert with_graph > 0.8


def test_features_are_centroid_plus_unit_noise(tmp_path):
    store = synthesize(
        tmp_path / "out", nodes=20_000, dim=16, classes=4, avg_degree=1, signal=3.0, seed=2
    )
    rows = np.frombuffer(feature_bytes(store.path), np.float32).reshape(-1, 16)
    labels = store.labels().numpy()
    for label in range(4):
        mine = rows[labels == label]
        # 5,000 rows: each mean is known to 0.014, a length over 16 dimensions to about 0.02.
        assert np.linalg.norm(mine.mean(0)) == pytest.approx(3.0, abs=0.1)
        assert mine.std(0) == pytest.approx(np.ones(16), abs=0.06)


def contents(store):
    return {name: file.sha256 for name, file in store.meta.files.items()}


def test_same_seed_same_store_whatever_the_threads(tmp_path, monkeypatch):
    # Small chunks, so that there are many to be made at once.
    monkeypatch.setattr(synth, "_EDGE_CHUNK", 1000)
    monkeypatch.setattr(synth, "_FEATURE_CHUNK_BYTES", 10_000)
    parameters = {"nodes": 5000, "dim": 20, "avg_degree": 6.0, "classes": 4}
    first = contents(synthesize(tmp_path / "a", seed=7, **parameters))
    monkeypatch.setattr(synth, "_THREADS", 5)
    assert contents(synthesize(tmp_path / "b", seed=7, **parameters)) == first
    other = contents(synthesize(tmp_path / "c", seed=8, **parameters))
    assert not set(other.values()) & set(first.values())


def test_dtype_stripes_and_splits(tmp_path):
    parameters = {"nodes": 1000, "dim": 33, "seed": 3}
    plain = synthesize(tmp_path / "plain", **parameters)
    rows = np.frombuffer(feature_bytes(plain.path), np.float32)
    store = synthesize(
        tmp_path / "half",
        dtype="float16",
        stripes=3,
        train_fraction=0.1,
        valid_fraction=0.0,
        test_fraction=0.1,
        **parameters,
    )
    assert store.feature_dtype == torch.float16
    assert feature_bytes(store.path) == rows.astype(np.float16).tobytes()
    assert 50 < store.split("train").numel() < 150
    assert store.split("valid").numel() == 0
    assert store.topology().indices.equal(plain.topology().indices)


def test_dense_and_tiny_graphs(tmp_path):
    dense = synthesize(tmp_path / "a", nodes=100, dim=1, classes=2, avg_degree=50, homophily=1)
    assert dense.num_edges > 0.9 * 100 * 50
    lonely = synthesize(tmp_path / "b", nodes=2, dim=1, classes=2, avg_degree=0)
    assert lonely.num_edges == 0
    for store in (dense, lonely):
        assert verify_store(store.path) == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"nodes": 1}, "nodes"),
        ({"classes": 11}, "classes: expected at most"),
        ({"avg_degree": 10.0}, "avg_degree: expected at most"),
        ({"degree_exponent": 2.0}, "degree_exponent"),
        ({"degree_exponent": float("inf")}, "degree_exponent"),
        ({"signal": float("inf")}, "signal"),
        ({"homophily": 1.5}, "homophily"),
        ({"train_fraction": 0.9}, "fractions"),
        ({"color": 1}, "color"),
        ({"dtype": "int4"}, "dtype"),
    ],
)
def test_bad_parameters_are_named(tmp_path, parameters, message):
    base = {"nodes": 10, "dim": 2, "classes": 2, "avg_degree": 3.0}
    with pytest.raises(ValueError, match=message):
        synthesize(tmp_path / "out", **base | parameters)
    assert not any(tmp_path.iterdir())


def test_command_line(tmp_path):
    out = str(tmp_path / "out")
    command = ["synth", "--out", out, "--nodes", "500", "--dim", "8", "--seed", "5"]
    result = CliRunner().invoke(app, [*command, "--classes", "3", "--avg-degree", "4"])
    assert result.exit_code == 0, result.output
    store = GraphStore.open(out)
    assert (store.num_nodes, store.feature_dim, store.num_classes) == (500, 8, 3)
    assert store.meta.source["seed"] == 5


def test_score_command(tmp_path):
    store = synthesize(tmp_path / "out", nodes=500, dim=2)
    result = CliRunner().invoke(app, ["score", str(store.path), "in_degree"])
    assert result.exit_code == 0, result.output
    degrees = np.diff(store.topology().indptr.numpy())
    assert (GraphStore.open(store.path).score("in_degree").numpy() == degrees).all()
    assert verify_store(store.path) == []
