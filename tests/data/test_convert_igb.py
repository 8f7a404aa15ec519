"""`lsm data convert igb` reads the layout of all five IGB sizes, shrunk, and makes IGB's splits."""

import numpy as np
import pytest
from typer.testing import CliRunner

from lsm.cli.data import app
from lsm.data.convert import igb
from lsm.data.convert.igb import convert_igb
from lsm.data.verify import verify_store
from support.store_files import feature_bytes, in_lists

NUM_NODES = 50


def make_igb(root, size, num_nodes=NUM_NODES, *, headerless):
    """A dataset in IGB's layout: (features, labels of 19 and 2,983 classes, edges)."""
    rng = np.random.default_rng(len(size))
    features = rng.standard_normal((num_nodes, 1024), dtype=np.float32)
    labels = {19: rng.integers(19, size=num_nodes), 2983: rng.integers(2983, size=num_nodes)}
    edges = rng.integers(num_nodes, size=(400, 2))
    paper = root / size / "processed" / "paper"
    paper.mkdir(parents=True)
    cites = root / size / "processed" / "paper__cites__paper"
    cites.mkdir()
    np.save(cites / "edge_index.npy", edges)
    arrays = {
        "node_feat.npy": features,
        "node_label_19.npy": labels[19].astype(np.float32),
        "node_label_2K.npy": labels[2983].astype(np.float32),
    }
    for name, array in arrays.items():
        if headerless:
            array.tofile(paper / name)
        else:
            np.save(paper / name, array)
    return features, labels, edges


@pytest.mark.parametrize("num_classes", [19, 2983])
@pytest.mark.parametrize(
    ("size", "headerless"),
    [("tiny", False), ("small", False), ("medium", False), ("large", True), ("full", True)],
)
def test_all_sizes(tmp_path, size, headerless, num_classes):
    features, labels, edges = make_igb(tmp_path / "igb", size, headerless=headerless)
    store = convert_igb(
        tmp_path / "igb", tmp_path / "out", size=size, num_classes=num_classes, num_nodes=NUM_NODES
    )
    assert (store.name, store.num_classes, store.feature_dim) == (f"igb-{size}", num_classes, 1024)
    assert feature_bytes(store.path) == features.tobytes()
    assert (store.labels().numpy() == labels[num_classes]).all()
    topology = store.topology()
    lists = [part.tolist() for part in np.split(topology.indices, topology.indptr[1:-1])]
    assert lists == in_lists(edges.T, NUM_NODES)
    assert store.split("train").tolist() == list(range(30))
    assert store.split("valid").tolist() == list(range(30, 40))
    assert store.split("test").tolist() == list(range(40, 50))
    assert verify_store(store.path) == []


def test_headers_are_recognised_whatever_the_size(tmp_path):
    for size, headerless in (("tiny", True), ("large", False)):
        features, _, _ = make_igb(tmp_path / "igb", size, headerless=headerless)
        store = convert_igb(tmp_path / "igb", tmp_path / size, size=size, num_nodes=NUM_NODES)
        assert feature_bytes(store.path) == features.tobytes()


def test_splits_cover_the_labelled_nodes_only(tmp_path):
    make_igb(tmp_path / "igb", "full", headerless=True)
    path = tmp_path / "igb/full/processed/paper/node_label_19.npy"
    labels = np.fromfile(path, np.float32)
    labels[[2, 45]] = np.nan
    labels[47] = 1e9  # beyond the labelled nodes the file's content does not matter
    labels.tofile(path)
    store = convert_igb(
        tmp_path / "igb", tmp_path / "out", size="full", num_nodes=NUM_NODES, num_labelled=43
    )
    labelled = [v for v in range(43) if v != 2]
    assert store.split("train").tolist() == labelled[: int(42 * 0.6)]
    assert store.split("valid").tolist() == labelled[25:33]
    assert store.split("test").tolist() == labelled[33:]
    assert (store.labels()[[2, 43, 47]] == -1).all()
    assert verify_store(store.path) == []


def test_counts_are_those_of_the_dataset():
    assert igb._counts("full", 2983, None, None) == (269_346_174, 157_675_969)
    assert igb._counts("full", 19, None, None) == (269_346_174, 227_130_858)
    assert igb._counts("large", 19, None, None) == (100_000_000, 100_000_000)


def test_the_tiny_dataset_may_be_called_experimental(tmp_path):
    make_igb(tmp_path / "igb", "experimental", headerless=False)
    assert convert_igb(tmp_path / "igb", tmp_path / "out", size="tiny", num_nodes=NUM_NODES)


@pytest.mark.parametrize("headerless", [False, True])
def test_a_wrong_number_of_rows_is_named(tmp_path, headerless):
    make_igb(tmp_path / "igb", "small", headerless=headerless)
    with pytest.raises(ValueError, match=r"node_feat\.npy: "):
        convert_igb(tmp_path / "igb", tmp_path / "out", size="small")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "huge"}, "size: expected one of tiny, small"),
        ({"size": "tiny", "num_classes": 20}, "expected 19 or 2983"),
        ({"size": "tiny", "num_nodes": 5, "num_labelled": 6}, "expected 0 to 5"),
    ],
)
def test_bad_options_are_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        convert_igb(tmp_path, tmp_path / "out", **options)
    with pytest.raises(FileNotFoundError, match="IGB layout"):
        convert_igb(tmp_path, tmp_path / "out", size="tiny")


def test_command_line(tmp_path):
    make_igb(tmp_path / "igb", "large", headerless=True)
    command = ["convert", "igb", str(tmp_path / "igb"), "--size", "large", "--num-nodes", "50"]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "igb-large, 50 nodes, 400 edges, dim 1024" in result.output
