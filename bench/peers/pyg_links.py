"""Training on links by PyG's LinkNeighborLoader over a memory map (peer measurement).

Measures: rows read, seconds and CPU seconds per positive edge of whole training iterations:

    LinkNeighborLoader (triplets) -> 2 x SAGEConv (mean), ReLU -> dot products -> cross entropy of
    each link among its negatives -> Adam

`--features mmap` maps the features with MADV_RANDOM, and rows read are the bytes that the process
fetched from storage, by rows. `memory` reads them into memory first. `--negatives` destinations are
drawn for each link. `--weights` gets the state of the model after the last iteration.

Input: meta.json and features.bin (float32, row-major) in `--store`; in `--links`, train.npy [n, 2],
indptr.npy (int64) and indices.npy: the message graph in CSC form. Writes a line once it is ready,
and starts when it gets one. Output: one line of JSON on stdout.

Needs torch_geometric with torch-sparse (or pyg-lib), without which it has no sampler.
"""

import argparse
import json
import mmap
import sys
import time
from pathlib import Path

import numpy as np


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, metavar="DIR")
    parser.add_argument("--links", type=Path, required=True, metavar="DIR")
    parser.add_argument("--features", choices=("memory", "mmap"), default="mmap")
    parser.add_argument("--fanouts", default="5,5", help="per hop, seeds first")
    parser.add_argument("--negatives", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", type=Path)
    return parser.parse_args()


def read_bytes():
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def load_features(store, where):
    meta = json.loads((store / "meta.json").read_text())
    shape = (meta["num_nodes"], meta["features"]["dim"])
    if where == "memory":
        return np.fromfile(store / "features.bin", np.float32).reshape(shape)
    features = np.memmap(store / "features.bin", np.float32, "r+", shape=shape)
    features._mmap.madvise(mmap.MADV_RANDOM)
    return features


def open_loader(args, features):
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import LinkNeighborLoader

    indptr = torch.from_numpy(np.load(args.links / "indptr.npy"))
    sources = torch.from_numpy(np.load(args.links / "indices.npy")).long()
    targets = torch.arange(len(features)).repeat_interleave(indptr.diff())
    data = Data(x=torch.from_numpy(features), edge_index=torch.stack([sources, targets]))
    return LinkNeighborLoader(
        data,
        [int(fanout) for fanout in args.fanouts.split(",")],
        edge_label_index=torch.from_numpy(np.load(args.links / "train.npy")).t().contiguous(),
        neg_sampling={"mode": "triplet", "amount": args.negatives},
        batch_size=args.batch_size,
        shuffle=True,
    )


def main():
    args = parse_args()
    import torch
    import torch_geometric
    from torch.nn.functional import cross_entropy
    from torch_geometric.nn.models import GraphSAGE

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    features = load_features(args.store, args.features)
    loader = open_loader(args, features)
    model = GraphSAGE(features.shape[1], args.hidden, len(args.fanouts.split(",")))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)

    def endless():
        while True:
            yield from loader

    batches = endless()

    def run(count):
        rows_used, loss = 0, torch.zeros(())
        for _ in range(count):
            batch = next(batches)
            rows = model(batch.x, batch.edge_index)
            source, own = rows[batch.src_index], rows[batch.dst_pos_index]
            others = rows[batch.dst_neg_index.view(len(source), -1)]
            scores = torch.cat([own.unsqueeze(1), others], 1) @ source.unsqueeze(2)
            loss = cross_entropy(scores.squeeze(2), torch.zeros(len(source), dtype=torch.int64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows_used += batch.num_nodes
        return rows_used, loss.item()

    print("ready", flush=True)
    sys.stdin.readline()
    run(args.warmup)
    started, cpu, before = time.monotonic(), time.process_time(), read_bytes()
    rows_used, loss = run(args.iters)
    links = args.iters * args.batch_size
    result = {
        "rows_read_per_link": (read_bytes() - before) / (features.shape[1] * 4) / links,
        "rows_used_per_link": rows_used / links,
        "seconds_per_link": (time.monotonic() - started) / links,
        "cpu_seconds_per_link": (time.process_time() - cpu) / links,
        "loss": loss,
        "versions": {"torch_geometric": torch_geometric.__version__, "torch": torch.__version__},
    }
    if args.weights:
        torch.save(model.state_dict(), args.weights)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
