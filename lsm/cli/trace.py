"""``lsm trace``: writes the requests of the ranks of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lsm.cli.arguments import Progress, integers, require_folder


def trace(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Store directory.")],
    out: Annotated[Path, typer.Option("--out", help="Trace to write (.npz).")],
    num_neighbors: Annotated[str, typer.Option(help="Neighbours per hop.")] = "10,5",
    batch_size: Annotated[int, typer.Option(help="Seeds per rank and iteration.")] = 1024,
    ranks: Annotated[int, typer.Option(help="Ranks of the run.")] = 1,
    iterations: Annotated[
        int | None, typer.Option(help="Iterations, over the end of an epoch if need be.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Whole epochs, instead of --iterations; default: one.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the run.")] = 0,
    split: Annotated[str, typer.Option(help="Seed nodes: train, valid or test.")] = "train",
    input_type: Annotated[
        str | None, typer.Option(help="Graph with types: that of the seeds.")
    ] = None,
    types: Annotated[
        str | None,
        typer.Option(help="Graph with types: those whose rows are requested, of one size."),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(help="Static score to add: reverse_pagerank, in_degree or presample."),
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="Method that draws neighbours: neighbor, labor or ladies.")
    ] = "neighbor",
    layer_dependency: Annotated[
        bool, typer.Option("--layer-dependency", help="labor: one draw per node for all hops.")
    ] = False,
    batch_dependency: Annotated[
        int, typer.Option(help="labor: iterations within which all draws are renewed.")
    ] = 1,
    progress: Progress = None,
) -> None:
    """Write the nodes that every rank of a training run requests at every iteration."""
    from lsm.ablation.trace_sampling import sample_trace
    from lsm.data.graph_store import GraphStore
    from lsm.sampler.options import Sampling

    if iterations is not None and epochs is not None:
        raise ValueError("--iterations and --epochs: expected one of them, got both")
    require_folder("--out", out)
    kind: Any = sampler  # checked by Sampling
    sampled = sample_trace(
        GraphStore.open(store),
        integers("--num-neighbors", num_neighbors),
        batch_size,
        ranks=ranks,
        iterations=iterations,
        epochs=1 if epochs is None else epochs,
        seed=seed,
        split=split,
        input_type=input_type,
        types=None if types is None else types.split(","),
        score=score,
        sampling=Sampling(
            kind=kind, layer_dependency=layer_dependency, batch_dependency=batch_dependency
        ),
        progress=progress,
    )
    sampled.save(out)
    typer.echo(
        f"{out}: {sampled.num_iterations:,} iterations, {sampled.num_ranks} ranks, "
        f"{len(sampled.ids):,} requests, {sampled.mean_list:,.0f} per list"
    )
