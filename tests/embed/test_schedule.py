"""Batches, rounds and validations that the configuration leaves to the graph."""

import json
from types import SimpleNamespace

import pytest

from lsm.embed.config import load_embed_config
from lsm.embed.orders.order import make_order
from lsm.embed.schedule import Schedule
from lsm.embed.trainer import train
from support.triples import FAST, config, tables


def schedule(*overrides, train=200_000, valid=10_000, entities=15_000):
    settings = load_embed_config("base", list(overrides))
    counts = {"train": train, "valid": valid}
    store = SimpleNamespace(num_edges=counts, num_entities=entities, path="graph")
    options = settings.embed
    return Schedule.of(
        settings, store, make_order(options.order, options.partitions, options.buffer)
    )


@pytest.mark.parametrize(
    ("partitions", "buffer", "rounds"),
    [(1, 3, 1), (3, 3, 1), (4, 3, 7), (8, 3, 4), (8, 6, 7), (8, 8, 1), (32, 3, 1)],
)
def test_a_partition_comes_eight_times_an_epoch(partitions, buffer, rounds):
    shape = (f"embed.partitions={partitions}", f"embed.buffer={buffer}")
    assert schedule(*shape).rounds == rounds
    assert schedule(*shape, "embed.rounds=2").rounds == (2 if partitions > buffer else 1)


@pytest.mark.parametrize(
    ("entities", "partitions", "size"),
    # In memory; a 32nd of three eighths; the bounds.
    [(15_000, 1, 1024), (15_000, 3, 1024), (40_960, 8, 480), (10**7, 8, 1024), (2000, 8, 128)],
)
def test_batches_from_disk_have_at_most_a_share_of_the_nodes_in_memory(entities, partitions, size):
    shape = f"embed.partitions={partitions}"
    assert schedule(shape, entities=entities).batch_size == size
    assert schedule(shape, "train.batch_size=2000", entities=entities).batch_size == 2000


@pytest.mark.parametrize(
    ("edges", "every"), [(1, 5), (10_000_000, 5), (20_000_000, 2), (50_000_000, 1), (10**9, 1)]
)
def test_large_graphs_have_validations_more_often(edges, every):
    assert schedule(train=edges).eval_every == every
    assert schedule("train.eval_every=3", train=edges).eval_every == 3


@pytest.mark.parametrize(
    ("edges", "entities", "expected"),
    # A tenth of five epochs, of 1000 negatives an edge; a tenth of one epoch; the fewest.
    [(200_000, 10_000, 10_000), (100_000_000, 2_000_000, 5_000), (1000, 10_000_000, 1000)],
)
def test_a_validation_is_a_tenth_of_training(edges, entities, expected):
    assert schedule(train=edges, entities=entities).eval_edges == expected
    assert schedule("train.eval_edges=7", train=edges).eval_edges == 7


def test_a_sample_of_candidates_takes_more_edges():
    sampled = schedule("eval.candidates=uniform", "eval.sample=100", entities=10_000)
    assert sampled.eval_edges == 100 * schedule(entities=10_000).eval_edges


def test_a_graph_without_validation_edges_has_no_validations():
    assert schedule(valid=0).eval_every is None
    assert schedule("train.eval_every=0", valid=0).eval_every is None
    with pytest.raises(ValueError, match=r"train\.eval_every: graph has no validation edges"):
        schedule("train.eval_every=1", valid=0)


def test_a_run_takes_the_rounds_and_the_validations(store, tmp_path):
    left = ("embed.rounds=auto", "train.eval_every=auto", "embed.partitions=8")
    stated = ("embed.rounds=4", "train.eval_every=5", "embed.partitions=8")
    for name, settings in {"left": left, "stated": stated}.items():
        more = (*settings, "train.epochs=5", "train.eval_edges=20")
        summary = train(config(store, tmp_path / name, *more))
        assert summary["best_epoch"] == 5
    assert tables(tmp_path / "left") == tables(tmp_path / "stated")
    lines = map(json.loads, (tmp_path / "left" / "metrics.jsonl").read_text().splitlines())
    counts = [line.get("valid_num_edges") for line in lines if line["kind"] == "epoch"]
    assert counts == [None] * 4 + [20]


def test_the_defaults_take_a_graph_of_any_kind(store, tmp_path):
    """Those of base, but for sizes."""
    sizes = [key for key in FAST if key.startswith(("embed.dim", "embed.num", "train.num", "met"))]
    keys = [*sizes, f"data.path={store}", f"run.dir={tmp_path / 'run'}", "train.batch_size=32"]
    summary = train(load_embed_config("base", keys))
    assert summary["best_epoch"] > 0
    assert summary["test_mrr"] > 0.1  # chance: about 0.025
