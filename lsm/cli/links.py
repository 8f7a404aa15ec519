"""``lsm data split-links``: divides edges for link prediction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from lsm.cli.arguments import Store
from lsm.core.limits import LARGEST_SEED


def _one_of(*known: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"expected {', '.join(known)}, got {text!r}")
        return text

    return check


def split_links_command(
    context: typer.Context,
    store: Store,
    out: Annotated[
        Path | None, typer.Option("--out", help="Directory to make; default: STORE.links.")
    ] = None,
    edge_type: Annotated[
        str | None,
        typer.Option(metavar="S,R,D", help="Type of the edges; default: the only one."),
    ] = None,
    reverse_type: Annotated[
        str,
        typer.Option(
            metavar="D,R,S",
            help="Type with the same edges in the other direction, or none. auto: D,rev_R,S; else "
            "D,R,S, apart from rev_, if there is one.",
        ),
    ] = "auto",
    valid: Annotated[float, typer.Option(help="Share of the edges for validation.")] = 0.05,
    test: Annotated[float, typer.Option(help="Share of the edges for testing.")] = 0.05,
    order: Annotated[
        str,
        typer.Option(
            callback=_one_of("auto", "random", "time"),
            help="time: the latest edges are for testing; random: drawn; auto: time if edges have "
            "times.",
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of random.")] = 0,
    message_edges: Annotated[
        str,
        typer.Option(
            callback=_one_of("train", "earlier", "all"),
            help="Edges in the graph that is sampled. train: none of validation or test; earlier: "
            "those of validation when testing; all: every edge.",
        ),
    ] = "train",
    given: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Take the pairs of valid.npy and test.npy in DIR, and train.npy and "
            "SPLIT_candidates.npy if they are there.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing splits on success.")
    ] = False,
) -> None:
    """Divide the edges of one type into train, valid and test, for link prediction.

    At random, parallel edges, and edges in the other direction, are in the same split.
    """
    from lsm.data.links.splits import LinkSplits

    options = context.params | {
        "edge_type": None if edge_type is None else _edge_type(edge_type),
        "reverse_type": _reverse_type(reverse_type),
    }
    splits = LinkSplits.make(**options)
    counts = ", ".join(f"{name} {count:,}" for name, count in splits.num_edges.items())
    typer.echo(f"{splits.path}: {','.join(splits.edge_type)}, {counts} ({splits.meta.order})")


def _edge_type(text: str) -> tuple[str, str, str]:
    names = tuple(text.split(","))
    if len(names) != 3:
        raise typer.BadParameter(f"expected SOURCE,RELATION,DESTINATION, got {text!r}")
    return names


def _reverse_type(text: str) -> tuple[str, str, str] | Literal["auto"] | None:
    if text == "auto":
        return "auto"
    return None if text == "none" else _edge_type(text)
