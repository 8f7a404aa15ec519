"""Reads feature rows by node id: python examples/feature_loader.py STORE

For a sampler of your own, or for features of something that is no graph.
"""

import argparse

import torch

import lsm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    arguments = parser.parse_args()

    store = lsm.GraphStore.open(arguments.store)
    generator = torch.Generator().manual_seed(0)
    batches = [
        torch.randperm(store.num_nodes, generator=generator)[:500] for _ in range(8)
    ]

    with lsm.open_features(store) as features:
        rows = features.fetch(batches[0])  # blocks: [500, dim] in the store's dtype
        print(f"{features.engine}: {list(rows.shape)} {rows.dtype}")

        pending = features.prefetch(
            batches[1]
        )  # returns at once; the engine reads meanwhile
        print(f"mean of the batch before: {rows.float().mean():.4f}")
        rows = pending.result(timeout_secs=10)
        print(f"read so far: {features.stats()['bytes_read']:,} bytes")

    # With a cache, announce batches ahead: the plan then keeps the rows needed soonest.
    cache = lsm.CacheOptions(policy="lookahead", bytes=200 * store.row_bytes, window=4)
    with lsm.open_features(store, cache) as features:
        announced = [features.announce(ids) for ids in batches[:3]]
        hits = requests = 0
        for index in range(len(batches)):
            if index + 3 < len(batches):
                announced.append(features.announce(batches[index + 3]))
            pending = announced[index].start()
            pending.result()
            hits += pending.stats["hits"]
            requests += pending.stats["requests"]
        print(f"cache of 200 rows: {hits:,} of {requests:,} requests hit")


if __name__ == "__main__":
    main()
