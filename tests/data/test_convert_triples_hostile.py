"""Triples that cannot be used: one line with the file, the line's number and its text."""

import gzip
import logging
import re

import numpy as np
import pytest

from lsm.data.triples.convert import convert_triples


def convert(source, **options):
    return convert_triples(source, source.with_name("store"), **options)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "graph"
    folder.mkdir()
    return folder


def refused(source, message, kind=ValueError, **options):
    """Nothing is left behind, and the error is one line."""
    with pytest.raises(kind, match=message) as error:
        convert(source, **options)
    assert "\n" not in str(error.value)
    assert not source.with_name("store").exists()
    assert list(source.parent.glob(".store*")) == []


BAD_LINES = {
    "two columns": (b"a\tr", "expected 3 columns, got 2: 'a\\tr'"),
    "four columns": (b"a\tr\tb\tc", "expected 3 columns, got 4: 'a\\tr\\tb\\tc'"),
    "blanks among tabs": (b"a r b", "expected 3 columns, got 1: 'a r b'"),
    "no relation": (b"a\t\tb", "a name is empty: 'a\\t\\tb'"),
    "no tail": (b"a\tr\t", "a name is empty: 'a\\tr\\t'"),
    "latin-1": (b"a\tr\t\xe4", "not UTF-8 (invalid continuation byte): 'a\\tr\\t\\\\xe4'"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_malformed_line_is_named_or_counted(source, kind, caplog):
    line, message = BAD_LINES[kind]
    path = source / "train.tsv"
    path.write_bytes(b"a\tr\tb\n\nb\tr\tb\n" + line + b"\nc\tr\ta\n")
    refused(source, re.escape(f"{path}: line 4: {message}"))
    with caplog.at_level(logging.WARNING):
        store = convert(source, skip_malformed=True)
    assert f"line 4: {message}" in caplog.text
    assert store.meta.counts.malformed == 1
    assert store.num_edges["train"] == 3
    assert sorted(store.entity_names()) == ["a", "b", "c"]  # none of the line that was left out


def test_few_of_many_malformed_lines_are_shown(source, caplog):
    (source / "train.tsv").write_text("a\tr\tb\n" + "a\n" * 1000)
    with caplog.at_level(logging.WARNING):
        assert convert(source, skip_malformed=True).meta.counts.malformed == 1000
    assert len(caplog.records) == 5


def test_a_long_text_is_cut(source):
    (source / "train.tsv").write_text("a\tr\tb\n" + "x" * 100_000 + "\n")
    with pytest.raises(ValueError, match="got 1: 'xxx") as error:
        convert(source)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "line",
    [
        "-1\t0\t1",
        "1.0\t0\t1",
        "x\t0\t1",
        "1_0\t0\t1",
        "9" * 30 + "\t0\t1",
        "\N{SUPERSCRIPT TWO}\t0\t1",
    ],
)
def test_ids_that_are_none(source, line):
    (source / "train.del").write_text(f"0\t0\t1\n{line}\n")
    refused(source, r"train\.del: line 2: expected ids, whole numbers from 0: ")
    assert convert(source, skip_malformed=True).meta.counts.malformed == 1


@pytest.mark.parametrize("line", ["2\t0\t1", "0\t0\t2", "0\t1\t0"])
def test_ids_without_a_name(source, line):
    (source / "train.del").write_text(f"0\t0\t1\n{line}\n")
    (source / "entity_ids.del").write_text("0\ta\n1\tb\n")
    (source / "relation_ids.del").write_text("0\tr\n")
    refused(source, r"train\.del: line 2: an id is out of range: '\d \d \d'")
    store = convert(source, skip_malformed=True)
    assert (store.num_entities, store.num_relations, store.num_edges["train"]) == (2, 1, 1)


def test_rows_of_arrays_without_a_name(source):
    np.save(source / "train.npy", np.array([[0, 0, 1], [0, 0, -1], [5, 0, 0]]))
    (source / "entities.txt").write_text("a\nb\n")
    refused(source, r"train\.npy: row 1: an id is out of range: '0 0 -1'")
    store = convert(source, skip_malformed=True)
    assert (store.meta.counts.malformed, store.num_edges["train"]) == (2, 1)


def test_wild_ids(source):
    np.save(source / "train.npy", np.array([[0, 0, 2**39]]))
    refused(source, "549,755,813,889 entities for 1 triples: expected ids .* names")
    np.save(source / "train.npy", np.array([[0, 2**24, 1]]))
    refused(source, "16,777,217 relations for 1 triples")
    np.save(source / "train.npy", np.array([[0, 0, 2**63]], np.uint64))
    refused(source, r"train\.npy: row 0: an id is out of range")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3)), r"expected whole numbers \[n, columns\], got float64 \[2, 3\]"),
        (np.zeros(3, int), r"expected whole numbers \[n, columns\], got int64 \[3\]"),
        (np.zeros((2, 4), int), r"expected 3 columns .* or 2 .*, got 4; say which with --columns"),
        (np.array([["a", "b"]]), "expected integers or floats"),
    ],
)
def test_arrays_that_are_no_triples(source, array, message):
    np.save(source / "train.npy", array)
    refused(source, message)


def test_damaged_arrays(source):
    np.save(source / "train.npy", np.zeros((50, 3), int))
    data = (source / "train.npy").read_bytes()
    (source / "train.npy").write_bytes(data[:-8])
    refused(source, "truncated: expected 1328 bytes .* got 1320")
    (source / "train.npy").write_bytes(b"a\tr\tb\n")
    refused(source, r"train\.npy: not a \.npy file")


NAMES = {
    "a gap": ("entity_ids.del", "0\ta\n2\tb\n", "line 2: expected 1, a tab and a name, got b'2"),
    "no tab": ("entity_ids.del", "0 a\n", "line 1: expected 0, a tab and a name, got b'0 a"),
    "twice": ("entities.txt", "a\nb\na\n", "line 3: 'a' is named twice"),
    "empty": ("relations.txt", "r\n\n", "line 2: expected a name, got an empty line"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_files_of_names_that_cannot_be_used(source, kind):
    name, text, message = NAMES[kind]
    (source / "train.del").write_text("0\t0\t1\n")
    (source / name).write_text(text)
    refused(source, re.escape(f"{source / name}: {message}"))


@pytest.mark.parametrize("length", [5, 20, -1, -9])
def test_a_packed_file_that_was_cut_or_changed(source, length):
    data = gzip.compress(b"a\tr\tb\n" * 1000)
    (source / "train.tsv.gz").write_bytes(data[:length])
    refused(source, r"train\.tsv\.gz: not a whole gzip file")
    (source / "train.tsv.gz").write_bytes(b"a\tr\tb\n")
    refused(source, r"train\.tsv\.gz: not a whole gzip file")


def test_no_text(source):
    (source / "train.tsv").write_bytes(bytes(3 << 20))
    refused(source, "line 1: expected at most 1048576 bytes; is it text")
    (source / "train.csv").write_text('a,r,b\nb,r,"c\n')
    (source / "train.tsv").unlink()
    refused(source, "train.csv: line 2: bad CSV: unexpected end of data")
    (source / "train.csv").write_text('a,r,"b"c\n')
    refused(source, "train.csv: line 1: bad CSV: ")


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_nothing(source, text):
    (source / "train.tsv").write_text(text)
    refused(source, "graph: no triples in the source", comment="#")


def test_an_empty_split_is_one(source):
    (source / "train.tsv").write_text("a\tr\tb\n")
    (source / "test.tsv").write_text("")
    store = convert(source)
    assert store.num_edges == {"train": 1, "valid": 0, "test": 0}
    assert store.buckets("test", 2).edges(0, 1).shape == (0, 3)


def test_files_that_do_not_go_together(source):
    (source / "train.tsv").write_text("a\tr\tb\n")
    (source / "test.tsv").write_text("a\tb\n")
    refused(source, r"test\.tsv: expected all files to have relations or none; this one has 2")
    (source / "test.tsv").unlink()
    np.save(source / "test.npy", np.zeros((1, 3), int))
    refused(source, "expected all files to have names, or all ids; got both")
    (source / "train.csv").write_text("a,r,b\n")
    refused(source, r"expected one file of train, got train\.tsv and train\.csv; remove one")


def test_files_that_are_not_there(source):
    refused(source, r"expected train\.tsv, \.txt, \.csv, \.del", FileNotFoundError)
    refused(source / "nowhere", "no such file or directory", FileNotFoundError)
    (source / "graph.ttl").write_text("<a> <r> <b> .")
    refused(source / "graph.ttl", r"expected a file named \.tsv, ")
    np.save(source / "train.npy", np.zeros((1, 3), int))
    (source / "train.npy").rename(source / "train.npy.gz")
    refused(source / "train.npy.gz", r"expected a file named \.tsv, ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["0"]}, "--columns: expected two .* or three .* got '0'"),
        ({"columns": ["0", "1", "1"]}, "--columns: expected two .* different"),
        ({"columns": ["0", "", "1"]}, "--columns: expected two"),
        ({"columns": ["0", "1", "3"]}, "--columns: expected numbers below 3, got 3"),
        ({"columns": ["a", "x", "b"]}, r"expected names of the first line \(a, r, b\), got a,x,b"),
        ({"valid_fraction": -0.1}, "--valid-fraction, --test-fraction: expected at least 0"),
        ({"valid_fraction": 0.5, "test_fraction": 0.5}, "a sum below 1, got 0.5 and 0.5"),
        ({"valid_fraction": float("nan")}, "a sum below 1, got nan"),
    ],
)
def test_options_that_cannot_be(source, options, message):
    (source / "graph.tsv").write_text("a\tr\tb\nb\tr\tb\n")
    refused(source / "graph.tsv", message, **options)


def test_names_of_columns_of_arrays(source):
    np.save(source / "train.npy", np.zeros((1, 3), int))
    refused(source, r"\(there are none\), got h,r,t", columns=["h", "r", "t"])
