"""Checks of what callers pass."""

from __future__ import annotations

from numbers import Integral


def whole_number(name: str, value: object, low: int, high: int | None = None) -> int:
    """``value``, which must be a whole number of at least ``low``, and of at most ``high`` if that
    is given; ValueError, with ``name``, if it is not."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"{name}: expected a whole number, got {value!r}")
    if value < low or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name}: expected {wanted}, got {value}")
    return int(value)
