"""Classes and functions that a configuration names as ``package.module:name``."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from lsm.core.option_types import Described

_IMPORTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

Arguments = Annotated[dict[str, Any], Described("mapping of names to values")]
"""Arguments of a class, by name."""


def known_or_imported(text: Described, *known: str) -> BeforeValidator:
    """Check of a field that takes one of ``known``, or ``package.module:name`` of something to
    import. text: the type in words."""

    def check(value: object) -> object:
        if value in known or (isinstance(value, str) and _IMPORTED.fullmatch(value)):
            return value
        raise ValueError(f"expected {text.text}, got {value!r}")

    return BeforeValidator(check)


def is_imported(name: str) -> bool:
    """True if ``name`` is that of something to import."""
    return ":" in name


def import_named(key: str, name: str) -> Any:
    """Imports ``name``, ``package.module:name``. Modules of the working directory come first, as
    with ``python -m``. Raises ValueError, which begins with the option ``key``, if that fails."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module, _, attributes = name.partition(":")
    try:
        return reduce(getattr, attributes.split("."), importlib.import_module(module))
    except Exception as error:  # the module is the user's, and may raise anything
        raise ValueError(
            f"{key}: cannot import {name}: {type(error).__name__}: {error}{place_of(error)}; "
            f"expected package.module:name, installed or in the working directory {folder}"
        ) from error


def place_of(error: Exception) -> str:
    """The innermost line of the user's code that ``error`` passed, in words; empty if there is
    none."""
    installed = (str(Path(os.__file__).parent), str(Path(__file__).parents[1]), "<frozen")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = frame.filename
        # PyG writes the code of its convolutions to files of such names, and removes them.
        is_generated = Path(path).name.startswith("torch_geometric.")
        if not (path.startswith(installed) or "site-packages" in path or is_generated):
            return f" ({path}:{frame.lineno})"
    return ""
