"""A run directory tells how its run was started and how it ended."""

import json
import logging
import signal

import pytest

from lsm.config.load import load_config
from lsm.distributed import signals
from lsm.run import kernel_kills
from lsm.run import log as run_log
from lsm.run import record as run_record
from lsm.run.kernel_kills import count_kills, explain_end
from lsm.run.log import RunLog
from lsm.train.trainer import Trainer, train
from support.training import CRASH_AT, config, make_store, overrides, run_forked


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("run-record") / "store")


def starts(run):
    return json.loads((run / "run.json").read_text())["starts"]


def test_a_resumed_run_appends_to_its_records(store, tmp_path, caplog):
    run = tmp_path / "run"
    train(config(store, run, "train.epochs=1"))
    log = (run / "run.log").read_text()
    with caplog.at_level(logging.INFO):
        train(load_config(run / "config.yaml", ["train.epochs=2"]))
    first, second = starts(run)
    assert (first["ended"], second["ended"]) == ("finished", "finished")
    assert second["store"] == str(store)
    assert {"python", "torch", "lsm", "pyg"} <= first["machine"].keys()
    assert all(first[key] for key in ("command", "host", "commit", "pid", "world_size"))
    more = (run / "run.log").read_text()
    assert more.startswith(log)
    assert "epoch   1/1" in log
    assert "epoch   2/2" in more[len(log) :]
    newest = run / "checkpoints" / "step-000001-00000000.pt"
    assert f"continuing from {newest} (epoch 2, iteration 0)" in caplog.messages
    place = f"run: {run}; store {store}; configuration {run / 'config.yaml'}"
    assert caplog.messages.count(place) == 2
    assert load_config(run / "config.yaml") == config(store, run, "train.epochs=2")
    # A run that starts afresh replaces the records.
    train(config(store, run, "checkpoint.resume=never"))
    assert len(starts(run)) == 1
    assert (run / "run.log").read_text().count("epoch   1/") == 1


def test_the_sum_of_memory_is_a_detail(store, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        train(config(store, tmp_path / "run", "train.epochs=1"))
    (line,) = [each for each in caplog.records if each.getMessage().startswith("memory: planned")]
    assert line.levelno == logging.INFO
    assert " + " not in line.getMessage()
    log = (tmp_path / "run" / "run.log").read_text()
    assert " DEBUG memory: process " in log
    assert " per rank (planned " in log


@pytest.fixture
def handlers():
    """Restores the handlers of signals, which stay after a run that one has stopped."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("how", ["error", "stop"])
def test_the_end_of_a_run_is_recorded(store, tmp_path, monkeypatch, handlers, how):
    whole_step = Trainer.train

    def step(self, batch):
        if how == "error":
            raise RuntimeError("the disk is on fire")
        signals._receive(signal.SIGTERM, None)
        return whole_step(self, batch)

    monkeypatch.setattr(Trainer, "train", step)
    with pytest.raises((RuntimeError, signals.Stopped)):
        train(config(store, tmp_path))
    (start,) = starts(tmp_path)
    expected = "RuntimeError: the disk is on fire" if how == "error" else "Stopped: stopped by a "
    assert start["ended"].startswith(expected)
    assert f" ERROR run: {expected}" in (tmp_path / "run.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("by_memory", [False, True])
def test_a_run_that_was_killed_is_told_once(store, tmp_path, monkeypatch, caplog, by_memory):
    run = tmp_path / "run"
    settings = overrides(store, run)
    ended = run_forked(CRASH_AT, "kill", 0, 1, 2, "base", *settings)
    assert ended.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    (killed,) = starts(run)
    assert killed["ended"] is None
    if by_memory:
        before = killed["kernel_kills"] | {"group": "/job 7", "in_group": 3}
        killed["kernel_kills"] = before
        content = {"schema_version": 1, "starts": [killed]}
        (run / "run.json").write_text(json.dumps(content))
        now = before | {"in_group": 4}
        monkeypatch.setattr(run_record, "count_kills", lambda: now)
    with caplog.at_level(logging.INFO):
        train(load_config("base", settings))
    said = [each for each in caplog.records if "ended without a word" in each.getMessage()]
    (line,) = said
    assert f"pid {killed['pid']} on {killed['host']}" in line.getMessage()
    assert (
        "has killed 1 process of its group; give the job more" in line.getMessage()
    ) == by_memory
    assert line.levelno == (logging.WARNING if by_memory else logging.INFO)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        train(load_config("base", [*settings, "train.epochs=3"]))
    assert "ended without a word" not in caplog.text
    assert [start["ended"] for start in starts(run)] == [None, "finished", "finished"]


BEFORE = {"boot": "a", "machine": 5, "group": "/job 7", "in_group": 2}


@pytest.mark.parametrize(
    ("now", "expected", "is_memory"),
    [
        ({}, "not for lack of memory as far as the kernel's counts tell", False),
        ({"in_group": 4, "machine": 7}, "memory limit has killed 2 processes of its group", True),
        # Of another group: the limit of this one has killed nobody.
        ({"machine": 6}, "not for lack of memory", False),
        # A container that was started again counts from 0.
        (
            {"group": "/job 9", "in_group": 0, "machine": 6},
            "killed 1 process of this machine",
            True,
        ),
        ({"group": "/job 9", "in_group": 9}, "not for lack of memory", False),
        ({"in_group": None, "machine": None}, "the reason is not known", False),
        ({"boot": "b", "in_group": 9}, "the machine has been started again", False),
    ],
)
def test_the_reason_is_no_more_than_the_counts_tell(now, expected, is_memory):
    text, found = explain_end(BEFORE, BEFORE | now)
    assert expected in text
    assert found == is_memory


def test_a_record_without_counts_gives_no_reason():
    text, is_memory = explain_end({"boot": "a"}, BEFORE)
    assert "the reason is not known" in text
    assert not is_memory


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/job", "job/memory.events"),
        ("4:memory:/job", "memory/job/memory.oom_control"),
        ("9:cpu,memory:/job", "memory/job/memory.oom_control"),
    ],
)
def test_counts_are_read_from_both_versions_of_control_groups(tmp_path, monkeypatch, line, file):
    (tmp_path / "cgroup").write_text(f"8:pids:/\n{line}\n")
    (tmp_path / "vmstat").write_text("nr_free_pages 9\noom_kill 12\n")
    events = tmp_path / "root" / file
    events.parent.mkdir(parents=True)
    events.write_text("oom 8\noom_kill 3\noom_group_kill 1\n")
    monkeypatch.setattr(kernel_kills, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(kernel_kills, "_CGROUP_ROOT", tmp_path / "root")
    monkeypatch.setattr(kernel_kills, "_VMSTAT", tmp_path / "vmstat")
    counts = count_kills()
    assert (counts["machine"], counts["in_group"]) == (12, 3)
    assert counts["group"] == f"/job {events.parent.stat().st_ino}"
    monkeypatch.setattr(kernel_kills, "_CGROUP_ROOT", tmp_path / "elsewhere")
    assert count_kills()["group"] is None


def test_a_damaged_record_is_replaced_with_a_warning(store, tmp_path, caplog):
    (tmp_path / "run.json").write_text('{"starts": 3')
    train(config(store, tmp_path, "train.epochs=1"))
    (warning,) = [each for each in caplog.messages if "run.json" in each and "cannot be" in each]
    assert "it is replaced" in warning
    assert len(starts(tmp_path)) == 1


def test_a_log_that_cannot_be_written_is_given_up_with_one_warning(tmp_path, caplog):
    logger = logging.getLogger("lsm.train.anything")
    level_before = logging.getLogger("lsm").level
    (tmp_path / run_log.LOG_NAME).mkdir()
    with RunLog() as log:
        logger.info("kept")
        log.open(tmp_path)
        logger.info("after")
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning == "run.dir: cannot write run.log (Is a directory); the run goes on without it"
    assert logging.getLogger("lsm").level == level_before


def test_a_log_holds_what_was_said_before_it_had_a_place(tmp_path):
    logger = logging.getLogger("lsm.train.anything")
    (tmp_path / run_log.LOG_NAME).write_text("an earlier start\n")
    with RunLog() as log:
        logger.debug("a detail")
        log.open(tmp_path)
        log.note("printed")
    logger.warning("too late")
    earlier, detail, printed = (tmp_path / run_log.LOG_NAME).read_text().splitlines()
    assert earlier == "an earlier start"
    assert detail.endswith(" DEBUG a detail")
    assert printed.endswith(" INFO printed")
