"""Memory that the host does not have is one line that names the keys."""

import pytest
import torch

from lsm.core.device import memory_errors
from support.command import lsm

ENORMOUS = 1 << 55


def test_torch_says_where_and_which_keys():
    expected = r"^the host ran out of memory at epoch 1, iteration 2; make cache\.bytes, .* smaller"
    with pytest.raises(RuntimeError, match=expected), memory_errors("at epoch 1, iteration 2"):
        torch.empty(ENORMOUS)


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match=r"^shapes$"), memory_errors("at epoch 1, iteration 2"):
        raise RuntimeError("shapes")


def test_the_command_line_prints_one_line(monkeypatch, capsys):
    def fail(*_arguments, **_options):
        bytearray(ENORMOUS)

    monkeypatch.setattr("lsm.train.trainer.train", fail)
    assert lsm(monkeypatch, "train", "base", "data.path=x") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: out of memory; make loader.staging_bytes, cache.bytes")
