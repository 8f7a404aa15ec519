"""Files and pages that list every key are generated from the classes that declare the keys."""

from pathlib import Path
from typing import Annotated, ClassVar

import pytest
import yaml
from pydantic import Field

from lsm.ablation.config import AblationConfig
from lsm.cli.generate import generated
from lsm.config.reference import commented_yaml, entries
from lsm.config.schema import Config
from lsm.core.option_types import AutoBytes
from lsm.core.section import Section, is_section

ROOT = Path(__file__).resolve().parents[2]


class Inner(Section):
    section: ClassVar[str] = "inner"

    size: AutoBytes = "auto"
    """Memory."""
    numbers: list[Annotated[int, Field(ge=-1)]] = Field([1, 2])
    """Some numbers."""
    hidden: Annotated[int, Field(exclude=True)] = 0
    """Of no concern to files."""


class Outer(Section):
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """A share."""
    count: Annotated[int, Field(ge=1)] | None = None
    """A number of things that takes many words to explain, more than there is room for in a line of
    a file."""
    inner: Inner = Inner()
    """The rest."""


def test_entries_say_type_range_default_and_meaning():
    found = [(each.key, each.type, each.default) for each in entries(Outer)]
    assert found == [
        ("share", "number, more than 0 and less than 1", "0.5"),
        ("count", "integer, at least 1, or null", "null"),
        ("inner", "", ""),
        ("inner.size", "auto, or size", "auto"),
        ("inner.numbers", "list; each integer, at least -1", "[1, 2]"),
    ]
    assert [each.doc for each in entries(Outer)][-2:] == ["Memory.", "Some numbers."]


def test_yaml_has_each_key_below_its_meaning():
    assert commented_yaml(Outer, "All keys.").splitlines() == [
        "# All keys.",
        "",
        "# A share.",
        "share: 0.5",
        "",
        "# A number of things that takes many words to explain, more than there is room for in a "
        "line of a",
        "# file.",
        "count: null",
        "",
        "# The rest.",
        "inner:",
        "  # Memory.",
        "  size: auto",
        "  # Some numbers.",
        "  numbers: [1, 2]",
    ]


@pytest.mark.parametrize("path", list(generated()), ids=str)
def test_a_generated_file_is_up_to_date(path):
    expected = generated()[path]
    assert (ROOT / path).read_text() == expected, "stale; run `make configs`"
    assert yaml.safe_load(expected)


@pytest.mark.parametrize("tree", [Config, AblationConfig])
def test_a_section_is_named_as_its_key(tree):
    def check(model, prefix):
        for name, field in model.model_fields.items():
            if is_section(field.annotation):
                assert field.annotation.section == prefix + name
                check(field.annotation, f"{prefix}{name}.")

    check(tree, "")
