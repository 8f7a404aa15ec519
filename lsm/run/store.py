"""Opens the store that a key names, such as ``data.path``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Store = TypeVar("Store")


def open_at(
    path: str | None, open_path: Callable[[str], Store], remedy: str, key: str = "data.path"
) -> Store:
    """The store at ``path``, as ``open_path`` opens it. Raises ValueError or FileNotFoundError,
    which name the ``key``. ``remedy``: advice if there is no path."""
    if path is None:
        raise ValueError(f"{key}: not set; {remedy}")
    try:
        return open_path(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{key}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
