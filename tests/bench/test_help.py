"""Every benchmark script describes itself and its options."""

import runpy
import sys

import pytest

from support.training import REPOSITORY

BENCH = REPOSITORY / "bench"
# Parts of the first run on a GPU, by the standard library alone, without arguments.
BARE = {"gpu_driver.py", "machine_facts.py"}
PROGRAMS = {path.name for path in BENCH.glob("*.py") if "__main__" in path.read_text()}
SCRIPTS = sorted(PROGRAMS - BARE)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(monkeypatch, capsys, script):
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.syspath_prepend(BENCH)
    with pytest.raises(SystemExit) as exited:
        runpy.run_path(str(BENCH / script), run_name="__main__")
    assert exited.value.code == 0
    shown = capsys.readouterr().out
    assert "--json" in shown or "--out" in shown
    assert shown.count("\n") > 8
