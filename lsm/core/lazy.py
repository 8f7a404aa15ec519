"""Public names of a package, imported when they are first used (PEP 562).

``import lsm`` thus loads neither torch nor the native module, and ``lsm --help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of ``package``: imports a name from its module in ``homes``, which is
    relative to the package. Raises AttributeError for any other name."""

    def attribute(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute
