"""The settings that a run shares with the checkpoint that it continues from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

CONTENTS = "contents"
"""The end of the name of a digest, which earlier checkpoints do not have."""
_DIGITS = 16  # of a digest, as an error shows it


def contents_of(name: str, digest: str) -> dict[str, str]:
    """The setting that the files of ``name``, a key such as ``data.path``, have a digest."""
    return {f"{name} ({CONTENTS})": digest[:_DIGITS]}


def settings_of(config: BaseModel, sections: Mapping[str, Iterable[str] | None]) -> dict[str, Any]:
    """Values of ``config`` by full key. ``sections``: names of keys by section; None: all keys."""
    values = config.model_dump(mode="json")
    return {
        f"{section}.{key}": values[section][key]
        for section, keys in sections.items()
        for key in (values[section] if keys is None else keys)
    }


def check_settings(
    path: Path,
    saved: dict[str, Any],
    current: dict[str, Any],
    optional: Iterable[str] = (),
) -> None:
    """Raises ValueError, which names every setting in which the checkpoint differs from this run.
    ``optional``: settings that count where both have them; digests of contents are such, too."""
    keys = saved.keys() | current.keys()
    may_lack = {*optional, *(key for key in keys if key.endswith(f"({CONTENTS})"))}
    keys -= may_lack - (saved.keys() & current.keys())
    differing = [key for key in sorted(keys) if saved.get(key) != current.get(key)]
    if differing:
        listed = ", ".join(
            f"{key} ({saved.get(key)} there, {current.get(key)} now)" for key in differing
        )
        raise ValueError(
            f"checkpoint {path} belongs to a run with other settings: {listed}; restore them, "
            "choose another run.dir, or set checkpoint.resume=never to start afresh"
        )
