"""Reading a store of triples: parts joined to any number of partitions, damage refused."""

import itertools
import json
import os
import shutil

import numpy as np
import pytest

from lsm.data import TripleStore
from lsm.data.triples.convert import convert_triples

NUM_ENTITIES = 700


@pytest.fixture(scope="module", params=[0, 5], ids=["no relations", "relations"])
def store(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("triples")
    generator = np.random.default_rng(1)
    for split, n in (("train", 20_000), ("valid", 40), ("test", 0)):
        heads = generator.zipf(1.4, n) % NUM_ENTITIES
        columns = [heads, generator.integers(0, NUM_ENTITIES, n)]
        if request.param:
            columns.insert(1, generator.integers(0, request.param, n))
        np.save(root / f"{split}.npy", np.stack(columns, 1))
    (root / "entities.txt").write_text("".join(f"e{i}\n" for i in range(NUM_ENTITIES)))
    return convert_triples(root, root / "store")


def bucket_of_each(edges, starts):
    """(partition of head, partition of tail) of each edge, by looking through the partitions."""
    of = np.empty(starts[-1], int)
    for number, (begin, end) in enumerate(itertools.pairwise(starts)):
        of[begin:end] = number
    return of[edges[:, 0]], of[edges[:, -1]]


def test_parts_have_equal_sizes_and_edges_are_sorted_by_their_pairs(store):
    starts = store.part_starts()
    assert (starts[0], starts[-1], len(starts)) == (0, NUM_ENTITIES, 241)
    assert set(np.diff(starts)) == {2, 3}
    edges = store.edges("train")
    assert not edges.flags.writeable
    assert edges.dtype == np.int32
    heads, tails = bucket_of_each(edges, starts)
    buckets = heads * 240 + tails
    assert (np.diff(buckets) >= 0).all()
    sizes = np.bincount(buckets, minlength=240 * 240)
    np.testing.assert_array_equal(np.diff(store.bucket_starts("train")), sizes)


@pytest.mark.parametrize("partitions", [1, 2, 7, 16, 239, 240])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_buckets_of_partitions_hold_each_edge_once(store, partitions, split):
    starts = store.partition_starts(partitions)
    assert (starts[0], starts[-1], len(starts)) == (0, NUM_ENTITIES, partitions + 1)
    sizes = np.diff(starts)
    assert sizes.min() >= NUM_ENTITIES // 240 * (240 // partitions)
    edges = store.edges(split)
    heads, tails = bucket_of_each(edges, starts)
    buckets = store.buckets(split, partitions)
    assert buckets.partitions == partitions
    counts = np.bincount(heads * partitions + tails, minlength=partitions**2)
    np.testing.assert_array_equal(np.diff(buckets.starts), counts)
    looked_at = [(0, 0), (partitions - 1, 0), (partitions // 2, partitions - 1)]
    if partitions < 20:
        looked_at = list(np.ndindex(partitions, partitions))
    for i, j in looked_at:
        got = buckets.edges(i, j)
        assert got.dtype == edges.dtype
        np.testing.assert_array_equal(got, edges[(heads == i) & (tails == j)])


@pytest.mark.parametrize("partitions", [0, 241, -1])
def test_more_partitions_than_parts_are_refused(store, partitions):
    with pytest.raises(ValueError, match=f"partitions: expected 1 to 240 .* got {partitions}"):
        store.buckets("train", partitions)


def test_the_file_of_buckets_stays_open(copy):
    opened = TripleStore.open(copy)
    expected = opened.buckets("train", 3).edges(1, 2)
    buckets = opened.buckets("train", 3)
    open_files = len(os.listdir("/proc/self/fd"))
    (copy / "edges/train.npy").rename(copy / "edges/elsewhere.npy")
    np.testing.assert_array_equal(buckets.edges(1, 2), expected)
    del buckets
    assert len(os.listdir("/proc/self/fd")) == open_files - 1


def test_buckets_of_a_file_that_was_cut_are_refused(copy):
    buckets = TripleStore.open(copy).buckets("train", 3)
    os.truncate(copy / "edges/train.npy", 1000)
    with pytest.raises(ValueError, match=r"file ends at byte \d+, expected"):
        buckets.edges(2, 2)


def test_a_partition_out_of_range_is_refused(store):
    with pytest.raises(IndexError, match=r"bucket \(0, 3\)"):
        store.buckets("train", 3).edges(0, 3)


def test_fewer_entities_than_parts(tmp_path):
    np.save(tmp_path / "train.npy", np.array([[0, 1], [1, 2], [2, 2]]))
    store = convert_triples(tmp_path, tmp_path / "store")
    assert store.meta.parts == 3
    assert store.buckets("train", 3).starts[-1] == 3
    with pytest.raises(ValueError, match="expected 1 to 3"):
        store.partition_starts(4)


@pytest.fixture
def copy(store, tmp_path):
    shutil.copytree(store.path, tmp_path / "copy")
    return tmp_path / "copy"


def change_meta(store, **values):
    meta = json.loads((store / "meta.json").read_text())
    (store / "meta.json").write_text(json.dumps(meta | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"parts": 241}, "parts"),
        ({"parts": 239}, None),
        ({"num_entities": 200}, "parts: expected at most 200"),
        ({"num_entities": 2**40}, "num_entities"),
        ({"num_entities": 7000}, "entities.tsv: expected at least 21000 bytes"),
        ({"splits": {"train": 3}}, "splits: expected train, valid, test"),
        ({"splits": {"train": 10**9, "valid": 1, "test": 1}}, "train.npy: expected at least"),
        ({"splits": {"train": -1, "valid": 1, "test": 1}}, "splits.train"),
        ({"files": {}}, "entities.tsv is not listed"),
        ({"kind": "pictures"}, "kind"),
        ({"schema_version": 2}, "expected schema_version 1, got 2"),
    ],
)
def test_a_meta_that_cannot_be_is_refused(copy, values, message):
    change_meta(copy, **values)
    if message is None:  # only the buckets tell
        with pytest.raises(ValueError, match=r"train_buckets.npy: expected int64 \[57122\]"):
            TripleStore.open(copy).bucket_starts("train")
        return
    with pytest.raises(ValueError, match=message) as error:
        TripleStore.open(copy)
    assert "\n" not in str(error.value)


def test_damaged_files_are_refused(copy):
    path = copy / "edges/train.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(ValueError, match=r"train\.npy: truncated"):
        TripleStore.open(copy)
    path.write_bytes(data.replace(b"<i4", b"<f4"))
    with pytest.raises(ValueError, match=r"train\.npy: expected int32 .*, got float32"):
        TripleStore.open(copy).edges("train")
    path = copy / "edges/valid_buckets.npy"
    starts = np.load(path)
    for damaged in ([starts[6] + 1], [2**63 - 1, -2]):  # the differences of the last wrap around
        bad = starts.copy()
        bad[5 : 5 + len(damaged)] = damaged
        np.save(path, bad)
        with pytest.raises(ValueError, match=r"valid_buckets\.npy: expected .* growing from 0 to"):
            TripleStore.open(copy).buckets("valid", 2)
    path = copy / "entities.tsv"
    path.write_bytes(path.read_bytes().replace(b"\n3\t", b"\n4\t"))
    with pytest.raises(ValueError, match=r"entities\.tsv: line 4: expected 3, a tab and a name"):
        list(TripleStore.open(copy).entity_names())


@pytest.mark.parametrize("column", [0, 1, -1])
@pytest.mark.parametrize("bad", [-1, 10**9])
def test_ids_out_of_range_name_the_file(copy, column, bad):
    path = copy / "edges/train.npy"
    edges = np.load(path)
    edges[:, column] = bad
    np.save(path, edges)
    opened = TripleStore.open(copy)
    message = rf"train\.npy: expected each \w+ in \[\d+, \d+\), got {bad}; run `lsm data ver"
    with pytest.raises(ValueError, match=message):
        opened.checked_edges("train")
    with pytest.raises(ValueError, match=message):
        opened.buckets("train", 4).edges(2, 1)


def test_edges_of_other_partitions_name_the_file(copy):
    """Rows of other partitions would be trained in their place."""
    path = copy / "edges/train.npy"
    opened, edges = TripleStore.open(copy), np.load(path)
    heads, tails = bucket_of_each(edges, opened.partition_starts(4))
    edges[np.flatnonzero((heads == 1) & (tails == 2))[0], 0] = 0
    np.save(path, edges)
    np.testing.assert_array_equal(opened.checked_edges("train"), edges)
    with pytest.raises(ValueError, match=r"train\.npy: expected each head in \[175, 350\), got 0"):
        opened.buckets("train", 4).edges(1, 2)


def test_another_kind_of_store_is_refused(copy, tmp_path):
    change_meta(copy, kind="graph")
    with pytest.raises(ValueError, match="expected a store of triples, got one of a graph"):
        TripleStore.open(copy)
    with pytest.raises(FileNotFoundError, match="lsm data convert triples"):
        TripleStore.open(tmp_path / "nowhere")
