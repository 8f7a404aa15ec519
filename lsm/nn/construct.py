"""Makes modules of classes that the user names, and calls them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from lsm.core.imported import place_of


def construct(
    keys: tuple[str, str], name: str, kind: Any, sizes: Mapping[str, Any], args: Mapping[str, Any]
) -> nn.Module:
    """A module of the class ``kind`` with the arguments ``args``, and those of ``sizes`` that it
    takes. ``keys``: the options that name the class, ``name``, and its arguments, for errors.
    Raises ValueError if it is no class of modules, or does not take the arguments."""
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(f"{keys[0]}: expected a class of torch.nn.Module, got {name}: {kind!r}")
    taken = inspect.signature(kind).parameters
    given = {each: value for each, value in sizes.items() if each in taken} | dict(args)
    try:
        with torch.device("cpu"):  # a constructor may read values, which the meta device lacks
            return kind(**given)
    except Exception as error:  # the class is the user's, and may raise anything
        listed = ", ".join(f"{each}={value!r}" for each, value in given.items())
        raise ValueError(
            f"{keys[1]}: {name}({listed}): {type(error).__name__}: {error}{place_of(error)}"
        ) from error


def call_own(title: str, own: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    """The result of ``own``, a module of the user or one of its methods. ``title``: the option that
    names its class, the class and such, for errors. Errors of memory pass; of others RuntimeError
    is raised, which quotes them in one line, with their place."""
    try:
        return own(*positional, **named)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # the code is the user's, and may raise anything
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise RuntimeError(f"{title}: {text}{place_of(error)}") from error
