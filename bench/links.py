"""Rows read and seconds per positive edge: ours, and PyG's LinkNeighborLoader over a memory map.

``python bench/links.py --peer-python /path/to/python``

A synthetic graph with communities, two layers of SAGEConv, dot products, cross entropy of a link
among its negatives, Adam. PyG (``peers/pyg_links.py``) draws K negatives for each link, once for
each of ``--negatives``. Ours is an ``lsm.LinkNeighborLoader`` behind a planned cache, with
``--joint`` negatives that the links of a batch share. Each run is a process in a control group
(memory_limit.py) that gets ``--share`` of the features' bytes once the process has its graph: for
rows, activations and the page cache. Features are dropped from it before. Rows read are the bytes
read from storage by rows; a round is ``--warmup`` untimed iterations, then ``--iters`` timed ones.
They take turns over ``--rounds``; ratios are medians over rounds.

MRR: the same models trained for ``--mrr-iters`` iterations with all rows in memory, which changes
no loss of ours and none of PyG's; test links among 1,000 uniform destinations, all neighbours, by
one function for both. Ours also trains for a half, a quarter and an eighth of them.
``at_equal_mrr`` has PyG's figures over ours times the links that each takes: PyG all, ours the
least after which its MRR is not lower. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from memory_limit import MemoryLimit
from torch_geometric.nn.models import GraphSAGE

import lsm
from common import (
    BENCH,
    PEER_MALLOC,
    about,
    drop_cache,
    numbers,
    parser,
    publish,
    run_lsm,
    take_turns,
)
from lsm.core import allocator
from lsm.links.losses import link_loss_sum
from lsm.nn.link_models import LinkNetwork
from lsm.nn.link_scorers import build_scorer
from lsm.nn.models import build_model
from lsm.nn.options import ModelOptions

START_BYTES = 8 << 30  # until a process is ready
FIGURES = ("rows_read_per_link", "seconds_per_link", "cpu_seconds_per_link")
CANDIDATES = 1000
PARTS = (8, 4, 2, 1)  # of --mrr-iters, that ours trains for


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=200_000)
    arguments.add_argument("--dim", type=int, default=1024)
    arguments.add_argument("--degree", type=float, default=10.0)
    arguments.add_argument("--fanouts", default="5,5", help="per hop, seeds first")
    arguments.add_argument("--hidden", type=int, default=64)
    arguments.add_argument("--batch-size", type=int, default=128)
    arguments.add_argument("--negatives", default="1,10", help="of a link; PyG's")
    arguments.add_argument("--joint", type=int, default=64, help="of a batch; ours")
    arguments.add_argument("--share", type=float, default=0.5, help="of the features' bytes")
    arguments.add_argument("--cache-share", type=float, default=0.25, help="of the features' bytes")
    arguments.add_argument("--window", type=int, default=64)
    arguments.add_argument("--lr", type=float, default=0.003)
    arguments.add_argument("--warmup", type=int, default=20)
    arguments.add_argument("--iters", type=int, default=30)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--mrr-iters", type=int, default=300, help="0: no MRR")
    arguments.add_argument("--peer-python")
    arguments.add_argument("--peer-threads", type=int, default=8)
    arguments.add_argument("--workdir", type=Path, help="on the disk to measure")
    arguments.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--in-memory", action="store_true", help=argparse.SUPPRESS)
    return arguments.parse_args()


def open_loader(folder: Path, args: argparse.Namespace) -> lsm.LinkNeighborLoader:
    store = lsm.GraphStore.open(folder / "store")
    num_bytes = int(args.cache_share * store.num_nodes * store.row_bytes)
    cache, engine = None, "memory"
    if not args.in_memory:
        cache = {"policy": "lookahead", "bytes": num_bytes, "window": args.window}
        engine = "io_uring"
    rows = lsm.open_features(store, cache, {"engine": engine}, idle_bytes=num_bytes // 4)
    return lsm.LinkNeighborLoader(
        store,
        numbers(args.fanouts),
        "train",
        links=folder / "store.links",
        neg_sampling={"mode": "triplet", "amount": args.joint, "kind": "joint"},
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        prefetch=2,
        staging_bytes=num_bytes // 4,
        features=rows,
    )


def train(folder: Path, args: argparse.Namespace) -> None:
    """A run of ours, in a process of its own."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    allocator.keep_freed_memory()
    fanouts = numbers(args.fanouts)
    with open_loader(folder, args) as loader:
        options = ModelOptions(name="graphsage", hidden_dim=args.hidden, dropout=0.0)
        network = build_model(options, args.dim, args.hidden, len(fanouts))
        links = lsm.LinkSplits.open(folder / "store.links")
        model = LinkNetwork(network, build_scorer("dot", args.hidden), links.edge_type)
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
        batches = chain.from_iterable(loader.iterate(epoch) for epoch in range(1000))

        def run(count: int) -> tuple[int, float]:
            rows, loss = 0, torch.zeros(())
            for _ in range(count):
                batch = next(batches)
                loss = link_loss_sum("infonce", model(batch)) / args.batch_size
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rows += batch.num_nodes
            return rows, loss.item()

        print("ready", flush=True)
        sys.stdin.readline()
        run(args.warmup)
        before = loader.stats()["bytes_read"]
        started, cpu = time.monotonic(), time.process_time()
        rows, loss = run(args.iters)
        count = args.iters * args.batch_size
        made = {
            "rows_read_per_link": (loader.stats()["bytes_read"] - before) / (args.dim * 4) / count,
            "rows_used_per_link": rows / count,
            "seconds_per_link": (time.monotonic() - started) / count,
            "cpu_seconds_per_link": (time.process_time() - cpu) / count,
            "loss": loss,
        }
    torch.save(network.state_dict(), folder / "weights.pt")
    print(json.dumps(made), flush=True)


def write_message_graph(store: lsm.GraphStore, splits: lsm.LinkSplits, folder: Path) -> None:
    """The arrays of PyG's script."""
    graph = splits.message_graph(store, "train")[splits.edge_type].topology
    folder.mkdir()
    np.save(folder / "train.npy", splits.edges("train").t().numpy())
    np.save(folder / "indptr.npy", graph.indptr.numpy())
    np.save(folder / "indices.npy", graph.indices.numpy())


def run_child(command: list[object], folder: Path, room: int | None, peer: bool) -> dict:
    drop_cache(folder)
    with MemoryLimit(START_BYTES) as limit:
        return limit.run_when_ready(command, room, env=PEER_MALLOC if peer else {})


def shared_options(args: argparse.Namespace, *names: str) -> list[str]:
    return [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in names]


def run_ours(folder: Path, args: argparse.Namespace, room: int | None, *more: object) -> dict:
    names = ("dim", "fanouts", "hidden", "batch_size", "joint", "cache_share", "window", "lr")
    command = [sys.executable, __file__, "--child", folder, *shared_options(args, *names), *more]
    return run_child(command, folder, room, peer=False)


def run_peer(
    folder: Path, args: argparse.Namespace, room: int | None, negatives: int, *more: object
) -> dict:
    names = ("fanouts", "hidden", "batch_size", "lr")
    command = [args.peer_python, BENCH / "peers" / "pyg_links.py", "--store", folder / "store"]
    command += ["--links", folder / "links", "--negatives", negatives]
    command += ["--threads", args.peer_threads, *shared_options(args, *names), *more]
    return run_child(command, folder, room, peer=True)


def mrr(folder: Path, weights: Path, args: argparse.Namespace) -> float:
    """Of the test links among 1,000 uniform destinations and their own; ties count half."""
    store = lsm.GraphStore.open(folder / "store")
    splits = lsm.LinkSplits.open(folder / "store.links")
    graph = splits.message_graph(store, "test")[splits.edge_type].topology
    ones = torch.ones(graph.num_edges)
    size = (graph.num_nodes, graph.num_nodes)
    edges = torch.sparse_csr_tensor(graph.indptr, graph.indices.long(), ones, size)
    model = GraphSAGE(args.dim, args.hidden, len(numbers(args.fanouts)))
    model.load_state_dict(torch.load(weights, weights_only=True))
    with torch.inference_mode():
        rows = model.eval()(store.to_pyg().x, edges)
    source, own = splits.edges("test")[:, :10_000]
    draw = torch.Generator().manual_seed(0)
    others = rows[torch.randint(store.num_nodes, (CANDIDATES,), generator=draw)]
    positive = (rows[source] * rows[own]).sum(1, keepdim=True)
    scores = rows[source] @ others.t()
    ranks = 1 + (scores > positive).sum(1) + (scores == positive).sum(1) / 2
    return float((1 / ranks).mean())


def measure_mrr(folder: Path, args: argparse.Namespace) -> dict[str, dict[int, float]]:
    """MRR of each way, by its name and the number of iterations."""
    found: dict[str, dict[int, float]] = {"ours": {}}
    for part in PARTS:
        iters = max(1, args.mrr_iters // part)
        run_ours(folder, args, None, "--in-memory", "--warmup", 0, "--iters", iters)
        found["ours"][iters] = mrr(folder, folder / "weights.pt", args)
    count = ["--warmup", 0, "--iters", args.mrr_iters]
    for negatives in numbers(args.negatives) if args.peer_python else []:
        weights = folder / "peer.pt"
        options = ["--features", "memory", "--weights", weights, *count]
        run_peer(folder, args, None, negatives, *options)
        found[f"PyG, {negatives}"] = {args.mrr_iters: mrr(folder, weights, args)}
    return found


def at_equal_mrr(
    ratios: dict[str, dict[str, float]], found: dict[str, dict[int, float]]
) -> dict[str, dict[str, float] | None]:
    """``ratios`` times the links of PyG over those of ours that reach its MRR; None: none did."""
    equal: dict[str, dict[str, float] | None] = {}
    for name, figures in ratios.items():
        ((iters, aim),) = found[name].items()
        enough = [own for own, value in found["ours"].items() if value >= aim]
        equal[name] = None
        if enough:
            more = iters / min(enough)
            equal[name] = {key: round(value * more, 2) for key, value in figures.items()}
    return equal


def ratios(runs: dict[str, list[dict]]) -> dict[str, dict[str, float]]:
    """PyG's figures over ours, medians over rounds."""
    return {
        name: {
            figure: round(
                statistics.median(
                    peer[figure] / ours[figure]
                    for peer, ours in zip(peers, runs["ours"], strict=True)
                ),
                2,
            )
            for figure in FIGURES
        }
        for name, peers in runs.items()
        if name != "ours"
    }


def main() -> None:
    args = parse_args()
    if args.child:
        train(args.child, args)
        return
    with tempfile.TemporaryDirectory(dir=args.workdir) as name:
        folder = Path(name)
        size = ["--nodes", args.nodes, "--dim", args.dim, "--avg-degree", args.degree]
        size += ["--classes", max(1, args.nodes // 200), "--homophily", 0.9, "--signal", 20]
        run_lsm("data", "synth", "--out", folder / "store", *size, "--no-progress")
        store = lsm.GraphStore.open(folder / "store")
        splits = lsm.LinkSplits.make(store, valid=0.01, test=0.01)
        write_message_graph(store, splits, folder / "links")
        room = int(args.share * store.num_nodes * store.row_bytes)
        count = ["--warmup", args.warmup, "--iters", args.iters]
        turns = {"ours": lambda _: run_ours(folder, args, room, *count)}
        for negatives in numbers(args.negatives) if args.peer_python else []:
            turns[f"PyG, {negatives}"] = partial(
                lambda _, k: run_peer(folder, args, room, k, *count), k=negatives
            )
        runs = take_turns(args.rounds, turns)
        found = measure_mrr(folder, args) if args.mrr_iters else {}
        record = {"graph": about(store), "runs": runs, "ratios": ratios(runs), "mrr": found}
        if found:
            record["at_equal_mrr"] = at_equal_mrr(record["ratios"], found)
        publish(record, args)


if __name__ == "__main__":
    main()
