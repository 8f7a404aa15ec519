"""Stores whose files hold nonsense are refused by name, before memory is taken for them."""

import contextlib
import json
import random
import resource

import numpy as np
import pytest
from typer.testing import CliRunner

from lsm.cli.data import app
from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.npy import convert_npy
from lsm.data.graph_store import GraphStore
from lsm.data.verify import verify_store
from support.store_files import list_again, random_graph, save_npy


@pytest.fixture
def store(tmp_path):
    return convert_npy(save_npy(tmp_path / "graph", random_graph()), tmp_path / "out").path


def replace(store, name, content):
    """Puts ``content`` in place of the file ``name``, with the right checksum in meta.json."""
    (store / name).write_bytes(content)
    list_again(store, name)


def npy(text: str) -> bytes:
    header = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("bad", [300, -1, 2**62])
def test_a_split_with_an_id_that_is_no_node(store, split, bad):
    name = f"split/{split}.npy"
    ids = np.load(store / name)
    ids[7] = bad
    np.save(store / name, ids)
    replace(store, name, (store / name).read_bytes())
    opened = GraphStore.open(store)
    message = rf"{name}: position 7: node {bad} does not exist: expected an id in \[0, 300\)"
    with pytest.raises(ValueError, match=message):
        opened.split(split)
    assert f"{name}: node ids out of range [0, 300): 1" in "".join(verify_store(store))
    for command in (["info", str(store)], ["score", str(store), "reverse_pagerank"]):
        result = CliRunner().invoke(app, command)
        if command[0] == "info" or split == "train":
            assert isinstance(result.exception, ValueError), command
            assert name in str(result.exception)


HEADER = "{'descr': '<i8', 'fortran_order': False, 'shape': %s, }"


@pytest.mark.parametrize(
    "content",
    [
        npy(HEADER % "(-300,)"),
        npy(HEADER % ("(" * 4000 + "1" + ")" * 4000)),
        npy(HEADER % ("(1" + "0" * 20 + ",)")),
        npy(HEADER % "('a',)"),
        npy(HEADER.replace("<i8", "<08") % "(300,)"),
        npy("{[]: 1}"),
        b"\x93NUMPY\x09\x09" + npy(HEADER % "(300,)")[8:] + bytes(2400),
        b"\x93NUMPY",
        b"",
    ],
)
def test_an_array_with_a_header_of_nonsense(store, content):
    for name in ("labels.npy", "topology/indptr.npy"):
        replace(store, name, content.ljust(3000, b"\0"))
    opened = GraphStore.open(store)
    with pytest.raises(ValueError, match=r"labels\.npy"):
        opened.labels()
    with pytest.raises(ValueError, match=r"indptr\.npy"):
        opened.topology()
    problems = verify_store(store)
    assert any("labels.npy" in problem for problem in problems), problems
    (store / "labels.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"labels\.npy"):
        ArrayFile(store / "labels.npy")


def test_headers_changed_at_random_are_read_or_refused(store):
    path = store / "labels.npy"
    whole = path.read_bytes()
    generator = random.Random(0)
    refused = 0
    for _ in range(1000):
        content = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            content[generator.randrange(6, 128)] = generator.choice(b"()[]{}'\",-+ 019<>ifbOL\0#")
        path.write_bytes(content)
        with contextlib.suppress(ValueError):
            GraphStore.open(store).labels()
            continue
        refused += 1
    assert 0 < refused < 1000


def meta_with(store, **changes):
    return json.dumps(json.loads((store / "meta.json").read_text()) | changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: "[" * 100_000, "nested too deeply"),
        (
            lambda s: meta_with(s, source="X").replace('"X"', "[" * 99_999 + "]" * 99_999),
            "nested too deeply",
        ),
        (lambda s: '{"schema_version": 1' + "0" * 5000 + "}", "not valid JSON"),
        (lambda s: meta_with(s) + " " * (16 << 20), "expected at most 16 MiB"),
        (lambda s: meta_with(s, num_classes=2**60), r"num_classes: expected at most 1048576"),
        (lambda s: meta_with(s, num_classes=2**20 + 1), r"num_classes: expected at most 1048576"),
        (lambda s: meta_with(s, num_nodes=2**70), f"for {2**70} rows"),
        (lambda s: meta_with(s, num_edges=2**70), f"{2**70} edges"),
        (lambda s: meta_with(s).replace('"labels.npy"', '"la\\u0000bels.npy"'), "files"),
    ],
)
def test_meta_json_of_nonsense(store, change, message):
    (store / "meta.json").write_text(change(store))
    with pytest.raises(ValueError, match=message) as raised:
        GraphStore.open(store)
    assert "meta.json" in str(raised.value)
    (problem,) = verify_store(store)
    assert problem == str(raised.value)


def test_as_many_classes_as_a_model_can_have(store):
    (store / "meta.json").write_text(meta_with(store, num_classes=2**20))
    assert GraphStore.open(store).num_classes == 2**20
    assert verify_store(store) == []


def test_labels_that_are_no_classes_are_refused_in_conversion(tmp_path):
    arrays = random_graph()
    arrays["node_label"][4] = 1_500_000_000
    source = save_npy(tmp_path / "graph", arrays)
    with pytest.raises(ValueError, match=r"node_label\.npy: node 4: .*1500000000"):
        convert_npy(source, tmp_path / "out")
    with pytest.raises(ValueError, match=r"num_classes: expected at most 1048576"):
        convert_npy(source, tmp_path / "out", num_classes=2**31)
    assert list(tmp_path.iterdir()) == [source]


def test_what_meta_json_lists_is_a_file(store):
    labels = store / "labels.npy"
    labels.unlink()
    labels.mkdir()
    with pytest.raises(ValueError, match=r"labels\.npy: not a file"):
        GraphStore.open(store)
    assert any("labels.npy: not a file" in problem for problem in verify_store(store))


def test_verify_takes_little_memory_for_what_meta_json_says(store):
    """Counts that no file of the store can hold are not allocated for."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    meta = json.loads((store / "meta.json").read_text())
    nodes = 2**34
    row_bytes = meta["features"]["row_bytes"]
    meta["num_nodes"] = nodes
    size = -(-nodes * row_bytes // 4096) * 4096
    meta["files"]["features.bin"]["bytes"] = size
    (store / "meta.json").write_text(json.dumps(meta))
    with open(store / "features.bin", "r+b") as file:
        file.truncate(size)  # a hole
    with pytest.raises(ValueError, match=r"labels\.npy: expected at least"):
        GraphStore.open(store)
    (problem,) = verify_store(store)
    assert "labels.npy" in problem
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
