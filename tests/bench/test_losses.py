"""The record of losses: a comparison misses no case and no number."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def differences():
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("losses", BENCH / "losses.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["losses"] = module  # its dataclasses look themselves up
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    yield module.differences
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
def test_differences(differences, ours, theirs, added, found):
    texts = differences(ours, theirs, added)
    assert len(texts) == len(found)
    for text, pattern in zip(texts, found, strict=True):
        assert re.fullmatch(pattern, text), text
