"""Bad input and failing ranks: one clear error, a non-zero exit, and no rank left behind."""

import json
import re
import signal
import subprocess

import numpy as np
import pytest

from lsm.data.graph_store import GraphStore
from lsm.train.tasks.node_prediction import NodePrediction
from lsm.train.trainer import train
from support.training import (
    CRASH_AT,
    config,
    forking_python,
    free_port,
    make_store,
    overrides,
    rank_environment,
    run_job,
    run_ranks,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store")


def error_lines(job):
    assert job.returncode != 0
    assert job.stdout == ""
    return [line for line in job.stderr.splitlines() if line.startswith("error:")]


def test_no_store_given(tmp_path):
    from lsm.config.load import load_config

    with pytest.raises(ValueError, match=r"data\.path: not set; give a store directory"):
        train(load_config("base", [f"run.dir={tmp_path}"]))


def test_a_missing_store_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data\.path: .*no-such"):
        train(config(tmp_path / "no-such", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_truncated_feature_file_is_named(store, tmp_path):
    file = store / "features.bin"
    file.write_bytes(file.read_bytes()[:-4096])
    with pytest.raises((ValueError, OSError), match=r"features\.bin.*truncated"):
        train(config(store, tmp_path / "run"))


def test_more_ranks_than_training_nodes(store, tmp_path):
    settings, task = config(store, tmp_path / "run"), NodePrediction()
    task.check(settings, GraphStore.open(store), 300)
    with pytest.raises(ValueError, match=r"world size: 301 ranks .* has 300; start fewer"):
        task.check(settings, GraphStore.open(store), 301)


def test_labels_out_of_range_are_found_before_training(store, tmp_path):
    labels = np.load(store / "labels.npy")
    labels[299] = 3  # the last training node; the graph has three classes
    np.save(store / "labels.npy", labels)
    with pytest.raises(ValueError, match="labels of split train: expected 0 to 2, got 0 to 3"):
        train(config(store, tmp_path / "run"))


def test_choosing_the_best_model_needs_validation_nodes(store, tmp_path):
    meta = json.loads((store / "meta.json").read_text())
    np.save(store / "split" / "valid.npy", np.empty(0, np.int64))
    meta["files"]["split/valid.npy"]["bytes"] = (store / "split" / "valid.npy").stat().st_size
    (store / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=r"train\.select: best needs validation nodes"):
        train(config(store, tmp_path / "run"))
    summary = train(config(store, tmp_path / "run", "train.select=last"))
    assert summary["valid_accuracy"] is None
    assert summary["test_accuracy"] > 0.5


def test_features_that_are_not_numbers_stop_training(store, tmp_path):
    features = np.fromfile(store / "features.bin", np.float32)
    features[: 300 * 12] = np.nan
    features.tofile(store / "features.bin")
    message = r"^epoch 1, iteration 0: the loss is nan; .*lsm data verify"
    with pytest.raises(RuntimeError, match=message):
        train(config(store, tmp_path / "run"))


def test_under_torchrun_a_mistake_of_all_ranks_is_reported_once(store, tmp_path):
    settings = overrides(tmp_path / "no-such", tmp_path / "run")
    (line,) = error_lines(run_job(2, "-m", "lsm", "train", "base", *settings, is_forked=False))
    assert re.search(r"rank 0: data\.path: .*no-such", line)


def test_under_torchrun_a_failure_of_one_rank_ends_all_and_is_the_one_reported(store, tmp_path):
    settings = overrides(store, tmp_path / "run", "train.batch_size=32")
    job = run_job(2, CRASH_AT, "raise", 1, 0, 2, "base", *settings, is_forked=False)
    (line,) = error_lines(job)
    assert "error: rank 1:" in line
    assert "injected failure of the disk" in line


def test_a_rank_that_is_killed_is_named_by_the_others(store, tmp_path):
    settings = overrides(store, tmp_path / "run", "train.batch_size=32", "dist.timeout_secs=60")
    command = [CRASH_AT, "kill", "0", "0", "2", "base", *settings]
    codes, errors = run_ranks(2, [command] * 2)
    assert codes == [-signal.SIGKILL, 1]
    (line,) = errors[1]
    assert line.startswith("error: rank 1: another rank ended or did not answer during ")
    assert re.search(r" at epoch 1, iteration 2, awaited for .* s: rank 0 \(\S+, pid \d+\) ", line)
    assert "has been silent for" in line


@pytest.mark.parametrize(
    ("how", "rank", "num_ranks", "why"),
    [
        ("stop", 0, 2, r"has been silent for \d+ s, as has the store that it holds"),
        ("hang", 1, 3, "lives but did not come to it: it is at epoch 1, iteration"),
    ],
)
def test_a_rank_that_is_stuck_is_named_by_the_others(store, tmp_path, how, rank, num_ranks, why):
    settings = overrides(store, tmp_path / "run", "train.batch_size=32", "dist.timeout_secs=4")
    command = [CRASH_AT, how, rank, "0", "2", "base", *settings]
    codes, errors = run_ranks(num_ranks, [command] * num_ranks, stuck=rank)
    for other in errors:
        assert codes[other] == 1
        (line,) = errors[other]
        assert "did not answer during the exchange of gradients at epoch 1, iteration 2" in line
        assert re.search(rf" s: rank {rank} \(\S+, pid \d+\) {why}", line)


def test_a_rank_that_never_comes_is_waited_for_in_bounded_time(store, tmp_path):
    settings = overrides(store, tmp_path / "run", "dist.timeout_secs=2")
    job = subprocess.run(
        [forking_python(), "-m", "lsm", "train", "base", *settings],
        env=rank_environment(0, 2, free_port()),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert job.returncode == 1
    assert "could not join the other ranks within 2 s (dist.timeout_secs)" in job.stderr
