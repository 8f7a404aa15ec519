"""Neighbour sampling throughput of DGL and of GraphBolt on the CPU (peer measurement).

Measures: sampled edges per second of whole mini-batches, from seed ids to relabelled
blocks, sampling without replacement, in one process with `--threads` OpenMP threads:

* dgl        `dgl.dataloading.NeighborSampler.sample_blocks` called directly on a DGLGraph that
             holds only its CSC form. With one thread DGL samples a frontier and calls `to_block`;
             with more it has a fused path, which is left on for 64-bit ids and turned off for
             32-bit ids: in DGL 2.1.0 the fused path's node mapping is not cleared between
             batches for 32-bit ids, and nodes of earlier batches are lost from later ones.
* graphbolt  `ItemSampler -> sample_neighbor`, iterated in this process without a DataLoader: per
             layer `FusedCSCSamplingGraph.sample_neighbors` and then unique-and-compact. The output
             is relabelled CSC layers; no DGL block is built from them.

Method: the train ids are shuffled once with `--seed`, and cut into batches (further shuffled passes
follow where one pass is too short). Both samplers get the same batches. After `--warmup` batches
each, `--repeats` rounds of `--batches` batches are timed, the two samplers taking turns so that
noise from other processes falls on both. The median over rounds is reported, with the smallest
and the largest. The script fails if the two samplers' edges per batch differ by more than 2 %.

`--fanouts` is in hop order: the first number is the fanout of the seeds. (DGL's own argument is
in the opposite order; the script turns it round.)

Input: DIR/topology/indptr.npy (int64) and DIR/topology/indices.npy (int32 or int64), the in-edges
of every node in CSC form, and DIR/split/train.npy. Output: one line of JSON on stdout.

Needs dgl 2.1 with the torch its GraphBolt library was built for (torch 2.2.1 or older), and
torchdata below 0.8.
"""

import argparse
import json
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
    parser.add_argument("--batches", type=int, default=200, help="batches in one timed round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=20, help="untimed batches")
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--index-dtype",
        choices=("file", "int32", "int64"),
        default="file",
        help="width of node ids in both samplers; 'file' takes that of indices.npy",
    )
    args = parser.parse_args()
    args.fanouts = [int(x) for x in args.fanouts.split(",")]
    return args


def shuffled_seeds(train, count, seed):
    """`count` ids: `train` shuffled, as many times as needed."""
    rng = np.random.default_rng(seed)
    passes = -(-count // len(train))
    return np.concatenate([rng.permutation(train) for _ in range(passes)])[:count]


def fused_is_right(indices):
    """True if DGL's fused sampling may be used; see the docstring of this file."""
    return indices.element_size() == 8


def dgl_rounds(dgl, indptr, indices, fanouts, batches):
    """A generator of edge counts, one per batch, from DGL's NeighborSampler."""
    graph = dgl.graph(
        ("csc", (indptr.to(indices.dtype), indices, [])), num_nodes=len(indptr) - 1
    ).formats("csc")
    sampler = dgl.dataloading.NeighborSampler(
        fanouts[::-1], replace=False, fused=fused_is_right(indices)
    )
    for seeds in batches:
        _, _, blocks = sampler.sample_blocks(graph, seeds)
        yield sum(block.num_edges() for block in blocks)


def graphbolt_rounds(gb, indptr, indices, fanouts, seeds, batch_size):
    """A generator of edge counts, one per batch, from GraphBolt's NeighborSampler."""
    graph = gb.fused_csc_sampling_graph(indptr, indices)
    items = gb.ItemSet(seeds, names="seed_nodes")
    pipe = gb.ItemSampler(items, batch_size=batch_size, shuffle=False)
    pipe = pipe.sample_neighbor(graph, fanouts[::-1], replace=False)
    for minibatch in pipe:
        yield sum(len(layer.sampled_csc.indices) for layer in minibatch.sampled_subgraphs)


def take(stream, count):
    """(edges, seconds) of the next `count` batches."""
    start = time.perf_counter()
    edges = sum(next(stream) for _ in range(count))
    return edges, time.perf_counter() - start


def summary(rounds, batches):
    rates = [edges / seconds for edges, seconds in rounds]
    return {
        "edges_per_s": statistics.median(rates),
        "edges_per_s_min": min(rates),
        "edges_per_s_max": max(rates),
        "ms_per_batch": 1e3 * statistics.median(s for _, s in rounds) / batches,
        "edges_per_batch": sum(e for e, _ in rounds) / (len(rounds) * batches),
    }


def main():
    args = parse_args()
    # Before the first import of torch: GraphBolt may bring an OpenMP runtime of its own.
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("DGLBACKEND", "pytorch")

    import dgl
    import dgl.graphbolt as gb
    import torch

    torch.set_num_threads(args.threads)
    dgl.utils.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    dgl.seed(args.seed)

    indptr = torch.from_numpy(np.load(args.store / "topology" / "indptr.npy"))
    indices = torch.from_numpy(np.load(args.store / "topology" / "indices.npy"))
    if args.index_dtype != "file":
        indices = indices.to(getattr(torch, args.index_dtype))
    train = np.load(args.store / "split" / "train.npy")
    total = (args.warmup + args.repeats * args.batches) * args.batch_size
    seeds = torch.from_numpy(shuffled_seeds(train, total, args.seed)).to(indices.dtype)

    streams = {
        "dgl": dgl_rounds(dgl, indptr, indices, args.fanouts, seeds.split(args.batch_size)),
        "graphbolt": graphbolt_rounds(gb, indptr, indices, args.fanouts, seeds, args.batch_size),
    }
    for stream in streams.values():
        take(stream, args.warmup)
    rounds = {name: [] for name in streams}
    for _ in range(args.repeats):
        for name, stream in streams.items():
            rounds[name].append(take(stream, args.batches))

    result = {name: summary(found, args.batches) for name, found in rounds.items()}
    per_batch = [found["edges_per_batch"] for found in result.values()]
    if max(per_batch) > 1.02 * min(per_batch):
        raise SystemExit(f"the samplers disagree on the edges of a batch: {per_batch}")
    result["dgl"]["fused"] = fused_is_right(indices) and dgl.utils.get_num_threads() > 1
    result |= {
        "versions": {"dgl": dgl.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "threads": args.threads,
        "index_dtype": str(indices.dtype).removeprefix("torch."),
        "fanouts": args.fanouts,
        "batch_size": args.batch_size,
        "batches": args.batches,
        "repeats": args.repeats,
        "seed": args.seed,
        "nodes": len(indptr) - 1,
        "edges": len(indices),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
