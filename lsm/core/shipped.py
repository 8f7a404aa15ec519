"""Folders of the package that hold no code: configs/ and launch/."""

from __future__ import annotations

from pathlib import Path


def shipped_folder(name: str) -> Path:
    """The folder ``configs`` or ``launch``: the repository's in a checkout, otherwise the installed
    package's."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "shipped_files" / name
    return installed if installed.is_dir() else package.parent / name
