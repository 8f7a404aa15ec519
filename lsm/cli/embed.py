"""``lsm embed``: embeddings from disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lsm.cli.arguments import Explain, MovedStore, Overrides, PrintConfig, Progress, config_names
from lsm.cli.training import train_to_summary

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Embeddings of nodes, from disk."
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="run.dir of a run.")]


@app.command("train")
def train_command(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="YAML file, or the name of one in configs/embed/.",
            autocompletion=config_names("embed"),
        ),
    ],
    overrides: Overrides = None,
    print_config: PrintConfig = False,
    explain: Explain = False,
) -> None:
    """Train and test embeddings; the last line of output is a summary as JSON.

    The keys are explained in configs/embed/base.yaml: `lsm embed train base --explain` prints it.
    Under torchrun, srun or mpirun, every process is one rank of the run.
    """
    from lsm.config.load import find_config
    from lsm.core.section import dump_config
    from lsm.embed.config import FOLDER, load_embed_config

    if explain:
        typer.echo(find_config("base", FOLDER).read_text(), nl=False)
        return
    settings = load_embed_config(config, overrides or [])
    if print_config:
        typer.echo(dump_config(settings), nl=False)
        return
    from lsm.train.start import prepare_environment

    prepare_environment()
    from lsm.embed.run_state import STATE_NAME
    from lsm.embed.trainer import train

    train_to_summary(train, settings, lambda: [*settings.run_dir.glob(STATE_NAME)])


@app.command("eval")
def eval_command(
    run: Run,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Override eval.*, data.path, train.num_threads."),
    ] = None,
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
) -> None:
    """Rank the edges of a split by the embeddings of a run; the output is one JSON object."""
    from lsm.train.start import prepare_environment

    prepare_environment()
    from lsm.data.format import split_name
    from lsm.embed.evaluate import evaluate_run
    from lsm.embed.run import EmbeddingRun

    ranked = split_name(split, known=("valid", "test"))
    typer.echo(json.dumps(evaluate_run(EmbeddingRun.open(run, overrides or []), ranked)))


@app.command("export")
def export_command(
    run: Run,
    out: Annotated[Path, typer.Option("--out", help="Directory to write to.")],
    form: Annotated[
        str, typer.Option("--format", help="npy, tsv, word2vec or safetensors.")
    ] = "npy",
    ids: Annotated[bool, typer.Option("--ids", help="Ids instead of names.")] = False,
    store: MovedStore = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files in --out.")] = False,
    progress: Progress = None,
) -> None:
    """Write the embeddings of a run to files for other tools, a block at a time."""
    from lsm.core.units import format_bytes
    from lsm.embed.use.embeddings import open_run
    from lsm.embed.use.export import export

    for path in export(open_run(run, store), out, form, ids=ids, force=force, progress=progress):
        typer.echo(f"{path}: {format_bytes(path.stat().st_size)}")


@app.command("neighbors")
def neighbors_command(
    run: Run,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of entities.")],
    k: Annotated[int, typer.Option("-k", help="Neighbours of each.")] = 10,
    measure: Annotated[str, typer.Option("--by", help="cosine or dot.")] = "cosine",
    ids: Annotated[bool, typer.Option("--ids", help="NAME is an id, and so are answers.")] = False,
    store: MovedStore = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
) -> None:
    """Print the entities whose embeddings are nearest to those of others."""
    from lsm.embed.use.answers import neighbors_by_name
    from lsm.embed.use.embeddings import open_run

    answers = neighbors_by_name(open_run(run, store), names, k, measure, ids=ids)
    if as_json:
        typer.echo(json.dumps(answers))
        return
    for name, found in answers.items():
        typer.echo(name)
        for other, score in found:
            typer.echo(f"  {score:9.6f}  {other}")


IdsOption = Annotated[bool, typer.Option("--ids", help="Entities and relations are ids.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Write edges and scores to this file, as TSV.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace --out.")]


@app.command("predict")
def predict_command(
    run: Run,
    head: Annotated[str | None, typer.Option("--head", help="Predict tails of this head.")] = None,
    relation: Annotated[str | None, typer.Option("--relation", help="Of the edges.")] = None,
    tail: Annotated[str | None, typer.Option("--tail", help="Predict heads of this tail.")] = None,
    k: Annotated[int, typer.Option("-k", help="Predictions of each query.")] = 10,
    unknown_only: Annotated[
        bool, typer.Option("--unknown-only", help="Leave out edges of train, valid and test.")
    ] = False,
    queries: Annotated[
        Path | None,
        typer.Option(
            "--queries", metavar="FILE", help="Lines of head, relation, tail, one side being ?."
        ),
    ] = None,
    ids: IdsOption = False,
    store: MovedStore = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array instead.")] = False,
    out: OutOption = None,
    force: ForceOption = False,
) -> None:
    """Print the tails that complete a head and a relation best, or the heads."""
    from lsm.embed.use import answers
    from lsm.embed.use.edge_files import EdgeFile
    from lsm.embed.use.embeddings import open_run

    opened = open_run(run, store)
    if queries is None:
        rows = [answers.query_row(opened, head, relation, tail, ids=ids)]
        cells = [[cell or "?" for cell in (head, relation, tail)]]
        if relation is None:
            del cells[0][1]
    elif (head, relation, tail) != (None, None, None):
        raise ValueError("--queries: expected no --head, --relation and --tail with it")
    else:
        names = None if ids else opened.store
        cells, rows = answers.read_queries(EdgeFile(queries, opened.run, names, has_queries=True))
    found = answers.predicted(opened, rows, k, ids=ids, unknown_only=unknown_only)
    if out is not None:
        edges = (
            edge
            for query, best in zip(cells, found, strict=True)
            for edge in answers.completed(query, best)
        )
        count = answers.write_lines(out, answers.as_lines(edges), force=force)
        typer.echo(f"{out}: {count:,} edges")
    elif as_json:
        typer.echo(
            json.dumps([answers.as_record(*pair) for pair in zip(cells, found, strict=True)])
        )
    else:
        for query, best in zip(cells, found, strict=True):
            typer.echo("  ".join(query))
            for name, score in best:
                typer.echo(f"  {score:10.6f}  {name}")


@app.command("score")
def score_command(
    run: Run,
    triples: Annotated[
        Path,
        typer.Option(
            "--triples", metavar="FILE", help="Lines of head, relation, tail: .tsv, .csv or .gz."
        ),
    ],
    target: Annotated[
        str, typer.Option("--target", help="Side that the score ranks: tail or head.")
    ] = "tail",
    header: Annotated[bool, typer.Option("--header", help="Skip the first line.")] = False,
    skip_malformed: Annotated[
        bool, typer.Option("--skip-malformed", help="Leave out bad lines and unknown names.")
    ] = False,
    ids: IdsOption = False,
    store: MovedStore = None,
    out: OutOption = None,
    force: ForceOption = False,
) -> None:
    """Print the score of each edge of a file, in its order: the line, a tab and the score."""
    from lsm.embed.use import answers
    from lsm.embed.use.edge_files import EdgeFile
    from lsm.embed.use.embeddings import open_run

    opened = open_run(run, store)
    file = EdgeFile(triples, opened.run, None if ids else opened.store, header=header)
    lines = answers.as_lines(answers.scored(opened, file, target, skip_malformed=skip_malformed))
    if out is None:
        for line in lines:
            typer.echo(line, nl=False)
        return
    typer.echo(f"{out}: {answers.write_lines(out, lines, force=force):,} edges")


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
    from lsm.core.atomic_file import writing
    from lsm.embed.orders.order import make_order
    from lsm.embed.orders.text import as_text

    made = make_order(order, partitions, buffer, ranks, seed=seed)
    if out is not None:
        with writing(out) as file:
            file.write_text(json.dumps(made.as_json()) + "\n", encoding="utf-8")
    typer.echo(as_text(made))
