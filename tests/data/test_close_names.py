"""Names offered for a misspelt one."""

import itertools

import pytest

from lsm.data.close_names import close_names

NAMES = ["Paris", "paris hilton", "Lake Paris", "Berlin", "Bern", "new york", "Pari", "Dresden"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("PARIS", ["Paris", "paris hilton", "Lake Paris"]),
        ("Parsi", ["Pari", "Paris"]),
        ("york", ["new york"]),
        ("Berln", ["Berlin", "Bern"]),
        ("Drseden", ["Dresden"]),
        ("x", []),
        ("", []),
    ],
)
def test_case_then_beginning_then_parts_then_letters(name, expected):
    assert close_names(name, NAMES) == expected
    assert close_names(name, NAMES, most=1) == expected[:1]


def test_millions_of_names_are_not_all_looked_at():
    names = (f"name {number}" for number in itertools.count())
    found = close_names("nmae 17", names)
    assert found[0] in ("name 17", "name 1")
    assert next(names) == "name 2000000"
