"""Exported embeddings: each format read back, names kept, nothing half-written, bounded memory."""

import json
import os
import struct
import subprocess

import numpy as np
import pytest

from lsm.data.triples.convert import convert_triples
from lsm.embed import open_run, run_state
from lsm.embed.use.export import export
from support.command import lsm
from support.embed_runs import make_run
from support.store_files import PEAK_MIB, python_command

NAMES = ["plain", "with blank", "tab\there", "back\\slash", "ünïcode", "two\nlines", *"abcdef"]
RELATIONS = ["r 1", "r2"]
STARTS = [0, 5, 6, 12]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(run directory, rows, relations): three partitions, names of all kinds."""
    root = tmp_path_factory.mktemp("run")
    with open(root / "train.csv", "w", newline="") as file:
        quoted = [f'"{name}"' for name in NAMES]
        file.writelines(f"{name},r 1,plain\n{name},r2,a\n" for name in quoted)
    convert_triples(root, root / "store")
    generator = np.random.default_rng(0)
    rows = (generator.standard_normal((12, 8)) * 10.0 ** generator.integers(-9, 9, (12, 8))).astype(
        np.float32
    )
    relations = generator.standard_normal((4, 8)).astype(np.float32)  # two, and two reciprocal
    return make_run(root / "run", root / "store", STARTS, rows, relations), rows, relations


def names_by_id(run):
    return list(open_run(run).store.entity_names())


def unescaped(text):
    for escape, raw in (("\\t", "\t"), ("\\n", "\n"), ("\\\\", "\\")):
        text = text.replace(escape, raw)
    return text


def names_of(path):
    lines = path.read_text().removesuffix("\n").split("\n")
    pairs = [line.split("\t") for line in lines]
    assert [int(number) for number, _ in pairs] == list(range(len(pairs)))
    return [unescaped(name) for _, name in pairs]


def test_npy(run, tmp_path):
    path, rows, relations = run
    files = export(open_run(path), tmp_path / "out", "npy")
    assert sorted(file.name for file in files) == sorted(
        f.name for f in (tmp_path / "out").iterdir()
    )
    for name, expected in {
        "entities": rows,
        "relations": relations[:2],
        "reciprocal_relations": relations[2:],
    }.items():
        found = np.load(tmp_path / f"out/{name}.npy")
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
    assert names_of(tmp_path / "out/entities.tsv") == names_by_id(path)
    assert sorted(names_by_id(path)) == sorted(NAMES)
    assert names_of(tmp_path / "out/relations.tsv") == RELATIONS


def test_safetensors(run, tmp_path):
    """By the description of the format: length, JSON, data."""
    path, rows, relations = run
    export(open_run(path), tmp_path / "out", "safetensors")
    data = (tmp_path / "out/embeddings.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    header, data = json.loads(data[8 : 8 + length]), data[8 + length :]
    expected = {"entities": rows, "relations": relations[:2], "reciprocal_relations": relations[2:]}
    assert set(header) == set(expected)
    last = 0
    for name, about in header.items():
        begin, end = about["data_offsets"]
        assert (about["dtype"], begin) == ("F32", last)
        found = np.frombuffer(data[begin:end], "<f4").reshape(about["shape"])
        np.testing.assert_array_equal(found, expected[name])
        last = end
    assert last == len(data)
    assert names_of(tmp_path / "out/entities.tsv") == names_by_id(path)


@pytest.mark.parametrize("ids", [False, True])
def test_tsv(run, tmp_path, ids):
    path, rows, relations = run
    export(open_run(path), tmp_path / "out", "tsv", ids=ids)
    for name, expected, names in (
        ("entities", rows, names_by_id(path)),
        ("relations", relations[:2], RELATIONS),
        ("reciprocal_relations", relations[2:], RELATIONS),
    ):
        lines = (tmp_path / f"out/{name}.tsv").read_text().removesuffix("\n").split("\n")
        cells = [line.split("\t") for line in lines]
        assert [unescaped(first) for first, *_ in cells] == (
            [str(i) for i in range(len(names))] if ids else names
        )
        found = np.array([list(map(float, values)) for _, *values in cells], np.float32)
        np.testing.assert_array_equal(found, expected)  # to the last bit


def test_word2vec(run, tmp_path):
    path, rows, _ = run
    export(open_run(path), tmp_path / "out", "word2vec")
    first, *lines = (tmp_path / "out/entities.txt").read_text().removesuffix("\n").split("\n")
    assert first == "12 8"
    words = [line.split(" ") for line in lines]
    assert [word for word, *_ in words] == ["_".join(name.split()) for name in names_by_id(path)]
    found = np.array([list(map(float, values)) for _, *values in words], np.float32)
    np.testing.assert_array_equal(found, rows)


def test_a_model_without_relations_needs_no_store_for_ids(tmp_path):
    rows = np.random.default_rng(0).standard_normal((9, 8)).astype(np.float32)
    run = make_run(tmp_path / "run", None, [0, 9], rows, None, "embed.model=dot")
    files = export(open_run(run), tmp_path / "out", "npy", ids=True)
    assert [file.name for file in files] == ["entities.npy"]
    np.testing.assert_array_equal(np.load(files[0]), rows)
    with pytest.raises(FileNotFoundError, match=r"data\.path: .* no such store|not a store"):
        export(open_run(run), tmp_path / "other", "npy")
    assert not (tmp_path / "other").exists()


def test_files_are_replaced_only_if_forced(run, tmp_path):
    path, _, _ = run
    export(open_run(path), tmp_path, "npy")
    with pytest.raises(FileExistsError, match=r"choose another path or pass --force \(in Python"):
        export(open_run(path), tmp_path, "npy")
    (tmp_path / "entities.npy").write_bytes(b"")
    export(open_run(path), tmp_path, "npy", force=True)
    assert np.load(tmp_path / "entities.npy").shape == (12, 8)


def test_files_of_a_killed_export_are_removed(run, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("entities.npy", "relations.tsv", "embeddings.safetensors"):
        (out / f".{name}.999999999.tmp").write_bytes(b"half")
    others = [out / f".entities.npy.{os.getppid()}.tmp", out / ".others.npy.999999999.tmp"]
    for path in others:
        path.write_bytes(b"of others")
    files = export(open_run(run[0]), out, "npy", force=True)
    assert sorted(out.iterdir()) == sorted([*files, *others])


def test_another_format_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match=r"form \(--format\): expected one of npy, safetensors"):
        export(open_run(run[0]), tmp_path, "csv")


def test_a_run_that_is_trained_on_meanwhile(run, tmp_path):
    """What was read may be of two checkpoints: no file is left."""
    rows = np.zeros((12, 8), np.float32)
    path = make_run(tmp_path / "run", None, [0, 12], rows, None, "embed.model=dot")
    opened = open_run(path)
    state = run_state.load_state(path)
    later = state.position.model_copy(update={"epoch": 1})
    run_state.save_state(path, state.model_copy(update={"position": later}), None)
    with pytest.raises(RuntimeError, match="the run was trained on meanwhile; read it again"):
        export(opened, tmp_path / "out", "npy", ids=True)
    assert not (tmp_path / "out").exists()
    (tmp_path / "own").mkdir()
    with pytest.raises(RuntimeError, match="the run was trained on meanwhile; read it again"):
        export(opened, tmp_path / "own", "npy", ids=True)
    assert list((tmp_path / "own").iterdir()) == []


def test_a_full_disk(tmp_path, disk):
    run = make_run(tmp_path / "run", None, [0, 40_000, 100_000], None, None, "embed.dim=60")
    with pytest.raises(OSError, match=r"disk full: 22\.9 MiB .* choose another path"):
        export(open_run(run), disk / "out", "npy", ids=True)
    with pytest.raises(OSError, match=r"disk full: .* choose another path"):
        export(open_run(run), disk / "out", "tsv", ids=True)
    assert not (disk / "out").exists()


EXPORT = (
    PEAK_MIB
    + """
import sys
from lsm.embed import open_run
from lsm.embed.use.export import export
before = peak_mib()
export(open_run(sys.argv[1]), sys.argv[2], sys.argv[3], ids=True)
print(before, peak_mib())
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["npy", "safetensors"])
def test_memory_does_not_grow_with_the_embeddings(tmp_path, form):
    starts = [0, 200_000, 400_000]  # 195 MiB
    run = make_run(tmp_path / "run", None, starts, None, None, "embed.dim=128")
    command = python_command(EXPORT, run, tmp_path / "out", form)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/")
    assert done.returncode == 0, done.stderr
    before, peak = map(float, done.stdout.split())
    assert sum(file.stat().st_size for file in (tmp_path / "out").iterdir()) > 400_000 * 512
    # Blocks of 8 MiB, the buffer of the file, what is imported late.
    assert peak - before < 80


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tsv", "word2vec"])
def test_memory_of_text_does_not_grow_with_the_embeddings(tmp_path, form):
    starts = [0, 30_000, 60_000]  # 29 MiB, of which Python would make 240 MiB of floats
    run = make_run(tmp_path / "run", None, starts, None, None, "embed.dim=128")
    command = python_command(EXPORT, run, tmp_path / "out", form)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/")
    assert done.returncode == 0, done.stderr
    before, peak = map(float, done.stdout.split())
    # A block of 4 MiB of values and its floats, the next block, what is imported late.
    assert peak - before < 120


def test_the_command(run, tmp_path, monkeypatch, capsys):
    path, rows, _ = run
    out = tmp_path / "out"
    assert lsm(monkeypatch, "embed", "export", path, "--out", out, "--format", "npy") == 0
    assert f"{out}/entities.npy: 512 B" in capsys.readouterr().out.splitlines()
    np.testing.assert_array_equal(np.load(out / "entities.npy"), rows)
    assert lsm(monkeypatch, "embed", "export", path, "--out", out) == 1
    assert capsys.readouterr().err.startswith(f"error: {out}: exists; choose another path or")
    assert lsm(monkeypatch, "embed", "export", tmp_path / "no", "--out", out) == 1
    assert "no run of `lsm embed train`" in capsys.readouterr().err
