"""Loggers take the numbers of metrics.jsonl; a resumed run has each of them once."""

import csv
import json
import sys
from types import SimpleNamespace

import pytest

from lsm.config.load import load_config
from lsm.run.loggers.csv import CsvLogger
from lsm.run.loggers.logger import LoggedRun
from lsm.run.loop import Loop
from lsm.train.trainer import train
from support.training import config, losses, steps


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def epochs(run_dir):
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").open()]
    return [line for line in lines if line["kind"] == "epoch"]


def test_csv_has_the_numbers_of_the_records(store, tmp_path):
    train(config(store, tmp_path, "metrics.loggers=csv", "metrics.log_every=1"))
    found = rows(tmp_path / "steps.csv")
    assert [float(line["loss"]) for line in found] == [loss for _, _, loss in losses(tmp_path)]
    assert [int(line["iteration"]) for line in found] == list(range(len(found)))
    for line, record in zip(rows(tmp_path / "epochs.csv"), epochs(tmp_path), strict=True):
        for name, value in record.items():
            if name != "kind":
                assert line[name] == ("" if value is None else str(value)), name


def test_csv_of_a_resumed_run_has_each_iteration_once(store, tmp_path, monkeypatch):
    arguments = "metrics.loggers=csv", "metrics.log_every=1", "checkpoint.every_steps=3"
    train(config(store, tmp_path / "whole", *arguments))
    whole = Loop.train_epoch

    def stop_in_the_second(self):
        if self.position.epoch == 1:
            raise RuntimeError("stopped")
        whole(self)

    monkeypatch.setattr(Loop, "train_epoch", stop_in_the_second)
    with pytest.raises(RuntimeError, match="stopped"):
        train(config(store, tmp_path / "cut", *arguments))
    monkeypatch.setattr(Loop, "train_epoch", whole)
    train(config(store, tmp_path / "cut", *arguments))
    numbers = [line["iteration"] for line in rows(tmp_path / "cut" / "steps.csv")]
    assert numbers == [line["iteration"] for line in rows(tmp_path / "whole" / "steps.csv")]
    cut = rows(tmp_path / "cut" / "epochs.csv")
    assert [line["epoch"] for line in cut] == ["1", "2"]


def test_csv_of_a_damaged_file_keeps_its_whole_lines(tmp_path, caplog):
    """Bytes that are no text, a line with too few values, and one with too many."""
    text = b"iteration,loss\n0,0.5\n\xff1,0.5\n2\n3,0.5,1\n4,0.25\n12"
    (tmp_path / "steps.csv").write_bytes(text)
    again = CsvLogger(LoggedRun(tmp_path, 1, 20, {}))
    again.add("step", 20, {"loss": 0.125})
    again.close()
    found = [(line["iteration"], line["loss"]) for line in rows(tmp_path / "steps.csv")]
    assert found == [("0", "0.5"), ("4", "0.25"), ("20", "0.125")]
    assert f"{tmp_path}/steps.csv: 3 damaged lines are left out" in caplog.text


def test_csv_drops_what_a_resumed_run_will_do_again(tmp_path):
    """As after a kill, behind the last checkpoint, in the middle of a line."""
    first = CsvLogger(LoggedRun(tmp_path, 0, 0, {}))
    for number in range(6):
        first.add("step", number, {"loss": number / 10})
    first.add("epoch", 1, {"loss": 0.2, "accuracy": 0.5})
    first.add("epoch", 2, {"loss": 0.1})
    first.flush()
    with open(tmp_path / "steps.csv", "a") as file:
        file.write("7")
    again = CsvLogger(LoggedRun(tmp_path, 1, 4, {}))
    again.add("step", 4, {"loss": 9.0, "new": 1})
    again.add("epoch", 2, {"loss": 8.0})
    again.add("step", 5, {"loss": 7.0})
    again.close()
    found = rows(tmp_path / "steps.csv")
    assert [line["loss"] for line in found] == ["0.0", "0.1", "0.2", "0.3", "9.0", "7.0"]
    assert [line["new"] for line in found] == ["", "", "", "", "1", ""]
    assert [line["loss"] for line in rows(tmp_path / "epochs.csv")] == ["0.2", "8.0"]
    assert [line["accuracy"] for line in rows(tmp_path / "epochs.csv")] == ["0.5", ""]


def test_the_earlier_key_is_read(store, caplog):
    assert load_config("base", ["metrics.tensorboard=false"]).metrics.loggers == []
    assert "metrics.tensorboard is called metrics.loggers now" in caplog.text
    assert load_config("base", ["metrics.tensorboard=true"]).metrics.loggers == ["tensorboard"]
    assert load_config("base", ["metrics.loggers=csv,tensorboard"]).metrics.loggers == [
        "csv",
        "tensorboard",
    ]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_named(store, tmp_path, monkeypatch, name):
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(ValueError, match=f"metrics.loggers: {name} is not installed: pip install"):
        train(config(store, tmp_path, f"metrics.loggers={name}"))


class FakeWandb(SimpleNamespace):
    """Keeps the calls, by the interface of wandb."""

    class errors:
        class Error(Exception):
            pass

    def init(self, **arguments):
        if self.fails:
            raise self.errors.Error("api_key not configured\nmore")
        self.runs.append(arguments)
        return self

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, values):
        self.logged.append(values)

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    fake = FakeWandb(runs=[], axes={}, logged=[], finished=0, fails=False)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr("importlib.util.find_spec", lambda package: package)
    return fake


def test_wandb_takes_the_numbers_and_the_configuration(store, tmp_path, wandb):
    run = tmp_path / "run"
    train(config(store, run, "metrics.loggers=wandb", "metrics.log_every=1"))
    (given,) = wandb.runs
    assert (given["name"], given["dir"]) == ("run", str(run))
    assert given["config"]["data"]["path"] == str(store)
    logged = [values for values in wandb.logged if "iteration" in values]
    assert [values["step/loss"] for values in logged] == [step["loss"] for step in steps(run)]
    assert [values["epoch"] for values in wandb.logged if "epoch" in values] == [1, 2]
    assert wandb.axes["step/*"] == "iteration"
    assert wandb.finished == 1
    train(config(store, run, "metrics.loggers=wandb", "train.epochs=3"))
    assert wandb.runs[1]["id"] == given["id"]  # the run goes on
    train(config(store, run, "metrics.loggers=wandb", "checkpoint.resume=never"))
    assert wandb.runs[2]["id"] != given["id"]


def test_wandb_without_an_account_is_one_line(store, tmp_path, wandb):
    wandb.fails = True
    with pytest.raises(RuntimeError, match="api_key not configured; log in by `wandb login`"):
        train(config(store, tmp_path, "metrics.loggers=wandb"))


class FakeMlflow(SimpleNamespace):
    """Keeps the calls, by the interface of MLflow."""

    class exceptions:
        class MlflowException(Exception):
            pass

    class entities:
        Metric = staticmethod(lambda *values: values)
        Param = staticmethod(lambda *values: values)

    def MlflowClient(self, tracking_uri):
        self.uri = tracking_uri
        return self

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return f"experiment {name}"

    def create_run(self, experiment, run_name):
        self.created.append((experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id=f"id{len(self.created)}"))

    def log_batch(self, run_id, metrics=(), params=()):
        if self.fails and metrics:
            raise self.exceptions.MlflowException("server gone\nmore")
        self.metrics += metrics
        self.params |= dict(params)

    def set_terminated(self, run_id):
        self.ended.append(run_id)


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow(created=[], metrics=[], params={}, ended=[], fails=False)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setattr("importlib.util.find_spec", lambda package: package)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return fake


def test_mlflow_takes_the_numbers_and_the_configuration(store, tmp_path, mlflow):
    run = tmp_path / "run"
    train(config(store, run, "metrics.loggers=mlflow", "metrics.log_every=1"))
    assert mlflow.created == [("experiment lsm-gnn", "run")]
    assert mlflow.uri == f"sqlite:///{run}/mlflow.db"
    assert mlflow.params["data.path"] == str(store)
    found = [value for key, value, _, _ in mlflow.metrics if key == "step/loss"]
    assert found == [step["loss"] for step in steps(run)]
    assert [at for key, _, _, at in mlflow.metrics if key == "epoch/loss"] == [1, 2]
    train(config(store, run, "metrics.loggers=mlflow", "train.epochs=3"))
    assert mlflow.ended == ["id1", "id1"]  # the run goes on


def test_a_run_outlives_the_server_of_mlflow(store, tmp_path, mlflow, caplog):
    mlflow.fails = True
    summary = train(config(store, tmp_path, "metrics.loggers=mlflow", "metrics.log_every=1"))
    assert summary["epochs"] == 2
    (warning,) = [line for line in caplog.messages if "mlflow" in line]
    assert warning == "metrics.loggers: mlflow takes no more numbers of this run: server gone"
