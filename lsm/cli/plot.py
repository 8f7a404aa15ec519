"""``lsm plot``: the curves of runs as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Directories of runs.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Picture to write (.png). Default: curves.png in the first run."),
    ] = None,
) -> None:
    """Draw losses, metrics and hits of runs of `lsm train` or `lsm embed train`, over epochs.

    Writes a .png, and next to it the same as .svg and .pdf.
    """
    from lsm.run.plot import draw_curves

    path = out or runs[0] / "curves.png"
    if path.suffix != ".png":
        raise ValueError(f"--out: expected a name that ends in .png, got {path}")
    titles = draw_curves(runs, path)
    typer.echo(f"{path}: {', '.join(titles)}")
