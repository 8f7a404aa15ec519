"""Sizes in bytes with units: ``16GiB``, ``16G``, ``512MiB``, ``1.5GB``, ``4096``."""

from __future__ import annotations

import re
from collections.abc import Mapping

_BINARY = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_DECIMAL = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SHORT = {unit[0]: factor for unit, factor in _BINARY.items()}  # as SLURM and systemd read them
_FACTORS = {"": 1, "B": 1, **_SHORT, **_BINARY, **_DECIMAL}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")


def parse_bytes(text: str | int) -> int:
    """Number of bytes in ``text``: an int, or a decimal number with an optional unit.

    KiB, MiB, GiB, TiB, or K, M, G, T for short, are powers of 1024; KB, MB, GB, TB powers of 1000;
    case does not matter.
    Raises ValueError for anything else, negative sizes and fractions of a byte.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise ValueError(f"size: expected a number of bytes >= 0, got {text}")
        return text
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    factor = _FACTORS.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise ValueError(f"size: expected a size such as 16GiB, 512MiB or 4096, got {text!r}")
    whole, _, fraction = match[1].partition(".")
    scale = 10 ** len(fraction)
    num_bytes, rest = divmod(int(whole + fraction) * factor, scale)
    if rest:
        raise ValueError(f"size: {text!r} is not a whole number of bytes")
    return num_bytes


def sum_in_words(terms: Mapping[str, int]) -> str:
    """Bytes by use, and their sum: ``cache 1 GiB + step 2 GiB = 3 GiB``. Uses of 0 bytes are left
    out."""
    each = " + ".join(f"{use} {format_bytes(size)}" for use, size in terms.items() if size)
    return f"{each} = {format_bytes(sum(terms.values()))}"


def format_bytes(num_bytes: int) -> str:
    """``num_bytes`` for people: ``512 B``, ``4 KiB``, ``1.5 GiB``; at most one decimal."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    size = float(num_bytes)
    power = 0
    # 1023.95 would be shown as 1024.0.
    while abs(size) >= 1023.95 and power < len(units) - 1:
        size /= 1024
        power += 1
    return f"{size:.1f}".removesuffix(".0") + f" {units[power]}"
