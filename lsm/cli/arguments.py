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
