"""Rows per second that ranks exchange, by transport; no storage, no cache.

``python -m torch.distributed.run --standalone --nproc-per-node=2 bench/exchange.py``

Every rank requests ``--rows`` random rows of ``--dim`` float32 at each iteration. Their owners have
them in memory; with ``--device cuda`` in that of GPU r mod GPUs for rank r, so that ranks may share
one. (``--device twin`` runs the code for GPUs on the host; its times mean nothing.) ``--check``
compares rows with the table. For comparison with the links, torch's all_to_all_single moves the
same bytes, with its packing and unpacking, over Gloo between hosts' memory and over NCCL between
GPUs'. The entry of an unavailable transport is the reason. Rank 0 prints one JSON record: its
medians over iterations, in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as torch_dist

from common import parser, publish, spread
from lsm import native
from lsm.comm.group import CacheGroup
from lsm.comm.open import open_exchange
from lsm.comm.options import CommOptions
from lsm.comm.owners import OwnerMap, owners
from lsm.comm.request import RowFormat
from lsm.core.device import GpuPlace
from lsm.distributed import collectives


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=100_000)
    arguments.add_argument("--rows", type=int, default=10_000)
    arguments.add_argument("--dim", type=int, default=1024)
    arguments.add_argument("--iterations", type=int, default=20)
    arguments.add_argument("--warmup", type=int, default=5)
    arguments.add_argument("--device", choices=["cpu", "cuda", "twin"], default="cpu")
    arguments.add_argument("--check", action="store_true")
    return arguments.parse_args()


def time_layer(args, table: torch.Tensor, group: CacheGroup) -> Callable[[torch.Tensor], tuple]:
    """A function of one iteration's ids: (seconds for ids, seconds for rows, rows)."""
    exchange = open_exchange(
        group,
        OwnerMap(args.nodes, group.size, group.rank),
        RowFormat(args.dim, torch.float32),
    )
    threads = native.ThreadPool(1)

    def iteration(ids: torch.Tensor) -> tuple:
        start = time.perf_counter()
        request = exchange.lists.request(ids)
        asked = time.perf_counter()
        rows = table[request.ids]  # in place of a cache
        begin = time.perf_counter()
        delivery = exchange.rows.open(request)
        for row_of, target, places in exchange.rows.targets(delivery):
            native.scatter_rows(rows, row_of, target, places, threads)
        out = exchange.rows.finish(delivery)
        return asked - start, time.perf_counter() - begin, out

    return iteration


def time_devices(
    args, table: torch.Tensor, group: CacheGroup, device: torch.device
) -> Callable[[torch.Tensor], tuple]:
    """As time_layer(), between GPUs. ``table``: in memory of ``device``."""
    batch_bytes = args.rows * args.dim * 4
    gpu = GpuPlace.of(device) if device.type == "cuda" else GpuPlace.twin()
    exchange = open_exchange(
        group,
        OwnerMap(args.nodes, group.size, group.rank),
        RowFormat(args.dim, torch.float32),
        gpu=gpu,
        pool_bytes=3 * batch_bytes,
    )
    copies = native.GpuScatter(gpu.number, 60.0)

    def iteration(ids: torch.Tensor) -> tuple:
        start = time.perf_counter()
        request = exchange.lists.request(ids)
        asked = time.perf_counter()
        rows = table[request.ids.to(device)]  # in place of a cache
        synchronize(device)
        begin = time.perf_counter()
        delivery = exchange.rows.open(request)
        for target in exchange.rows.targets(delivery):
            copies.scatter(rows, target.row_of, target.rows, target.places)
        copies.synchronize()
        out = exchange.rows.finish(delivery)
        return asked - start, time.perf_counter() - begin, out

    return iteration


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_all_to_all(
    args, table: torch.Tensor, group: torch_dist.ProcessGroup | None = None
) -> Callable[[torch.Tensor], tuple]:
    """As time_layer(), with all_to_all_single: rows in ``group``, ids in the default group."""
    size, device = torch_dist.get_world_size(), table.device

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
        rows = table[merged.to(device)]
        synchronize(device)
        begin = time.perf_counter()
        received = rows.new_empty(len(ids), args.dim)
        packed = rows[inverse.to(device)]
        torch_dist.all_to_all_single(
            received, packed, counts.tolist(), theirs.tolist(), group=group
        )
        out = torch.empty_like(received)
        out[order.to(device)] = received
        synchronize(device)
        return known - start, time.perf_counter() - begin, out

    return iteration


def measure(args, iteration: Callable, table: torch.Tensor, rank: int) -> dict:
    generator = torch.Generator().manual_seed(rank)
    id_secs, row_secs = [], []
    for t in range(args.warmup + args.iterations):
        ids = torch.randperm(args.nodes, generator=generator)[: args.rows]
        torch_dist.barrier()
        ids_took, rows_took, out = iteration(ids)
        if args.check and not torch.equal(out.cpu(), table[ids]):
            raise AssertionError(f"rank {rank}, iteration {t}: other rows than those of the table")
        if t >= args.warmup:
            id_secs.append(ids_took)
            row_secs.append(rows_took)
    return {
        "ids_ms": 1e3 * statistics.median(id_secs),
        **spread("rows_ms", [1e3 * secs for secs in row_secs]),
        "gb_per_s": args.rows * args.dim * 4 / statistics.median(row_secs) / 1e9,
    }


def measure_hosts(args, table: torch.Tensor, rank: int) -> dict:
    results = {"all_to_all_single": measure(args, time_all_to_all(args, table), table, rank)}
    for transport in ("shm", "gloo"):
        group = CacheGroup.join(CommOptions(transport=transport))
        results[transport] = measure(args, time_layer(args, table, group), table, rank)
    return results


def measure_devices(args, table: torch.Tensor, rank: int) -> dict:
    """The results by link. All ranks agree on the links that are unavailable."""
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    placed, results = table.to(device), {}
    for transport in ("ipc", "nccl", "gloo"):
        group = CacheGroup.join(CommOptions(transport=transport))
        try:
            iteration = time_devices(args, placed, group, device)
        except RuntimeError as error:
            results[f"{args.device}_{transport}"] = str(error)
            continue
        results[f"{args.device}_{transport}"] = measure(args, iteration, table, rank)
        if transport == "nccl":
            nccl = torch_dist.new_group(backend="nccl")
            iteration = time_all_to_all(args, placed, nccl)
            results["cuda_all_to_all_single"] = measure(args, iteration, table, rank)
    return results


def gpus(args) -> list[str]:
    """The GPUs of the ranks."""
    count = torch.cuda.device_count() if args.device == "cuda" else 0
    return [torch.cuda.get_device_name(index) for index in range(count)]


def main() -> None:
    args = parse_args()
    with collectives.joined(timeout_secs=120) as world:
        torch.set_num_threads(1)
        table = torch.rand(args.nodes, args.dim, generator=torch.Generator().manual_seed(0))
        results = measure_hosts(args, table, world.rank)
        if args.device != "cpu":
            results |= measure_devices(args, table, world.rank)
        if not world.is_main:
            return
        publish({"world": world.size, "gpus": gpus(args), "exchange": results}, args)


if __name__ == "__main__":
    main()
