"""Reads a JSON file that says of which version its layout is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

Content = TypeVar("Content", bound=BaseModel)


def read_versioned(path: Path, model: type[Content], version: int, remedy: str) -> Content:
    """The ``model`` in the file ``path``, whose ``schema_version`` must be ``version``. ValueError,
    with what is wrong and the ``remedy``, if it cannot be used; OSError for the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
        raise ValueError(f"{path}: not valid JSON ({error}); {remedy}") from None
    found = content.get("schema_version") if isinstance(content, dict) else None
    if found != version:
        raise ValueError(f"{path}: expected schema_version {version}, got {found!r}; {remedy}")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        detail = f"{where}: {message}" if where else message
        raise ValueError(f"{path}: {detail}; {remedy}") from None
