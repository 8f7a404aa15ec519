"""Cases of ranks that share a cache in GPU memory, or in that of its twin."""

import os
import signal

import torch
import torch.distributed as torch_dist

from lsm import native
from lsm.core.counters import COUNTERS, EXCHANGED
from lsm.distributed.watchdog import PeerError
from support.request_lists import KINDS, NUM_NODES, features, lists
from support.shared_features import ROW_BYTES, all_tiers, expected_rows, fetches, loader_for

HOST = torch.device("cpu")


def device_of(context, num_gpus):
    """The GPU of this rank, which becomes the current one, or the host, which stands for one."""
    if not num_gpus:
        return HOST
    device = torch.device("cuda", context.rank % num_gpus)
    torch.cuda.set_device(device)
    return device


def open_loader(path, group, cache, device=None):
    """``device``: of a cache in GPU memory; None: it is the host's."""
    from lsm.cache.options import CacheOptions
    from lsm.data.graph_store import GraphStore
    from lsm.features.open import open_features
    from lsm.features.tiers_gpu import GpuOptions
    from lsm.storage.options import StorageOptions
    from support.gpu_twin import open_twin

    store = GraphStore.open(path)
    options = {"bytes": 64 * ROW_BYTES, "ways": 8, "window": 3} | cache
    arguments = (
        store,
        CacheOptions(**options),
        StorageOptions(engine="posix", timeout_secs=60),
        group,
    )
    more = {
        "scores": torch.linspace(1, 0, store.num_nodes),
        # A pool for a batch or two, so that there must be more of it.
        "gpu": GpuOptions(planner="device", prefetch_rows=10, pool_bytes=9000),
    }
    if device == HOST:
        loader = open_twin(*arguments, **more)
    else:
        loader = open_features(*arguments, "cpu" if device is None else device, **more)
    return store, loader


def deliver(context, store, loader):
    """The counters of some batches, whose rows are checked."""
    table, held = expected_rows(store), []
    for ids, rows in fetches(loader, store.num_nodes, context.rank):
        held = [*held[-1:], (rows, ids)]
        for rows, ids in held:  # not written again while it is held
            assert torch.equal(rows.cpu(), table[ids]), context.rank
    repeated = torch.tensor([3, 5, 3, context.rank])
    assert torch.equal(loader.fetch(repeated).cpu(), table[repeated])
    stats = loader.stats()
    return {name: stats[f"cache_{name}"] for name in (*COUNTERS, *EXCHANGED)}


def open_groups(context, size, transport, num_gpus=0, **options):
    """A CacheGroup for caches on devices and one for the host; None on ranks that are not of them.
    With transport nccl, Gloo does between twins what NCCL does between GPUs."""
    import lsm.comm.open
    from lsm.comm.link_choice import ChosenLinks, find_links

    host = context.group(size, **options)
    is_played = transport == "nccl" and not num_gpus
    named = "gloo" if is_played else transport
    on_devices = context.group(size, **(options | {"transport": named}))
    lsm.comm.open.find_links = find_links
    if is_played:
        nccl = torch_dist.new_group(range(size), backend="gloo")
        by_peer = {peer: "nccl" for peer in range(size) if peer != context.rank}
        lsm.comm.open.find_links = lambda *_: ChosenLinks(by_peer, nccl)
    return (on_devices, host) if on_devices else None


def both_case(context, path, size, transport, options, cache, num_gpus=0):
    groups = open_groups(context, size, transport, num_gpus, **options)
    if groups is None:
        return None
    counts = []
    for group, device in zip(groups, (device_of(context, num_gpus), None), strict=True):
        store, loader = open_loader(path, group, cache, device)
        with loader:
            if device is not None:
                links = loader.exchange.rows.links
            counts.append(deliver(context, store, loader))
    return links, *counts


def check_both(ranks, store, size, transport, policy, num_gpus=0):
    for mode in ("shared", "partition-aware"):
        options = {"mode": mode, "chunk_bytes": 4096}
        cache = {"policy": policy, **all_tiers(size)}
        answers = ranks.check(both_case, store, size, transport, options, cache, num_gpus)[:size]
        for rank, (links, on_device, on_host) in enumerate(answers):
            peers = {peer for peer in range(size) if peer != rank}
            assert links == dict.fromkeys(peers, transport)
            assert on_device == on_host
        for tier in ("hits", "static_hits", "victim_hits", "constant_hits", "misses"):
            assert sum(counts[tier] for _, counts, _ in answers) > 0, tier


def killed_case(context, path, transport, num_gpus=0):
    """Rank 1, which owns rows of all, dies in an epoch while batches are being made."""
    options = {"owner": "stride", "timeout_secs": 40.0}
    group, _ = open_groups(context, context.size, transport, num_gpus, **options)
    cache = {"policy": "lookahead"}
    store, features = open_loader(path, group, cache, device_of(context, num_gpus))
    table = expected_rows(store)
    for number, batch in enumerate(loader_for(store, context, features, prefetch=2).iterate(0)):
        assert torch.equal(batch.x.cpu(), table[batch.n_id.cpu()]), context.rank
        if context.rank == 1 and number == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def check_killed(ranks, store, transport, num_gpus=0):
    """The others end soon, with an error that names the rank; until then their rows are right."""
    answers = ranks.run(killed_case, store, transport, num_gpus)
    assert isinstance(answers[1], EOFError)
    messages = [str(answers[rank]) for rank in (0, 2)]
    assert all(isinstance(answers[rank], (PeerError, TimeoutError)) for rank in (0, 2)), messages
    assert any("rank 1 ended" in text for text in messages), messages


def exchange_case(context, size, transport, dim, dtype, num_gpus=0):
    from lsm.comm.open import open_exchange
    from lsm.comm.owners import OwnerMap
    from lsm.comm.request import RowFormat
    from lsm.core.device import GpuPlace

    groups = open_groups(context, size, transport, num_gpus, owner="stride", chunk_bytes=4096)
    if groups is None:
        return
    group, device = groups[0], device_of(context, num_gpus)
    owners = OwnerMap(NUM_NODES, size, group.rank, hash="stride")
    rows = RowFormat(dim, dtype)
    gpu = GpuPlace.twin() if device == HOST else GpuPlace.of(device)
    exchange = open_exchange(group, owners, rows, gpu=gpu, pool_bytes=1)
    copies = native.GpuScatter(gpu.number, 10.0)
    table, held = features(dim, dtype).view(torch.uint8), []
    for seed, kind in enumerate(KINDS):
        ids = lists(kind, size, seed)[group.rank]
        request = exchange.lists.request(ids)
        own = table[request.ids].view(dtype).to(device)
        if num_gpus:
            torch.cuda.synchronize(device)
        delivery = exchange.rows.open(request)
        for target in exchange.rows.targets(delivery):
            copies.scatter(own, target.row_of, target.rows, target.places)
        copies.synchronize()
        held.append((exchange.rows.finish(delivery), ids))
        for delivered, ids in held:
            assert delivered.shape == (len(ids), dim)
            assert torch.equal(delivered.cpu().contiguous().view(torch.uint8), table[ids]), kind
    exchange.end_session()
