"""``lsm data verify`` of triples: each kind of damage is found, named and the only problem."""

import numpy as np
import pytest

from lsm.data.triples.convert import convert_triples
from lsm.data.verify import verify_store
from support.store_files import list_again


@pytest.fixture
def store(tmp_path):
    generator = np.random.default_rng(0)
    rows = generator.integers(0, [500, 4, 500], (3000, 3))
    (tmp_path / "graph.tsv").write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in rows))
    path = convert_triples(tmp_path / "graph.tsv", tmp_path / "store").path
    assert verify_store(path) == []
    return path


def replace(store, name, content):
    """Writes ``content`` as if a writer had meant it: size and checksum are right."""
    if isinstance(content, np.ndarray):
        np.save(store / name, content)
    else:
        (store / name).write_bytes(content)
    list_again(store, name)


def only_problem(store):
    problems = verify_store(store)
    assert len(problems) == 1, problems
    return problems[0]


def test_a_changed_byte(store):
    path = store / "entities.tsv"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\te1\n", b"\te_\n"))
    assert f"{path}: wrong checksum" in only_problem(store)


def test_a_missing_file(store):
    (store / "edges/test_buckets.npy").unlink()
    problems = verify_store(store)
    assert any("test_buckets.npy: missing" in problem for problem in problems)


@pytest.mark.parametrize(("place", "value"), [((5, 0), 500), ((5, 2), -1), ((2699, 1), 4)])
def test_ids_out_of_range(store, place, value):
    edges = np.load(store / "edges/train.npy")
    place = (min(place[0], len(edges) - 1), place[1])
    edges[place] = value
    replace(store, "edges/train.npy", edges)
    assert f"train.npy: ids out of range: edges {place[0]} (1 in all)" in only_problem(store)


def test_edges_out_of_order(store):
    edges = np.load(store / "edges/train.npy")
    replace(store, "edges/train.npy", edges[np.r_[0:7, 8, 7, 9 : len(edges)]])
    assert "train.npy: edge 8 is out of order" in only_problem(store)


def test_an_edge_twice(store):
    edges = np.load(store / "edges/train.npy")
    edges[7] = edges[8]
    replace(store, "edges/train.npy", edges)
    assert "train.npy: an edge is there twice" in only_problem(store)


def test_edges_in_other_buckets(store):
    starts = np.load(store / "edges/valid_buckets.npy")
    place = int(np.flatnonzero(np.diff(starts))[3])
    starts[place + 1] = starts[place]
    replace(store, "edges/valid_buckets.npy", starts)
    assert "valid.npy: edges are not in the buckets that are listed" in only_problem(store)


def test_buckets_that_fall(store):
    starts = np.load(store / "edges/valid_buckets.npy")
    starts[100] += 10_000
    replace(store, "edges/valid_buckets.npy", starts)
    assert "valid_buckets.npy: expected int64" in only_problem(store)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data + b"500\tx\n", "entities.tsv: expected 500 names, got 501"),
        (lambda data: data.replace(b"\n8\t", b"\n9\t"), "entities.tsv: line 9: expected 8, a tab"),
        (lambda data: data.replace(b"\te7\n", b"\t\\x\n"), "a name in UTF-8, got b'"),
        (lambda data: data.replace(b"\te7\n", b"\t\\\n"), "a name in UTF-8, got b'"),
        (lambda data: data.replace(b"\te7\n", b"\t\xff\n"), "a name in UTF-8, got b'"),
    ],
)
def test_names(store, change, message):
    changed = change((store / "entities.tsv").read_bytes())
    replace(store, "entities.tsv", changed)
    assert message in only_problem(store)


def test_another_type_of_edges(store):
    edges = np.load(store / "edges/train.npy")
    replace(store, "edges/train.npy", edges.astype(np.int64))
    assert "train.npy: expected int32" in only_problem(store)
