"""Training learns; its losses depend on the settings, not on engines, threads or ranks."""

import json

import pytest
import torch

from lsm.config.load import load_config
from lsm.storage.engine import ENGINES
from lsm.train.trainer import train
from support.training import REPOSITORY, config, losses, make_store, overrides, run_job, steps

# All neighbours and no dropout: nothing that depends on the rank, so worlds can be compared.
SAME_ON_ANY_RANK = ("sampler.num_neighbors=[-1, -1]", "model.dropout=0")


@pytest.fixture(scope="module")
def alone(store, tmp_path_factory):
    """A run of a world of one: its summary and its directory."""
    run_dir = tmp_path_factory.mktemp("alone")
    return train(config(store, run_dir, "storage.engine=memory", "train.epochs=4")), run_dir


def test_it_learns_what_the_store_was_made_to_teach(alone):
    summary, _ = alone
    assert summary["test_accuracy"] > 0.9  # three classes: chance is 0.33
    assert summary["valid_accuracy"] > 0.9


def test_the_summary_has_the_promised_keys_first(alone):
    summary, run_dir = alone
    assert list(summary)[:6] == [
        "test_accuracy",
        "epochs",
        "world_size",
        "engine",
        "bytes_read",
        "seconds",
    ]
    assert (summary["epochs"], summary["world_size"], summary["engine"]) == (4, 1, "memory")
    assert summary["run_dir"] == str(run_dir)
    assert summary["config"] == str(run_dir / "config.yaml")
    assert summary["store"] == load_config(summary["config"]).data.path
    assert json.loads((run_dir / "result.json").read_text()) == summary


def test_every_iteration_and_epoch_is_recorded_once(alone):
    summary, run_dir = alone
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    at = [(r["kind"], r["epoch"], r.get("iteration")) for r in records]
    expected = []
    for epoch in range(1, 5):
        expected += [("step", epoch, iteration) for iteration in range(5)]
        expected.append(("epoch", epoch, None))
    assert at == expected
    first_epoch = [r for r in records if r["epoch"] == 1]
    *first_steps, totals = first_epoch
    assert [step["num_seeds"] for step in first_steps] == [64, 64, 64, 64, 44]
    assert all(step["num_nodes"] > step["num_seeds"] and step["num_edges"] for step in first_steps)
    mean = sum(step["loss"] * step["num_seeds"] for step in first_steps) / 300
    assert totals["loss"] == pytest.approx(mean, rel=1e-12)
    assert records[-1]["bytes_read"] <= summary["bytes_read"]


def test_rows_that_lie_in_memory_are_hits_and_no_bytes_of_a_drive(alone):
    summary, run_dir = alone
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        assert record["hits"] == record["requests"] > 0
        assert (record["misses"], record["bytes_read"], record["storage_bytes"]) == (0, 0, 0)
    assert (summary["bytes_read"], summary["test_misses"]) == (0, 0)
    log = (run_dir / "run.log").read_text()
    assert log.count("  all rows in memory  ") == 4
    assert "hits" not in log


def test_the_selected_model_is_written(alone):
    _, run_dir = alone
    weights = torch.load(run_dir / "model.pt", weights_only=True)
    assert weights["convs.0.lin_l.weight"].shape == (16, 12)


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "memory"])
def test_losses_are_identical_over_engines(store, alone, engine, tmp_path):
    if engine == "io_uring":
        from lsm import native

        if native.io_uring_problem():
            pytest.skip(native.io_uring_problem())
    # Nor do threads, prefetching or the topology's place matter.
    other = ("loader.num_threads=2", "loader.prefetch=2", "data.topology=memory")
    summary = train(config(store, tmp_path, f"storage.engine={engine}", "train.epochs=4", *other))
    assert summary["engine"] == engine
    assert losses(tmp_path) == losses(alone[1])
    assert summary["test_accuracy"] == alone[0]["test_accuracy"]


def test_another_seed_gives_other_losses(store, alone, tmp_path):
    train(config(store, tmp_path, "train.seed=1", "train.epochs=1"))
    assert not {loss for *_, loss in losses(tmp_path)} & {loss for *_, loss in losses(alone[1])}


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_the_other_models_learn_and_repeat_themselves(store, tmp_path, name):
    settings = (f"model.name={name}", "train.epochs=10")
    runs = [tmp_path / "a", tmp_path / "b"]
    accuracies = [train(config(store, run, *settings))["test_accuracy"] for run in runs]
    assert accuracies[0] > 0.85
    assert losses(runs[0]) == losses(runs[1])


def test_bfloat16_learns_too(store, alone, tmp_path):
    summary = train(config(store, tmp_path, "train.precision=bf16", "train.epochs=4"))
    assert summary["test_accuracy"] > 0.9
    assert losses(tmp_path) != losses(alone[1])


@pytest.mark.slow
def test_two_ranks_take_the_same_steps_as_one_with_twice_the_batch(tmp_path):
    # 257 training nodes: the last global batch has one seed, so that one rank has none.
    store = make_store(tmp_path / "store", num_train=257)
    one, two = tmp_path / "one", tmp_path / "two"
    train(config(store, one, *SAME_ON_ANY_RANK, "train.batch_size=64"))
    half = overrides(store, two, *SAME_ON_ANY_RANK, "train.batch_size=32", "metrics.progress=on")
    job = run_job(2, "-m", "lsm", "train", "base", *half)
    assert job.returncode == 0, job.stderr
    summary = json.loads(job.stdout.splitlines()[-1])
    assert len(job.stdout.splitlines()) == 1  # everything else is on standard error
    assert summary["world_size"] == 2
    assert "epoch   2/2" in job.stderr
    assert [step["num_seeds"] for step in steps(two)] == [64, 64, 64, 64, 1] * 2
    # float32 sums in another order, carried through ten updates.
    for (*at, loss), (*other_at, other) in zip(losses(one), losses(two), strict=True):
        assert at == other_at
        assert loss == pytest.approx(other, rel=1e-4), at


def test_quickstart_is_what_the_readme_says():
    quickstart = load_config(REPOSITORY / "configs" / "quickstart.yaml")
    assert quickstart.storage.engine == "io_uring"
    assert quickstart.model.name == "graphsage"
    assert len(quickstart.sampler.num_neighbors) == 2
