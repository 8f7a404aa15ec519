"""A store that cannot take a score says so in one line, before the score is computed."""

import os
import re
import shutil

import pytest

from lsm.cache import scores
from lsm.data.graph_store import GraphStore
from lsm.data.verify import verify_store
from support.command import lsm
from support.mounts import make_read_only
from support.training import make_store


@pytest.fixture
def not_computed(monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError("computed although it cannot be stored")

    monkeypatch.setattr(scores, "_compute", refuse)


def fill(disk):
    (disk / "other").write_bytes(bytes(shutil.disk_usage(disk).free))


def error_of_score(monkeypatch, capsys, store):
    assert lsm(monkeypatch, "data", "score", store, "in_degree") == 1
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.removesuffix("\n")


def test_a_full_disk(disk, monkeypatch, capsys, not_computed):
    store = make_store(disk / "store")
    fill(disk)
    said = error_of_score(monkeypatch, capsys, store)
    pattern = r"error: .*disk full: .* 0 B \(0 bytes\) free; free some space there: (.*)"
    assert re.fullmatch(pattern, said)[1] == str(store)


def test_a_disk_that_another_fills_meanwhile(disk, monkeypatch, capsys):
    store = make_store(disk / "store")
    compute = scores._compute

    def computed_too_late(*arguments, **options):
        score = compute(*arguments, **options)
        fill(disk)
        return score

    monkeypatch.setattr(scores, "_compute", computed_too_late)
    said = error_of_score(monkeypatch, capsys, store)
    assert re.fullmatch(r"error: .*disk full: .*; free some space there: .*", said), said
    (disk / "other").unlink()
    assert not GraphStore.open(store).scores
    assert verify_store(store, progress=False) == []


def test_a_disk_that_is_mounted_read_only(disk, monkeypatch, capsys, not_computed):
    store = make_store(disk / "store")
    make_read_only(disk)
    said = error_of_score(monkeypatch, capsys, store)
    assert re.fullmatch(r"error: .*Read-only file system: .* writable: (.*)", said)[1] == str(store)


def test_a_folder_without_permission(tmp_path, monkeypatch, capsys, not_computed):
    store = make_store(tmp_path / "store")
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)  # as root one may
    said = error_of_score(monkeypatch, capsys, store)
    assert re.fullmatch(r"error: .*Permission denied: .* writable: (.*)", said)[1] == str(store)
