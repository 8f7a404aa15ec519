"""Cases of ranks that share the rows of a store with types, of three sizes."""

import time
from unittest import mock

import torch

from lsm.core.counters import BY_SOURCE
from support.cached_features import deliver

COUNTS = {"tag": 30, "paper": 400, "author": 300, "editor": 90, "venue": 50}
WIDTHS = {
    "paper": (24, torch.float32),
    "author": (40, torch.int8),
    "editor": (10, torch.float32),
    "venue": (3, torch.float64),
}


def make_typed_store(path, seed=0):
    """Papers that cite papers, with rows of 96 bytes and labels; authors and editors with rows of
    40, in one set; venues with rows of 24; tags without rows."""
    from torch_geometric.data import HeteroData

    import lsm

    draw = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name, count in COUNTS.items():
        data[name].num_nodes = count
        if name in WIDTHS:
            dim, dtype = WIDTHS[name]
            data[name].x = torch.randint(-100, 100, (count, dim), generator=draw).to(dtype)
    data["paper"].y = torch.randint(5, (COUNTS["paper"],), generator=draw)
    data["paper"].train_mask = torch.rand(COUNTS["paper"], generator=draw) < 0.75
    for source, count in COUNTS.items():
        num_edges = 5 * count
        ends = [torch.rand(num_edges, generator=draw) ** 2 * COUNTS[source]]
        ends += [torch.rand(num_edges, generator=draw) * COUNTS["paper"]]
        data[source, f"{source}_to", "paper"].edge_index = torch.stack(ends).long()
    return lsm.GraphStore.from_pyg(data, path).path


def open_sets(context, path, size, comm=(), engine="posix", gpu=False, **cache):
    """The store, and its rows in a cache that the first ``size`` ranks share; None on others. gpu:
    the cache is in the memory of a GPU's twin."""
    from lsm.cache.options import CacheOptions
    from lsm.core.device import GpuPlace
    from lsm.data.graph_store import GraphStore
    from lsm.features.tiers_gpu import GpuOptions
    from lsm.features.typed import open_feature_sets
    from lsm.storage.options import StorageOptions

    store = GraphStore.open(path)
    group = context.group(size, **dict(comm))
    if group is None:
        return store, None
    options = {"bytes": 24000 // size, "ways": 8, "window": 3, "score": "in_degree"} | cache
    with mock.patch.object(GpuPlace, "of", return_value=GpuPlace.twin()):
        sets = open_feature_sets(
            store,
            CacheOptions(**options),
            StorageOptions(engine=engine, timeout_secs=10),
            group,
            "cuda" if gpu else "cpu",
            scores=torch.linspace(1, 0, store.num_nodes),
            requests=requests_of(store, context.rank),
            gpu=GpuOptions(planner="device", prefetch_rows=10, pool_bytes=9000),
        )
    return store, sets


def requests_of(store, rank):
    """Skewed requests that differ between ranks."""
    draw = torch.Generator().manual_seed(7 + rank)
    return (torch.rand(store.num_nodes, generator=draw) ** 4 * 10).long()


def batches_of(store, rank, count=8):
    """Skewed ids, grouped by type; some batches lack a type, or have no ids at all."""
    draw, space = torch.Generator().manual_seed(rank), store.node_space
    found = []
    for t in range(count):
        parts = [torch.empty(0, dtype=torch.int64)]
        for number, (name, num_nodes) in enumerate(space.counts.items()):
            most = 0 if (t + rank) % 4 == 0 or (t + number) % 3 == 0 else num_nodes // 3
            ids = torch.rand(most, generator=draw, dtype=torch.float64) ** 2 * num_nodes
            parts.append(space.to_global(name, ids.long().unique().flip(0)))
        found.append(torch.cat(parts))
    return found


def tables(store):
    """All rows of each type, read without a cache."""
    from lsm.features.open import open_features
    from lsm.storage.options import StorageOptions

    found = {}
    for name in WIDTHS:
        with open_features(
            store.nodes(name).feature_files, storage=StorageOptions(engine="memory")
        ) as plain:
            found[name] = plain.fetch(torch.arange(COUNTS[name]))
    return found


def rows_case(context, path, size, comm, engine, cache, gpu=False):
    """The number of rows of each type that this rank asked for, which are checked, and its
    counters."""
    store, sets = open_sets(context, path, size, comm, engine, gpu, **cache)
    if sets is None:
        return None
    expected, delivered = tables(store), dict.fromkeys(WIDTHS, 0)
    for ids, pending, rows in deliver(sets, batches_of(store, context.rank)):
        assert list(rows) == list(WIDTHS)
        for name, own in store.node_space.split(ids).items():
            if name in rows:
                assert torch.equal(rows[name], expected[name][own.ids]), (context.rank, name)
                delivered[name] += len(own.ids)
        assert (
            pending.stats["requests"]
            == sum(
                pending.stats[name]
                for name in ("hits", "static_hits", "victim_hits", "constant_hits", "misses")
            )
            + pending.stats["duplicates"]
        )
        for name in BY_SOURCE:
            by_type = sum(pending.stats[f"{name}/{each}"] for each in WIDTHS)
            assert by_type == pending.stats[name], name
    stats = sets.stats()
    sets.close()
    return delivered, stats


def epochs_case(context, path, taken, comm, prefetch=(2,) * 4, idle_secs=0.0):
    """Epochs of NeighborLoader that are left after ``taken`` iterations (a number, or one for each
    rank), with rows of a shared cache and without a cache. ``prefetch``: that of each rank.
    ``idle_secs``: a rank keeps an epoch open for so long after its last iteration."""
    store, sets = open_sets(context, path, context.size, comm, policy="lookahead")
    plain = loader_for(store, context, None)
    with sets, plain:
        shared = loader_for(store, context, sets, prefetch[context.rank])
        for epoch, count in enumerate(taken):
            count = count[context.rank] if isinstance(count, list) else count
            batches = zip(range(count), shared.iterate(epoch), plain.iterate(epoch), strict=False)
            for _, got, expected in batches:
                assert torch.equal(got.n_id, expected.n_id)
                assert list(got.x) == list(expected.x) == list(WIDTHS)
                for name, rows in expected.x.items():
                    assert torch.equal(got.x[name], rows), (context.rank, epoch, name)
            time.sleep(idle_secs)
        return sets.stats()["cache_hits"]


def loader_for(store, context, sets, prefetch=2):
    import lsm

    return lsm.NeighborLoader(
        store,
        [5, 3],
        ("paper", "train"),
        10,
        shuffle=True,
        prefetch=prefetch,
        rank=context.rank,
        world_size=context.size,
        features=sets,
        timeout_secs=20,
    )
