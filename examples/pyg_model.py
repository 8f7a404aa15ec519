"""Trains a model of torch_geometric.nn from disk: python examples/pyg_model.py STORE"""

import argparse

import torch
from torch.nn import functional
from torch_geometric.nn import GraphSAGE

import lsm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    store = lsm.GraphStore.open(arguments.store)
    model = GraphSAGE(
        store.feature_dim,
        hidden_channels=64,
        num_layers=2,
        out_channels=store.num_classes,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    tenth = store.num_nodes // 10 * store.row_bytes
    cache = lsm.CacheOptions(policy="lookahead", bytes=tenth, window=32)
    with lsm.NeighborLoader(
        store, [10, 5], "train", batch_size=256, shuffle=True, cache=cache
    ) as loader:
        for epoch in range(arguments.epochs):
            loader.set_epoch(epoch)
            requests = hits = 0
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
                requests += batch.stats["requests"]
                hits += batch.stats["hits"]
            print(
                f"epoch {epoch + 1}: loss {loss:.4f}, cache hits {hits / requests:.1%}"
            )


if __name__ == "__main__":
    main()
