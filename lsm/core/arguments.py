"""Checks of arguments."""

from __future__ import annotations

import os
from numbers import Integral, Real
from pathlib import Path

from lsm.core.limits import LONGEST_SECS
from lsm.core.units import parse_bytes


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


def flag(name: str, value: object) -> bool:
    """``value``, if it is True or False, or 1 or 0. Raises ValueError, with ``name``, otherwise."""
    if value not in (False, True):
        raise ValueError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def size(name: str, value: object) -> int:
    """The bytes of ``value``, a number or a text such as "256MiB". Raises ValueError, with
    ``name``, otherwise."""
    if not isinstance(value, str):
        return whole_number(name, value, 0)
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise ValueError(f"{name}: {str(error).removeprefix('size: ')}") from None


def seconds(name: str, value: object) -> float:
    """``value``, if it is a time to wait. Raises ValueError, with ``name``, otherwise."""
    secs = float(value) if isinstance(value, Real) else 0.0
    if not 0 < secs <= LONGEST_SECS:
        raise ValueError(
            f"{name}: expected more than 0 seconds, at most {LONGEST_SECS:.0f}, got {value!r}"
        )
    return secs


def as_path(name: str, value: object) -> Path:
    """``value``, if it is a path. Raises TypeError, with ``name``, otherwise."""
    if isinstance(value, str | os.PathLike):
        return Path(value)
    path = getattr(value, "path", None)
    remedy = "" if path is None else f", which is open; its path is {path}"
    raise TypeError(f"{name}: expected a path, got {type(value).__name__}{remedy}")


def option(name: str, value: object = True) -> str:
    """An option of a command next to the argument of the Python function, for remedies of both:
    "--force (in Python force=True)"."""
    given = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
    return f"{given} (in Python {name}={value!r})"
