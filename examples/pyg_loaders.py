"""PyG's own NodeLoader over a store: python examples/pyg_loaders.py STORE"""

import argparse

import torch
from torch.nn import functional
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import GraphSAGE

import lsm
import lsm.pyg


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
    cache = {"bytes": store.num_nodes // 10 * store.row_bytes, "window": 32}
    with lsm.pyg.parts(
        store, [10, 5], "train", batch_size=256, shuffle=True, cache=cache
    ) as parts:
        loader = NodeLoader(**parts)
        for epoch in range(arguments.epochs):
            for batch in loader:
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                loss = functional.cross_entropy(out, batch.y[: batch.batch_size])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch + 1}: loss {loss:.4f}")
        stats = parts.loader.stats()
        print(f"cache hits {stats['cache_hits'] / stats['cache_requests']:.1%}")


if __name__ == "__main__":
    main()
