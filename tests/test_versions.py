"""The versions of packages: pyproject.toml, and the files of constraints."""

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from support.training import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
TESTED = ("plot", "parquet", "dev")  # the optional ones that `make test` installs
OPTIONAL = PROJECT["optional-dependencies"]
NAMES = PROJECT["dependencies"] + [name for extra in TESTED for name in OPTIONAL[extra]]
RANGES = {each.name: each.specifier for each in map(Requirement, NAMES)}


def versions(path):
    """Of each package."""
    lines = (REPOSITORY / path).read_text().splitlines()
    pairs = (line.partition("#")[0].strip().split("==") for line in lines)
    return {pair[0]: Version(pair[1]) for pair in pairs if len(pair) == 2}


@pytest.mark.parametrize("path", ["constraints.txt", "constraints-oldest.txt"])
def test_constraints_are_in_the_ranges(path):
    found = versions(path)
    ranged = found.keys() & RANGES.keys()
    assert {Requirement(each).name for each in PROJECT["dependencies"]} <= ranged
    assert [name for name in ranged if not RANGES[name].contains(found[name])] == []


def test_the_oldest_are_the_lower_ends():
    for name, version in versions("constraints-oldest.txt").items():
        (lower,) = (each.version for each in RANGES[name] if each.operator == ">=")
        assert Version(lower) == version, name
