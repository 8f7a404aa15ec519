"""Trains with DDP and one cache over all ranks:

    torchrun --nproc-per-node=2 examples/ddp.py STORE

Every rank runs this script. ``rank`` and ``world_size`` give each its share of the
global batch. The cache group makes the caches of all ranks one: a row is read and kept
by one rank only.
"""

import argparse
import gc

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import lsm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")  # torchrun sets the rank and the world size
    train(arguments)
    # DDP must end before the process group. After it, the end of DDP would hold
    # Python's lock and wait for Gloo's threads, which may wait for that lock.
    gc.collect()  # DDP is in a cycle of references
    dist.destroy_process_group()


def train(arguments: argparse.Namespace) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same initial weights on every rank

    store = lsm.GraphStore.open(arguments.store)
    sage = GraphSAGE(
        store.feature_dim,
        hidden_channels=64,
        num_layers=2,
        out_channels=store.num_classes,
    )
    model = DistributedDataParallel(sage)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    tenth = store.num_nodes // 10 * store.row_bytes  # of each rank
    cache = lsm.CacheOptions(policy="lookahead", bytes=tenth, window=32)
    group = lsm.CacheGroup.join(lsm.CommOptions())
    with (
        lsm.open_features(store, cache, share=group) as features,
        lsm.NeighborLoader(
            store,
            [10, 5],
            "train",
            batch_size=128,  # per rank
            shuffle=True,
            drop_last=True,  # full batches, so DDP's mean of means is the mean
            rank=rank,
            world_size=world_size,
            features=features,
        ) as loader,
    ):
        if not len(loader):
            raise SystemExit("fewer train nodes than batches of all ranks")
        for epoch in range(arguments.epochs):
            loader.set_epoch(epoch)
            total = torch.zeros(3)  # loss, requests, misses
            for batch in loader:
                out = model(
                    batch.x,
                    batch.edge_index,
                    num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                    num_sampled_edges_per_hop=batch.num_sampled_edges,
                )[: batch.batch_size]
                loss = functional.cross_entropy(out, batch.y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += torch.tensor(
                    [loss.item(), batch.stats["requests"], batch.stats["misses"]]
                )
            dist.all_reduce(total)
            if rank == 0:
                mean_loss, read = (
                    total[0] / (len(loader) * world_size),
                    total[2] / total[1],
                )
                print(f"epoch {epoch + 1}: loss {mean_loss:.4f}, read {read:.1%}")


if __name__ == "__main__":
    main()
