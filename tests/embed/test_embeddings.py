"""Embeddings of a run by name and by id, and their neighbours, against NumPy."""

import json

import numpy as np
import pytest
import torch

from lsm.data.triples.convert import convert_triples
from lsm.data.triples.store import TripleStore
from lsm.embed import open_run
from lsm.embed.evaluate import evaluate_run
from lsm.embed.run import EmbeddingRun
from lsm.embed.use.neighbors import nearest
from support.command import lsm
from support.embed_runs import make_run
from support.triples import config, tables

NUM_ENTITIES, DIM = 500, 8
LINES = [f"e {i}\tr{i % 3}\te {(i * 7) % NUM_ENTITIES}\n" for i in range(NUM_ENTITIES)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(open run, rows, relations, names by id)."""
    root = tmp_path_factory.mktemp("run")
    (root / "train.tsv").write_text("".join(LINES))
    store = convert_triples(root, root / "store")
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((NUM_ENTITIES, DIM)).astype(np.float32)
    relations = generator.standard_normal((6, DIM)).astype(np.float32)
    starts = store.partition_starts(7).tolist()
    path = make_run(root / "run", root / "store", starts, rows, relations)
    return open_run(path), rows, relations, list(store.entity_names())


def test_rows_by_name_and_by_id(run):
    embeddings, rows, relations, names = run
    assert (embeddings.num_entities, embeddings.dim) == (NUM_ENTITIES, DIM)
    wanted = [499, 0, 71, 72, 0, 250]
    np.testing.assert_array_equal(embeddings.entities(wanted), rows[wanted])
    np.testing.assert_array_equal(embeddings.entities([names[i] for i in wanted]), rows[wanted])
    mixed = [names[3], 4, names[3]]
    np.testing.assert_array_equal(embeddings.entities(mixed), rows[[3, 4, 3]])
    assert embeddings.entities([]).shape == (0, DIM)
    assert embeddings.entity_ids([names[9], 7]) == [9, 7]
    assert embeddings.entity_names([9, 7, 9]) == [names[9], names[7], names[9]]
    np.testing.assert_array_equal(embeddings.relations(), relations)
    np.testing.assert_array_equal(embeddings.relations(["r2", 0]), relations[[2, 0]])


def test_blocks_are_all_rows_in_order(run):
    embeddings, rows, _, _ = run
    blocks = list(embeddings.blocks())
    assert [first for first, _ in blocks] == np.cumsum([0, *(len(b) for _, b in blocks)])[
        :-1
    ].tolist()
    np.testing.assert_array_equal(torch.cat([block for _, block in blocks]), rows)


@pytest.mark.parametrize("keys", [["nobody"], ["e 1", "nobody"], ["e 1\n"], [""]])
def test_unknown_names(run, keys):
    with pytest.raises(ValueError, match=r"expected one of the names in .*entities\.tsv") as error:
        run[0].entities(keys)
    assert repr(keys[-1]) in str(error.value)


@pytest.mark.parametrize("key", [NUM_ENTITIES, -1])
def test_ids_out_of_range(run, key):
    with pytest.raises(ValueError, match=f"entity: expected ids below 500, got {key}"):
        run[0].entities([key])
    with pytest.raises(ValueError, match=f"entity: expected ids below 500, got {key}"):
        run[0].entity_names([0, key])
    with pytest.raises(ValueError, match="relation: expected ids below 3, got 3"):
        run[0].relations([3])


def test_a_name_alone_is_a_mistake(run):
    with pytest.raises(TypeError, match="expected a list of names or ids, got 'e 1'"):
        run[0].entities("e 1")


def expected_neighbors(rows, own, k, measure):
    """(ids, scores) by sorting all scores."""
    units = rows.astype(np.float64)
    if measure == "cosine":
        units /= np.linalg.norm(units, axis=1, keepdims=True)
    scores = units @ units[own]
    scores[own] = -np.inf
    order = np.argsort(-scores, kind="stable")[:k]
    return order, scores[order]


@pytest.mark.parametrize("measure", ["cosine", "dot"])
@pytest.mark.parametrize("k", [1, 10, NUM_ENTITIES - 1])
def test_neighbors(run, measure, k):
    embeddings, rows, _, names = run
    own = [0, 71, 499]
    ids, scores = embeddings.neighbors([names[0], 71, 499], k, measure)
    for row, entity in enumerate(own):
        expected, values = expected_neighbors(rows, entity, k, measure)
        np.testing.assert_array_equal(ids[row], expected)
        # Sums of eight products of float32.
        np.testing.assert_allclose(scores[row], values, rtol=1e-5, atol=1e-5)


def test_ids_are_whole_numbers(run):
    embeddings, rows, _, _ = run
    for ids in (torch.tensor([3, 4]), np.array([3, 4], np.int32)):
        np.testing.assert_array_equal(embeddings.entities(ids), rows[[3, 4]])
    for key in (1.7, torch.tensor(1.7), None):
        with pytest.raises(TypeError, match="entity: expected names or ids, whole numbers, got"):
            embeddings.entities([key])


@pytest.mark.parametrize("size", [7, 100])
def test_the_first_of_equals_are_the_nearest(size):
    torch.manual_seed(0)
    rows = torch.randint(-1, 2, (100, 2)).float()
    blocks = [(first, rows[first : first + size]) for first in range(0, 100, size)]
    order = (rows @ rows[3]).argsort(descending=True, stable=True)
    ids, _ = nearest(blocks, rows[3:4], torch.tensor([3]), 5, "dot")
    assert ids[0].tolist() == [each for each in order.tolist() if each != 3][:5]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_neighbors_do_not_depend_on_blocks(size):
    """Ties, rows of zeros and of NaN included."""
    generator = np.random.default_rng(1)
    rows = generator.integers(-1, 2, (100, 3)).astype(np.float32)
    rows[17] = np.nan
    rows[18] = 0
    table = torch.from_numpy(rows)
    blocks = [(first, table[first : first + size]) for first in range(0, 100, size)]
    own = torch.tensor([5, 60])
    for measure in ("cosine", "dot"):
        ids, scores = nearest(blocks, table[own], own, 99, measure)
        for row, entity in enumerate(own.tolist()):
            values = np.nan_to_num(rows @ rows[entity], nan=-np.inf)
            if measure == "cosine":
                norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(rows[entity])
                values = np.where(norms > 0, values / np.where(norms > 0, norms, 1), 0)
                values[17] = -np.inf
            others = np.delete(np.arange(100), entity)
            assert sorted(ids[row].tolist()) == others.tolist()
            np.testing.assert_allclose(scores[row], values[ids[row]], atol=1e-6)
            assert (np.diff(scores[row]) <= 0).all()
            assert ids[row][-1] == 17


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k: expected 1 to 499 other entities, got 0"),
        ({"k": NUM_ENTITIES}, "k: expected 1 to 499"),
        ({"measure": "euclid"}, r"measure \(--by\): expected cosine or dot, got 'euclid'"),
    ],
)
def test_neighbors_that_cannot_be(run, options, message):
    with pytest.raises(ValueError, match=message):
        run[0].neighbors([0], **options)


def test_an_embedding_of_nan_has_no_neighbors(tmp_path):
    rows = np.ones((9, 8), np.float32)
    rows[4, 3] = np.nan
    path = make_run(tmp_path / "run", None, [0, 9], rows, None, "embed.model=dot")
    with pytest.raises(RuntimeError, match="an embedding asked for holds NaN or inf"):
        open_run(path).neighbors([4], 2)
    with pytest.raises(ValueError, match=r"embed\.model=dot has no relations"):
        open_run(path).relations()


@pytest.mark.parametrize(
    ("lines", "seed", "message"),
    [
        (["a\tr\tb\n"], 0, "name other, not run.*, entities 2, not 500, relations 1, not 3, edges"),
        (LINES, 1, "has seed 1, not 0; give the store that the run was trained on with --store"),
    ],
)
def test_another_store_is_refused(run, tmp_path, lines, seed, message):
    """Also one of the same triples whose entities have other ids."""
    (tmp_path / "train.tsv").write_text("".join(lines))
    name = "other" if seed == 0 else run[0].store.name
    other = convert_triples(tmp_path, tmp_path / "store", seed=seed, name=name).path
    with pytest.raises(ValueError, match=message):
        open_run(run[0].run.path, other).entities(["e 1"])
    with pytest.raises(ValueError, match=message):
        evaluate_run(EmbeddingRun.open(run[0].run.path, [f"data.path={other}"]), "test")


@pytest.mark.parametrize("protocol", [[], ["eval.candidates=degree", "eval.sample=50"]])
def test_the_store_is_read_in_chunks(run, monkeypatch, protocol):
    """The ranking is the same, whatever part of the edges is in memory."""
    opened = EmbeddingRun.open(run[0].run.path, [*protocol, "eval.edges=20"])
    whole = evaluate_run(opened, "train")
    assert whole["train_num_edges"] == 20
    monkeypatch.setattr("lsm.data.triples.store._CHUNK_EDGES", 13)
    read = []
    checked = TripleStore.checked_edges

    def counted(store, split, rows=slice(None)):
        read.append(len(edges := checked(store, split, rows)))
        return edges

    monkeypatch.setattr(TripleStore, "checked_edges", counted)
    assert evaluate_run(opened, "train") == whole
    assert max(read) <= 20
    assert sum(read) >= len(LINES)


def test_the_command(run, monkeypatch, capsys):
    embeddings, rows, _, names = run
    path = embeddings.run.path
    expected, values = expected_neighbors(rows, 33, 4, "cosine")
    assert lsm(monkeypatch, "embed", "neighbors", path, names[33], "-k", "4") == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == names[33]
    assert [line.split(maxsplit=1)[1] for line in lines] == [names[i] for i in expected]
    assert [float(line.split()[0]) for line in lines] == pytest.approx(values, abs=2e-6)
    command = ("embed", "neighbors", path, "33", "-k", "4", "--ids", "--json", "--by", "dot")
    assert lsm(monkeypatch, *command) == 0
    answer = json.loads(capsys.readouterr().out)
    expected, values = expected_neighbors(rows, 33, 4, "dot")
    assert [number for number, _ in answer["33"]] == [str(i) for i in expected]
    for arguments, message in {
        ("nobody",): "error: 'nobody': expected one of the names in ",
        ("x", "--ids"): "error: NAME: expected an id with --ids, got 'x'",
        ("500", "--ids"): "error: entity: expected ids below 500, got 500",
        ("33", "--ids", "-k", "500"): "error: k: expected 1 to 499 other entities",
    }.items():
        assert lsm(monkeypatch, "embed", "neighbors", path, *arguments) == 1
        assert capsys.readouterr().err.startswith(message)


def test_a_run_that_was_trained(run, tmp_path):
    """The rows are those that training left in the file of partitions."""
    from lsm.embed.trainer import train

    store = run[0].store.path
    train(config(store, tmp_path, "embed.partitions=4", "train.epochs=1"))
    trained = open_run(tmp_path)
    rows, relations = tables(tmp_path)
    width = trained.run.layout.width
    expected = np.frombuffer(rows, np.float32).reshape(-1, width)[:, :DIM]
    np.testing.assert_array_equal(trained.entities(range(NUM_ENTITIES)), expected)
    expected = np.frombuffer(relations, np.float32).reshape(-1, width)[:, :DIM]
    np.testing.assert_array_equal(trained.relations(), expected)
