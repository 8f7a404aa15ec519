"""Layer-wise inference of all nodes by PyG over memory maps (peer measurement).

Measures: for each layer, PyG's NeighborLoader with all in-neighbours over blocks of destinations;
their rows from a memory map, PyG's convolution, and its rows into another memory map. That is the
loop of PyG's examples (`inference`) with arrays on disk. The features' map has MADV_RANDOM.
`--batch-size` is that of the first layer; later layers, whose rows are narrower, take batches that
are larger by the ratio of widths, up to 4,096 nodes.

Input, all in DIR: meta.json with num_nodes and features.dim, features.bin (float32, row-major), and
topology/indptr.npy (int64) and topology/indices.npy with the in-edges of every node in CSC form.
`--weights`: the state of torch_geometric.nn.models.GraphSAGE or GCN. GCN has the degrees of the
whole graph by weights of edges. Writes a line once it is ready, and starts when it gets one. The
scores become `--out`/scores.npy. Output: one line of JSON on stdout.

Needs torch_geometric with torch-sparse (or pyg-lib), without which it has no sampler.
"""

import argparse
import json
import mmap
import os
import sys
import time
from pathlib import Path

import numpy as np


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, metavar="DIR")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--model", choices=("graphsage", "gcn"), default="graphsage")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    return parser.parse_args()


def make_model(args, dim):
    import torch
    from torch_geometric.nn.models import GCN, GraphSAGE

    options = {"normalize": False} if args.model == "gcn" else {}
    kind = {"graphsage": GraphSAGE, "gcn": GCN}[args.model]
    model = kind(dim, args.hidden, args.layers, args.classes, **options).eval()
    model.load_state_dict(torch.load(args.weights, weights_only=True))
    return model


def make_data(args, num_nodes):
    import torch
    from torch_geometric.data import Data
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    indptr = torch.from_numpy(np.load(args.store / "topology" / "indptr.npy"))
    sources = torch.from_numpy(np.load(args.store / "topology" / "indices.npy")).long()
    targets = torch.arange(num_nodes).repeat_interleave(indptr.diff())
    data = Data(edge_index=torch.stack([sources, targets]), num_nodes=num_nodes)
    if args.model == "gcn":
        data.edge_index, data.edge_weight = gcn_norm(data.edge_index, num_nodes=num_nodes)
    return data


def run(args, model, data, sampler, features):
    import torch
    from torch_geometric.loader import NeighborLoader

    rows, seconds = features, []
    for number, conv in enumerate(model.convs):
        started = time.monotonic()
        batch_size = args.batch_size * features.shape[1] // rows.shape[1]
        loader = NeighborLoader(
            data,
            num_neighbors=[-1],
            neighbor_sampler=sampler,
            batch_size=min(batch_size, 4096),
        )
        is_last = number + 1 == len(model.convs)
        path = args.out / ("scores.npy" if is_last else f"layer-{number}.npy")
        shape = (len(rows), conv.out_channels)
        made = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        source = torch.from_numpy(rows)
        for batch in loader:
            x = source[batch.n_id]
            weights = [batch.edge_weight] if "edge_weight" in batch else []
            out = conv(x, batch.edge_index, *weights)[: batch.batch_size]
            made[batch.input_id.numpy()] = (out if is_last else out.relu()).numpy()
        rows = made
        seconds.append(round(time.monotonic() - started, 3))
    rows.flush()
    return seconds


def main():
    args = parse_args()
    import torch
    import torch_geometric
    from torch_geometric.sampler import NeighborSampler

    torch.set_num_threads(args.threads)
    meta = json.loads((args.store / "meta.json").read_text())
    shape = (meta["num_nodes"], meta["features"]["dim"])
    model, data = make_model(args, shape[1]), make_data(args, shape[0])
    sampler = NeighborSampler(data, num_neighbors=[-1])  # sorts the edges
    features = np.memmap(args.store / "features.bin", np.float32, "r+", shape=shape)
    features._mmap.madvise(mmap.MADV_RANDOM)
    args.out.mkdir(parents=True, exist_ok=True)
    print("ready", flush=True)
    sys.stdin.readline()
    started, cpu = time.monotonic(), time.process_time()
    with torch.inference_mode():
        layers = run(args, model, data, sampler, features)
    result = {
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "seconds_of_layers": layers,
        "batch_size": args.batch_size,
        "threads": args.threads,
        "versions": {"torch_geometric": torch_geometric.__version__, "torch": torch.__version__},
        "malloc": {k: v for k, v in os.environ.items() if k.startswith("MALLOC_")},
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
