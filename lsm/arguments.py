"""Checks of what callers pass."""

from __future__ import annotations

from numbers import Integral


def whole_number(name: str, value: object, low: int, high: int | None = None) -> int:
    """``value``, which must be a whole number of at least ``low``, and of at most ``high`` if that
    is given; ValueError, with ``name``, if it is not."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < low or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name}: expected a whole number, {wanted}, got {value!r}")
    return int(value)
