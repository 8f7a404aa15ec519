"""R-SAGE training iterations per second of DGL with GraphBolt (peer measurement).

Measures: whole training iterations on the CPU of a graph with several types, from a mini-batch of
seeds to the optimiser's step, with graph, labels and features in memory:

    ItemSampler -> sample_neighbor (a fanout for each edge type) -> fetch_feature -> DataLoader
    -> 2 x dgl.nn.HeteroGraphConv of dgl.nn.SAGEConv (mean) for each edge type, summed,
       ReLU between them -> cross entropy -> Adam

The hidden layer is `--hidden` wide; the last one has as many outputs as there are classes. Sampling
is without replacement.

Method: one round for each line of standard input, so that the caller can let others take turns. A
round is `--warmup` untimed iterations, which use up what worker processes prepared in the pause,
then `--iters` timed ones. `--num-workers 0` samples in the training process; otherwise so many
worker processes sample ahead of the training step, and features are fetched in the training
process, as GraphBolt arranges it. CPU seconds are those of all these processes. Run with
MALLOC_MMAP_THRESHOLD_=1073741824 and MALLOC_TRIM_THRESHOLD_=4294967296 for the peer's best rate.

`--fanouts` is in hop order: the first number is the fanout of the seeds.

Input: DIR/graph.json (`counts`: nodes by type; `edge_types`: triples; `input_type`),
DIR/NUMBER-indptr.npy (int64) and DIR/NUMBER-indices.npy, the in-edges of edge type NUMBER,
DIR/TYPE-features.npy (float32) of each type, and DIR/labels.npy and DIR/train.npy (int64) of the
input type. Output: one line of JSON on stdout for each round.

Needs dgl 2.1 with the torch its GraphBolt library was built for (torch 2.2.1 or older), and
torchdata below 0.8.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import psutil
from dgl_typed_sampler import fused_graph
from graphbolt_train import shuffled_seeds


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", type=Path, required=True, metavar="DIR")
    parser.add_argument("--fanouts", default="10,5", help="per hop and edge type, seeds first")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--iters", type=int, default=20, help="iterations in one timed round")
    parser.add_argument("--warmup", type=int, default=5, help="untimed iterations of a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.003)
    args = parser.parse_args()
    args.fanouts = [int(x) for x in args.fanouts.split(",")]
    return args


def load(torch, folder):
    """(graph.json, [(indptr, indices)] by edge type, features by node type, labels, train ids)."""
    graph = json.loads((folder / "graph.json").read_text())

    def tensor(name):
        return torch.from_numpy(np.load(folder / f"{name}.npy"))

    parts = [
        (tensor(f"{number}-indptr"), tensor(f"{number}-indices"))
        for number in range(len(graph["edge_types"]))
    ]
    features = {name: tensor(f"{name}-features") for name in graph["counts"]}
    return graph, parts, features, tensor("labels"), np.load(folder / "train.npy")


def make_loader(torch, gb, args, data):
    """A loader of more batches than any run takes."""
    graph, parts, features, labels, train = data
    input_type = graph["input_type"]
    seeds = torch.from_numpy(shuffled_seeds(train, 100 * len(train), 0))
    items = gb.ItemSet((seeds, labels[seeds]), names=("seed_nodes", "labels"))
    pipe = gb.ItemSampler(
        gb.ItemSetDict({input_type: items}), batch_size=args.batch_size, shuffle=False
    )
    by_type = [torch.full((len(parts),), fanout) for fanout in args.fanouts[::-1]]
    pipe = pipe.sample_neighbor(fused_graph(gb, torch, graph, parts), by_type, replace=False)
    rows = {
        ("node", name, "feat"): gb.TorchBasedFeature(values) for name, values in features.items()
    }
    keys = {name: ["feat"] for name in features}
    pipe = pipe.fetch_feature(gb.BasicFeatureStore(rows), node_feature_keys=keys)
    return gb.DataLoader(pipe, num_workers=args.num_workers, persistent_workers=False)


def make_model(torch, nn, graph, dims, hidden, classes):
    """Convolutions of the edge types that lead to the seeds within two hops."""
    types, input_type = graph["edge_types"], graph["input_type"]
    last = [each for each in types if each[2] == input_type]
    needed = {input_type, *(each[0] for each in last)}
    first = [each for each in types if each[2] in needed]

    class Nothing(torch.nn.Module):
        """DGL calls a module for types without destinations too: SAGEConv would map all sources."""

        def forward(self, _graph, ends):
            return ends[1]

    def conv(edge_types, widths, out):
        convs = {relation: Nothing() for _, relation, _ in types}
        convs |= {
            relation: nn.SAGEConv((widths[source], widths[destination]), out, "mean")
            for source, relation, destination in edge_types
        }
        return nn.HeteroGraphConv(convs, aggregate="sum")

    class RSage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = conv(first, dims, hidden)
            self.last = conv(last, dict.fromkeys(dims, hidden), classes)

        def forward(self, blocks, x):
            x = self.first(blocks[0], x)
            x = {name: torch.relu(rows) for name, rows in x.items()}
            return self.last(blocks[1], x)[input_type]

    return RSage()


def cpu_seconds():
    """CPU time of this process and of its workers."""
    workers = (psutil.Process(each.pid) for each in multiprocessing.active_children())
    return time.process_time() + sum(sum(each.cpu_times()[:2]) for each in workers)


def main():
    args = parse_args()
    # Before the first import of torch: GraphBolt may bring an OpenMP runtime of its own.
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("DGLBACKEND", "pytorch")
    warnings.filterwarnings("ignore")

    import dgl
    import dgl.graphbolt as gb
    import torch

    torch.set_num_threads(args.threads)
    dgl.utils.set_num_threads(args.threads)
    torch.manual_seed(0)

    data = load(torch, args.graph)
    graph, _, features, labels, _ = data
    input_type = graph["input_type"]
    dims = {name: rows.shape[1] for name, rows in features.items()}
    model = make_model(torch, dgl.nn, graph, dims, args.hidden, int(labels.max()) + 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=args.lr)
    batches = iter(make_loader(torch, gb, args, data))

    def run(count):
        edges = rows = 0
        for _ in range(count):
            minibatch = next(batches)
            blocks = minibatch.blocks
            x = {name: each for (name, _), each in minibatch.node_features.items()}
            logits = model(blocks, x)
            loss = torch.nn.functional.cross_entropy(logits, minibatch.labels[input_type])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            edges += sum(block.num_edges() for block in blocks)
            rows += sum(map(len, x.values()))
        return edges / count, rows / count, loss.item()

    for _ in sys.stdin:
        run(args.warmup)
        start, cpu_start = time.perf_counter(), cpu_seconds()
        edges, rows, loss = run(args.iters)
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu_start
        result = {
            "iterations_per_s": args.iters / seconds,
            "iterations_per_cpu_s": args.iters / cpu,
            "edges": edges,
            "rows": rows,
            "loss": loss,
            "versions": {"dgl": dgl.__version__, "torch": torch.__version__},
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
