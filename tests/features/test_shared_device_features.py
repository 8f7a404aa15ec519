"""A cache in the memory of GPUs that ranks share: here their twins, in processes of their own.
Rows are those on storage, and plans and counts those of a shared cache on the host."""

import errno

import pytest
import torch
import torch.distributed as torch_dist
from test_comm import KINDS, NUM_NODES, features, lists
from test_comm_features import loader_for
from test_comm_worlds import ROW_BYTES, all_tiers, expected_rows, fetches

from lsm import native
from lsm.comm.link_choice import Place, choose_links
from lsm.core.counters import COUNTERS, EXCHANGED
from lsm.distributed.watchdog import PeerError
from support.comm_ranks import Ranks
from support.training import make_store

HOST = torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("shared") / "store")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    pool = Ranks(3, tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.close()


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
    from lsm.features.shared import SharedFeatureLoader
    from lsm.features.shared_gpu import SharedDeviceFeatureLoader
    from lsm.storage.engine import StorageOptions

    store = GraphStore.open(path)
    options = {"bytes": 64 * ROW_BYTES, "ways": 8, "window": 3} | cache
    kind, more = SharedFeatureLoader, {}
    if device is not None:
        kind = SharedDeviceFeatureLoader
        # A pool for a batch or two, so that there must be more of it.
        more = {"device": device, "planner": "device", "prefetch_rows": 10, "pool_bytes": 9000}
    loader = kind(
        store,
        CacheOptions(**options),
        group,
        engine="posix",
        options=StorageOptions(timeout_secs=10),
        scores=torch.linspace(1, 0, store.num_nodes),
        **more,
    )
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
                links = loader.links
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


@pytest.mark.parametrize("transport", ["ipc", "gloo", "nccl"])
@pytest.mark.parametrize("policy", ["lookahead", "hybrid"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_rows_and_counts_are_those_of_the_host(ranks, store, size, policy, transport):
    check_both(ranks, store, size, transport, policy)


def exchange_case(context, size, transport, dim, dtype, num_gpus=0):
    from lsm.comm.open import open_exchange
    from lsm.comm.owners import OwnerMap
    from lsm.comm.request import RowFormat

    groups = open_groups(context, size, transport, num_gpus, owner="stride", chunk_bytes=4096)
    if groups is None:
        return
    group, device = groups[0], device_of(context, num_gpus)
    owners = OwnerMap(NUM_NODES, size, group.rank, hash="stride")
    rows = RowFormat(dim, dtype)
    exchange = open_exchange(group, owners, rows, device=device, pool_bytes=1)
    copies = native.DeviceDelivery(native.TWIN if device == HOST else device.index, 10.0)
    table, held = features(dim, dtype).view(torch.uint8), []
    for seed, kind in enumerate(KINDS):
        ids = lists(kind, size, seed)[group.rank]
        request = exchange.request(ids)
        own = table[request.ids].view(dtype).to(device)
        if num_gpus:
            torch.cuda.synchronize(device)
        delivery = exchange.open(request)
        for target in exchange.targets(delivery):
            copies.deliver(own, target.row_of, target.rows, target.places)
        copies.synchronize()
        held.append((exchange.finish(delivery), ids))
        for delivered, ids in held:
            assert delivered.shape == (len(ids), dim)
            assert torch.equal(delivered.cpu().contiguous().view(torch.uint8), table[ids]), kind
    exchange.end_session()


@pytest.mark.parametrize("transport", ["ipc", "gloo", "nccl"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [1, 3, 1024])
def test_any_row_format(ranks, dim, dtype, transport):
    for size in (2, 3):
        ranks.check(exchange_case, size, transport, dim, dtype)


def epochs_case(context, path, transport, taken):
    """Epochs that are left after ``taken`` iterations, through NeighborLoader."""
    group, _ = open_groups(context, context.size, transport)
    store, features = open_loader(path, group, {"policy": "lookahead"}, HOST)
    plain = loader_for(store, context, None, engine="memory")
    with features, plain:
        shared = loader_for(store, context, features, prefetch=2)
        for epoch, count in enumerate(taken):
            batches = zip(range(count), shared.iterate(epoch), plain.iterate(epoch), strict=False)
            for _, got, expected in batches:
                assert torch.equal(got.x, expected.x), (context.rank, epoch, got.iteration)
        return features.stats()["cache_hits"]


@pytest.mark.parametrize("transport", ["ipc", "nccl"])
def test_epochs_may_be_left_early(ranks, store, transport):
    assert all(hits > 0 for hits in ranks.check(epochs_case, store, transport, [4, 1, 2, 0, 4]))


def fault_case(context, path):
    group, _ = open_groups(context, context.size, "ipc")
    store, features = open_loader(path, group, {"policy": "lru", "bytes": 8 * 48}, HOST)
    if context.rank == 1:
        features.storage.inject_fault(native.Fault.error, nth=2, value=errno.EIO)
    list(loader_for(store, context, features, prefetch=2).iterate(0))


def test_a_read_error_of_one_owner_surfaces_on_every_rank(store, tmp_path):
    ranks = Ranks(2, tmp_path)
    try:
        for rank, answer in enumerate(ranks.run(fault_case, store)):
            with pytest.raises(OSError if rank == 1 else PeerError, match=r"features\.bin"):
                raise answer
    finally:
        ranks.close()


def unreachable_case(context, transport):
    """Rank 1 cannot write to rank 2."""
    import lsm.comm.link_choice
    from lsm.comm.link_choice import find_links

    group = context.group(3, transport=transport)
    reach_problem = lsm.comm.link_choice._reach_problem

    def fails(memory, device, peer, *more):
        if (context.rank, peer) == (1, 2):
            return "peer access unavailable: so says the test"
        return reach_problem(memory, device, peer, *more)

    lsm.comm.link_choice._reach_problem = fails
    try:
        return find_links(group, HOST).by_peer
    finally:
        lsm.comm.link_choice._reach_problem = reach_problem


def test_without_peer_access_rows_take_another_way_or_it_is_an_error(ranks):
    ipc, gloo = "ipc", "gloo"
    expected = [{1: ipc, 2: ipc}, {0: ipc, 2: gloo}, {0: ipc, 1: gloo}]
    assert ranks.check(unreachable_case, "auto") == expected
    message = "comm.transport=ipc: between rank 1 and rank 2: peer access unavailable: so says"
    for answer in ranks.run(unreachable_case, "ipc"):
        with pytest.raises(RuntimeError, match=message):
            raise answer


GPUS = [
    Place("a", "0000:01:00.0", ""),
    Place("a", "0000:02:00.0", ""),
    Place("b", "0000:01:00.0", ""),
]
NO_PROBLEMS = [{}, {}, {}]
FAR = "not on one host, or in other process namespaces"
HOSTS = [{2: FAR}, {2: FAR}, {0: FAR, 1: FAR}]
TWO_ON_ONE = [GPUS[0], GPUS[0], GPUS[2]]


@pytest.mark.parametrize(
    ("transport", "places", "problems", "expected", "said"),
    [
        ("auto", GPUS, HOSTS, ["ipc", "nccl", "nccl"], []),
        ("gloo", GPUS, NO_PROBLEMS, ["gloo"] * 3, []),
        ("nccl", GPUS, NO_PROBLEMS, ["nccl"] * 3, []),
        (
            "auto",
            GPUS,
            [{1: "none"}, {}, {}],
            ["nccl", "ipc", "ipc"],
            ["nccl between 0 and 1: none"],
        ),
        (
            *("auto", TWO_ON_ONE, HOSTS, ["ipc", "gloo", "gloo"]),
            [
                f"gloo between {a} and 2: {FAR}; 0 and 1 share one GPU (0000:01:00.0), and NCCL "
                "needs one for each"
                for a in (0, 1)
            ],
        ),
    ],
)
def test_links_by_what_is_there(transport, places, problems, expected, said):
    links, notes = choose_links(transport, places, problems, str)
    assert links == dict(zip([(0, 1), (0, 2), (1, 2)], expected, strict=True))
    assert notes == [f"rows travel through {text}" for text in said]


@pytest.mark.parametrize(
    ("transport", "places", "problems", "message"),
    [
        ("ipc", GPUS, HOSTS, "comm.transport=ipc: between 0 and 2: not on one host"),
        ("nccl", TWO_ON_ONE, HOSTS, r"comm.transport=nccl: 0 and 1 share one GPU \(0000:01:00.0\)"),
        (
            *("nccl", [*GPUS[:2], Place("b", "", "this build of torch has no NCCL")], HOSTS),
            "comm.transport=nccl: 2: this build of torch has no NCCL; set comm.transport=auto",
        ),
        ("shm", GPUS, HOSTS, "comm.transport=shm: is for caches in host memory"),
    ],
)
def test_a_transport_that_cannot_be_had(transport, places, problems, message):
    with pytest.raises(RuntimeError, match=message):
        choose_links(transport, places, problems, str)


def test_a_pool_gives_out_what_came_back_and_grows_only_where_it_must():
    pool = native.DevicePool(native.TWIN, block_bytes=8192, timeout_secs=5)
    first, second = pool.take(4096), pool.take(4000)
    assert (first.number, first.offset, second.number) == (second.number, 0, first.number)
    assert second.offset == 4096
    size = pool.size
    tensor = native.as_device_tensor(first, torch.int32)
    assert tensor.shape == (1024,)
    del first
    third = pool.take(1)  # the tensor holds the first
    assert third.number != second.number
    assert pool.size == 2 * size
    del tensor, second
    whole = pool.take(8192)
    assert (whole.offset, pool.size) == (0, 2 * size)
    large = pool.take(100_000)
    assert pool.size >= 2 * size + 100_000
    assert large.block_bytes >= 100_000


def test_a_mapped_block_is_no_larger_than_it_is():
    pool = native.DevicePool(native.TWIN, block_bytes=8192, timeout_secs=5)
    buffer = pool.take(100)
    block = native.MappedBlock(native.TWIN, buffer.handle, buffer.block_bytes)
    part = torch.from_dlpack(block.part(buffer.offset, 100))
    native.as_device_tensor(buffer, torch.uint8).fill_(5)
    del block  # the tensor holds the mapping
    assert (part == 5).all()
    block = native.MappedBlock(native.TWIN, buffer.handle, buffer.block_bytes)
    with pytest.raises(ValueError, match="expected 2 bytes at 8191, got memory of 8192"):
        block.part(8191, 2)
    if not native.build_info()["cuda"]:
        with pytest.raises(RuntimeError, match="LSM_CUDA=ON"):
            native.DevicePool(0, 1, 1.0)
