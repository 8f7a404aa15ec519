"""The results of one study are neither replaced by another's nor written by two at a time."""

import json

import pytest

from lsm.ablation.config import AblationConfig
from lsm.ablation.output import held
from lsm.config.load import find_config, load_tree
from lsm.run import directory


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


def test_two_studies_do_not_share_a_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "_PATIENCE_SECS", 0.2)
    with (
        held(study(tmp_path)),
        pytest.raises(RuntimeError, match=r"output: .* is in use by another run \(pid \d+"),
        held(study(tmp_path)),
    ):
        pass
