"""Where the files are that come with the package but are no code: configs/ and launch/."""

from __future__ import annotations

from pathlib import Path


def shipped_folder(name: str) -> Path:
    """The folder ``configs`` or ``launch``: of the repository in a checkout, otherwise of the
    installed package."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "shipped_files" / name
    return installed if installed.is_dir() else package.parent / name
