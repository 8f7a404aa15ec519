"""The results of one study are neither replaced by another's nor written by two at a time."""

import json
import os
from pathlib import Path

import pytest

from lsm.ablation.config import AblationConfig
from lsm.ablation.output import held, held_for_trace
from lsm.ablation.report import write_csv, write_json, write_text
from lsm.config.load import find_config, load_tree
from lsm.run import directory

TRACE = Path("run.npz")


def study(folder, *overrides):
    changes = [f"output={folder}", *overrides]
    return load_tree(AblationConfig, find_config("base", "ablation"), changes)


def write(config, folder):
    folder.mkdir(exist_ok=True)
    (folder / "study.json").write_text(json.dumps({"config": config.model_dump(mode="json")}))


def test_another_study_is_refused(tmp_path):
    write(study(tmp_path), tmp_path)
    other = study(tmp_path, "trace.batch_size=7")
    with pytest.raises(ValueError, match=r"output: .* study with other trace; choose"), held(other):
        pass


def test_a_study_of_another_graph_is_refused(tmp_path):
    write(study(tmp_path), tmp_path)
    other = study(tmp_path, "graph.nodes=7000")
    with pytest.raises(ValueError, match=r"output: .* study with other graph; choose"), held(other):
        pass


def test_a_study_does_not_replace_results_of_a_trace(tmp_path):
    (tmp_path / "study.json").write_text(json.dumps({"config": {"trace_file": str(TRACE)}}))
    with pytest.raises(ValueError, match="holds the results of a trace"), held(study(tmp_path)):
        pass


def test_the_same_study_may_be_replaced(tmp_path):
    write(study(tmp_path), tmp_path)
    for config in (study(tmp_path), study(tmp_path, "graph.path=elsewhere", "plot.enabled=false")):
        with held(config):
            pass


@pytest.mark.parametrize("content", ["", "[" * 100_000, "[]", '{"config": 3}'])
def test_what_is_no_study_is_not_in_the_way(tmp_path, content):
    (tmp_path / "study.json").write_text(content)
    with held(study(tmp_path)):
        pass


@pytest.mark.parametrize("name", ["records.json", "table.md", "plot.png"])
def test_files_that_no_study_wrote_are_kept(tmp_path, name):
    (tmp_path / name).write_text("mine")
    for hold, key in (
        (held(study(tmp_path)), "output"),
        (held_for_trace(tmp_path, TRACE), "--out"),
    ):
        told = f"{key}: .* holds {name}, which no study wrote; choose"
        with pytest.raises(ValueError, match=told), hold:
            pass
    (tmp_path / name).rename(tmp_path / "notes.txt")
    with held(study(tmp_path)):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_results_that_are_replaced_are_told(tmp_path, caplog):
    caplog.set_level("INFO")
    (tmp_path / "study.json").write_text(json.dumps({"config": {"trace_file": str(TRACE)}}))
    with held_for_trace(tmp_path, TRACE):
        assert "replaced" not in caplog.text
    (tmp_path / "records.json").write_text("[]")
    with held_for_trace(tmp_path, TRACE):
        assert f"--out: the results of before in {tmp_path} are replaced" in caplog.text


def test_a_full_disk_names_the_file(disk):
    (disk / "filler").write_bytes(b"x" * (7 << 20))
    records = [{"policy": "lru", "lines": n} for n in range(160_000)]
    write_text(disk / "records.json", "before")
    for write in (write_json, write_csv):
        path = disk / "records.json"
        with pytest.raises(
            OSError, match=rf"cannot write {path} \(No space left on device\); make"
        ):
            write(path, records)
        assert path.read_text() == "before"
    assert sorted(path.name for path in disk.iterdir()) == ["filler", "records.json"]


def test_a_pipe_is_written_in_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


def test_two_studies_do_not_share_a_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "_PATIENCE_SECS", 0.2)
    with (
        held(study(tmp_path)),
        pytest.raises(RuntimeError, match=r"output: .* is in use by another run \(pid \d+"),
        held(study(tmp_path)),
    ):
        pass
