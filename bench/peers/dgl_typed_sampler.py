"""Typed neighbour sampling throughput of DGL and of GraphBolt on the CPU (peer measurement).

Measures: sampled edges per second of whole mini-batches of a graph with several types, from seed
ids to relabelled blocks, sampling without replacement, with one OpenMP thread:

* dgl        `dgl.dataloading.NeighborSampler.sample_blocks` called directly on a heterograph that
             holds only its CSC form. A fanout is that of each edge type.
* graphbolt  `ItemSampler -> sample_neighbor`, iterated in this process without a DataLoader, on a
             `FusedCSCSamplingGraph` with edge types and a fanout for each of them. The output is
             relabelled CSC layers; no DGL block is built from them.

Both get the same batches. After `--warmup` batches each, `--repeats` rounds over all batches are
timed, the two samplers taking turns so that noise from other processes falls on both. The median
over rounds is reported, with the smallest and the largest, and the median per CPU second. The
script fails if the two samplers' edges per batch differ by more than 2 %.

`--fanouts` is in hop order: the first number is the fanout of the seeds.

Input: DIR/graph.json (`counts`: nodes by type; `edge_types`: triples; `input_type`),
DIR/NUMBER-indptr.npy (int64) and DIR/NUMBER-indices.npy (int32), the in-edges of edge type NUMBER,
and DIR/seeds.npy, [batches, batch size] ids. Output: one line of JSON on stdout.

Needs dgl 2.1 with the torch its GraphBolt library was built for (torch 2.2.1 or older), and
torchdata below 0.8.
"""

import argparse
import json
import os
import statistics
import time
from itertools import accumulate
from pathlib import Path

import numpy as np
from dgl_sampler import summary, take


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", type=Path, required=True, metavar="DIR")
    parser.add_argument("--fanouts", default="10,5", help="per hop and edge type, seeds first")
    parser.add_argument("--warmup", type=int, default=5, help="untimed batches")
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds")
    args = parser.parse_args()
    args.fanouts = [int(x) for x in args.fanouts.split(",")]
    return args


def dgl_rounds(dgl, graph, parts, fanouts, batches):
    """A generator of edge counts, one per batch, from DGL's NeighborSampler."""
    edges = {
        tuple(edge_type): ("csc", (indptr.to(indices.dtype), indices, []))
        for edge_type, (indptr, indices) in zip(graph["edge_types"], parts, strict=True)
    }
    whole = dgl.heterograph(edges, num_nodes_dict=graph["counts"]).formats("csc")
    sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], replace=False)
    for seeds in batches:
        _, _, blocks = sampler.sample_blocks(whole, {graph["input_type"]: seeds})
        yield sum(block.num_edges(each) for block in blocks for each in block.canonical_etypes)


def fused_graph(gb, torch, graph, parts):
    """The graph with the ids of one space: a node's in-edges of all types follow one another."""
    counts, types = graph["counts"], [tuple(each) for each in graph["edge_types"]]
    *starts, num_nodes = accumulate(counts.values(), initial=0)
    offsets = dict(zip(counts, starts, strict=True))
    sources, destinations, numbers = [], [], []
    for number, ((source, _, destination), (indptr, indices)) in enumerate(
        zip(types, parts, strict=True)
    ):
        sources.append(indices.numpy().astype(np.int64) + offsets[source])
        degrees = np.diff(indptr.numpy())
        destinations.append(np.repeat(np.arange(len(degrees)) + offsets[destination], degrees))
        numbers.append(np.full(len(indices), number, np.uint8))
    destinations = np.concatenate(destinations)
    order = np.argsort(destinations, kind="stable")
    degrees = np.bincount(destinations, minlength=num_nodes)
    return gb.fused_csc_sampling_graph(
        torch.from_numpy(np.concatenate([[0], np.cumsum(degrees)])),
        torch.from_numpy(np.concatenate(sources)[order]),
        node_type_offset=torch.tensor([*starts, num_nodes]),
        type_per_edge=torch.from_numpy(np.concatenate(numbers)[order]),
        node_type_to_id={name: number for number, name in enumerate(counts)},
        edge_type_to_id={":".join(each): number for number, each in enumerate(types)},
    )


def graphbolt_rounds(gb, torch, graph, parts, fanouts, batches):
    """A generator of edge counts, one per batch, from GraphBolt's NeighborSampler."""
    whole = fused_graph(gb, torch, graph, parts)
    by_type = [torch.full((len(parts),), fanout) for fanout in fanouts[::-1]]
    seeds = gb.ItemSet(torch.cat(batches), names="seed_nodes")
    items = gb.ItemSetDict({graph["input_type"]: seeds})
    pipe = gb.ItemSampler(items, batch_size=len(batches[0]), shuffle=False)
    for minibatch in pipe.sample_neighbor(whole, by_type, replace=False):
        yield sum(
            len(edges.indices)
            for layer in minibatch.sampled_subgraphs
            for edges in layer.sampled_csc.values()
        )


def main():
    args = parse_args()
    # Before the first import of torch: GraphBolt may bring an OpenMP runtime of its own.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("DGLBACKEND", "pytorch")

    import dgl
    import dgl.graphbolt as gb
    import torch

    torch.set_num_threads(1)
    dgl.utils.set_num_threads(1)
    torch.manual_seed(0)
    dgl.seed(0)

    graph = json.loads((args.graph / "graph.json").read_text())
    parts = [
        tuple(
            torch.from_numpy(np.load(args.graph / f"{number}-{name}.npy"))
            for name in ("indptr", "indices")
        )
        for number in range(len(graph["edge_types"]))
    ]
    seeds = list(torch.from_numpy(np.load(args.graph / "seeds.npy")))
    num_batches = len(seeds)
    batches = seeds[: args.warmup] + args.repeats * seeds
    given = (graph, parts, args.fanouts)
    dtype = parts[0][1].dtype
    streams = {
        "dgl": dgl_rounds(dgl, *given, [each.to(dtype) for each in batches]),
        "graphbolt": graphbolt_rounds(gb, torch, *given, batches),
    }
    for stream in streams.values():
        take(stream, args.warmup)
    rounds = {name: [] for name in streams}
    cpu_rates = {name: [] for name in streams}
    for _ in range(args.repeats):
        for name, stream in streams.items():
            start = time.process_time()
            rounds[name].append(take(stream, num_batches))
            cpu_rates[name].append(rounds[name][-1][0] / (time.process_time() - start))

    result = {
        name: summary(found, num_batches) | {"edges_per_cpu_s": statistics.median(cpu_rates[name])}
        for name, found in rounds.items()
    }
    per_batch = [found["edges_per_batch"] for found in result.values()]
    if max(per_batch) > 1.02 * min(per_batch):
        raise SystemExit(f"the samplers disagree on the edges of a batch: {per_batch}")
    result["versions"] = {"dgl": dgl.__version__, "torch": torch.__version__}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
