"""Validation and test over all neighbours give the metrics of a loop over full neighbourhoods."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import lsm
from lsm.data.typed.synth import synthesize_typed
from lsm.train.trainer import train
from support.link_runs import NUM_NODES, learn, link_store, rows_of
from support.training import config, losses, make_store, overrides, run_job, run_ranks

EXACT = "train.eval.exact=true"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("exact") / "store")


def accuracy(store, run_dir, seeds, hops=(-1, -1)):
    model = lsm.load_model(run_dir)
    with torch.inference_mode(), lsm.NeighborLoader(store, list(hops), seeds, 64) as loader:
        right = [model(batch).argmax(dim=1) == batch.y for batch in loader]
    return torch.cat(right).double().mean().item()


def epochs(run_dir):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "epoch"]


def test_metrics_are_those_of_all_neighbours(store, tmp_path):
    settings = ("sampler.num_neighbors=[2, 2]", "train.select=last")
    plain = train(config(store, tmp_path / "plain", *settings))
    found = train(config(store, tmp_path / "run", *settings, EXACT))
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")
    assert found["test_accuracy"] == accuracy(store, tmp_path / "run", "test")
    assert found["test_accuracy"] != plain["test_accuracy"]
    assert epochs(tmp_path / "run")[-1]["valid_accuracy"] == accuracy(
        store, tmp_path / "run", "valid"
    )
    assert not (tmp_path / "run" / ".exact").exists()


def test_the_best_model_is_that_of_the_exact_validation_also_after_a_kill(store, tmp_path):
    settings = (EXACT, "train.epochs=4", "train.patience=2", "train.lr=0.1")
    settings += ("checkpoint.every_steps=3", "checkpoint.keep=9")
    whole = train(config(store, tmp_path / "whole", *settings))
    valid = [each["valid_accuracy"] for each in epochs(tmp_path / "whole")]
    assert whole["valid_accuracy"] == max(valid)
    assert accuracy(store, tmp_path / "whole", "valid") == max(valid)
    train(config(store, tmp_path / "cut", *settings))
    (tmp_path / "cut" / "result.json").unlink()
    kept, *others = sorted((tmp_path / "cut" / "checkpoints").iterdir())
    for other in others:
        other.unlink()
    work = tmp_path / "cut" / ".exact" / ".work"  # of an evaluation that was killed
    work.mkdir(parents=True)
    (work / "state.json").write_text('{"job": {"model": "another"}, "boot": 1}')
    again = train(config(store, tmp_path / "cut", *settings, f"checkpoint.resume={kept}"))
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert again["test_accuracy"] == whole["test_accuracy"]
    assert [each["valid_accuracy"] for each in epochs(tmp_path / "cut")] == valid


def test_a_graph_with_types_is_evaluated_by_blocks(tmp_path):
    store = tmp_path / "store"
    synthesize_typed(store, 3, nodes=400, dim=20, classes=3, avg_degree=4.0, signal=2.0, seed=2)
    settings = ("model.name=rsage", "sampler.num_neighbors=[2, 2]", "train.epochs=1")
    found = train(config(store, tmp_path / "run", *settings, EXACT))
    assert found["test_accuracy"] == accuracy(store, tmp_path / "run", ("target", "test"))


def test_memory_is_planned_and_a_small_one_is_named(store, tmp_path, caplog):
    train(config(store, tmp_path / "run", EXACT, "train.epochs=1"))
    assert "exact evaluation" in caplog.text  # in the sum of the plan
    with pytest.raises(ValueError, match=r"memory\.bytes: expected room .*exact evaluation"):
        train(config(store, tmp_path / "small", EXACT, "memory.bytes=100MiB"))


def test_a_graph_without_seeds_of_evaluation_is_trained(tmp_path):
    draw = torch.Generator().manual_seed(0)
    data = Data(x=torch.randn(60, 4, generator=draw), y=torch.arange(60) % 3)
    data.edge_index = torch.randint(60, (2, 300), generator=draw)
    data.train_mask = torch.ones(60, dtype=torch.bool)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "g").path
    found = train(config(store, tmp_path / "run", EXACT, "train.epochs=1", "train.select=last"))
    assert found["test_accuracy"] is None
    assert found["valid_accuracy"] is None
    assert len(losses(tmp_path / "run")) > 0


def test_scores_of_links_that_are_not_finite_are_one_error(tmp_path):
    with pytest.raises(RuntimeError, match=r"epoch 1, split valid: .* not finite.*lower train\.lr"):
        learn(
            link_store(tmp_path), tmp_path / "run", EXACT, "train.batch_size=8000", "train.lr=1e10"
        )


@pytest.mark.parametrize("scorer", ["dot", "mlp"])
def test_links_rank_by_the_rows_of_all_nodes(tmp_path, scorer):
    store, count = link_store(tmp_path), 100
    keys = ("links.filtered=false", f"links.eval_candidates={count}", f"links.scorer={scorer}")
    keys = (*keys, "train.select=last")
    learn(store, tmp_path / "plain", *keys)
    run = learn(store, tmp_path / "run", *keys, EXACT)
    assert losses(run) == losses(tmp_path / "plain")
    rows, model = rows_of(run, tmp_path / "rows"), lsm.load_model(run)
    with torch.no_grad():
        scores = model.scorer.matrix(rows, rows).numpy()
    drawn = np.sort(np.random.default_rng(0).choice(NUM_NODES, count, replace=False))
    sources, own = lsm.LinkSplits.open(tmp_path / "g.links").edges("test").numpy()
    others = np.where(drawn == own[:, None], -np.inf, scores[sources][:, drawn])
    ranks = 1 + (others > scores[sources, own][:, None]).sum(1)
    result = json.loads((run / "result.json").read_text())
    assert result["test_mrr"] == pytest.approx((1 / ranks).mean(), rel=2e-3)
    assert result["test_hits_at_10"] == pytest.approx((ranks <= 10).mean(), abs=0.01)
    plain = json.loads((tmp_path / "plain" / "result.json").read_text())
    assert result["test_mrr"] != plain["test_mrr"]
    assert not (run / ".exact").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("sampler.time_attr=time",), r"train\.eval\.exact: .*neighbours of all times"),
        (
            ("model.name=torch_geometric.nn:GraphSAGE", "model.args.jk=cat"),
            r"train\.eval\.exact: .*jk='cat'.*; or set it to false",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(store, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message) as found:
        train(config(store, tmp_path / "run", EXACT, *settings))
    assert "\n" not in str(found.value) or "validation error" in str(found.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ranks_evaluate_together(store, tmp_path):
    arguments = overrides(store, tmp_path / "run", EXACT, "train.epochs=2")
    job = run_job(3, "-m", "lsm", "train", "base", *arguments)
    assert job.returncode == 0, job.stderr
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["test_accuracy"] == accuracy(store, tmp_path / "run", "test")


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
def test_ranks_without_a_common_folder_are_refused_if_they_evaluate_so(store, tmp_path, exact):
    settings = ["train.epochs=1", EXACT] if exact else ["train.epochs=1"]
    commands = [
        ["-m", "lsm", "train", "base", *overrides(store, tmp_path / str(rank), *settings)]
        for rank in range(2)
    ]
    codes, errors = run_ranks(2, commands)
    assert codes == [exact, exact]
    for lines in errors.values():
        assert bool(lines) == exact
        for line in lines:
            assert "run.dir, with train.eval.exact: rank 1 does not see the folder" in line
    assert (tmp_path / "0" / "result.json").exists() != exact
    assert not list(tmp_path.glob("*/.common-*"))
