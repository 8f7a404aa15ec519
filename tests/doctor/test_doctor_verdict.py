"""The doctor says no, with the reason and exit status 1, where no training starts."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

import lsm as package
from lsm.data.triples.synth import synthesize_triples
from support.another_package import run_from
from support.command import lsm
from support.training import make_store

PACKAGE = Path(package.__file__).parent


def ask_process(*path):
    """(exit status, report) of a doctor with ``path`` before the usual places of modules."""
    result = run_from(path, "doctor", "--json", cwd=path[0])
    assert result.stderr == ""
    return result.returncode, json.loads(result.stdout)


def ask(monkeypatch, capsys, path):
    """(exit status, report) of a doctor in this process."""
    status = lsm(monkeypatch, "doctor", path, "--json")
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_package_that_cannot_be_imported(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise OSError('libtorch_cpu.so: no such file')")
    status, report = ask_process(tmp_path, PACKAGE.parent)
    assert (status, report["trains"]) == (1, False)
    assert report["verdict"] == (
        "trains here: no, packages: torch cannot be imported "
        "(OSError: libtorch_cpu.so: no such file); install it"
    )
    assert "torchrun" in {finding["name"] for finding in report["findings"]}


@pytest.mark.slow
def test_a_native_module_of_another_python(tmp_path):
    ignored = shutil.ignore_patterns("_core*", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "lsm", ignore=ignored)
    (tmp_path / "lsm/_core.cpython-27-x86_64-linux-gnu.so").touch()
    status, report = ask_process(tmp_path)
    assert (status, report["trains"]) == (1, False)
    assert "native module: the native module lsm._core cannot be imported" in report["verdict"]
    assert "build it with `pip install .`" in report["verdict"]
    assert "there is _core.cpython-27-x86_64-linux-gnu.so, of a Python other" in report["verdict"]


@pytest.mark.slow
def test_a_native_module_older_than_the_python_code(tmp_path):
    ignored = shutil.ignore_patterns("_core*", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "lsm", ignore=ignored)
    (tmp_path / "lsm/_core.py").write_text("COUNTER_NAMES = ()")
    status, report = ask_process(tmp_path)
    assert (status, report["trains"]) == (1, False)
    assert "native module: older than the Python code (" in report["verdict"]
    assert "run `make build` again" in report["verdict"]


def test_no_folder_for_temporary_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    status, report = ask(monkeypatch, capsys, tmp_path)
    assert (status, report["trains"]) == (1, False)
    assert report["verdict"].startswith("trains here: no, temporary files: none can be made: ")
    assert report["verdict"].endswith("; set TMPDIR to a folder that can be written")


@pytest.mark.parametrize("damage", ["truncated", "no meta.json"])
def test_a_store_that_cannot_be_opened(tmp_path, monkeypatch, capsys, damage):
    store = make_store(tmp_path / "store")
    status, report = ask(monkeypatch, capsys, store)
    assert (status, report["trains"]) == (0, True), report["verdict"]
    if damage == "truncated":
        os.truncate(store / "features.bin", 10)
    else:
        (store / "meta.json").unlink()
    status, report = ask(monkeypatch, capsys, store)
    assert (status, report["trains"]) == (1, False)
    assert report["verdict"].startswith(f"trains here: no, store: {store}")
    assert {finding["purpose"] for finding in report["findings"]} > {"GPU training"}


@pytest.mark.parametrize("place", ["folder", "file", "missing"])
def test_a_path_that_is_no_store(tmp_path, monkeypatch, capsys, place):
    (tmp_path / "file").touch()
    path = {"folder": tmp_path, "file": tmp_path / "file", "missing": tmp_path / "to/come"}[place]
    status, report = ask(monkeypatch, capsys, path)
    assert (status, report["trains"]) == (1, False)
    assert report["verdict"].startswith(f"trains here: no, store: {path}: ")
    # The disk of the place is tried all the same.
    assert "O_DIRECT" in {finding["name"] for finding in report["findings"]}


def test_a_store_of_triples_is_a_store(tmp_path, monkeypatch, capsys):
    synthesize_triples(tmp_path / "store", nodes=50, relations=3, progress=False)
    status, report = ask(monkeypatch, capsys, tmp_path / "store")
    assert (status, report["trains"]) == (0, True), report["verdict"]


def test_without_a_path_no_store_is_needed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert lsm(monkeypatch, "doctor") == 0
    assert capsys.readouterr().out.startswith("trains here: yes, ")
    (tmp_path / "features.bin").touch()  # a damaged store
    assert lsm(monkeypatch, "doctor") == 1
