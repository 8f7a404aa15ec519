"""Triples: what a store holds is what its source had, whatever its form."""

import csv
import gzip
import json
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lsm.cli.data import app
from lsm.data.triples.convert import convert_triples
from lsm.data.verify import verify_store

SPLITS = ("train", "valid", "test")


def random_triples(seed=0, entities=300, relations=5):
    """Ids by split, with duplicates, self-loops and triples of train in valid."""
    generator = np.random.default_rng(seed)
    splits = {}
    for split, n in (("train", 5000), ("valid", 300), ("test", 300)):
        heads, tails = generator.zipf(1.5, n) % entities, generator.integers(0, entities, n)
        splits[split] = np.stack([heads, generator.integers(0, relations, n), tails], 1)
    return splits


def named(splits):
    """Lists of (head, relation, tail) by name; two names or one with tabs would be damage."""
    return {
        split: [(f"e {h}", f"r{r}", f"e {t}") for h, r, t in triples.tolist()]
        for split, triples in splits.items()
    }


def contents(store):
    """The triples of each split by name; edges without relations are pairs."""
    entities, relations = list(store.entity_names()), list(store.relation_names())
    found = {}
    for split in SPLITS:
        rows = store.edges(split).tolist()
        if relations:
            found[split] = [(entities[h], relations[r], entities[t]) for h, r, t in rows]
        else:
            found[split] = [(entities[h], entities[t]) for h, t in rows]
        assert len(set(found[split])) == len(found[split])
    return {split: set(triples) for split, triples in found.items()}


def expected_counts(splits, entities=(), relations=()):
    """The oddities of lists of triples by split, counted one by one."""
    unique = {split: set(splits.get(split, ())) for split in SPLITS}
    train = unique["train"]
    used = {name for triples in splits.values() for t in triples for name in (t[0], t[-1])}
    return {
        "triples": sum(map(len, splits.values())),
        "malformed": 0,
        "duplicates": sum(len(splits[s]) - len(unique[s]) for s in splits),
        "leaked": sum(len(unique[split] & train) for split in ("valid", "test")),
        "self_loops": sum(t[0] == t[-1] for triples in unique.values() for t in triples),
        "entities_not_in_train": len(
            (used | set(entities)) - {name for t in train for name in (t[0], t[-1])}
        ),
        "relations_not_in_train": len(
            ({t[1] for triples in splits.values() for t in triples if len(t) == 3} | set(relations))
            - {t[1] for t in train if len(t) == 3}
        ),
    }


def write_tsv(path, triples, opener=open):
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        file.writelines("\t".join(map(str, triple)) + "\n" for triple in triples)


def write_csv(path, triples):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(triples)


def check(store, splits, **others):
    assert verify_store(store.path) == []
    wanted = {split: set(splits.get(split, ())) for split in SPLITS}
    assert contents(store) == wanted
    assert store.num_edges == {split: len(wanted[split]) for split in SPLITS}
    assert store.meta.counts.model_dump() == expected_counts(splits, **others)


@pytest.mark.parametrize("memory_bytes", [1, 1 << 15, 1 << 28])  # runs of runs, runs, one
@pytest.mark.parametrize("packed", [False, True])
def test_names_between_tabs(tmp_path, memory_bytes, packed):
    splits = named(random_triples())
    for split, triples in splits.items():
        if packed:
            write_tsv(tmp_path / f"{split}.tsv.gz", triples, gzip.open)
        else:
            write_tsv(tmp_path / f"{split}.txt", triples)
    store = convert_triples(tmp_path, tmp_path / "store", memory_bytes=memory_bytes)
    check(store, splits)
    assert store.meta.counts.leaked > 0  # or the numbers above prove little
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == [
        "edges",
        "entities.tsv",
        "meta.json",
        "relations.tsv",
    ]


def test_the_store_does_not_depend_on_memory(tmp_path):
    write_tsv(tmp_path / "all.tsv", named(random_triples())["train"])
    stores = [
        convert_triples(tmp_path / "all.tsv", tmp_path / f"{size}", memory_bytes=size, seed=3)
        for size in (1, 1 << 28)
    ]
    assert stores[0].meta.files == stores[1].meta.files
    other = convert_triples(tmp_path / "all.tsv", tmp_path / "other", seed=4)
    assert other.meta.files != stores[0].meta.files


def test_names_between_blanks_or_commas(tmp_path):
    splits = {"train": [("a", "r", "b"), ("b", "r", "b"), ("ä", "s", "b")]}
    (tmp_path / "train.txt").write_text("a r  b\n\nb r b\r\n ä s b")
    check(convert_triples(tmp_path, tmp_path / "store"), splits)
    (tmp_path / "train.txt").unlink()
    quoted = {"train": [("a, b", 'the "r"', "two\n\n# lines"), ("a\tb", "\\n", "back\\slash")]}
    write_csv(tmp_path / "train.csv", quoted["train"])
    check(convert_triples(tmp_path, tmp_path / "store2", comment="#"), quoted)


def test_edges_without_relations(tmp_path):
    splits = {"train": [("a", "b"), ("b", "a"), ("a", "a")], "dev": [("c", "b")]}
    for split, edges in splits.items():
        write_tsv(tmp_path / f"{split}.tsv", edges)
    store = convert_triples(tmp_path, tmp_path / "store")
    assert (store.num_relations, store.meta.columns) == (0, 2)
    assert not (tmp_path / "store/relations.tsv").exists()
    check(store, {"train": splits["train"], "valid": splits["dev"]})


@pytest.mark.parametrize("packed", [False, True])
def test_libkge(tmp_path, packed):
    splits = random_triples()
    for split, triples in splits.items():
        name = f"{split}.del.gz" if packed else f"{split}.del"
        write_tsv(tmp_path / name, triples.tolist(), gzip.open if packed else open)
    entities = [f"/m/{i}" for i in range(310)]  # ten that no triple has
    relations = [f"/r/{i}" for i in range(6)]
    write_tsv(tmp_path / "entity_ids.del", enumerate(entities))
    write_tsv(tmp_path / "relation_ids.del", enumerate(relations))
    store = convert_triples(tmp_path, tmp_path / "store")
    assert set(store.entity_names()) == set(entities)
    assert list(store.relation_names()) == relations
    by_name = {
        split: [(entities[h], relations[r], entities[t]) for h, r, t in triples.tolist()]
        for split, triples in splits.items()
    }
    check(store, by_name, entities=entities, relations=relations)


@pytest.mark.parametrize("dtype", [np.int32, np.uint16, ">i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy(tmp_path, dtype, order):
    splits = random_triples()
    for split, triples in splits.items():
        np.save(tmp_path / f"{split}.npy", triples.astype(dtype, order))
    (tmp_path / "entities.txt").write_text("".join(f"e {i}\n" for i in range(300)))
    (tmp_path / "relations.txt").write_text("".join(f"r{i}\r\n" for i in range(5)))
    store = convert_triples(tmp_path, tmp_path / "store")
    check(store, named(splits), entities=[f"e {i}" for i in range(300)])


def test_numpy_without_names(tmp_path):
    pairs = [(0, 4), (4, 4), (2, 0)]  # 1 and 3 are entities, too
    np.save(tmp_path / "edges.npy", np.array(pairs))
    store = convert_triples(tmp_path / "edges.npy", tmp_path / "store", valid_fraction=0)
    assert sorted(store.entity_names()) == list("01234")
    everything = set().union(*contents(store).values())
    assert everything == {(str(h), str(t)) for h, t in pairs}


@pytest.mark.parametrize(
    ("columns", "header"),
    [(["3", "0", "1"], True), (["tail", "head"], False), (["head", "relation", "tail"], False)],
)
@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_columns(tmp_path, columns, header, form):
    names = ["head", "relation", "weight", "tail"]
    rows = [("a", "r", "1.5", "b"), ("b", "s", "2", "c")]
    (write_tsv if form == "tsv" else write_csv)(tmp_path / f"train.{form}", [names, *rows])
    store = convert_triples(tmp_path, tmp_path / "store", columns=columns, header=header)
    places = [names.index(c) if c in names else int(c) for c in columns]
    check(store, {"train": [tuple(row[place] for place in places) for row in rows]})


def test_columns_of_arrays(tmp_path):
    np.save(tmp_path / "train.npy", np.array([[7, 0, 1, 2], [7, 1, 0, 0]]))
    store = convert_triples(tmp_path, tmp_path / "store", columns=["3", "2", "1"])
    check(store, {"train": [("2", "1", "0"), ("0", "0", "1")]})


def test_comments_and_headers_are_left_out(tmp_path):
    (tmp_path / "train.tsv").write_bytes(b"\xef\xbb\xbf# made by hand\nh\tr\tt\n#\na\tr\t#b\n")
    store = convert_triples(tmp_path, tmp_path / "store", comment="#", header=True)
    check(store, {"train": [("a", "r", "#b")]})


def test_a_drawn_split(tmp_path):
    triples = named(random_triples())["train"]
    write_tsv(tmp_path / "graph.v2.tsv", triples)
    store = convert_triples(
        tmp_path / "graph.v2.tsv", tmp_path / "store", valid_fraction=0.1, test_fraction=0.3
    )
    assert store.name == "graph"
    drawn = contents(store)
    assert sum(map(len, drawn.values())) == len(set(triples))
    assert set().union(*drawn.values()) == set(triples)
    assert store.meta.counts.leaked == 0
    total = len(set(triples))  # bounds: four standard deviations of a binomial law
    for split, share in (("valid", 0.1), ("test", 0.3)):
        assert abs(len(drawn[split]) - share * total) < 4 * (share * (1 - share) * total) ** 0.5


def test_ids_are_a_shuffle_by_the_seed(tmp_path):
    write_tsv(tmp_path / "train.tsv", [(str(i), "r", str(i + 1)) for i in range(2000)])
    names = [
        list(map(int, convert_triples(tmp_path, tmp_path / f"s{n}", seed=seed).entity_names()))
        for n, seed in enumerate((0, 0, 1))
    ]
    assert names[0] == names[1] != names[2]
    assert sorted(names[0]) == list(range(2001))
    # Neighbours in the source end far apart: the mean distance of a random pair is a third.
    distance = np.abs(np.diff(np.argsort(names[0]))).mean()
    assert distance == pytest.approx(2001 / 3, rel=0.1)


name = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t\ufeff")
    | st.sampled_from(string.ascii_letters + '\\"#, '),
    min_size=1,
    max_size=4,
)


@st.composite
def sources(draw):
    """(with relations?, names, lists of triples by split)."""
    names = draw(st.lists(name, min_size=1, max_size=6, unique=True))
    entity = st.sampled_from(names)
    columns = [entity, entity] if draw(st.booleans()) else [entity, entity, entity]
    triples = st.lists(st.tuples(*columns), max_size=30)
    splits = {"train": draw(st.lists(st.tuples(*columns), min_size=1, max_size=60))}
    return splits | {split: draw(triples) for split in ("valid", "test")}


@given(splits=sources(), memory_bytes=st.sampled_from([1, 1 << 20]), form=st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_names_come_back(tmp_path_factory, splits, memory_bytes, form):
    root = tmp_path_factory.mktemp("any")
    for split, triples in splits.items():
        if form:
            write_csv(root / f"{split}.csv", triples)
        else:
            write_tsv(root / f"{split}.tsv", triples)
    # A line of blanks only is blank in any form.
    kept = {
        split: [triple for triple in triples if "".join(triple).strip(" \v\f") or form]
        for split, triples in splits.items()
    }
    if not any(kept.values()):
        return
    check(convert_triples(root, root / "store", memory_bytes=memory_bytes), kept)


def test_the_command_says_what_was_odd(tmp_path):
    source = tmp_path / "graph"
    source.mkdir()
    (source / "train.tsv").write_text("a\tr\tb\na\tr\tb\nc\tr\tc\nshort\tline\n")
    (source / "test.tsv").write_text("a\tr\tb\nd\ts\ta\n")
    arguments = ["convert", "triples", str(source), "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, ValueError)
    done = CliRunner().invoke(app, [*arguments, "--skip-malformed", "--memory", "1MiB"])
    assert done.exit_code == 0, done.output
    first, *odd = done.stdout.splitlines()
    assert "graph, 4 entities, 2 relations, train 2, valid 0, test 2, " in first
    assert [line.strip() for line in odd] == [
        "malformed lines, skipped: 1",
        "duplicates within a split, left out: 1",
        "triples of valid or test that train has too, kept: 1",
        "self-loops, kept: 1",
        "entities that no training triple has: 1",
        "relations that no training triple has: 1",
    ]
    info = CliRunner().invoke(app, ["info", str(tmp_path / "out"), "--json"])
    described = json.loads(info.output)
    assert described["kind"] == "triples"
    assert described["counts"]["malformed"] == 1
    assert described["degree"] == {"mean": 1.0, "max": 2, "num_zero": 1}
    table = CliRunner().invoke(app, ["info", str(tmp_path / "out")]).output
    assert "malformed lines, skipped: 1" in table
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "out")]).exit_code == 0
