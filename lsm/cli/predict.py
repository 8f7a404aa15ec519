"""``lsm predict``: the rows of all nodes by a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lsm.cli.arguments import MovedStore, Progress, integers


def predict(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="run.dir of a run of `lsm train`.")],
    out: Annotated[Path, typer.Option("--out", help="New directory to write to.")],
    nodes: Annotated[
        str,
        typer.Option("--nodes", help="all, train, valid, test, or a FILE of ids or names."),
    ] = "all",
    node_type: Annotated[
        str | None,
        typer.Option("--node-type", help="Their type, for links; default: of destinations."),
    ] = None,
    links: Annotated[
        str | None,
        typer.Option(
            "--links",
            help="Score the pairs of a run of links in FILE: .npy [2, n] or [n, 2], or lines of "
            "two ids or names.",
            metavar="FILE",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", help="Rank the K best targets of --nodes, by a run of links."),
    ] = None,
    exclude_known: Annotated[
        bool,
        typer.Option(
            "--exclude-known/--no-exclude-known",
            help="Of --top-k: no targets that a node has an edge to, nor itself.",
        ),
    ] = True,
    outputs: Annotated[
        str | None,
        typer.Option(
            "--outputs", help="Some of embeddings, scores, predictions; default: all there are."
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Of embeddings and scores: float32 or float16.")
    ] = "float32",
    format: Annotated[
        str, typer.Option("--format", help="npy, or parquet: one file with names.")
    ] = "npy",
    route: Annotated[
        str,
        typer.Option(
            "--route",
            help="auto, intervals (rows stream by), gather (any layer) or sampled (any model).",
        ),
    ] = "auto",
    num_neighbors: Annotated[
        str | None,
        typer.Option(
            "--num-neighbors", help="Of sampled: per hop, such as 15,10; default: the run's test."
        ),
    ] = None,
    memory_bytes: Annotated[
        str | None,
        typer.Option("--memory-bytes", help="Memory of each rank, such as 4GiB."),
    ] = None,
    num_threads: Annotated[int, typer.Option("--threads", help="Threads. 0: one per core.")] = 0,
    store: MovedStore = None,
    progress: Progress = None,
) -> None:
    """Write embeddings, scores and predictions of all nodes, or scores of links, from disk.

    The last line of output is a summary as JSON. The same command continues after a kill. Under
    torchrun, srun or mpirun, the processes share the nodes.
    """
    from lsm.distributed.environment import rank_in
    from lsm.train.start import prepare_environment

    prepare_environment()
    from lsm.train.prediction import predict as run_predict

    options = context.params
    options["outputs"] = [name.strip() for name in (outputs or "").split(",") if name.strip()]
    if num_neighbors is not None:
        options["num_neighbors"] = integers("--num-neighbors", num_neighbors.strip("[]"))
    summary = run_predict(options.pop("run"), **options)
    if rank_in() in (None, 0):
        typer.echo(json.dumps(summary))
