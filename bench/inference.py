"""Bytes and seconds of inference of all nodes: ``python bench/inference.py``.

A synthetic graph, GraphSAGE and GCN of torch_geometric with three layers, in float32. ``scores``
are written.

* small  memory for rows is ``--share`` of the features. The page cache is not limited. Bytes are
         those that the engines read and the files got, and the structure once a layer. The bound
         reads the features once, writes and reads each layer's rows once, and reads the structure
         once a layer.
* large  everything fits in memory, and the features are in the page cache. ``peer`` is the forward
         pass of torch_geometric over the whole graph in memory, without reading features and
         without writing scores: the faster one of an edge index and a sparse matrix.

Both take turns over ``--rounds``; the medians are reported, and processor seconds next to them,
which other work on the machine hardly changes. ``difference`` is the largest one from the peer's
scores, relative to their largest value. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_geometric.nn.models import GCN, GraphSAGE

import lsm
from common import about, parser, publish, run_lsm
from lsm.core import host_memory
from lsm.graph.topology import Topology

MODELS = {"graphsage": GraphSAGE, "gcn": GCN}


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=200_000)
    arguments.add_argument("--dim", type=int, default=1024)
    arguments.add_argument("--degree", type=float, default=14.0)
    arguments.add_argument("--hidden", type=int, default=128)
    arguments.add_argument("--classes", type=int, default=16)
    arguments.add_argument("--share", type=float, default=0.125, help="of the features' bytes")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--workdir", type=Path, help="on the disk to measure")
    return arguments.parse_args()


def bound(store: lsm.GraphStore, model: nn.Module) -> int:
    """Bytes that have to be moved with any memory, and the scores."""
    widths = [conv.out_channels for conv in model.convs]
    own = 2 if isinstance(model, GraphSAGE) else 1  # rows of a node: for others, and its own
    layers = sum(store.num_nodes * 4 * 2 * width * own for width in widths)
    structure = len(widths) * store.topology().num_bytes
    scores = store.num_nodes * 4 * widths[-1]
    return store.num_nodes * store.row_bytes + layers + structure + scores


def predict(
    model: nn.Module, store: lsm.GraphStore, out: Path, memory: int, threads: int
) -> tuple[dict, torch.Tensor]:
    """The summary and the scores of an inference with ``memory`` bytes for rows."""
    shutil.rmtree(out, ignore_errors=True)
    own = host_memory.resident_bytes()["anonymous"]
    summary = lsm.predict(
        model,
        store,
        out,
        outputs=["scores"],
        memory_bytes=own + memory,
        num_threads=threads,
        progress=False,
    )
    return summary, torch.from_numpy(np.load(out / "scores.npy"))


def as_matrix(topology: Topology) -> torch.Tensor:
    """The edges as a sparse matrix with a row for each destination."""
    ones = torch.ones(topology.num_edges)
    size = (topology.num_nodes, topology.num_nodes)
    return torch.sparse_csr_tensor(topology.indptr, topology.indices.long(), ones, size)


def forward_secs(model: nn.Module, x: torch.Tensor, edges: torch.Tensor) -> tuple[float, float]:
    """Seconds of a forward pass, and those of processors."""
    started, cpu = time.monotonic(), time.process_time()
    with torch.inference_mode():
        model(x, edges)
    return time.monotonic() - started, time.process_time() - cpu


def medians(seconds: list[tuple[float, float]]) -> tuple[float, float]:
    wall, cpu = zip(*seconds, strict=True)
    return statistics.median(wall), statistics.median(cpu)


def measure(name: str, store: lsm.GraphStore, folder: Path, args: argparse.Namespace) -> dict:
    torch.manual_seed(0)
    model = MODELS[name](store.feature_dim, args.hidden, 3, args.classes).eval()
    features = store.num_nodes * store.row_bytes
    out = folder / "out"
    small, _ = predict(model, store, out, int(args.share * features), args.threads)
    moved = small["bytes_read"] + small["bytes_written"] + 3 * store.topology().num_bytes
    data = store.to_pyg()
    torch.set_num_threads(args.threads)
    matrix = as_matrix(store.topology())
    ours, with_index, with_matrix = [], [], []
    for _ in range(args.rounds):
        cpu = time.process_time()
        summary, scores = predict(model, store, out, 8 * features, args.threads)
        ours.append((summary["seconds"], time.process_time() - cpu))
        with_index.append(forward_secs(model, data.x, data.edge_index))
        with_matrix.append(forward_secs(model, data.x, matrix))
    seconds, cpu_seconds = medians(ours)
    peers = [medians(each) for each in (with_index, with_matrix)]
    peer, cpu_peer = (min(each) for each in zip(*peers, strict=True))
    with torch.inference_mode():
        expected = model(data.x, data.edge_index)
    difference = (scores - expected).abs().max() / expected.abs().max()
    least = bound(store, model)
    return {
        "memory_bytes": int(args.share * features),
        "bytes_moved": moved,
        "bytes_bound": least,
        "bytes_ratio": round(moved / least, 3),
        "seconds_small": small["seconds"],
        "seconds_large": round(seconds, 3),
        "seconds_peer": round(peer, 3),
        "seconds_ratio": round(seconds / peer, 3),
        "cpu_seconds_large": round(cpu_seconds, 3),
        "cpu_seconds_peer": round(cpu_peer, 3),
        "cpu_seconds_ratio": round(cpu_seconds / cpu_peer, 3),
        "difference": float(difference),
    }


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory(dir=args.workdir) as folder:
        path = Path(folder) / "store"
        size = ["--nodes", args.nodes, "--dim", args.dim, "--avg-degree", args.degree]
        run_lsm("data", "synth", "--out", path, *size, "--no-progress")
        store = lsm.GraphStore.open(path)
        found = {name: measure(name, store, Path(folder), args) for name in MODELS}
        publish({"graph": about(store), **found}, args)


if __name__ == "__main__":
    main()
