"""A run that was killed continues to the same losses; a checkpoint is whole, ours, or an error."""

import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import lsm
from lsm.config.load import load_config
from lsm.data.convert.npy import convert_npy
from lsm.distributed.signals import EXIT_STOPPED
from lsm.run.position import Position
from lsm.train import checkpoint
from lsm.train.checkpoint import State
from lsm.train.trainer import train
from support.training import (
    CRASH_AT,
    config,
    losses,
    make_store,
    overrides,
    run_forked,
    run_job,
)

pytestmark = pytest.mark.slow

STEPS = ("checkpoint.every_steps=2", "storage.engine=posix")


def names(run_dir):
    return [path.name for path in checkpoint.list_checkpoints(run_dir / "checkpoints")]


@pytest.fixture(scope="module")
def killed(store, tmp_path_factory):
    """The directory of a run that was killed at epoch 1, iteration 4 of 5."""
    run_dir = tmp_path_factory.mktemp("killed")
    command = [CRASH_AT, "kill", 0, 1, 4, "base", *overrides(store, run_dir, *STEPS)]
    assert run_forked(*command).returncode == -signal.SIGKILL
    return run_dir


@pytest.fixture
def interrupted(killed, tmp_path):
    """A copy of it, to be continued or damaged."""
    import shutil

    return shutil.copytree(killed, tmp_path / "run")


def test_a_killed_run_continues_to_the_same_losses(store, interrupted, tmp_path):
    assert names(interrupted)[-1] == "step-000001-00000003.pt"  # eight steps
    resumed = train(config(store, interrupted, *STEPS))
    whole = train(config(store, tmp_path / "whole", *STEPS))
    assert losses(interrupted) == losses(tmp_path / "whole")
    # A cache that has just been opened misses more, and how much memory is free differs.
    own = ("bytes_read", "seconds", "memory_bytes", "peak_memory_bytes", "test_misses")
    own += ("run_dir", "config")
    assert {k: v for k, v in resumed.items() if k not in own} == {
        k: v for k, v in whole.items() if k not in own
    }


def test_a_job_whose_rank_is_killed_ends_and_continues_to_the_same_losses(store, tmp_path):
    run_dir, whole = tmp_path / "killed", tmp_path / "whole"
    settings = [*STEPS, "train.batch_size=32"]
    crash = [CRASH_AT, "kill", 1, 1, 4, "base", *overrides(store, run_dir, *settings)]
    assert run_job(2, *crash).returncode != 0
    assert names(run_dir)[-1] == "step-000001-00000003.pt"
    for directory in (run_dir, whole):
        job = run_job(2, "-m", "lsm", "train", "base", *overrides(store, directory, *settings))
        assert job.returncode == 0, job.stderr
    assert len(losses(run_dir)) == 10
    assert losses(run_dir) == losses(whole)


@pytest.mark.parametrize("how", ["term", "usr1"])
def test_a_signal_stops_a_run_with_a_checkpoint(store, tmp_path, how):
    settings = overrides(store, tmp_path, "checkpoint.every_epochs=0")
    job = run_forked(CRASH_AT, how, 0, 1, 2, "base", *settings)
    assert job.returncode == EXIT_STOPPED
    assert job.stdout == ""
    assert "lsm: stopped by a signal after epoch 2, iteration 2; a checkpoint" in job.stderr
    assert "Traceback" not in job.stderr
    assert names(tmp_path) == ["step-000001-00000003.pt"]
    train(config(store, tmp_path, "checkpoint.every_epochs=0"))
    train(config(store, tmp_path / "whole"))
    assert losses(tmp_path) == losses(tmp_path / "whole")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # as before the runs


def test_the_configuration_of_a_run_continues_it(store, tmp_path):
    """Also if the run was told to start afresh: its checkpoints and model are not lost."""
    settings = ("train.epochs=1", "checkpoint.resume=never")
    train(config(store, tmp_path / "run", *settings))
    saved = str(tmp_path / "run" / "config.yaml")
    with pytest.raises(ValueError, match="holds a finished run"):
        train(load_config(saved))
    train(load_config(saved, ["train.epochs=2"]))
    assert "resume: auto" in Path(saved).read_text()
    first = checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints")[0]
    train(config(store, tmp_path / "other", f"checkpoint.resume={first}"))
    assert f"resume: {first}" in (tmp_path / "other" / "config.yaml").read_text()
    whole = train(config(store, tmp_path / "whole"))
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert whole["epochs"] == 2


def test_a_run_that_does_not_resume_by_itself_says_how_it_would(store, tmp_path):
    settings = overrides(store, tmp_path, "checkpoint.resume=never")
    job = run_forked(CRASH_AT, "term", 0, 1, 2, "base", *settings)
    assert "the same command" not in job.stderr
    assert job.stderr.rstrip().endswith("and checkpoint.resume=auto continues")


def test_a_longer_run_that_was_stopped_has_no_model_of_the_shorter_one(store, tmp_path):
    train(config(store, tmp_path, "train.epochs=1"))
    job = run_forked(CRASH_AT, "term", 0, 1, 2, "base", *overrides(store, tmp_path))
    assert job.returncode == EXIT_STOPPED
    newest = checkpoint.list_checkpoints(tmp_path / "checkpoints")[-1]
    best = torch.load(newest)["best_model"]
    for name, value in lsm.load_model(tmp_path).state_dict().items():
        assert torch.equal(value, best[name])
    assert not (tmp_path / "model.pt").exists()


def as_version_1(content):
    """The checkpoint as versions before 2 wrote it: with the best epoch counted from 0."""
    position, sums = content.pop("position"), ("num_correct",)
    progress = {name: position[name] for name in ("epoch", "iteration", "loss_sum", "bytes_read")}
    progress |= {
        "num_correct": position["sums"].get("num_correct", 0),
        "num_seeds": position["loss_count"],
        "row_sums": {name: n for name, n in position["sums"].items() if name not in sums},
        "seconds": position["seconds"],
        "best_epoch": position["best_epoch"] - 1,
        "best_accuracy": position["best_score"],
        "best_model": content.pop("best_model"),
    }
    return content | {"schema_version": 1, "progress": progress}


def test_a_checkpoint_of_version_1_continues_to_the_same_losses(store, interrupted, tmp_path):
    for path in checkpoint.list_checkpoints(interrupted / "checkpoints"):
        torch.save(as_version_1(torch.load(path)), path)
    resumed = train(config(store, interrupted, *STEPS))
    whole = train(config(store, tmp_path / "whole", *STEPS))
    assert losses(interrupted) == losses(tmp_path / "whole")
    for name in ("best_epoch", "valid_accuracy", "test_accuracy"):
        assert resumed[name] == whole[name]


def test_training_stops_early_and_a_stopped_run_is_refused(store, tmp_path):
    """With a learning rate that spoils the network, no validation is better than the first."""
    settings = config(store, tmp_path, "train.lr=50", "train.epochs=9", "train.patience=1")
    summary = train(settings)
    assert summary["stopped_early"]
    assert summary["epochs"] == summary["best_epoch"] + 1 < 9
    with pytest.raises(ValueError, match=r"holds a finished run; .* stopped early"):
        train(settings)


def test_metrics_after_the_checkpoint_are_dropped_on_resume(store, interrupted):
    metrics = interrupted / "metrics.jsonl"
    with open(metrics, "a") as file:
        file.write('{"kind": "step", "epoch": 2, "iteration": 3, "loss": 1.0}\n{"kind": "st')
    train(config(store, interrupted, *STEPS))
    at = [(epoch, iteration) for epoch, iteration, _ in losses(interrupted)]
    assert at == [(epoch, iteration) for epoch in (1, 2) for iteration in range(5)]


def test_validations_of_another_measure_are_not_compared(store, interrupted, tmp_path):
    for more in ("train.eval.exact=true", "train.eval.num_neighbors=[2, 2]"):
        with pytest.raises(ValueError, match=rf"other settings: {more.split('=')[0]} \("):
            train(config(store, interrupted, *STEPS, more))
    last = (*STEPS, "train.select=last")
    train(config(store, tmp_path / "last", *last, "train.epochs=1"))
    train(config(store, tmp_path / "last", *last, "train.eval.num_neighbors=[2, 2]"))


def test_a_store_of_other_contents_is_refused(tmp_path):
    """Also of the same counts. Earlier checkpoints have no digest, and continue."""
    opened = make_store(tmp_path / "store")
    train(config(opened, tmp_path / "run", *STEPS, "train.epochs=1"))
    arrays = tmp_path / "store.npy"
    labels = np.load(arrays / "node_label.npy")
    np.save(arrays / "node_label.npy", (labels + 1) % 3)
    convert_npy(arrays, opened, progress=False, force=True)
    with pytest.raises(ValueError, match=r"other settings: data\.path \(contents\) \("):
        train(config(opened, tmp_path / "run", *STEPS))
    for path in checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints"):
        content = torch.load(path)
        del content["settings"]["data.path (contents)"]
        torch.save(content, path)
    train(config(opened, tmp_path / "run", *STEPS))
    assert losses(tmp_path / "run")[-1][0] == 2


def test_other_settings_are_refused_by_name(store, interrupted):
    with pytest.raises(ValueError, match="other settings") as caught:
        train(
            config(store, interrupted, "model.hidden_dim=8", "train.seed=3", "sampler.kind=labor")
        )
    message = str(caught.value)
    assert (
        "model.hidden_dim (16 there, 8 now), sampler.kind (neighbor there, labor now), "
        "train.seed (0 there, 3 now)" in message
    )
    assert "train.lr" not in message


def test_never_starts_afresh_and_clears_the_directory(store, interrupted):
    train(config(store, interrupted, "checkpoint.resume=never", "train.epochs=1"))
    assert names(interrupted) == ["step-000001-00000000.pt"]
    assert len(losses(interrupted)) == 5


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_checkpoints_that_a_kill_left_half_written_are_removed(store, interrupted, resume):
    folder = interrupted / "checkpoints"
    (folder / ".step-000001-00000004.pt.4711.tmp").write_bytes(b"half")
    train(config(store, interrupted, *STEPS, f"checkpoint.resume={resume}"))
    assert sorted(path.name for path in folder.iterdir()) == names(interrupted)


@pytest.mark.parametrize("keep_bytes", [0, 100, 0.5, -1])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(
    store, interrupted, tmp_path, caplog, keep_bytes
):
    *_, before, newest = checkpoint.list_checkpoints(interrupted / "checkpoints")
    content = newest.read_bytes()
    size = int(len(content) * keep_bytes) if isinstance(keep_bytes, float) else keep_bytes
    newest.write_bytes(content[:size])
    assert checkpoint.load(before)["position"]["iteration"] < 3
    train(config(store, interrupted, *STEPS))
    (warning,) = [line for line in caplog.messages if line.startswith("checkpoint ")]
    assert warning == (
        f"checkpoint {newest} cannot be read: it is truncated, damaged or not a checkpoint; trying "
        "the one before"
    )
    train(config(store, tmp_path / "whole", *STEPS))
    assert losses(interrupted) == losses(tmp_path / "whole")


def flip_a_bit_of_weights(path):
    """Changes one number, as a disk or memory may; the file stays a checkpoint for torch."""
    content = bytearray(path.read_bytes())
    weights = torch.load(path)["model"]
    first = next(iter(weights.values())).numpy().tobytes()
    content[content.index(first) + 3] ^= 1
    path.write_bytes(content)
    assert not all(map(torch.equal, weights.values(), torch.load(path)["model"].values()))


def test_a_flipped_bit_is_damage(store, interrupted, tmp_path):
    newest = checkpoint.list_checkpoints(interrupted / "checkpoints")[-1]
    flip_a_bit_of_weights(newest)
    with pytest.raises(checkpoint.DamagedError, match="truncated, damaged or not a checkpoint"):
        checkpoint.load(newest)
    train(config(store, interrupted, *STEPS))
    train(config(store, tmp_path / "whole", *STEPS))
    assert losses(interrupted) == losses(tmp_path / "whole")


def test_a_model_with_a_flipped_bit_is_refused(store, tmp_path):
    train(config(store, tmp_path, "train.epochs=1"))
    content = bytearray((tmp_path / "model.pt").read_bytes())
    first = next(iter(torch.load(tmp_path / "model.pt").values())).numpy().tobytes()
    content[content.index(first)] ^= 1
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.pt cannot be read: it is truncated, damaged"):
        lsm.load_model(tmp_path)


def test_a_damaged_newest_checkpoint_is_not_kept_in_place_of_new_ones(store, interrupted, tmp_path):
    """Its position is later than that of the first checkpoints after it."""
    newest = checkpoint.list_checkpoints(interrupted / "checkpoints")[-1]
    assert newest.name == "step-000001-00000003.pt"
    flip_a_bit_of_weights(newest)
    settings = ("storage.engine=posix", "checkpoint.every_steps=1", "checkpoint.keep=1")
    killed = run_forked(
        CRASH_AT, "kill", 0, 1, 2, "base", *overrides(store, interrupted, *settings)
    )
    assert killed.returncode == -signal.SIGKILL
    assert names(interrupted) == ["step-000001-00000002.pt"]
    train(config(store, interrupted, *STEPS))
    train(config(store, tmp_path / "whole", *STEPS))
    assert losses(interrupted) == losses(tmp_path / "whole")


def test_an_earlier_checkpoint_that_is_named_replaces_the_later_ones(store, interrupted, tmp_path):
    """Else a kill before the next checkpoint would continue from one whose metrics are gone."""
    first = checkpoint.list_checkpoints(interrupted / "checkpoints")[0]
    assert first.name == "step-000001-00000000.pt"
    named = (*STEPS, f"checkpoint.resume={first}")
    killed = run_forked(CRASH_AT, "kill", 0, 1, 0, "base", *overrides(store, interrupted, *named))
    assert killed.returncode == -signal.SIGKILL
    assert names(interrupted) == [first.name]
    train(config(store, interrupted, *STEPS))
    train(config(store, tmp_path / "whole", *STEPS))
    assert losses(interrupted) == losses(tmp_path / "whole")


def test_a_checkpoint_that_cannot_be_opened_is_not_taken_for_damaged(interrupted, monkeypatch):
    newest = checkpoint.list_checkpoints(interrupted / "checkpoints")[-1]

    def refuse(*_arguments, **_named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(OSError, match=r"checkpoint .* cannot be read \(Permission denied\)"):
        checkpoint.load(newest)


def test_damaged_checkpoints_only_are_one_clear_error(store, interrupted):
    found = checkpoint.list_checkpoints(interrupted / "checkpoints")
    for path in found:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"none of the {len(found)} checkpoints in .* can be read"):
        train(config(store, interrupted, *STEPS))
    assert checkpoint.list_checkpoints(interrupted / "checkpoints") == found
    with pytest.raises(ValueError, match="cannot be read") as caught:
        train(config(store, interrupted, f"checkpoint.resume={found[-1]}"))
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_checkpoint_is_the_run_s_own_however_it_is_named(
    store, interrupted, monkeypatch, is_relative
):
    """The run in ``run.dir`` goes on from its checkpoint, also when it had ended."""
    train(config(store, interrupted, *STEPS))
    newest = checkpoint.list_checkpoints(interrupted / "checkpoints")[-1]
    monkeypatch.chdir(interrupted.parent)
    run, named = Path(interrupted.name), newest
    if is_relative:
        run, named = interrupted, newest.relative_to(interrupted.parent)
    train(config(store, run, *STEPS, "train.epochs=3", f"checkpoint.resume={named}"))
    assert losses(interrupted)[-1][0] == 3


def test_a_file_of_another_kind_is_refused(store, tmp_path):
    other = tmp_path / "other.pt"
    torch.save({"weights": torch.ones(3)}, other)
    with pytest.raises(ValueError, match=r"other\.pt: expected schema version 2, got None"):
        train(config(store, tmp_path / "run", f"checkpoint.resume={other}"))
    with pytest.raises(FileNotFoundError, match=r"none\.pt does not exist"):
        train(config(store, tmp_path / "run", f"checkpoint.resume={tmp_path / 'none.pt'}"))


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return open, (str(tmp_path / "executed"), "w")

    torch.save({"schema_version": 1, "model": Payload()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match=r"evil\.pt cannot be read"):
        checkpoint.load(tmp_path / "evil.pt")
    assert not (tmp_path / "executed").exists()


def test_only_the_newest_are_kept(tmp_path):
    for epoch, iteration in [(0, 5), (0, 10), (1, 0), (10, 0), (2, 0)]:
        checkpoint.save(
            tmp_path, State(Position(epoch=epoch, iteration=iteration)), {}, {}, {}, keep=2
        )
    kept = [path.name for path in checkpoint.list_checkpoints(tmp_path)]
    assert kept == ["step-000002-00000000.pt", "step-000010-00000000.pt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    checkpoint.write_atomic(path, {"a": 1})
    before = path.read_bytes()

    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RuntimeError, match=r"cannot write .*model\.pt \(No space left on device\)"):
        checkpoint.write_atomic(path, {"a": 2})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
