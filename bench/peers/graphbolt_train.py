"""GraphSAGE training iterations per second of DGL with GraphBolt (peer measurement).

Measures: whole training iterations on the CPU, from a mini-batch of seeds to the
optimiser's step, with graph and labels in memory, and features in memory or mapped from their file:

    ItemSampler -> sample_neighbor -> fetch_feature -> DataLoader
    -> `--layers` x dgl.nn.SAGEConv (mean), ReLU between them -> cross entropy -> Adam

The hidden layers are `--hidden` wide; the last one has as many outputs as there are classes.
Sampling is without replacement.

Method: every value of `--num-workers` is measured in turn (0 samples in the training process; more
sample in that many worker processes ahead of the training step; feature fetching stays in the
training process, as GraphBolt arranges it). One pass of the data loader runs through all rounds,
so a round starts in the steady state. After `--warmup` iterations, `--repeats` rounds of `--iters`
iterations are timed; the median, the smallest and the largest rate are reported for each value,
and the best median at the top level. `--threads` is the number of OpenMP threads of the training
process; worker processes come on top of them. The C library's allocator gives large tensors back
to the kernel after every iteration; run with MALLOC_MMAP_THRESHOLD_=1073741824 and
MALLOC_TRIM_THRESHOLD_=4294967296 in the environment for the peer's best rate (they are noted in
the output). OpenMP threads spin at barriers, so the rate collapses when another process takes one
of the cores: look at the smallest rate as well as at the median.

`--fanouts` is in hop order: the first number is the fanout of the seeds. (GraphBolt's own
argument is in the opposite order; the script turns it round.)

Input, all in DIR: meta.json with num_nodes and features.dim, features.bin (float32, row-major),
labels.npy, topology/indptr.npy (int64) and topology/indices.npy (int32 or int64) with the in-edges
of every node in CSC form, and split/train.npy. Output: one line of JSON on stdout.

Needs dgl 2.1 with the torch its GraphBolt library was built for (torch 2.2.1 or older), and
torchdata below 0.8.
"""

import argparse
import gc
import itertools
import json
import mmap
import os
import statistics
import time
import warnings
from pathlib import Path

import numpy as np


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, metavar="DIR")
    parser.add_argument("--fanouts", default="10,5", help="per hop, seeds first")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--iters", type=int, default=100, help="iterations in one timed round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--num-workers", default="0,1,2", help="settings to try, by commas")
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
    args.num_workers = [int(x) for x in args.num_workers.split(",")]
    if len(args.fanouts) != args.layers:
        parser.error("--fanouts needs one number per layer")
    return args


def load(store, where):
    """(indptr, indices, features, labels, train ids) as numpy arrays, the features as `where`."""
    meta = json.loads((store / "meta.json").read_text())
    shape = (meta["num_nodes"], meta["features"]["dim"])
    if where == "mmap":
        features = np.memmap(store / "features.bin", np.float32, "r+", shape=shape)
        features._mmap.madvise(mmap.MADV_RANDOM)
    else:
        features = np.fromfile(store / "features.bin", dtype=np.float32, count=shape[0] * shape[1])
    return (
        np.load(store / "topology" / "indptr.npy"),
        np.load(store / "topology" / "indices.npy"),
        features.reshape(shape),
        np.load(store / "labels.npy").astype(np.int64),
        np.load(store / "split" / "train.npy"),
    )


def shuffled_seeds(train, count, seed):
    """`count` ids: `train` shuffled, as many times as needed."""
    rng = np.random.default_rng(seed)
    passes = -(-count // len(train))
    return np.concatenate([rng.permutation(train) for _ in range(passes)])[:count]


def make_model(torch, conv, widths):
    class Sage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList(
                conv(a, b, "mean") for a, b in itertools.pairwise(widths)
            )

        def forward(self, blocks, x):
            for depth, (layer, block) in enumerate(zip(self.convs, blocks, strict=True)):
                x = layer(block, x)
                if depth + 1 < len(self.convs):
                    x = torch.relu(x)
            return x

    return Sage()


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

    indptr, indices, features, labels, train = load(args.store, args.features)
    classes = int(labels.max()) + 1
    graph = gb.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
    store = gb.BasicFeatureStore(
        {("node", None, "feat"): gb.TorchBasedFeature(torch.from_numpy(features))}
    )
    widths = [features.shape[1], *[args.hidden] * (args.layers - 1), classes]

    total = (args.warmup + args.repeats * args.iters) * args.batch_size
    seeds = shuffled_seeds(train, total, args.seed)
    items = gb.ItemSet(
        (
            torch.from_numpy(seeds.astype(indices.dtype)),
            torch.from_numpy(labels[seeds]),
        ),
        names=("seed_nodes", "labels"),
    )

    def measure(num_workers):
        torch.manual_seed(args.seed)
        pipe = gb.ItemSampler(items, batch_size=args.batch_size, shuffle=False)
        pipe = pipe.sample_neighbor(graph, args.fanouts[::-1], replace=False)
        pipe = pipe.fetch_feature(store, node_feature_keys=["feat"])
        loader = gb.DataLoader(pipe, num_workers=num_workers, persistent_workers=False)
        model = make_model(torch, dgl.nn.SAGEConv, widths)
        optimiser = torch.optim.Adam(model.parameters(), lr=args.lr)
        batches = iter(loader)

        def run(count, seconds=None):
            start = time.perf_counter()
            done = 0
            while done < count:
                minibatch = next(batches)
                logits = model(minibatch.blocks, minibatch.node_features["feat"])
                loss = torch.nn.functional.cross_entropy(logits, minibatch.labels)
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
        return {
            "iters_per_s": statistics.median(rates),
            "iters_per_s_min": min(rates),
            "iters_per_s_max": max(rates),
            "last_loss": rounds[-1][1],
        }

    found = {}
    for n in args.num_workers:
        found[str(n)] = measure(n)
        gc.collect()  # ends the worker processes before the next setting forks
    best = max(found, key=lambda n: found[n]["iters_per_s"])
    result = {
        "iters_per_s": found[best]["iters_per_s"],
        "iters_per_s_min": found[best]["iters_per_s_min"],
        "iters_per_s_max": found[best]["iters_per_s_max"],
        "num_workers": int(best),
        "by_num_workers": found,
        "versions": {"dgl": dgl.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "malloc": {k: v for k, v in os.environ.items() if k.startswith("MALLOC_")},
        "features": args.features,
        "threads": args.threads,
        "fanouts": args.fanouts,
        "batch_size": args.batch_size,
        "widths": widths,
        "iters": args.iters,
        "repeats": args.repeats,
        "seed": args.seed,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
