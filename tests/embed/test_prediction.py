"""Predictions and scores of a run against all scores in NumPy."""

import numpy as np
import pytest
import torch

from lsm.data.triples.convert import convert_triples
from lsm.embed import open_run
from lsm.embed.models.models import MODELS
from lsm.embed.use.prediction import best_targets
from support.edge_scores import edge_scores
from support.embed_runs import make_run
from support.triples import config, make_triples

NUM_ENTITIES, NUM_RELATIONS, DIM = 300, 3, 8


def write_triples(folder):
    """Three splits; a head has tens of tails, so that filters have work."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 3000), ("valid", 200), ("test", 200)):
        heads, tails = rng.integers(20, size=count), rng.integers(NUM_ENTITIES, size=count)
        kinds = rng.integers(NUM_RELATIONS, size=count)
        rows = [f"e{h}\tr{k}\te{t}\n" for h, k, t in zip(heads, kinds, tails, strict=True)]
        if split == "train":
            rows += [f"e{e}\tr{e % NUM_RELATIONS}\te0\n" for e in range(NUM_ENTITIES)]
        (folder / f"{split}.tsv").write_text("".join(rows))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    write_triples(folder)
    return convert_triples(folder, folder / "store")


@pytest.fixture(scope="module")
def tables():
    """Rows of entities and relations, reciprocal ones too. Some entities are equal."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((NUM_ENTITIES, DIM)).astype(np.float32)
    rows[40:60], rows[150] = rows[7], rows[299]
    return rows, rng.standard_normal((2 * NUM_RELATIONS, DIM)).astype(np.float32)


def open_made(path, store, tables, model, *more, partitions=7):
    rows, relations = tables
    starts = store.partition_starts(partitions).tolist()
    if "embed.reciprocal=false" in more:
        relations = relations[:NUM_RELATIONS]
    kept = None if model == "dot" else relations
    return open_run(
        make_run(path / "run", store.path, starts, rows, kept, f"embed.model={model}", *more)
    )


def all_scores(model, reciprocal, tables, given, kind, is_head):
    """Of every entity in the place of the missing one."""
    rows, relations = (table.astype(np.float64) for table in tables)
    if not is_head:
        return edge_scores(model, rows[given], relations[kind], rows)
    if reciprocal and model != "dot":
        return edge_scores(model, rows[given], relations[NUM_RELATIONS + kind], rows)
    return edge_scores(model, rows, relations[kind], rows[given])


def known_entities(store, model, given, kind, is_head):
    edges = np.concatenate([store.edges(split) for split in ("train", "valid", "test")])
    here = edges[:, 2 if is_head else 0] == given
    if model != "dot":
        here &= edges[:, 1] == kind
    return set(edges[here, 0 if is_head else 2].tolist())


def best(scores, left_out, k):
    """Ids and scores by sorting, lower ids first among equals; -1 and -inf behind them."""
    kept = [e for e in range(len(scores)) if e not in left_out]
    order = sorted(kept, key=lambda e: (-np.float32(scores[e]), e))[:k]
    missing = k - len(order)
    return order + [-1] * missing, [*scores[order], *[-np.inf] * missing]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("is_head", [False, True])
def test_predictions(store, tables, tmp_path, model, reciprocal, is_head):
    """All models, both sides, with and without known edges; ties go to lower ids."""
    more = () if reciprocal else ("embed.reciprocal=false",)
    run = open_made(tmp_path, store, tables, model, *more)
    # Entity 7 is equal to twenty others; e0 and e3 have tens of edges.
    given = [7, *run.entity_ids(["e0", "e3"]), 299, 7]
    of_e0 = known_entities(store, model, given[1], 1, is_head)
    assert len(of_e0) > 20  # edges to leave out
    kinds = [0, 1, 2, 1, 2]
    relations = None if model == "dot" else kinds
    for unknown_only in (False, True):
        for k in (1, 10, NUM_ENTITIES):
            sides = {"tails" if is_head else "heads": given}
            ids, scores = run.predict(**sides, relations=relations, k=k, unknown_only=unknown_only)
            assert (ids.dtype, scores.dtype) == (torch.int64, torch.float32)
            for row, (entity, kind) in enumerate(zip(given, kinds, strict=True)):
                values = all_scores(model, reciprocal, tables, entity, kind, is_head)
                known = known_entities(store, model, entity, kind, is_head)
                expected, best_scores = best(values, known if unknown_only else (), k)
                assert ids[row].tolist() == expected
                # float64, rounded to float32.
                np.testing.assert_allclose(scores[row], best_scores, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("reciprocal", [True, False])
def test_scores(store, tables, tmp_path, model, reciprocal, monkeypatch):
    monkeypatch.setattr("lsm.embed.use.prediction.EDGES_AT_ONCE", 7)
    more = () if reciprocal else ("embed.reciprocal=false",)
    run = open_made(tmp_path, store, tables, model, *more, partitions=1)
    edges = torch.from_numpy(store.edges("test")[:50].astype(np.int64))
    for target in ("tail", "head"):
        expected = [
            all_scores(model, reciprocal, tables, tail, kind, True)[head]
            if target == "head"
            else all_scores(model, reciprocal, tables, head, kind, False)[tail]
            for head, kind, tail in edges.tolist()
        ]
        scores = run.score(edges, target=target)
        assert scores.dtype == torch.float32
        np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6)
    names = run.entity_names(edges[:, [0, 2]].flatten().tolist())
    by_name = [
        (names[2 * n], f"r{k}" if n % 2 else k, names[2 * n + 1])
        for n, k in enumerate(run_kinds(store, edges))
    ]
    named = run.score(by_name, target="head")
    np.testing.assert_array_equal(named, scores)
    assert run.score([]).shape == (0,)


def run_kinds(store, edges):
    """Ids of relations; r0, r1, r2 are numbered as they first occur."""
    names = list(store.relation_names())
    assert sorted(names) == ["r0", "r1", "r2"]
    return [int(names[kind][1:]) if number % 2 else kind for number, kind in enumerate(edges[:, 1])]


@pytest.mark.parametrize("partitions", [1, 4])
def test_predictions_rank_as_evaluation_does(tmp_path, partitions):
    """The reciprocal ranks of the test edges among all predictions, of a run that was trained."""
    from lsm.embed.evaluate import evaluate_run
    from lsm.embed.run import EmbeddingRun
    from lsm.embed.trainer import train

    made = make_triples(tmp_path / "store")
    train(config(made, tmp_path / "run", f"embed.partitions={partitions}"))
    run = open_run(tmp_path / "run")
    heads, kinds, tails = run.store.edges("test").T.tolist()
    by_tail, of_tail = run.predict(heads, kinds, k=run.num_entities)
    by_head, of_head = run.predict(relations=kinds, tails=tails, k=run.num_entities)
    ranks = []
    for found, own in ((by_tail, tails), (by_head, heads)):
        ranks.append((found == torch.tensor(own)[:, None]).nonzero()[:, 1] + 1)
    raw = EmbeddingRun.open(tmp_path / "run", ["eval.filtered=false"])
    expected = evaluate_run(raw, "test")["test_mrr"]
    # Evaluation takes scores that differ by 1e-6 for ties.
    assert torch.cat(ranks).double().reciprocal().mean().item() == pytest.approx(expected, rel=1e-2)
    edges = list(zip(heads, kinds, tails, strict=True))
    for scores, found, own, target in (
        (of_tail, by_tail, tails, "tail"),
        (of_head, by_head, heads, "head"),
    ):
        own_scores = scores[found == torch.tensor(own)[:, None]]
        # A matrix product and a sum of pairs, both in float64.
        torch.testing.assert_close(run.score(edges, target=target), own_scores, rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("score_bytes", [8, 1 << 20])
def test_blocks_do_not_matter(monkeypatch, size, score_bytes):
    """Many ties, rows of NaN, queries in several parts."""
    from lsm.embed.options import EmbedOptions

    monkeypatch.setattr("lsm.embed.use.highest.SCORE_BYTES", score_bytes)
    rng = np.random.default_rng(1)
    rows = rng.integers(-1, 2, (100, 4)).astype(np.float32)
    rows[17] = np.nan
    queries = rng.integers(-1, 2, (5, 4)).astype(np.float64)
    known = (torch.tensor([0, 0, 3, 4]), torch.tensor([2, 99, 50, 17]))
    blocks = [(n, torch.from_numpy(rows[n : n + size])) for n in range(0, 100, size)]
    ids, scores = best_targets(
        EmbedOptions(model="dot", dim=4), blocks, torch.from_numpy(queries), 100, known
    )
    for number, query in enumerate(queries):
        left_out = {17, *known[1][known[0] == number].tolist()}
        expected, values = best(rows @ query, left_out, 100)
        assert ids[number].tolist() == expected
        np.testing.assert_array_equal(scores[number], np.float32(values))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": [0], "relations": [0], "k": 0}, "k: expected 1 to 300 entities, got 0"),
        ({"heads": [0], "relations": [0], "k": 301}, "k: expected 1 to 300 entities, got 301"),
        ({"heads": [0]}, "relations: expected one, as embed.model=complex scores relations"),
        ({"relations": [0]}, "heads, tails: expected one of the two, .* got none"),
        ({"heads": [0], "tails": [1], "relations": [0]}, "heads, tails: .* got both"),
        ({"heads": [0], "relations": [3]}, "relation: expected ids below 3, got 3"),
        ({"heads": [300], "relations": [0]}, "entity: expected ids below 300, got 300"),
        ({"heads": [0, 1, 2], "relations": [0, 1]}, "one of each of 3 queries, got 2"),
        ({"heads": ["e1"], "relations": ["R0"]}, "'R0': expected .*; did you mean 'r0'"),
        ({"tails": ["E17"], "relations": ["r0"]}, "'E17': expected .*; did you mean 'e17'"),
    ],
)
def test_queries_that_cannot_be(store, tables, tmp_path, arguments, message):
    run = open_made(tmp_path, store, tables, "complex")
    with pytest.raises(ValueError, match=message):
        run.predict(**arguments)


@pytest.mark.parametrize(
    ("triples", "options", "message"),
    [
        ([(0, 0, 1), (0, 1)], {}, r"triples: expected \(head, relation, tail\), got \(0, 1\) at 1"),
        (["abc"], {}, "got 'abc' at 0"),
        ([(0, 0, 300)], {}, "entity: expected ids below 300, got 300"),
        ([(0, "r9", 1)], {}, "'r9': expected one of the names in"),
        (torch.tensor([[0, 0, 1], [0, 1, 300]]), {}, "entity: expected ids below 300, got 300"),
        (torch.tensor([[0, -1, 1]]), {}, "relation: expected ids below 3, got -1"),
        (torch.tensor([[0, 1]]), {}, r"expected ids \[n, 3\] of integers, got .*int64 \[1, 2\]"),
        (torch.tensor([[0.0, 1, 2]]), {}, r"expected ids \[n, 3\] of integers, got .*float32"),
        ([(0, 0, 1)], {"target": "both"}, "target: expected tail or head, got 'both'"),
    ],
)
def test_triples_that_cannot_be(store, tables, tmp_path, triples, options, message):
    run = open_made(tmp_path, store, tables, "complex")
    with pytest.raises(ValueError, match=message):
        run.score(triples, **options)


def test_dot_takes_no_relations(store, tables, tmp_path):
    run = open_made(tmp_path, store, tables, "dot")
    with pytest.raises(ValueError, match=r"expected none, as embed\.model=dot has no relations"):
        run.predict(["e1"], ["r0"])
    pairs = run.score([("e1", "e2")])
    np.testing.assert_array_equal(run.score([("e1", "any", "e2")]), pairs)


def test_ids_do_without_the_store(tables, tmp_path):
    rows, relations = tables
    path = make_run(tmp_path / "run", None, [0, 100, 300], rows, relations)
    ids, _ = open_run(path).predict([5], [1], k=3)
    assert ids[0].tolist() == best(all_scores("complex", True, tables, 5, 1, False), (), 3)[0]


def test_what_is_not_finite(store, tables, tmp_path):
    """A query of NaN is an error, an entity of NaN is no prediction, a score of NaN is NaN."""
    rows = tables[0].copy()
    rows[11, 2] = np.nan
    run = open_made(tmp_path, store, (rows, tables[1]), "complex")
    with pytest.raises(RuntimeError, match="an embedding asked for holds NaN or inf"):
        run.predict([11], [0])
    ids, scores = run.predict([5], [0], k=NUM_ENTITIES)
    assert 11 not in ids[0]
    assert (ids[0, -1].item(), scores[0, -1].item()) == (-1, -np.inf)
    assert torch.isnan(run.score([(5, 0, 11), (5, 0, 12)])).tolist() == [True, False]


def test_another_store_and_damage_are_refused(store, tables, tmp_path):
    run = open_made(tmp_path, store, tables, "complex")
    (tmp_path / "train.tsv").write_text("a\tr0\tb\n")
    other = convert_triples(tmp_path, tmp_path / "other").path
    with pytest.raises(ValueError, match="give the store that the run was trained on"):
        open_run(run.run.path, other).predict([0], [0], unknown_only=True)
    with pytest.raises(ValueError, match="give the store that the run was trained on"):
        open_run(run.run.path, other).score([("a", "r0", "b")])
    layout, slots = run.run.layout, run.run.state.table.slots
    with open(run.run.path / "partitions.bin", "r+b") as file:
        file.seek(layout.slot_offset(6, slots[6]))
        file.write(b"\x01")
    with pytest.raises(OSError, match="partition 6 was read with checksum"):
        open_run(run.run.path).predict([0], [0])
    with pytest.raises(OSError, match="partition 6 was read with checksum"):
        open_run(run.run.path).score([(NUM_ENTITIES - 1, 0, 1)])
