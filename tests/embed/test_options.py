"""Options of embeddings: widths of rows, and errors that name the key."""

import math
from types import SimpleNamespace

import pytest

from lsm.data.triples.convert import convert_triples
from lsm.embed import open_run, run_state
from lsm.embed.config import fingerprint, load_embed_config
from lsm.embed.job import find_state
from lsm.embed.options import EmbedOptions
from lsm.embed.trainer import train
from support.triples import config, make_triples


@pytest.mark.parametrize(("optimizer", "width"), [("adagrad", 20), ("row_adagrad", 11)])
def test_a_row_holds_the_embedding_and_its_state(optimizer, width):
    assert EmbedOptions(dim=10, optimizer=optimizer).width == width


def test_reciprocal_relations_have_two_rows():
    assert EmbedOptions(reciprocal=True).relation_rows(7) == 14
    assert EmbedOptions(reciprocal=False).relation_rows(7) == 7


@pytest.mark.parametrize(("num_relations", "model"), [(0, "dot"), (1, "complex"), (9, "complex")])
def test_auto_takes_a_model_by_relations(num_relations, model):
    options = EmbedOptions(dim=10, lr=0.3)
    chosen = options.for_graph(num_relations)
    assert (options.model, chosen.model) == ("auto", model)
    assert chosen == EmbedOptions(model=model, dim=10, lr=0.3)
    assert EmbedOptions(model="rotate").for_graph(0).model == "rotate"
    odd = EmbedOptions(dim=9)
    if model == "complex":
        with pytest.raises(ValueError, match=r"embed\.dim: expected an even number"):
            odd.for_graph(num_relations)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "complex", "dim": 9}, "embed.dim: expected an even number .* embed.dim=10"),
        ({"num_negatives": 0}, "embed.num_negatives: expected all or an integer from 1"),
        ({"num_negatives": "some"}, "embed.num_negatives: expected all or an integer"),
        ({"buffer": 2}, "embed.buffer: expected at least 3, got 2"),
        ({"lr": 0.0}, "embed.lr: expected more than 0"),
        ({"dropout": 1.0}, "embed.dropout: expected less than 1"),
        ({"model": "hole"}, "embed.model: expected one of"),
        ({"gpu_scores": "fused", "loss": "margin"}, "embed.gpu_scores: fused is for .*got margin"),
        ({"gpu_scores": "fused", "model": "rotate"}, "embed.gpu_scores: .*got softmax and rotate"),
        ({"gpu_scores": "fused", "dim": 514}, "embed.gpu_scores: .*at most 512, got 514; set"),
    ],
)
def test_wrong_values_name_their_key(values, message):
    with pytest.raises(ValueError, match=message):
        EmbedOptions(**values)


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"partitions": 8}, 2 / 7),
        ({"partitions": 32, "buffer": 5}, 4 / 31),
        ({"partitions": 1}, 1),
        ({"partitions": 3}, 1),
        ({"partitions": 8, "loss": "margin"}, 1),
        ({"partitions": 8, "shift_scores": False}, 1),
    ],
)
def test_scores_are_shifted_where_partitions_move(keys, factor):
    assert EmbedOptions(**keys).partition_shift == pytest.approx(math.log(factor))


def test_checkpoints_from_before_the_shift_continue_without_it(tmp_path, monkeypatch):
    def find(*keys):
        config = load_embed_config("base", [*keys])
        return find_state(config, tmp_path, fingerprint(config, 1, {}))

    saved = fingerprint(load_embed_config("base", ["embed.shift_scores=false"]), 1, {})
    del saved["embed.shift_scores"]
    state = SimpleNamespace(settings=saved, position=SimpleNamespace(epoch=1, iteration=2))
    monkeypatch.setattr(run_state, "load_state", lambda _: state)
    assert find() is state
    saved["embed.partitions"] = 8
    assert find("embed.partitions=8", "embed.shift_scores=false") is state
    with pytest.raises(ValueError, match=r"embed.shift_scores \(False there, True now\); restore"):
        find("embed.partitions=8")


def test_a_store_of_other_contents_does_not_continue_a_run(tmp_path):
    """Also of the same counts; nor is it that of the run's embeddings."""
    store = make_triples(tmp_path / "store")
    train(config(store, tmp_path / "run", "train.epochs=1"))
    source = tmp_path / "store.tsv"
    lines = [line.split("\t") for line in source.read_text().splitlines()]
    source.write_text("".join("\t".join((tail, kind, head)) + "\n" for head, kind, tail in lines))
    convert_triples(source, store, progress=False, force=True)
    with pytest.raises(ValueError, match=r"other settings: data\.path \(contents\) \("):
        train(config(store, tmp_path / "run", "train.epochs=2"))
    with pytest.raises(ValueError, match=r"data\.path: .* has other contents; give the store"):
        open_run(tmp_path / "run").store  # noqa: B018
