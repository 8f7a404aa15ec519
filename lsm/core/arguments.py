"""Checks of what callers pass."""

from __future__ import annotations

from numbers import Integral


def whole_number(name: str, value: object, low: int, high: int | None = None) -> int:
    """``value``, which must be a whole number of at least ``low``, and of at most ``high`` if that
    is given; ValueError, with ``name``, if it is not."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name}: expected a whole number, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        wanted = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name}: expected {wanted}, got {number}")
    return number
