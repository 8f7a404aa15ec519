"""``lsm data``: make, convert, inspect and check stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lsm.units import format_bytes, parse_bytes

app = typer.Typer(no_args_is_help=True, help="Make, convert, inspect and check stores.")
convert_app = typer.Typer(no_args_is_help=True, help="Convert a graph to a store.")
app.add_typer(convert_app, name="convert")


def _size(text: str | int) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Out = Annotated[Path, typer.Option("--out", help="Store directory to make; must not exist.")]
Name = Annotated[str | None, typer.Option(help="Name of the graph; from the source by default.")]
Dtype = Annotated[str | None, typer.Option(help="Convert features: float16, float32 or bfloat16.")]
Stripes = Annotated[int, typer.Option(min=1, help="Files to stripe the features over.")]
StripeBytes = Annotated[
    int, typer.Option(parser=_size, metavar="SIZE", help="Bytes per stripe, a multiple of 4KiB.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing store on success.")]
Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Bars; default: on a terminal.")
]


@convert_app.command("npy")
def convert_npy_command(
    src: Annotated[Path, typer.Argument(help="Directory with edge_index.npy, node_feat.npy, ...")],
    out: Out,
    name: Name = None,
    dtype: Dtype = None,
    num_classes: Annotated[
        int | None, typer.Option(min=1, help="Default: the largest label + 1.")
    ] = None,
    stripes: Stripes = 1,
    stripe_bytes: StripeBytes = "4KiB",
    force: Force = False,
    progress: Progress = None,
) -> None:
    """Convert edge_index, node_feat, node_label, {train,val,test}_idx .npy files to a store."""
    from lsm.data.npy import convert_npy

    store = convert_npy(
        src,
        out,
        name=name,
        dtype=dtype,
        num_classes=num_classes,
        stripes=stripes,
        stripe_bytes=stripe_bytes,
        force=force,
        progress=progress,
    )
    _done(store)


def _done(store) -> None:
    total = sum(file.bytes for file in store.meta.files.values())
    typer.echo(
        f"{store.path}: {store.name}, {store.num_nodes:,} nodes, {store.num_edges:,} edges, "
        f"dim {store.feature_dim}, {format_bytes(total)}"
    )


if __name__ == "__main__":
    app()
