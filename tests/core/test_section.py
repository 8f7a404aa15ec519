"""Sections as Python callers make them: by place, by name and by the flat names of nested ones."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from pydantic import Field

from lsm.core.section import Section


class Inner(Section):
    section: ClassVar[str] = "outer.inner"

    size: int = 1
    kind: str = "a"


class Outer(Section):
    section: ClassVar[str] = "outer"

    number: int = 1
    text: str = "b"
    sizes: list[int] = Field(default_factory=list)
    inner: Inner = Inner()


def test_fields_are_given_by_place_and_by_name():
    options = Outer(2, "c", sizes=(), inner_size=np.int64(5), inner_kind="d")
    assert options.model_dump() == {
        "number": 2,
        "text": "c",
        "sizes": [],
        "inner": {"size": 5, "kind": "d"},
    }
    assert Outer(text=Path("some/where"), sizes=(1, 2)) == Outer(1, "some/where", [1, 2], Inner())


def test_values_within_lists_and_nested_sections_are_taken_as_those_outside():
    given = {"size": np.int32(5), "kind": Path("d")}
    options = Outer(sizes=(np.int64(1), 2), inner=given)
    assert options == Outer(sizes=[1, 2], inner={"size": 5, "kind": "d"})
    assert type(options.inner.size) is int
    assert given == {"size": np.int32(5), "kind": Path("d")}
    with pytest.raises(ValueError, match=r"^outer\.sizes\.0: expected an integer, got True$"):
        Outer(sizes=[True])


@pytest.mark.parametrize("last", ["inner", "inner_size"])
def test_a_nested_section_may_be_given_in_parts(last):
    given = {"kind": "e"}
    options = {"inner": given, "inner_size": 7}
    options[last] = options.pop(last)
    assert Outer(**options).inner == Inner(7, "e")
    assert given == {"kind": "e"}


@pytest.mark.parametrize("last", ["inner", "inner_size"])
@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ({"size": 3}, "^Outer: inner_size is given twice$"),
        (Inner(3), "^Outer: give either inner or inner_size$"),
    ],
)
def test_a_nested_option_is_given_once(last, inner, message):
    options = {"inner": inner, "inner_size": 7}
    options[last] = options.pop(last)
    with pytest.raises(TypeError, match=message):
        Outer(**options)


def test_a_field_is_given_once_and_there_is_no_fifth():
    with pytest.raises(TypeError, match=r"^Outer: number is given twice$"):
        Outer(2, number=2)
    with pytest.raises(TypeError, match=r"^Outer: expected at most 4 values$"):
        Outer(1, "b", [], Inner(), 5)
    assert Outer(1, "b", [], Inner()) == Outer()


def test_a_wrong_value_of_a_nested_section_has_its_full_key():
    with pytest.raises(ValueError, match=r"^outer\.inner\.size: expected an integer, got 'x'$"):
        Outer(inner_size="x")
