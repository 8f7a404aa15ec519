"""The directory of a run: never replaced without a word, never shared, made again if removed."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading

import pytest

from lsm.config.load import load_config
from lsm.run import directory as run_directory
from lsm.run.directory import RunDirectory
from lsm.run.loop import Loop
from lsm.train import checkpoint
from lsm.train.trainer import Trainer, train
from support.training import config, environment, losses, make_store, overrides, run_forked


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("run-dir") / "store")


@pytest.fixture(scope="module")
def once(store, tmp_path_factory):
    path = tmp_path_factory.mktemp("once") / "run"
    train(config(store, path))
    return path


@pytest.fixture
def finished(once, tmp_path):
    """The directory of a run of two epochs that came to its end."""
    return shutil.copytree(once, tmp_path / "run")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(run_directory, "_PATIENCE_SECS", 0.2)


def content(directory):
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("change", ["train.epochs=2", "train.epochs=1"])
def test_a_finished_run_is_refused_with_remedies(store, finished, change):
    before = content(finished)
    with pytest.raises(ValueError, match=r"run\.dir: .* holds a finished run") as caught:
        train(config(store, finished, change))
    for remedy in ("another run.dir", "checkpoint.resume=never", "train.epochs of more than 2"):
        assert remedy in str(caught.value)
    assert content(finished) == before


def test_a_finished_run_of_other_settings_is_refused(store, finished):
    before = content(finished)
    with pytest.raises(ValueError, match=r"other settings: train\.seed \(0 there, 5 now\)"):
        train(config(store, finished, "train.seed=5"))
    assert content(finished) == before


def test_a_finished_run_without_checkpoints_is_refused(store, finished):
    checkpoint.remove_all(finished / "checkpoints")
    before = content(finished)
    with pytest.raises(ValueError, match="holds a finished run"):
        train(config(store, finished, "train.epochs=3"))
    assert content(finished) == before


def test_never_replaces_a_finished_run(store, finished):
    first = losses(finished)
    train(config(store, finished, "train.seed=5", "checkpoint.resume=never"))
    assert len(losses(finished)) == 10
    assert losses(finished) != first


def test_a_finished_run_gets_more_epochs(store, finished, tmp_path):
    train(config(store, finished, "train.epochs=3"))
    train(config(store, tmp_path / "whole", "train.epochs=3"))
    assert losses(finished) == losses(tmp_path / "whole")


def test_two_runs_do_not_share_a_directory(store, tmp_path, impatient):
    with RunDirectory(tmp_path / "run"):
        with pytest.raises(RuntimeError) as caught:
            train(config(store, tmp_path / "run"))
        assert str(caught.value).startswith(f"run.dir: {tmp_path / 'run'} is in use by another run")
        assert f"(pid {os.getpid()} on host {os.uname().nodename})" in str(caught.value)
        assert not (tmp_path / "run" / "metrics.jsonl").exists()
    train(config(store, tmp_path / "run"))


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path, impatient):
    code = (
        "import os, sys; from pathlib import Path; from lsm.run.directory import RunDirectory\n"
        "held = RunDirectory(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RuntimeError, match=f"in use by another run .pid {holder.pid} on host"):
            RunDirectory(tmp_path)
    finally:
        holder.kill()
        holder.wait(30)
    RunDirectory(tmp_path).close()


def test_files_that_a_killed_run_left_half_written_are_removed(tmp_path):
    """But for those of a process that is there: it may write them."""
    left = tmp_path / ".model.pt.999999999.tmp"
    held = tmp_path / f".run.json.{os.getpid()}.tmp"
    other = tmp_path / ".my.notes.tmp"
    for path in (left, held, other):
        path.write_bytes(b"half")
    RunDirectory(tmp_path).close()
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / ".lock", held, other])


def test_a_holder_that_ends_soon_is_waited_for(tmp_path, monkeypatch):
    first = RunDirectory(tmp_path)
    monkeypatch.setattr(run_directory.time, "sleep", lambda _: first.close())
    RunDirectory(tmp_path).close()


def test_a_directory_that_cannot_be_made_is_named(store, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"run\.dir: cannot write to .*file.*choose another run\.dir"):
        train(config(store, tmp_path / "file" / "run"))


@pytest.mark.parametrize("loggers", ["tensorboard", "[]"])
def test_a_directory_that_is_removed_in_mid_run_is_made_again(
    store, once, tmp_path, monkeypatch, caplog, loggers
):
    whole_epoch = Loop.train_epoch

    def remove_after_the_first(self):
        whole_epoch(self)
        if self.position.epoch == 1:
            shutil.rmtree(tmp_path / "run")

    monkeypatch.setattr(Loop, "train_epoch", remove_after_the_first)
    train(config(store, tmp_path / "run", f"metrics.loggers={loggers}"))
    (warning,) = [line for line in caplog.messages if "run.dir" in line]
    assert "was removed while the run was writing to it" in warning
    assert (tmp_path / "run" / "model.pt").exists()
    assert (tmp_path / "run" / "result.json").exists()
    assert len(checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints")) == 1
    expected = json.loads((once / "result.json").read_text())
    assert (
        json.loads((tmp_path / "run" / "result.json").read_text())["test_accuracy"]
        == (expected["test_accuracy"])
    )
    kinds = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [record["epoch"] for record in kinds] == [2]


@pytest.mark.parametrize("first", ["thread", "trainer"])
def test_whoever_notices_first_that_the_directory_is_gone_the_run_goes_on(
    store, once, tmp_path, monkeypatch, caplog, first
):
    """Removes the directory between two steps, and has TensorBoard's thread fail before the trainer
    writes, or keeps it from writing until then."""
    whole_step = Trainer.train
    run = tmp_path / "run"

    looked = threading.Event()
    check = RunDirectory.check

    def checked(self):
        is_there = check(self)
        looked.set()
        return is_there

    def remove_before_the_third(self, batch):
        if (batch.epoch, batch.iteration) == (0, 2):
            self._metrics._loggers["tensorboard"].writer.flush()  # nothing is left to write
            writer = self._metrics._loggers[
                "tensorboard"
            ].writer.file_writer.event_writer._async_writer._worker
            write = writer._record_writer.write
            if first == "trainer":
                writer._record_writer.write = lambda data: looked.wait(60) and write(data)
            shutil.rmtree(run)
            if first == "thread":
                self._metrics._loggers["tensorboard"].writer.add_scalar("wakes the thread", 0.0)
                writer.join(60)
                assert isinstance(writer.exception, FileNotFoundError)
        return whole_step(self, batch)

    monkeypatch.setattr(Trainer, "train", remove_before_the_third)
    monkeypatch.setattr(RunDirectory, "check", checked)
    # The queue of the thread has room for the scalars of an epoch's last two records.
    often = ("metrics.loggers=tensorboard", "metrics.log_every=2")
    summary = train(config(store, run, *often))
    (warning,) = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert f"run.dir: {run} was removed while the run was writing to it" in warning
    expected = json.loads((once / "result.json").read_text())
    assert summary["test_accuracy"] == expected["test_accuracy"]
    # The files begin with the end of the epoch, when the trainer looks at the directory.
    kinds = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    assert [record["kind"] for record in kinds] == ["epoch", *["step"] * 5, "epoch"]
    assert len(list((run / "tensorboard").iterdir())) == 1
    for name in ("config.yaml", "run.json", "run.log"):
        assert (run / name).exists()


def test_tensorboard_that_alone_is_removed_is_made_again(store, tmp_path, monkeypatch, caplog):
    whole_epoch = Loop.train_epoch
    board = tmp_path / "run" / "tensorboard"

    def remove_before(self):
        if self.position.epoch == 0:
            self._metrics.flush()  # so that no file appears meanwhile
            shutil.rmtree(board)
        whole_epoch(self)

    monkeypatch.setattr(Loop, "train_epoch", remove_before)
    train(config(store, tmp_path / "run", "metrics.loggers=tensorboard"))
    (warning,) = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert warning.startswith(f"metrics.loggers: {board} was removed")
    assert len(list(board.iterdir())) == 1
    assert len(losses(tmp_path / "run")) == 10


def test_another_run_in_place_of_a_removed_one_is_an_error(tmp_path, impatient):
    with RunDirectory(tmp_path / "run") as ours:
        assert ours.check()
        shutil.rmtree(tmp_path / "run")
        with (
            RunDirectory(tmp_path / "run"),
            pytest.raises(RuntimeError, match="in use by another run"),
        ):
            ours.check()
        assert not ours.check()
        assert ours.check()


def test_default_directories_have_the_names_of_config_and_store(tmp_path):
    def directory(name, *changes):
        return str(load_config(name, changes).run_dir)

    assert directory("base", "data.path=stores/a") == "runs/base/a"
    assert directory("base", "data.path=/elsewhere/b") != directory("base", "data.path=/other/b")
    assert directory("base", "data.path=/elsewhere/b").startswith("runs/base/b-")
    assert directory("base", "data.path=/elsewhere/b/") == directory(
        "base", "data.path=/elsewhere/b"
    )
    (tmp_path / "mine.yaml").write_text("data: {path: stores/a}")
    assert directory(tmp_path / "mine.yaml") == "runs/mine/a"
    assert directory(tmp_path / "mine.yaml", "run.dir=x") == "x"


def test_a_store_is_no_directory_of_a_run(store):
    before = content(store)
    with pytest.raises(ValueError, match=r"run\.dir: .* holds a store .*choose another run\.dir"):
        train(config(store, store))
    assert content(store) == before


# The disk is full once the run has recorded its start.
FULL = """
import resource, signal, sys
from lsm.cli import main
from lsm.run import records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv.pop(1))
metrics = records.Metrics
def fill(*arguments, **options):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return metrics(*arguments, **options)
records.Metrics = fill
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "changes", "message"),
    [
        (
            4096,
            ["metrics.jsonl=false"],
            r"run\.dir: cannot write .*step-000001-00000000\.pt \(File too large\)",
        ),
        (2048, ["checkpoint.every_epochs=0"], r"metrics\.jsonl: cannot write .*metrics\.jsonl \("),
        (
            64,
            ["metrics.loggers=tensorboard", "metrics.jsonl=false", "checkpoint.every_epochs=0"],
            r"metrics\.loggers: cannot write .*tensorboard \(File too large\)",
        ),
    ],
)
def test_a_full_disk_is_one_clear_error(store, tmp_path, limit, changes, message):
    settings = overrides(store, tmp_path / "run", *changes)
    done = run_forked("-c", FULL, str(limit), "train", "base", *settings)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert re.match(f"error: {message}", line), line
