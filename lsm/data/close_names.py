"""Names that a misspelt one may stand for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

_MOST_NAMES = 2_000_000
"""Looked at: a second or two. Stores may have a hundred times as many."""
_MOST_COMPARED = 10_000
"""Compared letter by letter, at 20 us each."""
_LEAST_PART = 3
"""Letters of a name that is looked for inside others."""


def close_names(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Up to ``most`` of ``names`` that are like ``name``, the likeliest first.

    Those that differ in case come first, then those that begin with it, those that contain it, and
    those of similar letters. Looks at the first two million names, and compares the letters of ten
    thousand that have about the length and the first or last letter in common.
    """
    wanted = name.casefold()
    if not wanted:
        return []
    found: list[list[str]] = [[], [], [], []]
    equal, beginning, containing, similar = found
    for other in islice(names, _MOST_NAMES):
        key = other.casefold()
        if key == wanted:
            equal.append(other)
        elif len(wanted) >= _LEAST_PART and wanted in key:
            part = beginning if key.startswith(wanted) else containing
            if len(part) < most:
                part.append(other)
        elif len(similar) < _MOST_COMPARED and _may_be_similar(wanted, key):
            similar.append(other)
    close = [*equal, *beginning, *containing][:most]
    if len(close) < most:
        by_key = {other.casefold(): other for other in similar}
        keys = difflib.get_close_matches(wanted, by_key, most - len(close), cutoff=0.7)
        close += [by_key[key] for key in keys]
    return close


def _may_be_similar(wanted: str, key: str) -> bool:
    if not key or abs(len(key) - len(wanted)) > max(1, len(wanted) // 4):
        return False
    return key[0] == wanted[0] or key[-1] == wanted[-1]
