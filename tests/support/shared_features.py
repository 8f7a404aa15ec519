"""Cases of ranks that share a cache: a loader, skewed batches, their rows checked."""

import torch

ROW_BYTES = 48
TIERS = ("hits", "static_hits", "victim_hits", "constant_hits", "misses", "duplicates")


def open_loader(context, path, size, comm=(), engine="memory", **cache):
    from lsm.cache.options import CacheOptions
    from lsm.data.graph_store import GraphStore
    from lsm.features.open import open_features
    from lsm.storage.options import StorageOptions

    group = context.group(size, **dict(comm))
    if group is None:
        return None, None
    options = {"bytes": 64 * ROW_BYTES, "ways": 8, "window": 3} | cache
    store = GraphStore.open(path)
    loader = open_features(
        store,
        CacheOptions(**options),
        StorageOptions(engine=engine, timeout_secs=10),
        group,
        scores=torch.linspace(1, 0, store.num_nodes),
    )
    return store, loader


def expected_rows(store):
    from lsm.features.open import open_features
    from lsm.storage.options import StorageOptions

    with open_features(store, storage=StorageOptions(engine="memory")) as plain:
        return plain.fetch(torch.arange(store.num_nodes))


def fetches(loader, num_nodes, rank):
    """(ids, rows) of batches of skewed ids, some of them empty, announced three ahead."""
    generator = torch.Generator().manual_seed(rank)
    batches = []
    for t in range(10):
        count = 0 if (t + rank) % 3 == 0 else 150
        ids = torch.randint(0, num_nodes, (count,), generator=generator)
        batches.append((ids * ids // num_nodes).unique().flip(0))
    for t, ids in enumerate(batches):
        for announced in batches[: loader.window] if t == 0 else batches[t + 2 : t + 3]:
            loader.announce(announced)
        yield ids, loader.fetch(ids)


def fetch_case(context, path, size, comm, engine, cache):
    store, loader = open_loader(context, path, size, comm, engine, **cache)
    if loader is None:
        return None
    table, delivered = expected_rows(store), 0
    with loader:
        for ids, rows in fetches(loader, store.num_nodes, context.rank):
            assert torch.equal(rows, table[ids]), (context.rank, delivered)
            delivered += len(ids)
        repeated = torch.tensor([3, 5, 3, context.rank])
        assert torch.equal(loader.fetch(repeated), table[repeated])
        delivered += len(repeated.unique())
        stats = loader.stats()
    assert sum(stats[f"cache_{tier}"] for tier in TIERS) == stats["cache_requests"]
    return delivered, stats


def all_tiers(size: int) -> dict:
    """Settings of tiers that together are as large for any number of ranks."""
    return {
        "bytes": 128 // size * ROW_BYTES,
        "victim_mode": "pool",
        "victim_bytes": 80 // size * ROW_BYTES,
        "static_bytes": 40 // size * ROW_BYTES,
        "constant_bytes": 40 // size * ROW_BYTES,
        "score": "in_degree",
    }


def loader_for(store, context, features, **changes):
    import lsm

    return lsm.NeighborLoader(
        store,
        [5, 3],
        "train",
        20,
        shuffle=True,
        rank=context.rank,
        world_size=context.size,
        features=features,
        timeout_secs=20,
        **changes,
    )
