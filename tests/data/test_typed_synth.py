"""Generated graphs with types: the same from the same seed, with a signal in the neighbours."""

import pytest
import torch
from typer.testing import CliRunner

from lsm.cli.data import app
from lsm.data.typed import synth
from lsm.data.typed.synth import synthesize_typed
from lsm.data.verify import verify_store

SHAPE = {"nodes": 3000, "dim": 16, "classes": 4, "avg_degree": 6.0}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return synthesize_typed(tmp_path_factory.mktemp("synth") / "store", 3, **SHAPE)


def test_counts_and_types(store):
    assert store.node_space.counts == {"target": 3000, "type1": 1500, "type2": 750}
    widths = [store.nodes(name).features for name in store.node_types]
    assert [None if each is None else each.dim for each in widths] == [16, 8, None]
    assert len(store.edge_types) == 5
    for edge_type in store.edge_types:
        edges = store.edges(edge_type)
        # A Poisson mean of n draws; five standard deviations.
        mean = edges.num_edges / edges.num_destinations
        assert mean == pytest.approx(6, abs=5 * (6 / edges.num_destinations) ** 0.5)
    assert verify_store(store.path) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_the_files_depend_on_the_seed_only(store, tmp_path, seed):
    again = synthesize_typed(tmp_path / "again", 3, **SHAPE, seed=seed)
    assert (again.meta.files == store.meta.files) == (seed == 0)


def test_the_neighbours_tell_the_class(store):
    """The mean over a neighbourhood tells the class better than the row of the node itself."""
    data = store.to_pyg()
    target, other = data["target"], data["type1"]
    source, destination = data["type1", "of_type1", "target"].edge_index
    means = torch.zeros(3000, 8).index_add_(0, destination, other.x[source])

    def accuracy(rows):
        centroids = torch.stack(
            [rows[target.train_mask & (target.y == k)].mean(0) for k in range(4)]
        )
        found = torch.cdist(rows, centroids).argmin(1) == target.y
        return float(found[target.test_mask].float().mean())

    assert accuracy(means) > accuracy(target.x) + 0.05
    assert accuracy(target.x) > 0.3


def test_the_command(tmp_path):
    command = ["synth", "--types", "2", "--nodes", "50", "--dim", "4", "--out", str(tmp_path / "s")]
    assert "75 nodes" in CliRunner().invoke(app, command).output


@pytest.mark.parametrize("types", [1, 65])
def test_the_number_of_types_is_checked(tmp_path, types):
    with pytest.raises(ValueError, match=f"types: expected 2 to {synth.MOST_TYPES}, got {types}"):
        synthesize_typed(tmp_path / "store", types, **SHAPE)
