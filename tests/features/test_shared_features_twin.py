"""A cache in the memory of GPUs that ranks share: here their twins, in processes of their own.
Rows are those on storage, and plans and counts those of a shared cache on the host."""

import errno
import threading

import pytest
import torch
import torch.distributed as torch_dist

from lsm import native
from lsm.comm.link_choice import Place, choose_links
from lsm.core.device import GpuPlace
from lsm.distributed.watchdog import PeerError
from lsm.storage.options import StorageOptions
from support.comm_ranks import Ranks
from support.shared_features import loader_for
from support.shared_gpu_features import (
    HOST,
    check_both,
    check_killed,
    exchange_case,
    open_groups,
    open_loader,
)

NUM_RANKS = 3


@pytest.mark.parametrize("transport", ["ipc", "gloo", "nccl"])
@pytest.mark.parametrize("policy", ["lookahead", "hybrid"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_rows_and_counts_are_those_of_the_host(ranks, store, size, policy, transport):
    check_both(ranks, store, size, transport, policy)


@pytest.mark.parametrize("transport", ["ipc", "gloo", "nccl"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [1, 3, 1024])
def test_any_row_format(ranks, dim, dtype, transport):
    for size in (2, 3):
        ranks.check(exchange_case, size, transport, dim, dtype)


@pytest.mark.parametrize("transport", ["ipc", "gloo"])
def test_an_owner_that_is_killed_in_an_epoch_is_named(few_ranks, store, transport):
    check_killed(few_ranks, store, transport)


def epochs_case(context, path, transport, taken):
    """Epochs that are left after ``taken`` iterations, through NeighborLoader."""
    group, _ = open_groups(context, context.size, transport)
    store, features = open_loader(path, group, {"policy": "lookahead"}, HOST)
    plain = loader_for(store, context, None, storage=StorageOptions(engine="memory"))
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


def order_case(context, path):
    """The calls of NCCL's process group while another thread exchanges gradients, as this rank made
    them: (thread, what each does with which peer and how many rows)."""
    import lsm.comm.links as links

    calls, exchange = [], torch_dist.batch_isend_irecv

    def record(operations):
        made = [(op.op.__name__, op.peer, len(op.tensor)) for op in operations]
        calls.append((threading.current_thread().name, made))
        return exchange(operations)

    links.torch_dist.batch_isend_irecv = record
    try:
        group, _ = open_groups(context, context.size, "nccl")
        store, features = open_loader(path, group, {"policy": "lookahead"}, HOST)
        gradients = torch_dist.new_group(range(context.size), backend="gloo")
        with features:
            shared = loader_for(store, context, features, prefetch=2)
            for epoch in range(2):
                for _ in shared.iterate(epoch):
                    torch_dist.all_reduce(torch.ones(1000), group=gradients)
        return calls, list(features.exchange.rows.links.values())
    finally:
        links.torch_dist.batch_isend_irecv = exchange


def test_all_ranks_use_nccl_in_one_order(ranks, store):
    """One thread of each rank uses it; what a rank sends next is what its peer receives next."""
    answers = ranks.check(order_case, store)
    for calls, names in answers:
        assert {thread for thread, _ in calls} == {"lsm-rows"}
        assert set(names) == {"nccl"}
    for a, (sent, _) in enumerate(answers):
        for b, (received, _) in enumerate(answers):
            sends = [n for _, made in sent for op, peer, n in made if (op, peer) == ("isend", b)]
            takes = [
                n for _, made in received for op, peer, n in made if (op, peer) == ("irecv", a)
            ]
            assert sends == takes
            assert bool(sends) == (a != b)


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
        return find_links(group, GpuPlace.twin()).by_peer
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
    pool = native.GpuPool(native.TWIN, block_bytes=8192, timeout_secs=5)
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
    pool = native.GpuPool(native.TWIN, block_bytes=8192, timeout_secs=5)
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
            native.GpuPool(0, 1, 1.0)
