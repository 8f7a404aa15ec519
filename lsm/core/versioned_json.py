"""Reads JSON files with a schema version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from lsm.core.units import format_bytes

# Far more than the few dozen names and numbers of such a file.
_MOST_BYTES = 16 << 20

Content = TypeVar("Content", bound=BaseModel)


def read_versioned(path: Path, model: type[Content], version: int, remedy: str) -> Content:
    """The ``model`` in the file ``path``, whose ``schema_version`` must be ``version``. Raises
    ValueError, with the fault and the ``remedy``, if it cannot be used; OSError if it cannot be
    read."""
    with open(path, "rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path}: expected at most {format_bytes(_MOST_BYTES)}; {remedy}")
    try:
        content = json.loads(text.decode())
    except RecursionError:
        raise ValueError(f"{path}: not valid JSON (nested too deeply); {remedy}") from None
    except ValueError as error:  # also for a number with thousands of digits
        raise ValueError(f"{path}: not valid JSON ({error}); {remedy}") from None
    found = content.get("schema_version") if isinstance(content, dict) else None
    if type(found) is int and found > version:
        raise ValueError(
            f"{path}: made by a newer LSM-GNN: expected schema_version {version}, got {found}; "
            f"update lsm-gnn; for this version, {remedy}"
        )
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
