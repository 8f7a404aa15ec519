"""Every help page is readable at 80 columns, and says where configuration keys are explained."""

import subprocess
import sys

import pytest
import typer

from lsm.cli import app
from support import command
from support.training import REPOSITORY, environment


def pages(root=None, path=()):
    root = root or typer.main.get_command(app)
    yield path, root
    for name, child in getattr(root, "commands", {}).items():
        yield from pages(child, (*path, name))


PAGES = dict(pages())


@pytest.mark.parametrize("path", PAGES, ids=" ".join)
def test_help_is_readable_at_80_columns(path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert command.lsm(monkeypatch, *path, "--help") == 0
    page = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in page
    assert max(map(len, page.splitlines())) <= 80
    options = [name for param in PAGES[path].params for name in param.opts if name[0] == "-"]
    assert [name for name in options if name not in page] == []


def lsm(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "lsm", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=REPOSITORY,
        env=environment(COLUMNS="80"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_prints_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert command.lsm(monkeypatch, "data", "--help") == 0
    assert lsm("data", "--help") == capsys.readouterr().out


def test_train_says_where_keys_are_explained():
    page = " ".join(lsm("train", "--help").split())
    assert "configs/base.yaml: `lsm train base --explain` prints it" in page
    assert lsm("train", "base", "--explain") == (REPOSITORY / "configs/base.yaml").read_text()
