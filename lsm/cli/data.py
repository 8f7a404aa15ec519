"""``lsm data``: make, convert, inspect and check stores.

A command that passes ``context.params`` on has the arguments of that function as its options.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lsm.cli.arguments import Progress, Store
from lsm.cli.links import split_links_command
from lsm.core.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from lsm.data.graph_store import GraphStore
    from lsm.data.triples.store import TripleStore

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Make, convert, inspect and check stores."
)
convert_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Convert a graph to a store."
)
app.add_typer(convert_app, name="convert")


def _size(text: str | int) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Out = Annotated[Path, typer.Option("--out", help="Store directory to make; must not exist.")]
Name = Annotated[str | None, typer.Option(help="Name of the graph; from the source by default.")]
Dtype = Annotated[str | None, typer.Option(help="Convert features: float16, float32 or bfloat16.")]
Stripes = Annotated[int, typer.Option(min=1, help="Feature files to write, one for each disk.")]
StripeBytes = Annotated[
    int,
    typer.Option(
        parser=_size,
        metavar="SIZE",
        show_default="4KiB",
        help="Bytes per stripe, a multiple of 4KiB.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing store on success.")]


@convert_app.command("npy")
def convert_npy_command(
    context: typer.Context,
    src: Annotated[Path, typer.Argument(help="Directory with edge_index.npy, node_feat.npy, ...")],
    out: Out,
    name: Name = None,
    dtype: Dtype = None,
    num_classes: Annotated[
        int | None, typer.Option(min=1, help="Default: the largest label + 1.")
    ] = None,
    add_reverse: Annotated[
        bool, typer.Option("--add-reverse", help="With types: also each edge type, reversed.")
    ] = False,
    stripes: Stripes = 1,
    stripe_bytes: StripeBytes = 4096,
    force: Force = False,
    progress: Progress = None,
) -> None:
    """Convert edge_index, node_feat, node_label, {train,val,test}_idx .npy files to a store.

    A graph with types has them in folders: nodes/TYPE and edges/SOURCE,RELATION,DESTINATION.

    A split is node ids, or a mask: one bool per node, also as {train,val,test}_mask.npy.
    """
    from lsm.data.convert.npy import convert_npy

    _done(convert_npy(**context.params))


@convert_app.command("igb")
def convert_igb_command(
    context: typer.Context,
    src: Annotated[Path, typer.Argument(help="Directory that holds SIZE/processed/paper/...")],
    out: Out,
    size: Annotated[str, typer.Option(help="tiny, small, medium, large or full.")],
    num_classes: Annotated[int, typer.Option(help="Set of labels: 19 or 2983.")] = 19,
    num_nodes: Annotated[
        int | None, typer.Option(min=1, help="For a part of a dataset: its number of nodes.")
    ] = None,
    num_labelled: Annotated[
        int | None, typer.Option(min=0, help="... and how many of them, from 0, have a label.")
    ] = None,
    name: Name = None,
    dtype: Dtype = None,
    stripes: Stripes = 1,
    stripe_bytes: StripeBytes = 4096,
    force: Force = False,
    progress: Progress = None,
) -> None:
    """Convert a homogeneous IGB dataset to a store."""
    from lsm.data.convert.igb import convert_igb

    _done(convert_igb(**context.params))


@convert_app.command("triples")
def convert_triples_command(
    context: typer.Context,
    src: Annotated[
        Path, typer.Argument(help="Directory with train, valid and test files, or one file.")
    ],
    out: Out,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="H,R,T",
            help="Columns of head, relation and tail, or of head and tail: numbers from 0, or "
            "names of the first line.",
        ),
    ] = None,
    header: Annotated[
        bool, typer.Option("--header", help="The first line names the columns.")
    ] = False,
    comment: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Leave out lines that begin so.")
    ] = None,
    skip_malformed: Annotated[
        bool, typer.Option("--skip-malformed", help="Count malformed lines, do not stop at one.")
    ] = False,
    valid_fraction: Annotated[
        float, typer.Option(help="Of one file: share that is drawn for valid.")
    ] = 0.05,
    test_fraction: Annotated[
        float, typer.Option(help="Of one file: share that is drawn for test.")
    ] = 0.05,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the order of entities and of drawn splits.")
    ] = 0,
    memory_bytes: Annotated[
        int,
        typer.Option(
            "--memory",
            parser=_size,
            metavar="SIZE",
            show_default="768MiB",
            help="Memory of the sort; names come on top.",
        ),
    ] = 768 << 20,
    name: Name = None,
    force: Force = False,
    progress: Progress = None,
) -> None:
    """Convert triples, or edges without relations, to a store for embeddings.

    Files are .tsv or .txt (tabs, or blanks), .csv, LibKGE's .del (ids), each also .gz, or .npy
    (ids). Names of ids: entity_ids.del and relation_ids.del, or entities.txt and relations.txt.
    """
    from lsm.data.triples.convert import convert_triples

    options = context.params | {"columns": None if columns is None else columns.split(",")}
    _done_triples(convert_triples(**options))


@app.command("synth")
def synth_command(
    context: typer.Context,
    out: Out,
    nodes: Annotated[int, typer.Option(min=2)],
    kind: Annotated[
        str, typer.Option(help="graph, with features and labels; or triples, for lsm embed.")
    ] = "graph",
    dim: Annotated[
        int | None, typer.Option(min=1, help="Features per node; a graph needs it.")
    ] = None,
    relations: Annotated[
        int, typer.Option(min=0, help="Of triples; 0: edges without relations.")
    ] = 0,
    types: Annotated[
        int, typer.Option(min=1, help="Types of nodes; above 1: a graph with types.")
    ] = 1,
    classes: Annotated[int, typer.Option(min=1)] = 16,
    avg_degree: Annotated[
        float, typer.Option(help="Mean in-degree; of triples, edges per node.")
    ] = 12.0,
    degree_exponent: Annotated[
        float, typer.Option(help="Exponent of the in-degrees' power law, above 2.")
    ] = 2.5,
    popularity_exponent: Annotated[
        float, typer.Option(help="Exponent of the popularity of sources, 0 (flat) to below 1.")
    ] = 0.7,
    homophily: Annotated[
        float, typer.Option(help="Share of edges drawn inside the node's own class.")
    ] = 0.7,
    signal: Annotated[
        float, typer.Option(help="Length of the class centroids; noise has deviation 1.")
    ] = 1.0,
    train_fraction: float = 0.6,
    valid_fraction: Annotated[float, typer.Option(help="Of triples: 0.05.")] = 0.2,
    test_fraction: Annotated[float, typer.Option(help="Of triples: 0.05.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    name: Name = None,
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.")] = "float32",
    stripes: Stripes = 1,
    stripe_bytes: StripeBytes = 4096,
    force: Force = False,
    progress: Progress = None,
) -> None:
    """Make a graph whose labels can be learnt from its features and, better, its edges; or triples
    whose tails can be learnt."""
    if kind == "triples":
        return _synth_triples(context)
    if kind != "graph":
        raise typer.BadParameter(f"expected graph or triples, got {kind!r}", param_hint="--kind")
    if dim is None:
        raise typer.BadParameter("a graph needs it", param_hint="--dim")
    if relations:
        raise typer.BadParameter("only triples have relations", param_hint="--relations")
    from lsm.data.synth import synthesize
    from lsm.data.typed.synth import synthesize_typed

    not_of_graphs = ("kind", "relations", "types")
    options = {key: each for key, each in context.params.items() if key not in not_of_graphs}
    _done(synthesize(**options) if types == 1 else synthesize_typed(num_types=types, **options))


def _synth_triples(context: typer.Context) -> None:
    from lsm.data.triples.synth import synthesize_triples

    given = {
        key: value
        for key, value in context.params.items()
        if key != "kind"
        and (source := context.get_parameter_source(key))
        and source.name != "DEFAULT"
    }
    _done_triples(synthesize_triples(**given))


@app.command("info")
def info_command(
    store: Store,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead.")] = False,
) -> None:
    """Show the contents of a store."""
    from rich.console import Console

    from lsm.data.info import as_table, describe

    info = describe(store)
    if as_json:
        typer.echo(json.dumps(info))
    else:
        Console().print(as_table(info))


@app.command("verify")
def verify_command(store: Store, progress: Progress = None) -> None:
    """Check checksums, ids, labels, splits, features, edges; exit 1 if there is a problem."""
    from lsm.data.verify import verify_store

    problems = verify_store(store, progress=progress)
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{store}: no problems")


@app.command("score")
def score_command(
    store: Store,
    name: Annotated[str, typer.Argument(help="in_degree, reverse_pagerank or presample.")],
) -> None:
    """Compute a static score of the nodes and keep it in the store."""
    from lsm.cache.scores import compute_score
    from lsm.data.graph_store import GraphStore

    compute_score(GraphStore.open(store), name, num_threads=os.cpu_count() or 1)
    typer.echo(f"{store}: stored score {name}")


app.command("split-links")(split_links_command)


@app.command("load-nvme")
def load_nvme_command(
    store: Store,
    devices: Annotated[
        list[str], typer.Argument(metavar="DEVICE...", help="Namespaces, such as /dev/nvme0n1.")
    ],
    yes: Annotated[
        list[str] | None,
        typer.Option(
            "--yes", metavar="DEVICE", help="Overwrite DEVICE without asking; per device."
        ),
    ] = None,
    progress: Progress = None,
) -> None:
    """Write the features of a store to NVMe namespaces, for storage.engine=nvme. Their contents are
    lost; asks for each device's name. Refuses devices that are mounted, partitioned or in use."""
    from lsm.data.graph_store import GraphStore
    from lsm.storage.nvme.load import load_namespaces
    from lsm.storage.nvme.machine import Namespace

    def confirm(namespace: Namespace, content: str) -> bool:
        if str(namespace.path) in (yes or []):
            return True
        typer.echo(
            f"{namespace.path}: {namespace.model}, serial {namespace.serial}, "
            f"{format_bytes(namespace.num_bytes)}; it holds {content}, which will be lost."
        )
        answer = typer.prompt(
            f"Type {namespace.path} to overwrite it", default="", show_default=False
        )
        return answer.strip() == str(namespace.path)

    opened = GraphStore.open(store)
    for namespace in load_namespaces(opened, devices, confirm, progress=progress):
        suffix = "" if namespace.nsid == 1 else f"@{namespace.nsid}"
        names = " or ".join(address + suffix for address in namespace.functions)
        typer.echo(f"{namespace.path}: loaded; in storage.devices (sysfs) it is {names}")


def _done(store: GraphStore) -> None:
    total = sum(file.bytes for file in store.meta.files.values())
    rows = f"{len(store.node_types)} and {len(store.edge_types)} types"
    if not store.is_typed and store.nodes().features is not None:
        rows = f"dim {store.feature_dim}"
    typer.echo(
        f"{store.path}: {store.name}, {store.num_nodes:,} nodes, {store.num_edges:,} edges, "
        f"{rows}, {format_bytes(total)}"
    )


def _done_triples(store: TripleStore) -> None:
    from lsm.data.triples.info import oddities

    total = sum(file.bytes for file in store.meta.files.values())
    splits = ", ".join(f"{split} {size:,}" for split, size in store.num_edges.items())
    typer.echo(
        f"{store.path}: {store.name}, {store.num_entities:,} entities, {store.num_relations:,} "
        f"relations, {splits}, {format_bytes(total)}"
    )
    for line in oddities(store.meta.counts):
        typer.echo(f"  {line}")


if __name__ == "__main__":
    app()
