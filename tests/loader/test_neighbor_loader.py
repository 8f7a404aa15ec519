"""NeighborLoader and FeatureLoader deliver the store's rows, run ahead, and pass errors on."""

import errno
import gc
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import lsm
from lsm import native
from lsm.data.convert.npy import convert_npy
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.seeds import NodeSeeds
from lsm.storage.options import StorageOptions
from support.engines import ENGINES, QUEUED_ENGINES

NUM_NODES, DIM = 3000, 37
POSIX = StorageOptions(engine="posix")


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, NUM_NODES, (2, 20_000)), axis=1)
    order = rng.permutation(NUM_NODES)
    return {
        "edge_index": edges,
        "node_feat": rng.standard_normal((NUM_NODES, DIM), dtype=np.float32),
        "node_label": rng.integers(0, 5, NUM_NODES),
        "train_idx": np.sort(order[:1001]),
        "val_idx": np.sort(order[1001:1500]),
        "test_idx": np.sort(order[1500:2000]),
    }


@pytest.fixture(scope="module")
def store(arrays, tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    for name, array in arrays.items():
        np.save(source / f"{name}.npy", array)
    out = tmp_path_factory.mktemp("stores") / "graph"
    convert_npy(source, out)
    return lsm.GraphStore.open(out)


@pytest.mark.parametrize("engine", ENGINES)
def test_fetch_gives_the_rows_in_the_order_asked_for(store, arrays, engine):
    ids = torch.tensor([5, 0, 2999, 5, 17])
    with lsm.open_features(store, storage=StorageOptions(engine=engine)) as loader:
        assert np.array_equal(loader.fetch(ids), arrays["node_feat"][ids])
        pending = [loader.prefetch(ids + k) for k in (0, -0)]
        for rows in pending:
            assert np.array_equal(rows.result(), arrays["node_feat"][ids])
        assert loader.fetch(ids[:0]).shape == (0, DIM)


def test_rows_outlive_the_loader_and_memory_comes_back(store, arrays):
    loader = lsm.open_features(store, storage=POSIX)
    ids = torch.arange(NUM_NODES)
    first = loader.fetch(ids)
    kept = first[10:12]
    del first
    second = loader.fetch(ids)  # must not take memory that `kept` still uses
    assert np.array_equal(kept, arrays["node_feat"][10:12])
    address = second.data_ptr()
    del second
    gc.collect()
    assert loader.fetch(ids).data_ptr() == address
    loader.close()
    assert np.array_equal(kept, arrays["node_feat"][10:12])
    with pytest.raises(RuntimeError, match="closed"):
        loader.fetch(ids)


@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(2, 2, dtype=torch.int64)])
def test_fetch_wants_a_vector_of_integers(store, bad):
    with (
        lsm.open_features(store, storage=POSIX) as loader,
        pytest.raises(ValueError, match=r"ids: expected \[N\] integers"),
    ):
        loader.fetch(bad)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_batches_hold_what_the_graph_and_the_features_say(store, arrays, engine, num_threads):
    with lsm.NeighborLoader(
        store,
        [4, 3],
        "train",
        128,
        shuffle=True,
        seed=7,
        storage=StorageOptions(engine=engine),
        num_threads=num_threads,
    ) as loader:
        assert len(loader) == 8
        edges = set(map(tuple, arrays["edge_index"].T))
        seen = []
        sampler = NeighborSampler(store.topology(), [4, 3])
        for t, batch in enumerate(loader):
            assert batch.iteration == t
            seeds = batch.n_id[: batch.batch_size]
            expected = sampler.sample(seeds, BatchName(seed=7, iteration=t))
            assert torch.equal(batch.n_id, expected.n_id)
            assert torch.equal(batch.edge_index, expected.edge_index)
            assert np.array_equal(batch.x, arrays["node_feat"][batch.n_id])
            assert np.array_equal(batch.y, arrays["node_label"][seeds])
            assert {tuple(pair) for pair in batch.n_id[batch.edge_index].T.tolist()} <= edges
            seen.append(seeds)
        assert sorted(torch.cat(seen).tolist()) == arrays["train_idx"].tolist()
        stats = loader.stats()
        assert stats["batches"] == 8
        assert stats["rows"] == stats["sampled_nodes"]


def epoch_of(store, epoch, start=0, **options):
    with lsm.NeighborLoader(
        store, [3, 2], "train", 100, shuffle=True, storage=POSIX, **options
    ) as loader:
        return list(loader.iterate(epoch, start))


@pytest.mark.parametrize("sampling", ["neighbor", "labor", lsm.Sampling("labor", True, 7)], ids=str)
def test_an_epoch_can_be_entered_in_the_middle_and_epochs_differ(store, sampling):
    whole = epoch_of(store, 3, sampling=sampling)
    rest = epoch_of(store, 3, start=6, sampling=sampling)
    assert len(whole) == 11
    assert len(rest) == 5
    for expected, got in zip(whole[6:], rest, strict=True):
        assert torch.equal(expected.n_id, got.n_id)
        assert torch.equal(expected.x, got.x)
        assert expected.iteration == got.iteration
    assert not torch.equal(epoch_of(store, 4)[0].n_id[:100], whole[0].n_id[:100])
    assert not torch.equal(epoch_of(store, 3, seed=1)[0].n_id[:100], whole[0].n_id[:100])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("cache", [None, lsm.CacheOptions(bytes=1 << 20, window=4)])
def test_input_and_edge_ids(store, shuffle, cache):
    """The seeds' places in input_nodes, and every edge's place in the store's CSC."""
    topology = store.topology()
    indptr, indices = topology.indptr, topology.indices.long()
    for rank in range(2):
        inputs = torch.arange(NUM_NODES - 1, 0, -3)
        with lsm.NeighborLoader(
            *(store, [5, 3], inputs, 100),
            shuffle=shuffle,
            seed=4,
            rank=rank,
            world_size=2,
            cache=cache,
        ) as loader:
            seen = []
            for batch in loader:
                assert batch.input_id.dtype == batch.e_id.dtype == torch.int64
                assert torch.equal(inputs[batch.input_id], batch.n_id[: batch.batch_size])
                source, destination = (batch.n_id[local] for local in batch.edge_index)
                assert torch.equal(indices[batch.e_id], source)
                assert (indptr[destination] <= batch.e_id).all()
                assert (batch.e_id < indptr[destination + 1]).all()
                assert torch.equal(batch.to("cpu").e_id, batch.e_id)
                assert batch.e_id is batch.e_id  # sampled once
                seen += batch.input_id.tolist()
            in_order = [p for p in range(len(inputs)) if p % 200 // 100 == rank]
            assert len(set(seen)) == len(in_order) == len(seen)
            assert (seen == in_order) != shuffle


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize(("num_nodes", "batch_size"), [(1001, 50), (7, 4), (64, 8), (9, 1)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_each_global_batch_evenly(world_size, num_nodes, batch_size, drop_last):
    nodes = torch.arange(num_nodes) * 3
    schedules = [
        NodeSeeds(
            nodes,
            batch_size,
            shuffle=True,
            drop_last=drop_last,
            seed=5,
            rank=rank,
            world_size=world_size,
        )
        for rank in range(world_size)
    ]
    together = NodeSeeds(
        nodes,
        batch_size * world_size,
        shuffle=True,
        drop_last=drop_last,
        seed=5,
        rank=0,
        world_size=1,
    )
    for schedule in schedules:
        assert schedule.num_iterations == together.num_iterations
    together_at, seeds_at = together.epoch(2), [schedule.epoch(2) for schedule in schedules]
    seen = []
    for t in range(together.num_iterations):
        batches = [at(t) for at in seeds_at]
        parts = [batch.nodes for batch in batches]
        assert torch.equal(torch.cat(parts), together_at(t).nodes)
        input_ids = torch.cat([batch.input_id for batch in batches])
        assert torch.equal(nodes[input_ids], torch.cat(parts))
        step = 2 * together.num_iterations + t
        assert [batch.name for batch in batches] == [
            BatchName(5, 2, t, rank, step) for rank in range(world_size)
        ]
        seen += input_ids.tolist()
        sizes = [part.numel() for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= batch_size
        assert sum(sizes) == together.global_count(t)
    assert len(set(seen)) == len(seen)
    left_out = num_nodes % (batch_size * world_size) if drop_last else 0
    assert len(seen) == num_nodes - left_out
    assert seen != sorted(seen) or len(seen) < 2


def test_all_neighbours_without_shuffle_and_with_a_mask(store, arrays):
    mask = torch.zeros(NUM_NODES, dtype=torch.bool)
    mask[[3, 50, 1234]] = True
    with lsm.NeighborLoader(store, [-1], mask, 2, storage=POSIX) as loader:
        batches = list(loader)
    assert [batch.n_id[: batch.batch_size].tolist() for batch in batches] == [[3, 50], [1234]]
    sources, targets = arrays["edge_index"]
    for batch in batches:
        got = batch.n_id[batch.edge_index].T.tolist()
        seeds = batch.n_id[: batch.batch_size].numpy()
        keep = np.isin(targets, seeds)
        assert sorted(got) == sorted(np.stack([sources[keep], targets[keep]], 1).tolist())


def lsm_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("lsm-")]


def test_leaving_an_epoch_early_ends_its_threads(store):
    with lsm.NeighborLoader(store, [4, 3], "train", 16, storage=POSIX) as loader:
        unused = iter(loader)
        for _, _batch in zip(range(2), loader, strict=False):
            pass
        gc.collect()
        deadline = time.monotonic() + 60
        while lsm_threads() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not lsm_threads()
        assert len(list(unused)) == len(loader)


def test_keeping_every_batch_does_not_deadlock(store):
    with lsm.NeighborLoader(
        store, [4, 3], "train", 64, storage=POSIX, staging_bytes=1, prefetch=1, timeout_secs=20
    ) as loader:
        batches = list(loader)
    assert len({batch.x.data_ptr() for batch in batches}) == len(batches) == 16


def test_reads_run_ahead_only_as_far_as_the_staging_allows(store):
    """A consumer that stops consuming sees the number of staged rows stop growing."""
    row_bytes = store.row_bytes
    with lsm.NeighborLoader(
        store, [4, 3], "train", 20, storage=POSIX, prefetch=8, staging_bytes=1000 * row_bytes
    ) as loader:
        batches = iter(loader)
        taken = next(batches).n_id.numel()
        staged = -1
        for _ in range(100):
            time.sleep(0.05)
            previous, staged = staged, loader.stats()["rows"] - taken
            if staged == previous > 0:
                break
        assert 0 < staged <= 1000
        batches.close()


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_a_read_error_reaches_the_consumer_at_its_iteration(store, engine):
    with lsm.NeighborLoader(
        store, [4, 3], "train", 100, storage=StorageOptions(engine=engine), prefetch=2
    ) as loader:
        batches = iter(loader)
        next(batches)
        loader.features.storage.inject_fault(native.Fault.error, nth=0, value=errno.EIO)
        with pytest.raises(OSError, match=r"features.*bin") as caught:
            list(batches)
        assert caught.value.errno == errno.EIO
    assert not lsm_threads()


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_a_lost_read_is_a_time_out_not_a_hang(store, engine):
    with lsm.NeighborLoader(
        store, [4, 3], "train", 100, storage=StorageOptions(engine=engine), timeout_secs=3.0
    ) as loader:
        loader.features.storage.inject_fault(native.Fault.stall)
        with pytest.raises(TimeoutError, match=rf"{engine}: reading .* rows"):
            list(loader)


def test_a_damaged_topology_is_an_error(store, arrays):
    topology = store.topology(in_memory=True)
    topology.indices[:] = NUM_NODES
    with (
        lsm.NeighborLoader(store, [4], "train", 100, storage=POSIX, topology=topology) as loader,
        pytest.raises(ValueError, match="topology is damaged"),
    ):
        list(loader)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"prefetch": 0}, "prefetch"),
        ({"num_threads": 0}, "num_threads"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"input_nodes": torch.zeros(3)}, "input_nodes"),
        ({"input_nodes": "tarin"}, "tarin"),
        ({"num_neighbors": [-2]}, "num_neighbors"),
        ({"storage": StorageOptions(engine="posix", max_read_bytes=7)}, "max_read_bytes"),
    ],
)
def test_bad_arguments(store, options, message):
    arguments = {"num_neighbors": [3], "input_nodes": "train"} | options
    with pytest.raises(ValueError, match=message):
        lsm.NeighborLoader(store, **arguments)


def test_striped_features_train_the_same_batches(arrays, tmp_path, store):
    source = tmp_path / "source"
    source.mkdir()
    for name, array in arrays.items():
        np.save(source / f"{name}.npy", array)
    convert_npy(source, tmp_path / "striped", stripes=3)
    striped = lsm.GraphStore.open(tmp_path / "striped")
    assert len(json.loads(Path(striped.path, "meta.json").read_text())["features"]["files"]) == 3
    for expected, got in zip(epoch_of(store, 0), epoch_of(striped, 0), strict=True):
        assert torch.equal(expected.x, got.x)
