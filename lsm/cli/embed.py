"""``lsm embed``: embeddings from disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Embeddings of nodes, from disk."
)


@app.callback()
def _group() -> None:
    """Keeps ``order`` a sub-command while it is the only one."""


@app.command("order")
def order_command(
    partitions: Annotated[int, typer.Option(help="Partitions of the nodes.")],
    buffer: Annotated[int, typer.Option(help="Partitions that a rank holds.")] = 3,
    ranks: Annotated[int, typer.Option(help="Ranks, with buffers of their own.")] = 1,
    order: Annotated[str, typer.Option(help="best, legend, beta or random.")] = "best",
    seed: Annotated[int, typer.Option(help="Of a random order.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write it to FILE.")
    ] = None,
) -> None:
    """Print in which order partitions are loaded and buckets are trained in an epoch."""
    from lsm.embed.order import make_order
    from lsm.embed.order_table import as_text

    made = make_order(order, partitions, buffer, ranks, seed=seed)
    if out is not None:
        out.write_text(json.dumps(made.as_json()) + "\n", encoding="utf-8")
    typer.echo(as_text(made))
