"""Checks of arguments."""

from __future__ import annotations

from numbers import Integral


def whole_number(name: str, value: object, low: int, high: int | None = None) -> int:
    """``value``, if it is a whole number from ``low`` to ``high`` (None: no upper bound). Raises
    ValueError, with ``name``, otherwise."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name}: expected a whole number, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        wanted = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name}: expected {wanted}, got {number}")
    return number
