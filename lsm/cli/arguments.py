"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer


def config_names(subfolder: str = "") -> Callable[[str], list[str]]:
    """The completion of a configuration's name: files of ``configs/``, or of a folder in it. Shells
    complete paths by themselves where no name fits."""

    def complete(incomplete: str) -> list[str]:
        from lsm.core.shipped import shipped_folder

        folders = [folder / subfolder for folder in (Path("configs"), shipped_folder("configs"))]
        names = {file.stem for folder in folders for file in folder.glob("*.yaml")}
        return sorted(name for name in names if name.startswith(incomplete))

    return complete


Store = Annotated[Path, typer.Argument(metavar="DIR", help="Store directory.")]
MovedStore = Annotated[
    Path | None, typer.Option("--store", help="The store of the run, where it has moved.")
]
Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Bars; default: on a terminal.")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Override config keys.")
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the whole configuration and stop.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Print every key with its meaning and default.")
]


def integers(option: str, text: str) -> list[int]:
    """The whole numbers in ``text``, separated by commas. Raises ValueError, which names
    ``option``."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{option}: expected whole numbers separated by commas, got {text!r}"
        ) from None


def require_folder(option: str, path: Path) -> None:
    """Raises OSError, before hours of work, unless ``path`` names a file in an existing folder."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{option}: {path.parent}: no such directory")
    if path.is_dir():
        raise IsADirectoryError(f"{option}: {path} is a directory; expected a file")
