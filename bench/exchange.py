"""Rows per second that ranks exchange, over shared memory and over messages; no storage, no cache.

``python -m torch.distributed.run --standalone --nproc-per-node=2 bench/exchange.py``

Every rank asks for ``--rows`` random rows of ``--dim`` float32 at each iteration; the owners have
them in memory. With ``--check``, rows are compared with the table. Beside the layer's transports:
the same bytes in torch's all_to_all_single, with the packing and unpacking that it needs. Rank 0
prints one JSON record: medians over iterations, milliseconds, of rank 0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as torch_dist

from lsm import dist, native
from lsm.bench import record
from lsm.comm import Exchange, RowFormat
from lsm.comm_group import CacheGroup, CommOptions
from lsm.owners import OwnerMap, owners


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def time_layer(args, table: torch.Tensor, group: CacheGroup) -> Callable[[torch.Tensor], tuple]:
    """A function of one iteration's ids: (seconds for ids, seconds for rows, rows)."""
    exchange = Exchange(
        group,
        OwnerMap(args.nodes, group.size, group.rank),
        RowFormat(args.dim, torch.float32),
    )
    threads = native.ThreadPool(1)

    def iteration(ids: torch.Tensor) -> tuple:
        start = time.perf_counter()
        request = exchange.request(ids)
        asked = time.perf_counter()
        rows = table[request.ids]  # what the cache would give
        begin = time.perf_counter()
        delivery = exchange.open(request)
        for row_of, target, places in exchange.targets(delivery):
            native.deliver_rows(rows, row_of, target, places, threads)
        out = exchange.finish(delivery)
        return asked - start, time.perf_counter() - begin, out

    return iteration


def time_all_to_all(args, table: torch.Tensor) -> Callable[[torch.Tensor], tuple]:
    size = torch_dist.get_world_size()

    def iteration(ids: torch.Tensor) -> tuple:
        start = time.perf_counter()
        owner = torch.from_numpy(owners(ids.numpy(), size, "mix64").astype("int64"))
        order = owner.argsort(stable=True)
        counts = owner.bincount(minlength=size)
        theirs = torch.empty_like(counts)
        torch_dist.all_to_all_single(theirs, counts)
        asked = torch.empty(int(theirs.sum()), dtype=torch.int64)
        torch_dist.all_to_all_single(asked, ids[order], theirs.tolist(), counts.tolist())
        merged, inverse = torch.unique(asked, return_inverse=True)
        known = time.perf_counter()
        rows = table[merged]
        begin = time.perf_counter()
        received = rows.new_empty(len(ids), args.dim)
        packed = rows[inverse]
        torch_dist.all_to_all_single(received, packed, counts.tolist(), theirs.tolist())
        out = torch.empty_like(received)
        out[order] = received
        return known - start, time.perf_counter() - begin, out

    return iteration


def measure(args, iteration: Callable, table: torch.Tensor, rank: int) -> dict:
    generator = torch.Generator().manual_seed(rank)
    id_secs, row_secs = [], []
    for t in range(args.warmup + args.iterations):
        ids = torch.randperm(args.nodes, generator=generator)[: args.rows]
        torch_dist.barrier()
        ids_took, rows_took, out = iteration(ids)
        if args.check and not torch.equal(out, table[ids]):
            raise AssertionError(f"rank {rank}, iteration {t}: other rows than those of the table")
        if t >= args.warmup:
            id_secs.append(ids_took)
            row_secs.append(rows_took)
    seconds = statistics.median(row_secs)
    return {
        "ids_ms": 1e3 * statistics.median(id_secs),
        "rows_ms": 1e3 * seconds,
        "rows_ms_min": 1e3 * min(row_secs),
        "rows_ms_max": 1e3 * max(row_secs),
        "gb_per_s": args.rows * args.dim * 4 / seconds / 1e9,
    }


def main() -> None:
    args = parse_args()
    with dist.joined(timeout_secs=120) as world:
        torch.set_num_threads(1)
        table = torch.rand(args.nodes, args.dim, generator=torch.Generator().manual_seed(0))
        results = {
            "all_to_all_single": measure(args, time_all_to_all(args, table), table, world.rank)
        }
        for transport in ("shm", "gloo"):
            group = CacheGroup.join(CommOptions(transport=transport))
            iteration = time_layer(args, table, group)
            results[transport] = measure(args, iteration, table, world.rank)
        if not world.is_main:
            return
        config = {key: str(value) for key, value in vars(args).items() if key != "json"}
        made = record.make({"world": world.size, "exchange": results}, config)
        print(json.dumps(made))
        if args.json:
            args.json.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
