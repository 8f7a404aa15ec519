"""The command line, run in the process of a test."""

import sys

import pytest

from lsm import cli


def lsm(monkeypatch, *arguments) -> int | str | None:
    """Runs `lsm ARGUMENTS`; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["lsm", *map(str, arguments)])
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code
