"""Types of options: sizes with units, counts with ranges, and values that may be ``auto``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from lsm.core.limits import (
    LARGEST_COUNT,
    LARGEST_SEED,
    LONGEST_READ,
    LONGEST_SECS,
    MOST_BYTES,
    MOST_THREADS,
)
from lsm.core.units import format_bytes, parse_bytes

Auto = Literal["auto"]


@dataclass(frozen=True)
class Described:
    """The type of a field in words, for the documentation."""

    text: str


def exact_bytes(num_bytes: int) -> str | int:
    """``num_bytes`` in the largest binary unit that divides it: exact, without rounding."""
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes and num_bytes % factor == 0:
            return f"{num_bytes // factor}{unit}"
    return num_bytes


def _bytes(value: Any) -> int:
    num_bytes = parse_bytes(value)
    if num_bytes > MOST_BYTES:
        raise ValueError(f"size: expected at most {format_bytes(MOST_BYTES)}, got {value!r}")
    return num_bytes


Bytes = Annotated[int, BeforeValidator(_bytes), PlainSerializer(exact_bytes), Described("size")]
"""A size in bytes; read from an int or from text with a unit (``256MiB``)."""


def _auto_or_bytes(value: Any) -> int | Auto:
    return value if value == "auto" else _bytes(value)


def _within_one_read(least: int) -> AfterValidator:
    def check(num_bytes: int | Auto) -> int | Auto:
        if num_bytes != "auto" and not least <= num_bytes <= LONGEST_READ:
            bound = "at most" if num_bytes > least else "at least"
            limit = format_bytes(LONGEST_READ if num_bytes > least else least)
            raise ValueError(f"size: expected {bound} {limit}, got {format_bytes(num_bytes)}")
        return num_bytes

    return AfterValidator(check)


def auto_or_positive(*words: str, most: int) -> BeforeValidator:
    """Check of a field that takes auto, one of ``words``, or an integer from 1 to ``most``."""
    known = ("auto", *words)

    def check(value: object) -> object:
        if value in known or (type(value) is int and 1 <= value <= most):
            return value
        expected = ", ".join(known)
        raise ValueError(f"expected {expected} or an integer from 1 to {most}, got {value!r}")

    return BeforeValidator(check)


AutoBytes = Annotated[
    int | Auto,
    BeforeValidator(_auto_or_bytes),
    PlainSerializer(lambda value: value if value == "auto" else exact_bytes(value)),
    Described("auto, or size"),
]
"""``auto``, or a size in bytes."""

ReadBytes = Annotated[
    AutoBytes, _within_one_read(1), Described("auto, or size of at least 1 and at most 16MiB")
]
"""``auto``, or the bytes of one read."""

GapBytes = Annotated[AutoBytes, _within_one_read(0), Described("auto, or size of at most 16MiB")]
"""``auto``, or the bytes of a gap within one read."""

AutoPositive = Annotated[
    int | Auto, auto_or_positive(most=65_535), Described("auto, or integer from 1 to 65535")
]
"""``auto``, or an integer from 1 to 65535."""

AutoAtLeastOne = Annotated[
    int | Auto, auto_or_positive(most=LARGEST_COUNT), Described("auto, or integer of at least 1")
]
"""``auto``, or an integer from 1 on."""


def _auto_or_count(value: object) -> object:
    if value == "auto" or (type(value) is int and 0 <= value <= LARGEST_COUNT):
        return value
    raise ValueError(f"expected auto or an integer of at least 0, got {value!r}")


AutoCount = Annotated[
    int | Auto, BeforeValidator(_auto_or_count), Described("auto, or integer of at least 0")
]
"""``auto``, or an integer from 0."""

Positive = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
NonNegative = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Threads = Annotated[int, Field(ge=1, le=MOST_THREADS)]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_SECS)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Fanout = Annotated[int, Field(ge=-1, le=LARGEST_COUNT)]
Fanouts = Annotated[list[Fanout], Field(min_length=1)]
"""Neighbours per hop; -1: all."""


def settled(value: int | Auto) -> int:
    """``value``. Precondition: the budget has replaced ``auto`` by a number."""
    assert not isinstance(value, str), "auto, where a number was settled"
    return value
