"""GraphSAGE training iterations per second of PyG's NeighborLoader (peer measurement).

Measures: whole training iterations on the CPU, from a mini-batch of seeds to the
optimiser's step, with graph and labels in memory, and features in memory or mapped from their file:

    NeighborLoader -> 2 x SAGEConv (mean), ReLU between them -> cross entropy -> Adam

The loop is that of PyG's own examples. One pass of the loader is timed: after `--warmup`
iterations, `--repeats` rounds of `--iters` iterations, each ended early after `--seconds`.
`--threads` is the number of OpenMP threads of the training process; `--num-workers` worker
processes sample and gather rows ahead of it (0: the training process does).

`--fanouts` is in hop order: the first number is the fanout of the seeds.

Input, all in DIR: meta.json with num_nodes and features.dim, features.bin (float32, row-major),
labels.npy, topology/indptr.npy (int64) and topology/indices.npy (int32 or int64) with the in-edges
of every node in CSC form, and split/train.npy. Output: one line of JSON on stdout.

Needs torch_geometric with torch-sparse (or pyg-lib), without which it has no sampler.
"""

import argparse
import itertools
import json
import mmap
import os
import statistics
import time
from pathlib import Path

import numpy as np


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, metavar="DIR")
    parser.add_argument("--fanouts", default="10,5", help="per hop, seeds first")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--iters", type=int, default=100, help="iterations in one timed round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=20, help="untimed iterations")
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds")
    parser.add_argument("--seconds", type=float, help="a timed round ends early after so long")
    parser.add_argument(
        "--features",
        choices=("memory", "mmap"),
        default="memory",
        help="mmap: mapped from the file with MADV_RANDOM",
    )
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.fanouts = [int(x) for x in args.fanouts.split(",")]
    return args


def load_features(store, where):
    meta = json.loads((store / "meta.json").read_text())
    shape = (meta["num_nodes"], meta["features"]["dim"])
    if where == "memory":
        return np.fromfile(store / "features.bin", dtype=np.float32).reshape(shape)
    features = np.memmap(store / "features.bin", np.float32, "r+", shape=shape)
    features._mmap.madvise(mmap.MADV_RANDOM)
    return features


def make_model(torch, conv, widths):
    class Sage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList(conv(a, b) for a, b in itertools.pairwise(widths))

        def forward(self, x, edge_index):
            for depth, layer in enumerate(self.convs):
                x = layer(x, edge_index)
                if depth + 1 < len(self.convs):
                    x = x.relu()
            return x

    return Sage()


def main():
    args = parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)

    import torch
    import torch_geometric
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import SAGEConv
    from torch_sparse import SparseTensor

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    indptr = torch.from_numpy(np.load(args.store / "topology" / "indptr.npy"))
    indices = torch.from_numpy(np.load(args.store / "topology" / "indices.npy")).long()
    labels = torch.from_numpy(np.load(args.store / "labels.npy").astype(np.int64))
    train = torch.from_numpy(np.load(args.store / "split" / "train.npy"))
    features = torch.from_numpy(load_features(args.store, args.features))
    num_nodes, dim = features.shape
    data = Data(x=features, y=labels, num_nodes=num_nodes)
    data.adj_t = SparseTensor(
        rowptr=indptr, col=indices, sparse_sizes=(num_nodes, num_nodes), is_sorted=True
    )
    del indices
    loader = NeighborLoader(
        data,
        num_neighbors=args.fanouts,
        batch_size=args.batch_size,
        input_nodes=train,
        shuffle=True,
        num_workers=args.num_workers,
        persistent_workers=args.num_workers > 0,
    )
    widths = [dim, *[args.hidden] * (len(args.fanouts) - 1), int(labels.max()) + 1]
    model = make_model(torch, SAGEConv, widths)
    optimiser = torch.optim.Adam(model.parameters(), lr=args.lr)

    def endless():
        while True:
            yield from loader

    batches = endless()

    def run(count, seconds=None):
        start = time.perf_counter()
        done = 0
        while done < count:
            batch = next(batches)
            edges = batch.adj_t if "adj_t" in batch else batch.edge_index
            logits = model(batch.x, edges)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
            if seconds and time.perf_counter() - start > seconds:
                break
        return done / (time.perf_counter() - start), loss.item()

    run(args.warmup)
    rounds = [run(args.iters, args.seconds) for _ in range(args.repeats)]
    rates = [rate for rate, _ in rounds]
    result = {
        "iters_per_s": statistics.median(rates),
        "iters_per_s_min": min(rates),
        "iters_per_s_max": max(rates),
        "last_loss": rounds[-1][1],
        "versions": {"torch_geometric": torch_geometric.__version__, "torch": torch.__version__},
        "malloc": {k: v for k, v in os.environ.items() if k.startswith("MALLOC_")},
        "features": args.features,
        "threads": args.threads,
        "num_workers": args.num_workers,
        "fanouts": args.fanouts,
        "batch_size": args.batch_size,
        "widths": widths,
        "iters": args.iters,
        "repeats": args.repeats,
        "seed": args.seed,
    }
    print(json.dumps(result), flush=True)
    os._exit(0)  # worker processes are not waited for


if __name__ == "__main__":
    main()
