"""Training iterations per second of R-SAGE in memory: ``python bench/typed_training.py``.

A synthetic graph of four node types and seven edge types, in which every type has features. Two
layers, each a mean over the sampled neighbours for each edge type, summed, with ReLU between them;
cross entropy; Adam. Our ways:

* layers   PyG's HeteroConv of SAGEConv over the layers of a ``lsm.Batch``, each a sparse matrix.
* as_pyg   the same over PyG's form of a batch, with ``trim_to_layer``: the first layer computes a
           row for every node of the batch, not only for those that the second takes.
* rsage    the network of ``lsm train``, which also has a linear map of each type, the node's own
           row in each layer and LayerNorm: more work than the other ways.

With ``--peer-python``, an environment with DGL 2.1, GraphBolt's loader trains DGL's HeteroGraphConv
of SAGEConv with the same widths, once for each of ``--num-workers``. All take turns over
``--rounds``; a round is ``--warmup`` untimed iterations, then ``--iters`` timed ones. The median
over rounds is reported, per CPU second too: other load changes these less. ``edges`` are summed
over both layers. ``ratios`` are those to the better of GraphBolt's settings. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.utils import trim_to_layer

import lsm
from common import (
    BATCH_SIZE,
    BENCH,
    FANOUTS,
    PEER_MALLOC,
    medians,
    numbers,
    parser,
    publish,
    run_lsm,
    spread,
    take_turns,
)
from lsm.core import allocator
from lsm.loader.batch import Batch
from lsm.nn.options import ModelOptions
from lsm.nn.typed_models import LayerTypes, TypedInputs, build_typed_model

INPUT_TYPE = "target"
RATES = ("iterations_per_s", "iterations_per_cpu_s")


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=200_000, help="of the first type")
    arguments.add_argument("--dim", type=int, default=128, help="of the first type")
    arguments.add_argument("--fanouts", default=FANOUTS, help="of two hops, seeds first")
    arguments.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments.add_argument("--hidden", type=int, default=128)
    arguments.add_argument("--lr", type=float, default=0.003)
    arguments.add_argument("--threads", type=int, default=2, help="of torch and DGL")
    arguments.add_argument("--sample-threads", type=int, default=1)
    arguments.add_argument("--iters", type=int, default=20)
    arguments.add_argument("--warmup", type=int, default=5)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--ways", default="layers,as_pyg,rsage")
    arguments.add_argument("--num-workers", default="0,1", help="settings of GraphBolt")
    arguments.add_argument("--peer-python", help="the python of an environment with DGL 2.1")
    return arguments.parse_args()


def make_data(folder: Path, args: argparse.Namespace) -> HeteroData:
    """The graph of ``lsm data synth --types 4``, with features of the last type too."""
    size = ["--nodes", args.nodes, "--dim", args.dim, "--types", 4]
    run_lsm("data", "synth", "--out", folder, *size, "--no-progress")
    data = lsm.GraphStore.open(folder).to_pyg()
    last = data.node_types[-1]
    generator = torch.Generator().manual_seed(0)
    data[last].x = torch.randn(data[last].num_nodes, args.dim // 8, generator=generator)
    return data


def save_arrays(store: lsm.GraphStore, data: HeteroData, folder: Path) -> None:
    """The input of the peer."""
    facts = {
        "counts": {name: store.nodes(name).num_nodes for name in store.node_types},
        "edge_types": list(store.edge_types),
        "input_type": INPUT_TYPE,
    }
    (folder / "graph.json").write_text(json.dumps(facts))
    for number, each in enumerate(store.edge_types):
        topology = store.edges(each).topology()
        np.save(folder / f"{number}-indptr.npy", topology.indptr)
        np.save(folder / f"{number}-indices.npy", topology.indices)
    for name in store.node_types:
        np.save(folder / f"{name}-features.npy", data[name].x)
    np.save(folder / "labels.npy", store.nodes(INPUT_TYPE).labels())
    np.save(folder / "train.npy", store.nodes(INPUT_TYPE).split("train"))


class RSage(nn.Module):
    """HeteroConv of SAGEConv for each layer, on either form of a batch."""

    def __init__(self, layers: list[LayerTypes], dims: Mapping[str, int], widths: list[int]):
        super().__init__()
        self.convs = nn.ModuleList()
        for layer, width in zip(layers, widths, strict=True):
            convs = {
                each: SAGEConv((dims[each[0]], dims[each[2]]), width) for each in layer.edge_types
            }
            self.convs.append(HeteroConv(convs, aggr="sum"))
            dims = dict.fromkeys(dims, width)
        self._edge_types = [layer.edge_types for layer in layers]

    def forward(self, batch: Batch) -> Tensor:
        """The outputs of the seeds."""
        x: Mapping[str, Tensor] = batch.x_dict
        for index, (conv, of_layer) in enumerate(
            zip(self.convs, batch.typed_layers(), strict=True)
        ):
            x = relu(x) if index else x
            layers = {each: of_layer[each] for each in self._edge_types[index]}
            own = {each[2]: x[each[2]][: layer.num_dst] for each, layer in layers.items()}
            ends = {each: (x[each[0]], own[each[2]]) for each in layers}
            x = conv(ends, {each: layer.adj for each, layer in layers.items()})
        return x[INPUT_TYPE]

    def of_pyg(self, batch: HeteroData) -> Tensor:
        """The outputs of the seeds of PyG's form of a batch."""
        x, edges = batch.x_dict, batch.edge_index_dict
        sampled = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
        for index, conv in enumerate(self.convs):
            x = relu(x) if index else x
            x, edges, _ = trim_to_layer(index, *sampled, x, edges)
            x = conv(x, edges)
        return x[INPUT_TYPE][: batch[INPUT_TYPE].batch_size]


def relu(x: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: rows.relu() for name, rows in x.items()}


@dataclass
class Way:
    """A network in training by one of the ways."""

    forward: Callable
    as_pyg: bool
    optimizer: torch.optim.Optimizer

    @classmethod
    def of(cls, name: str, store: lsm.GraphStore, args: argparse.Namespace) -> Way:
        torch.manual_seed(0)
        inputs = TypedInputs.of(store, INPUT_TYPE)
        classes = store.nodes(INPUT_TYPE).num_classes
        num_layers = len(numbers(args.fanouts))
        if name == "rsage":
            options = ModelOptions(name="rsage", hidden_dim=args.hidden, dropout=0.0)
            model = build_typed_model(options, inputs, classes, num_layers)
        else:
            widths = [args.hidden] * (num_layers - 1) + [classes]
            model = RSage(inputs.layers(num_layers), inputs.feature_dims, widths)
        as_pyg = name == "as_pyg"
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
        return cls(model.of_pyg if as_pyg else model, as_pyg, optimizer)

    def step(self, batch: Batch | HeteroData) -> float:
        labels = batch[INPUT_TYPE].y[: batch[INPUT_TYPE].batch_size] if self.as_pyg else batch.y
        loss = functional.cross_entropy(self.forward(batch), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def open_loader(
    store: lsm.GraphStore, args: argparse.Namespace, *, seed: int, as_pyg: bool = False
) -> lsm.NeighborLoader:
    return lsm.NeighborLoader(
        store,
        numbers(args.fanouts),
        (INPUT_TYPE, "train"),
        args.batch_size,
        shuffle=True,
        drop_last=True,
        seed=seed,
        storage={"engine": "memory"},
        num_threads=args.sample_threads,
        as_pyg=as_pyg,
    )


def one_round(way: Way, store: lsm.GraphStore, args: argparse.Namespace, turn: int) -> dict:
    """One round, through a loader of its own: none prepares batches in another's turn."""
    with open_loader(store, args, seed=turn, as_pyg=way.as_pyg) as loader:
        batches = chain.from_iterable(repeat(loader))
        for _ in range(args.warmup):
            way.step(next(batches))
        waited = loader.stats()["wait_secs"]
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(args.iters):
            loss = way.step(next(batches))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
        waited = loader.stats()["wait_secs"] - waited
    return {
        "iterations_per_s": args.iters / seconds,
        "iterations_per_cpu_s": args.iters / cpu,
        "wait_share": waited / seconds,
        "loss": loss,
    }


def sizes(store: lsm.GraphStore, args: argparse.Namespace) -> dict[str, float]:
    """Mean sizes of the batches of a round."""
    types = TypedInputs.of(store, INPUT_TYPE).layers(len(numbers(args.fanouts)))
    edges = rows = 0
    with open_loader(store, args, seed=0) as loader:
        for batch in islice(loader, args.iters):
            rows += batch.num_nodes
            for layers, taken in zip(batch.typed_layers(), types, strict=True):
                edges += sum(layers[each].edge_index.size(1) for each in taken.edge_types)
    return {"edges": edges / args.iters, "rows": rows / args.iters}


class Peer:
    """GraphBolt in a process of its own, which waits between its rounds."""

    def __init__(self, folder: Path, num_workers: int, args: argparse.Namespace) -> None:
        names = ("fanouts", "batch_size", "hidden", "iters", "warmup", "threads", "lr")
        options = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in names]
        script = BENCH / "peers" / "graphbolt_typed_train.py"
        self._process = subprocess.Popen(
            [args.peer_python, script, "--graph", folder, f"--num-workers={num_workers}", *options],
            env=os.environ | PEER_MALLOC,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def one_round(self, _turn: int) -> dict:
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with exit status {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def summary(rounds: list[dict]) -> dict:
    """The medians over rounds, with the spread of the rates."""
    versions = {"versions": rounds[0].pop("versions")} if "versions" in rounds[0] else {}
    found = medians(rounds) | versions
    for name in RATES:
        found |= spread(name, [each[name] for each in rounds])
    return found


def ratios(results: Mapping[str, dict], ways: list[str]) -> dict[str, dict[str, float]]:
    """Rates of our ways over the best of the peer's."""
    others = [found for name, found in results.items() if name not in ways]
    return {
        way: {rate: results[way][rate] / max(other[rate] for other in others) for rate in RATES}
        for way in ways
        if others
    }


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    allocator.keep_freed_memory()
    ways = args.ways.split(",")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as opened:
        folder = Path(name)
        data = make_data(folder / "synth", args)
        store = lsm.GraphStore.from_pyg(data, folder / "store")
        turns = {way: partial(one_round, Way.of(way, store, args), store, args) for way in ways}
        if args.peer_python:
            save_arrays(store, data, folder)
            for workers in numbers(args.num_workers):
                peer = opened.enter_context(contextlib.closing(Peer(folder, workers, args)))
                turns[f"graphbolt, {workers} workers"] = peer.one_round
        del data
        results = {key: summary(rounds) for key, rounds in take_turns(args.rounds, turns).items()}
        graph = {"nodes": store.num_nodes, "edges": store.num_edges}
        record = {"graph": graph, "batch": sizes(store, args), **results}
    publish(record | {"ratios": ratios(results, ways)}, args)


if __name__ == "__main__":
    main()
