"""`lsm bench storage --profile` reports an unwritable profile before it measures."""

import shutil

import pytest
from typer.testing import CliRunner

from lsm.cli import app
from lsm.data.convert.npy import convert_npy
from lsm.storage import measure_profile
from support.mounts import make_read_only
from support.store_files import random_graph, save_npy


@pytest.fixture
def store(tmp_path, monkeypatch):
    def measure(*_arguments, **_options):
        raise AssertionError("measured first")

    monkeypatch.setattr(measure_profile, "measure_profile", measure)
    return convert_npy(save_npy(tmp_path / "graph", random_graph()), tmp_path / "out").path


def problem_of(*arguments):
    result = CliRunner().invoke(app, ["bench", "storage", "--profile", *map(str, arguments)])
    assert isinstance(result.exception, OSError), result.exception
    return str(result.exception)


# Nobody can make a file in /proc, nor in a folder that does not exist.
@pytest.mark.parametrize("folder", ["/proc", "/absent"])
def test_a_record_that_cannot_be_written(store, folder):
    problem = problem_of(store, "--json", f"{folder}/profile.json")
    assert f"{folder}/profile.json" in problem
    assert "cannot be written" in problem


def test_a_store_on_a_file_system_that_is_read_only(store, disk):
    path = shutil.copytree(store, disk / "store")
    make_read_only(disk)
    problem = problem_of(path)
    assert f"{path}/profile.json" in problem
    assert "Read-only file system; choose another place with --json FILE" in problem
