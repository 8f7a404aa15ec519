"""Keys and arguments that a mistyped one may mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LEAST_ALIKE = 0.71
"""Ratio of difflib, that of policy and policies; below it, names share letters rather than a
meaning: loss, lr."""


def close_keys(name: str, known: Iterable[str]) -> list[str]:
    """The names of ``known`` that ``name`` may be a slip for, the closest first; often none.

    A slip is a difference of few letters (epoch: epochs), or of whole words (batch: batch_size).
    """
    known = list(known)
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=_LEAST_ALIKE)
    words = set(name.lower().split("_"))
    parts = {each: set(each.split("_")) for each in known}
    longer = [each for each, others in parts.items() if words <= others or others <= words]
    return list(dict.fromkeys([*near, *longer]))


def unknown_argument(
    where: str, name: str, known: Iterable[str], noun: str = "argument"
) -> TypeError:
    """The error of ``where`` for an argument ``name`` that is none of those ``known``."""
    known = list(known)
    near = close_keys(name, known)
    hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(known)}"
    return TypeError(f"{where}: unknown {noun} {name}; {hint}")


def require_known(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError for the first of the ``given`` names of arguments that is not ``known``."""
    known = list(known)
    for name in given:
        if name not in known:
            raise unknown_argument(where, name, known)
