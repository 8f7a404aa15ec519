"""Synthetic triples: the promised numbers, popularity and structure, whatever the memory."""

import numpy as np
import pytest
from typer.testing import CliRunner

from lsm.cli.data import app
from lsm.data.triples.synth import synthesize_triples
from lsm.data.verify import verify_store


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    out = tmp_path_factory.mktemp("synth") / "large"
    return synthesize_triples(out, nodes=50_000, relations=6, avg_degree=20.0, homophily=0.6)


def provisional(store):
    """All triples by the numbers that name the entities: the small ones are popular."""
    numbers = np.array(list(map(int, store.entity_names())))
    edges = np.concatenate([store.edges(split) for split in ("train", "valid", "test")])
    return numbers[edges[:, 0]], edges[:, 1], numbers[edges[:, -1]]


def test_counts(large):
    assert verify_store(large.path) == []
    assert (large.num_entities, large.num_relations) == (50_000, 6)
    sizes, counts = large.num_edges, large.meta.counts
    assert sum(sizes.values()) + counts.duplicates == counts.triples == 1_000_000
    assert counts.duplicates < 100_000
    total = sum(sizes.values())
    assert sizes["valid"] / total == pytest.approx(0.05, abs=0.001)
    assert sizes["test"] / total == pytest.approx(0.05, abs=0.001)
    assert counts.self_loops == counts.leaked == 0


def test_popularity_is_a_power_law(large):
    """Draws of the k-th are in proportion to k**-0.7: the slope on logarithmic scales."""
    heads, _, _ = provisional(large)
    drawn = np.bincount(heads, minlength=50_000)
    ranks = np.array([30, 100, 300, 1000, 3000, 10_000])
    means = [drawn[rank - rank // 4 : rank + rank // 4].mean() for rank in ranks]
    slope = np.polyfit(np.log(ranks), np.log(means), 1)[0]
    assert slope == pytest.approx(-0.7, abs=0.05)  # duplicates flatten it a little


def test_relations_map_clusters(large):
    heads, relations, tails = provisional(large)
    at_home = ((heads + relations - tails) % 16 == 0).mean()
    # Of the others, one in 16 is there by chance; duplicates are mostly at home.
    assert at_home == pytest.approx(0.6 + 0.4 / 16, abs=0.02)


def test_the_store_depends_on_the_seed_only(tmp_path):
    options = {"nodes": 3000, "relations": 3, "avg_degree": 5.0}
    files = [
        synthesize_triples(tmp_path / f"{i}", **options, seed=seed, memory_bytes=memory).meta.files
        for i, (seed, memory) in enumerate([(1, 1 << 28), (1, 1 << 14), (2, 1 << 28)])
    ]
    assert files[0] == files[1] != files[2]


def test_no_relations(tmp_path):
    store = synthesize_triples(tmp_path / "store", nodes=2, avg_degree=1.0, classes=1)
    assert (store.num_relations, store.meta.columns, store.meta.parts) == (0, 2, 2)
    assert verify_store(store.path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 1}, "nodes: expected at least 2, got 1"),
        ({"nodes": 5}, "classes: expected at most nodes = 5, got 16"),
        ({"nodes": 50, "dim": 4}, "dim: triples have no such thing"),
        ({"nodes": 50, "avg_degree": 0.0}, "avg_degree: expected more than 0"),
        ({"nodes": 50, "valid_fraction": 0.5, "test_fraction": 0.5}, "expected a sum below 1"),
    ],
)
def test_parameters_out_of_range(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        synthesize_triples(tmp_path / "store", **options)
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path):
    command = ["synth", "--out", str(tmp_path / "store"), "--nodes", "1000"]
    done = CliRunner().invoke(app, [*command, "--kind", "triples", "--relations", "3"])
    assert done.exit_code == 0, done.output
    assert "synth, 1,000 entities, 3 relations, train " in done.output
    for arguments, message in {
        ("--kind", "pictures"): "expected graph or triples",
        ("--kind", "graph"): "a graph needs it",
        ("--dim", "4", "--relations", "3"): "only triples have relations",
    }.items():
        refused = CliRunner().invoke(app, [*command, *arguments])
        assert refused.exit_code == 2
        assert message in " ".join(refused.output.split())
    mixed = CliRunner().invoke(app, [*command, "--kind", "triples", "--dim", "4"])
    assert "dim: triples have no such thing" in str(mixed.exception)
