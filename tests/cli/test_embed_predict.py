"""``lsm embed predict`` and ``lsm embed score`` against the calls in Python, and their mistakes."""

import gzip
import json

import numpy as np
import pytest

from lsm.data.triples.convert import convert_triples
from lsm.embed import open_run
from support.command import lsm
from support.embed_runs import make_run

NUM_ENTITIES = 50


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(directory of a run, the same for dot). Entities are "e 0", "e 1", ..., relations r0, r1."""
    root = tmp_path_factory.mktemp("run")
    lines = [f"e {i}\tr{i % 2}\te {(i * 7) % NUM_ENTITIES}\n" for i in range(NUM_ENTITIES)]
    (root / "train.tsv").write_text("".join(lines))
    store = convert_triples(root, root / "store")
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((NUM_ENTITIES, 8)).astype(np.float32)
    relations = rng.standard_normal((4, 8)).astype(np.float32)
    starts = store.partition_starts(3).tolist()
    dot = make_run(root / "dot", store.path, starts, rows, None, "embed.model=dot")
    return make_run(root / "run", store.path, starts, rows, relations), dot


def predicted(path, k, **query):
    """(name, score) of the answers to one query."""
    opened = open_run(path)
    ids, scores = opened.predict(k=k, **query)
    kept = [(i, s) for i, s in zip(ids[0].tolist(), scores[0].tolist(), strict=True) if i >= 0]
    names = opened.entity_names([number for number, _ in kept])
    return list(zip(names, [score for _, score in kept], strict=True))


def as_text(answers):
    return [f"  {score:10.6f}  {name}" for name, score in answers]


def test_predict_prints_names_and_scores(run, monkeypatch, capsys):
    path, dot = run
    command = ("embed", "predict", path, "--relation", "r1", "-k", "4")
    assert lsm(monkeypatch, *command, "--head", "e 3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "e 3  r1  ?"
    assert lines[1:] == as_text(predicted(path, 4, heads=["e 3"], relations=["r1"]))
    assert lsm(monkeypatch, *command, "--tail", "e 3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "?  r1  e 3"
    assert lines[1:] == as_text(predicted(path, 4, tails=["e 3"], relations=["r1"]))
    assert lsm(monkeypatch, "embed", "predict", dot, "--head", "e 3", "-k", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["e 3  ?", *as_text(predicted(dot, 2, heads=["e 3"]))]


def test_unknown_only_leaves_out_the_edge_of_the_store(run, monkeypatch, capsys):
    command = ("embed", "predict", run[0], "--head", "e 3", "--relation", "r1", "--json")
    assert lsm(monkeypatch, *command, "-k", NUM_ENTITIES) == 0
    (everything,) = json.loads(capsys.readouterr().out)
    assert (everything["head"], everything["relation"], everything["tail"]) == ("e 3", "r1", None)
    assert lsm(monkeypatch, *command, "-k", NUM_ENTITIES, "--unknown-only") == 0
    (unknown,) = json.loads(capsys.readouterr().out)
    kept = [pair for pair in everything["predictions"] if pair[0] != "e 21"]
    assert len(kept) == NUM_ENTITIES - 1
    assert unknown["predictions"] == kept


def test_queries_of_a_file_keep_their_order(run, monkeypatch, capsys, tmp_path):
    """Both sides are asked for; predictions written as TSV are lines that score takes."""
    path = run[0]
    file, out, ids = tmp_path / "queries.tsv", tmp_path / "out.tsv", tmp_path / "ids.tsv"
    file.write_text("?\tr0\te 4\ne 9\tr1\t?\n\n?\tr1\te 9\n")
    command = ("embed", "predict", path, "--queries", file, "-k", "3")
    assert lsm(monkeypatch, *command, "--out", out) == 0
    assert capsys.readouterr().out == f"{out}: 9 edges\n"
    expected = [
        *(
            (name, "r0", "e 4", s)
            for name, s in predicted(path, 3, tails=["e 4"], relations=["r0"])
        ),
        *(
            ("e 9", "r1", name, s)
            for name, s in predicted(path, 3, heads=["e 9"], relations=["r1"])
        ),
        *(
            (name, "r1", "e 9", s)
            for name, s in predicted(path, 3, tails=["e 9"], relations=["r1"])
        ),
    ]
    found = [line.split("\t") for line in out.read_text().splitlines()]
    assert [tuple(cells[:3]) for cells in found] == [row[:3] for row in expected]
    assert [np.float32(cells[3]) for cells in found] == [np.float32(row[3]) for row in expected]
    assert lsm(monkeypatch, *command, "--out", out) == 1
    assert "exists; choose another --out or pass --force" in capsys.readouterr().err
    assert lsm(monkeypatch, *command, "--out", out, "--force") == 0
    opened = open_run(path)
    (own,), (kind,) = opened.entity_ids(["e 9"]), opened.relation_ids(["r1"])
    ids.write_text(f"{own}\t{kind}\t?\n")
    capsys.readouterr()
    command = ("embed", "predict", path, "--queries", ids, "--ids", "-k", "3", "--json")
    assert lsm(monkeypatch, *command) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    numbers, _ = opened.predict(["e 9"], ["r1"], k=3)
    assert [int(name) for name, _ in answer["predictions"]] == numbers[0].tolist()


@pytest.mark.parametrize("name", ["edges.tsv", "edges.csv", "edges.tsv.gz"])
@pytest.mark.parametrize("target", ["tail", "head"])
def test_scores_in_the_order_of_the_file(run, monkeypatch, capsys, tmp_path, name, target):
    triples = [
        ("e 1", "r0", "e 2"),
        ("e 2", "r1", "e 1"),
        ("e 1", "r0", "e 2"),
        ("e 9", "r1", "e 9"),
    ]
    separator, path = "," if name.endswith(".csv") else "\t", tmp_path / name
    lines = "".join(separator.join(triple) + "\n" for triple in [("h", "r", "t"), *triples])
    path.write_bytes(gzip.compress(lines.encode()) if name.endswith(".gz") else lines.encode())
    command = ("embed", "score", run[0], "--triples", path, "--target", target, "--header")
    assert lsm(monkeypatch, *command) == 0
    found = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [tuple(cells[:3]) for cells in found] == triples
    expected = open_run(run[0]).score(triples, target=target).tolist()
    assert [float(np.float32(cells[3])) for cells in found] == expected
    assert lsm(monkeypatch, *command, "--out", tmp_path / "out.tsv") == 0
    assert [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()] == found


def test_bad_lines_are_counted_and_named(run, monkeypatch, capsys, caplog, tmp_path):
    path, out = tmp_path / "edges.tsv", tmp_path / "out.tsv"
    bad = ["x\tr0\te 1", "e 1\tr0", "e 1\tr7\ty", "e 1\tr0\t", "a\tr0\tb", "c\tr0\td"]
    path.write_text("\n".join(["e 1\tr0\te 2", *bad, "e 2\tr0\te 1"]) + "\n")
    command = ("embed", "score", run[0], "--triples", path, "--out", out)
    assert lsm(monkeypatch, *command) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert f"{path}: 6 lines cannot be used: line 2: unknown 'x': " in error
    assert "line 3: expected 3 columns, got 2" in error
    assert "line 4: unknown 'r7' and 'y': " in error
    assert "line 5: unknown ''" in error
    assert "and 1 more; correct them, or pass --skip-malformed to leave them out" in error
    assert list(tmp_path.iterdir()) == [path]
    assert lsm(monkeypatch, *command, "--skip-malformed") == 0
    assert [line.split("\t")[:3] for line in out.read_text().splitlines()] == [
        ["e 1", "r0", "e 2"],
        ["e 2", "r0", "e 1"],
    ]
    assert "6 lines cannot be used" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--head", "e 1"], "--relation: expected one, as embed.model=complex has relations"),
        (["--relation", "r0"], "--head, --tail: expected one of the two"),
        (["--head", "e 1", "--tail", "e 2", "--relation", "r0"], "--head, --tail: expected one"),
        (["--head", "E 1", "--relation", "r0"], "'E 1': expected one of the names in "),
        (["--head", "e 1", "--relation", "r9"], "'r9': expected one of the names in "),
        (["--head", "e 1", "--relation", "r0", "-k", "0"], "k: expected 1 to 50 entities, got 0"),
        (
            ["--head", "e 1", "--relation", "r0", "-k", "51"],
            "k: expected 1 to 50 entities, got 51",
        ),
        (
            ["--head", "e 1", "--relation", "0", "--ids"],
            "--head, --tail: expected an id with --ids",
        ),
        (["--head", "50", "--relation", "0", "--ids"], "entity: expected ids below 50, got 50"),
        (["--queries", "nowhere.tsv"], "nowhere.tsv: no such file"),
        (["--queries", "nowhere.tsv", "--head", "e 1"], "--queries: expected no --head"),
    ],
)
def test_queries_that_cannot_be_are_one_line(run, monkeypatch, capsys, arguments, message):
    assert lsm(monkeypatch, "embed", "predict", run[0], *arguments) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {message}")


def test_other_mistakes_are_one_line(run, monkeypatch, capsys, tmp_path):
    path, dot = run
    empty, queries = tmp_path / "empty.tsv", tmp_path / "queries.tsv"
    empty.write_text("\n")
    queries.write_text("?\tr0\t?\ne 1\t?\te 2\ne 1\tr0\te 2\n")
    for command, message in {
        ("predict", dot, "--head", "e 1", "--relation", "r0"): "--relation: expected none, as",
        ("predict", path, "--queries", queries): f"{queries}: 3 lines cannot be used: line 1: expe",
        ("score", path, "--triples", empty): f"{empty}: no line to use",
        ("score", path, "--triples", queries, "--target", "x"): "--target: expected tail or head",
        ("score", tmp_path, "--triples", empty): f"{tmp_path}: no run of `lsm embed train`",
        ("score", path, "--triples", tmp_path / "no.tsv"): f"{tmp_path / 'no.tsv'}: no such file",
        ("neighbors", path, "E 1"): "'E 1': expected one of the names in ",
    }.items():
        assert lsm(monkeypatch, "embed", *command) == 1
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith(f"error: {message}")
        if command[0] == "neighbors":
            assert "; did you mean 'e 1' or 'e 1" in error  # and others that begin so
