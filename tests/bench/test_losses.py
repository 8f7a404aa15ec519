"""The record of losses: a comparison misses no case and no number."""

import argparse
import importlib.util
import re
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def losses():
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("losses", BENCH / "losses.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["losses"] = module  # its dataclasses look themselves up
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    yield module
    del sys.modules["losses"]


def case(*losses, **results):
    return {"losses": list(losses), "results": results}


@pytest.mark.parametrize(
    ("ours", "theirs", "added", "found"),
    [
        ({"a": case("1", "2")}, {"a": case("1", "2")}, [], []),
        ({"a": case("1", "2")}, {"a": case("1", "3")}, [], ["a: differs from .* iteration 1"]),
        ({"a": case("1", "2")}, {"a": case("1")}, [], ["a: differs from .* iteration 1"]),
        ({"a": case("1")}, {"a": case("1", "2")}, [], ["a: differs from .* iteration 1"]),
        ({"a": case()}, {}, [], ["a: is not in the record"]),
        ({}, {"a": case()}, [], ["a: is only in the record"]),
        ({"a": {"error": "no"}}, {"a": case()}, [], ["a: failed: no"]),
        ({"a": case("1")}, {"a": {"error": "no"}}, [], ["a: differs from .* iteration 0"]),
        ({"a": case(test_mrr="1")}, {"a": case(test_mrr="2")}, [], ["a: differs .* test_mrr"]),
        ({"a": case()}, {"a": case(test_mrr="2")}, [], ["a: differs .* test_mrr"]),
        ({"a": case()}, {"a": case(test_mrr="2")}, ["test_mrr"], ["a: differs .* test_mrr"]),
        ({"a": case(valid_mrr="1")}, {"a": case()}, [], ["a: differs .* valid_mrr"]),
        ({"a": case(valid_mrr="1")}, {"a": case()}, ["valid_mrr"], []),
    ],
)
def test_differences(losses, ours, theirs, added, found):
    texts = losses.differences(ours, theirs, added)
    assert len(texts) == len(found)
    for text, pattern in zip(texts, found, strict=True):
        assert re.fullmatch(pattern, text), text


def test_another_checkout_than_python_imports_is_refused(losses, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho /elsewhere/lsm/__init__.py\n")
    python.chmod(0o755)
    args = argparse.Namespace(python=str(python), tree=tmp_path)
    with pytest.raises(SystemExit, match=r"imports /elsewhere/lsm/__init__\.py, not that of .*"):
        losses.check_tree(args)
    python.write_text(f"#!/bin/sh\necho {tmp_path}/lsm/__init__.py\n")
    losses.check_tree(args)
