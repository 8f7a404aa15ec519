"""Seconds per batch of PyG's NodeLoader over a store, and of the own loader.

    python bench/pyg_loaders.py [--nodes N] [--json FILE]

A synthetic graph, its features on disk, or with --engine memory in memory. With --hidden a
GraphSAGE of that width trains; else nobody does. Over lsm.pyg.parts PyG's loader gets batches that
threads prepare ahead, behind a cache, with and without the ids of edges; the own loader prepares
the same ones, as PyG's Data. One by one: lsm.pyg.Sampler and FeatureStore sample and read each
batch when it is asked for, without a cache, in the process or in workers of the DataLoader. They
take turns over --rounds, each for an epoch after an epoch that fills the cache. Prints one JSON
record: medians of seconds and of bytes read per batch, and the ratio of seconds to those of the own
loader. Bytes that workers read are not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import GraphSAGE

import lsm
import lsm.pyg
from common import BATCH_SIZE, FANOUTS, about, numbers, parser, publish, take_turns
from lsm.data.synth import synthesize

OWN = "own loader"


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.workdir) as folder:
        store = synthesize(
            Path(folder) / "store",
            nodes=options.nodes,
            avg_degree=options.degree,
            dim=options.dim,
            classes=8,
            progress=False,
        )
        turns = take_turns(
            options.rounds,
            {name: run_of(store, options) for name, run_of in CONTENDERS.items()},
        )
        graph = about(store)
    own = [run["seconds"] for run in turns[OWN]]
    results = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        | {
            "seconds_relative": round(
                statistics.median(
                    run["seconds"] / other for run, other in zip(runs, own, strict=True)
                ),
                3,
            )
        }
        for name, runs in turns.items()
    }
    publish(graph | {"loaders": results}, options)


def ahead(store: lsm.GraphStore, options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a loader that prepares batches ahead."""
    num_bytes = int(options.cache * store.num_nodes * store.row_bytes)
    return {
        "num_neighbors": numbers(options.fanouts),
        "input_nodes": "train",
        "batch_size": options.batch_size,
        "shuffle": True,
        "cache": {"policy": "lookahead", "bytes": num_bytes},
        "storage": {"engine": options.engine},
    }


def own(store: lsm.GraphStore, options: argparse.Namespace) -> Callable[[int], dict]:
    def run(_turn: int) -> dict:
        with lsm.NeighborLoader(store, **ahead(store, options), as_pyg=True) as loader:
            return measure(loader, loader.stats, store, options)

    return run


def over_parts(store: lsm.GraphStore, options: argparse.Namespace, **more: Any) -> Callable:
    def run(_turn: int) -> dict:
        with lsm.pyg.parts(store, **ahead(store, options), **more) as parts:
            return measure(NodeLoader(**parts), parts.loader.stats, store, options)

    return run


def one_by_one(store: lsm.GraphStore, options: argparse.Namespace, num_workers: int) -> Callable:
    def run(_turn: int) -> dict:
        with lsm.pyg.FeatureStore(store, storage={"engine": options.engine}) as rows:
            loader = NodeLoader(
                (rows, lsm.pyg.GraphStore(store)),
                lsm.pyg.Sampler(store, numbers(options.fanouts)),
                store.split("train"),
                batch_size=options.batch_size,
                shuffle=True,
                num_workers=num_workers,
            )
            stats = None if num_workers else lambda: rows.opened.stats()
            return measure(loader, stats, store, options)

    return run


CONTENDERS = {
    OWN: own,
    "parts": over_parts,
    "parts, without ids of edges": lambda *given: over_parts(*given, edge_ids=False),
    "one by one": lambda *given: one_by_one(*given, num_workers=0),
    "one by one, two workers": lambda *given: one_by_one(*given, num_workers=2),
}


def measure(
    loader: Iterable,
    stats: Callable[[], dict] | None,
    store: lsm.GraphStore,
    options: argparse.Namespace,
) -> dict:
    """Seconds, and bytes read, of each batch in the second epoch."""
    train = trainer(store, options) if options.hidden else lambda _batch: None
    for batch in loader:
        train(batch)
    before = stats()["bytes_read"] if stats else 0
    started, count = time.perf_counter(), 0
    for batch in loader:
        train(batch)
        count += 1
    found = {"seconds": (time.perf_counter() - started) / count}
    return found | ({"bytes_read": (stats()["bytes_read"] - before) / count} if stats else {})


def trainer(store: lsm.GraphStore, options: argparse.Namespace) -> Callable[[Data], None]:
    """A function that trains a model on a batch."""
    hops = len(numbers(options.fanouts))
    model = GraphSAGE(store.feature_dim, options.hidden, hops, store.num_classes)
    optimizer = torch.optim.Adam(model.parameters())

    def train(batch: Data) -> None:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = cross_entropy(out, batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return train


def parse() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=200_000)
    arguments.add_argument("--degree", type=float, default=15)
    arguments.add_argument("--dim", type=int, default=256)
    arguments.add_argument("--fanouts", default=FANOUTS)
    arguments.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments.add_argument("--cache", type=float, default=0.25, help="share of the features' bytes")
    arguments.add_argument("--engine", default="auto")
    arguments.add_argument("--hidden", type=int, default=0)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--workdir", type=Path, help="on the disk to measure")
    return arguments.parse_args()


if __name__ == "__main__":
    main()
