"""GraphStore reads a store that was written by hand; the writer leaves it whole or absent."""

import errno
import fcntl
import hashlib
import json
import os
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.cache.scores import compute_score, stored_score
from lsm.data import graph_store
from lsm.data import sink as sink_module
from lsm.data.format import FeatureMeta, StoreMeta, feature_file_bytes
from lsm.data.graph_store import GraphStore
from lsm.data.sink import FileSink
from lsm.data.stripes import StripedReader, StripedWriter
from lsm.data.verify import verify_store
from lsm.data.writer import StoreWriter
from lsm.storage.disk_profile import PROFILE, save_profile
from support.disk_profile import make_profile


@pytest.fixture
def store_path(tmp_path):
    """Four nodes, edges 1->0, 2->0, 0->3, rows of 3 float32, written without the package."""
    path = tmp_path / "store"
    (path / "topology").mkdir(parents=True)
    (path / "split").mkdir()
    np.save(path / "topology/indptr.npy", np.array([0, 2, 2, 2, 3]))
    np.save(path / "topology/indices.npy", np.array([1, 2, 0], np.int32))
    np.save(path / "labels.npy", np.array([1, 0, -1, 1]))
    np.save(path / "split/train.npy", np.array([0, 3]))
    np.save(path / "split/valid.npy", np.array([1]))
    np.save(path / "split/test.npy", np.array([], np.int64))
    rows = np.arange(12, dtype=np.float32)
    (path / "features.bin").write_bytes(rows.tobytes() + bytes(4096 - rows.nbytes))
    files = {}
    for file in path.rglob("*.*"):
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        files[str(file.relative_to(path))] = {"bytes": len(content), "sha256": digest}
    features = {
        "dim": 3,
        "dtype": "float32",
        "row_bytes": 12,
        "files": ["features.bin"],
        "stripe_bytes": 4096,
    }
    meta = {"schema_version": 1, "name": "hand", "num_nodes": 4, "num_edges": 3, "num_classes": 2}
    meta |= {"features": features, "files": files, "source": "by hand"}
    (path / "meta.json").write_text(json.dumps(meta))
    return path


def edit_meta(path, **changes):
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | changes))


@pytest.mark.parametrize("in_memory", [False, True])
def test_open_reads_what_is_there(store_path, in_memory):
    store = GraphStore.open(store_path)
    assert (store.name, store.num_nodes, store.num_edges, store.num_classes) == ("hand", 4, 3, 2)
    assert (store.feature_dim, store.feature_dtype, store.row_bytes) == (3, torch.float32, 12)
    assert store.feature_paths == [store_path / "features.bin"]
    topology = store.topology(in_memory)
    assert topology.indptr.tolist() == [0, 2, 2, 2, 3]
    assert topology.indices.tolist() == [1, 2, 0]
    assert (topology.indptr.dtype, topology.indices.dtype) == (torch.int64, torch.int32)
    assert (topology.num_nodes, topology.num_edges) == (4, 3)
    assert store.labels().tolist() == [1, 0, -1, 1]
    assert [store.split(name).tolist() for name in ("train", "valid", "test")] == [[0, 3], [1], []]


def test_the_mapped_topology_cannot_change_the_file(store_path):
    GraphStore.open(store_path).topology().indices[0] = 3
    assert GraphStore.open(store_path).topology().indices.tolist() == [1, 2, 0]


def test_open_refuses_what_is_no_store(tmp_path):
    (tmp_path / ".gone.old-7").mkdir()
    with pytest.raises(FileNotFoundError, match=r"was interrupted, .* is .*\.gone\.old-7; rename"):
        GraphStore.open(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="no such store directory"):
        GraphStore.open(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"no meta\.json"):
        GraphStore.open(tmp_path)


def test_open_names_the_missing_or_truncated_file(store_path):
    labels = store_path / "labels.npy"
    content = labels.read_bytes()
    labels.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"labels\.npy: truncated: expected 160 bytes, got 159"):
        GraphStore.open(store_path)
    labels.unlink()
    with pytest.raises(FileNotFoundError, match=r"labels\.npy: missing"):
        GraphStore.open(store_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 2}, "expected schema_version 1, got 2"),
        ({"num_nodes": -1}, "num_nodes"),
        ({"colour": "red"}, "colour"),
        ({"num_nodes": 400}, r"features\.bin: expected 8192 bytes"),
        ({"files": {}}, "not listed"),
    ],
)
def test_open_refuses_inconsistent_meta(store_path, changes, message):
    edit_meta(store_path, **changes)
    with pytest.raises(ValueError, match=message):
        GraphStore.open(store_path)


def test_open_refuses_meta_that_is_not_json(store_path):
    (store_path / "meta.json").write_text('{"schema_version": 1,')
    with pytest.raises(ValueError, match="not valid JSON"):
        GraphStore.open(store_path)


def test_a_temporary_directory_never_opens(store_path):
    left = store_path.rename(store_path.with_name(".store.tmp-123"))
    with pytest.raises(ValueError, match="interrupted conversion"):
        GraphStore.open(left)


def test_split_and_score_names_are_checked(store_path):
    store = GraphStore.open(store_path)
    with pytest.raises(ValueError, match="expected one of train, valid, test"):
        store.split("dev")
    with pytest.raises(ValueError, match="lsm data score"):
        store.score("in_degree")


def test_a_score_that_is_gone_can_be_computed_again(store_path, caplog):
    store = GraphStore.open(store_path)
    compute_score(store, "in_degree", num_threads=1)
    expected = GraphStore.open(store_path).score("in_degree")
    shutil.rmtree(store_path / "scores")
    opened = GraphStore.open(store_path)
    assert opened.scores == []
    assert "in_degree.npy: missing; `lsm data score` computes it again" in caplog.text
    (problem,) = verify_store(store_path)
    assert "in_degree.npy: missing; compute it again with `lsm data score`" in problem
    compute_score(opened, "in_degree", num_threads=1)
    assert torch.equal(GraphStore.open(store_path).score("in_degree"), expected)


def test_save_score_is_seen_by_the_next_open(store_path):
    store = GraphStore.open(store_path)
    for values in ([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]):
        store.save_score("in_degree", torch.tensor(values))
        again = GraphStore.open(store_path)
        assert again.score("in_degree").tolist() == values
        assert again.scores == ["in_degree"]
        content = (store_path / "scores/in_degree.npy").read_bytes()
        listed = again.meta.files["scores/in_degree.npy"]
        assert listed.sha256 == hashlib.sha256(content).hexdigest()
    assert [file.name for file in (store_path / "scores").iterdir()] == ["in_degree.npy"]


def test_a_process_that_stores_a_score_is_waited_for_in_bounded_time(
    store_path, monkeypatch, caplog
):
    """As one that was suspended. A training goes on without storing."""
    monkeypatch.setattr(graph_store, "_LOCK_SECS", 0.2)
    store = GraphStore.open(store_path)
    holder = os.open(store_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(
            TimeoutError, match=r"another process has been storing a score for 0\.2"
        ):
            store.save_score("in_degree", torch.zeros(4))
        assert stored_score(store, "in_degree").tolist() == [2.0, 0.0, 0.0, 1.0]
        assert "score in_degree is computed, but not stored" in caplog.text
        assert store.scores == []
    finally:
        os.close(holder)
    store.save_score("in_degree", torch.zeros(4))
    assert store.scores == ["in_degree"]


@pytest.mark.parametrize("score", [torch.zeros(3), torch.zeros(4, dtype=torch.float64)])
def test_save_score_checks_its_input(store_path, score):
    with pytest.raises(ValueError, match=r"expected float32 \[4\]"):
        GraphStore.open(store_path).save_score("in_degree", score)
    with pytest.raises(ValueError, match="score name"):
        GraphStore.open(store_path).save_score("../labels", torch.zeros(4))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_striping_follows_the_page_rule(tmp_path_factory, data):
    num_stripes = data.draw(st.integers(1, 5))
    stripe_bytes = 4096 * data.draw(st.integers(1, 3))
    sizes = data.draw(st.lists(st.integers(0, 60_000), max_size=4))
    content = np.random.default_rng(sum(sizes)).integers(256, size=sum(sizes), dtype=np.uint8)
    directory = tmp_path_factory.mktemp("striped")
    paths = [directory / str(k) for k in range(num_stripes)]
    writer = StripedWriter([FileSink(path) for path in paths], stripe_bytes)
    for begin, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        writer.write(content[begin : begin + size])
    writer.close()

    expected = [bytearray() for _ in paths]
    for page, begin in enumerate(range(0, len(content), stripe_bytes)):
        expected[page % num_stripes] += content[begin : begin + stripe_bytes].tobytes()
    for path, file in zip(paths, expected, strict=True):
        assert path.read_bytes() == bytes(file) + bytes(-len(file) % 4096)
    sizes_on_disk = [path.stat().st_size for path in paths]
    assert feature_file_bytes(len(content), num_stripes, stripe_bytes) == sizes_on_disk

    begin = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(begin, len(content)))
    with StripedReader(paths, stripe_bytes) as reader:
        assert (reader.read(begin, end - begin) == content[begin:end]).all()


@pytest.mark.parametrize("size", [0, 5, 4096, (4 << 20) - 1, 4 << 20, (9 << 20) + 17])
def test_sink_writes_and_hashes_every_byte(tmp_path, size):
    content = np.random.default_rng(size).integers(256, size=size, dtype=np.uint8).tobytes()
    with FileSink(tmp_path / "file") as sink:
        for begin in range(0, size, 3_000_001):
            sink.write(content[begin : begin + 3_000_001])
    assert (tmp_path / "file").read_bytes() == content
    assert sink.num_bytes == size
    assert sink.sha256 == hashlib.sha256(content).hexdigest()


def test_sink_works_where_the_page_cache_cannot_be_avoided(tmp_path, monkeypatch):
    open_file = os.open

    def refuse_direct(path, flags, mode=0o777):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "O_DIRECT is not supported")
        return open_file(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse_direct)
    monkeypatch.setattr(sink_module, "FLUSH_BYTES", 5 << 20)
    content = np.random.default_rng(0).bytes((13 << 20) + 3)
    with FileSink(tmp_path / "file") as sink:
        sink.write(content)
    assert (tmp_path / "file").read_bytes() == content
    assert sink.sha256 == hashlib.sha256(content).hexdigest()


def test_sink_can_learn_its_length_at_the_end(tmp_path):
    values = np.arange(3_000_000, dtype=np.int32)
    with FileSink(tmp_path / "a.npy") as sink:
        sink.write_header(values.dtype, 0)
        sink.write(values)
        sink.replace_header(values.dtype, len(values))
    assert (np.load(tmp_path / "a.npy") == values).all()
    assert sink.sha256 == hashlib.sha256((tmp_path / "a.npy").read_bytes()).hexdigest()


def tiny_meta():
    features = FeatureMeta(dim=1, dtype="uint8", row_bytes=1, files=["features.bin"])
    return StoreMeta(name="tiny", num_nodes=0, num_edges=0, num_classes=0, features=features)


def write_tiny(out, label, **options):
    with StoreWriter(out, **options) as writer:
        writer.write_array("labels.npy", np.array([label]))
        writer.commit(tiny_meta())


def test_writer_keeps_an_existing_store_unless_forced(tmp_path):
    out = tmp_path / "out"
    write_tiny(out, 1)
    told = r"exists; choose another path or pass --force \(in Python force=True\)"
    with pytest.raises(FileExistsError, match=told):
        write_tiny(out, 2)
    assert np.load(out / "labels.npy") == [1]
    write_tiny(out, 3, force=True)
    assert np.load(out / "labels.npy") == [3]
    assert list(tmp_path.iterdir()) == [out]


def write_labels_twice(out):
    with StoreWriter(out, force=True) as writer:
        writer.write_array("labels.npy", np.array([2]))
        writer.write_array("labels.npy", np.array([2]))


def test_a_forced_writer_that_fails_keeps_the_old_store(tmp_path):
    out = tmp_path / "out"
    write_tiny(out, 1)
    with pytest.raises(ValueError, match="written twice"):
        write_labels_twice(out)
    assert np.load(out / "labels.npy") == [1]
    assert list(tmp_path.iterdir()) == [out]


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("precious")
    for out in (tmp_path / "notes.txt" / "store", tmp_path / "notes.txt" / "deep" / "store"):
        with pytest.raises(NotADirectoryError, match=r"store: .*notes\.txt is a file, and no dir"):
            StoreWriter(out, force=True)
    assert (tmp_path / "notes.txt").read_text() == "precious"


def test_force_replaces_nothing_but_stores(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match="not a store"):
        StoreWriter(tmp_path, force=True)


@pytest.mark.parametrize(
    ("meta", "other"),
    [
        ('{"name": "a source of arrays"}', None),
        ("[]", None),
        ("{", None),
        ('{"schema_version": 1, "files": {}}', "photo.jpg"),
    ],
)
def test_force_keeps_a_folder_with_a_meta_json_that_is_no_store(tmp_path, meta, other):
    (tmp_path / "meta.json").write_text(meta)
    if other is not None:
        (tmp_path / other).touch()
    with pytest.raises(FileExistsError, match="is not a store, so it is not replaced"):
        write_tiny(tmp_path, 1, force=True)
    assert (tmp_path / "meta.json").read_text() == meta


def test_force_replaces_a_store_with_a_profile_of_its_disk(tmp_path):
    write_tiny(tmp_path / "g", 1)
    save_profile(make_profile(tmp_path / "g"), tmp_path / "g" / PROFILE)
    write_tiny(tmp_path / "g", 2, force=True)
    assert not (tmp_path / "g" / PROFILE).exists()


def test_writer_wants_room_beforehand(tmp_path):
    with (
        StoreWriter(tmp_path / "out") as writer,
        pytest.raises(OSError, match=r"disk full: .*\(\d+ bytes\) more needed, .*free"),
    ):
        writer.require_bytes(1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_types_has_one_space_of_one_type(store_path):
    store = GraphStore.open(store_path)
    assert store.node_space.counts == {"node": store.meta.num_nodes}
    assert store.num_nodes == store.node_space.num_nodes
    assert store.edge_types == (("node", "to", "node"),)
