"""Edges trained per CPU-second, against the matrix products alone: ``python bench/embed.py``.

``edges_per_cpu_s`` is of EdgeTrainer.train: draws, gathers, scores, loss, gradients and updates of
random edges, both sides corrupted, with the table in a frame of a run. ``products_edges_per_cpu_s``
is of the matrix products of such batches alone, with operands that stay in the processor's caches:
the scores, and the gradients of queries and of negatives. The two take turns; ``share_of_products``
is the median of the rounds' ratios. CPU-seconds are those of the process. ``--check`` first
compares a batch's gradients with those of float64.

``--peer-python`` also runs ``peers/torchbiggraph_train.py`` on batches of the same sizes, between
the thirds of the rounds: as it comes, and with a C library that keeps freed memory, as ours does.
Its chunks have as many edges as negatives, and so have ours by default.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor

from common import BENCH, PEER_MALLOC, parser, publish, run_program, spread, take_turns
from lsm.core.allocator import keep_freed_memory
from lsm.embed.adagrad import initial_rows, initialise
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.gradients.edge_gradients import (
    LEAST_BLOCK,
    SCORE_BYTES,
    Tables,
    Workspace,
    gradients_of,
)
from lsm.embed.options import EmbedOptions
from lsm.embed.table.frames import HostFrames
from lsm.embed.table.layout import PartitionLayout


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--model", default="complex")
    arguments.add_argument("--dim", type=int, default=100)
    arguments.add_argument("--negatives", type=int, default=1000)
    arguments.add_argument("--chunk", type=int, default=1000)
    arguments.add_argument("--batch-size", type=int, default=10_000)
    arguments.add_argument("--nodes", type=int, default=1_000_000)
    arguments.add_argument("--relations", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--peer-python", help="with PyTorch-BigGraph: bench/peers/README.md")
    arguments.add_argument("--peer-rounds", type=int, default=3, help="batches of a third")
    return arguments.parse_args()


def random_edges(args: argparse.Namespace, turn: int) -> Tensor:
    generator = torch.Generator().manual_seed(turn)
    limits = (args.nodes, args.relations, args.nodes)
    shape = (args.batch_size,)
    return torch.stack([torch.randint(n, shape, generator=generator) for n in limits], 1)


def check(options: EmbedOptions, tables: Tables, edges: Tensor, num_nodes: int) -> None:
    """Raises AssertionError unless float32 and float64 have the same gradients."""
    wide = Tables(*(table.double() for table in tables))
    narrow, expected = (
        gradients_of(
            options, each, edges, [(0, num_nodes)], torch.Generator().manual_seed(1), Workspace()
        )
        for each in (tables, wide)
    )
    assert abs(narrow.loss - expected.loss) < 1e-5 * abs(expected.loss)
    torch.testing.assert_close(narrow.grads.double(), expected.grads, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(narrow.relations.double(), expected.relations, rtol=1e-3, atol=1e-5)


def products(options: EmbedOptions, num_edges: int) -> None:
    """In the blocks of edges that the trainer takes at once."""
    size = min(options.chunk, max(LEAST_BLOCK, SCORE_BYTES // (4 * options.num_negatives)))
    queries = torch.ones(size, options.dim)
    entities = torch.ones(options.num_negatives, options.dim)
    scores = torch.empty(size, options.num_negatives)
    of_queries, of_entities = torch.empty_like(queries), torch.empty_like(entities)
    for first in range(0, 2 * num_edges, size):
        count = min(size, 2 * num_edges - first)
        torch.mm(queries[:count], entities.T, out=scores[:count])
        torch.mm(scores[:count].T, queries[:count], out=of_entities)
        torch.mm(scores[:count], entities, out=of_queries[:count])


def peer(args: argparse.Namespace, environment: dict[str, str]) -> list[float]:
    """Edges per CPU-second of each batch of PyTorch-BigGraph."""
    command = [args.peer_python, BENCH / "peers" / "torchbiggraph_train.py"]
    for name in ("dim", "negatives", "batch_size", "nodes", "relations", "threads"):
        command += [f"--{name.replace('_', '-')}", getattr(args, name)]
    command += ["--rounds", args.peer_rounds]
    return run_program(command, env=environment, timeout=300)["edges_per_cpu_s"]


def against_peers(args: argparse.Namespace, ours: list[float], peers: dict) -> dict:
    rate = statistics.median(ours)
    return {
        name: spread("edges_per_cpu_s", rates)
        | {"ours_against_it": rate / statistics.median(rates)}
        for name, rates in peers.items()
    }


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()  # as lsm embed train does
    options = EmbedOptions(
        model=args.model,
        dim=args.dim,
        num_negatives=args.negatives,
        chunk=args.chunk,
        init_scale=0.1,
        regularizer="none",
    )
    layout = PartitionLayout.of([0, args.nodes], options.width)
    rows = HostFrames(layout, 1).rows[: args.nodes]
    initialise(options, rows, seed=1)
    relations = initial_rows(options, options.relation_rows(args.relations), seed=2)
    trainer = EdgeTrainer(rows, relations, options)
    if args.check:
        tables = Tables(rows[:, : options.dim], relations[:, : options.dim])
        check(options, tables, random_edges(args, 0)[:1000], args.nodes)

    def train(turn: int) -> float:
        edges = random_edges(args, turn)
        start = time.process_time()
        trainer.train(edges, [(0, args.nodes)], seed=0, step=turn)
        return args.batch_size / (time.process_time() - start)

    def multiply(turn: int) -> float:
        start = time.process_time()
        products(options, args.batch_size)
        return args.batch_size / (time.process_time() - start)

    train(0), multiply(0)
    rates: dict[str, list[float]] = {"train": [], "products": []}
    peers: dict[str, list[float]] = {"as it comes": [], "keeps freed memory": []}
    for part in range(3):
        rounds = range(args.rounds)[part::3]
        made = take_turns(len(rounds), {"train": train, "products": multiply})
        for name, values in made.items():
            rates[name] += values
        if args.peer_python:
            peers["as it comes"] += peer(args, {})
            peers["keeps freed memory"] += peer(args, PEER_MALLOC)
    ratios = [a / b for a, b in zip(rates["train"], rates["products"], strict=True)]
    results = {
        "bench": "embed",
        "checked": args.check,
        **spread("edges_per_cpu_s", rates["train"]),
        "products_edges_per_cpu_s": statistics.median(rates["products"]),
        **spread("share_of_products", ratios),
    }
    if args.peer_python:
        results["torchbiggraph"] = against_peers(args, rates["train"], peers)
    publish(results, args)


if __name__ == "__main__":
    main()
