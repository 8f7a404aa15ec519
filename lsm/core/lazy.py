"""Public names of a package, imported when they are first used (PEP 562).

So ``import lsm`` loads neither torch nor the native module, and ``lsm --help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of ``package``.

    The first imports a name from its module in ``homes``, which is relative to the package, and
    raises AttributeError for any other name. The second lists the public names, for ``dir()`` and
    completion, and the modules that are imported already.
    """

    def attribute(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        module = sys.modules[package]
        there = vars(module).items()
        modules = [name for name, value in there if isinstance(value, ModuleType)]
        special = [name for name, _ in there if name.startswith("__")]
        return sorted({*module.__all__, *modules, *special})

    return attribute, names
