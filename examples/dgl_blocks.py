"""Trains a DGL model on batches read from disk: python examples/dgl_blocks.py STORE"""

import argparse
import itertools

import torch
from torch import nn
from torch.nn import functional

import lsm


class Sage(nn.Module):
    def __init__(self, widths: list[int]) -> None:
        from dgl.nn import SAGEConv

        super().__init__()
        pairs = itertools.pairwise(widths)
        self.convs = nn.ModuleList(SAGEConv(a, b, "mean") for a, b in pairs)

    def forward(self, blocks: list, x: torch.Tensor) -> torch.Tensor:
        for index, (conv, block) in enumerate(zip(self.convs, blocks, strict=True)):
            x = conv(block, x.relu() if index else x)
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    store = lsm.GraphStore.open(arguments.store)
    with lsm.NeighborLoader(
        store, [10, 5], "train", batch_size=256, shuffle=True
    ) as loader:
        blocks = next(
            iter(loader)
        ).to_dgl()  # imports dgl the way that works with torch
        print(blocks)
        model = Sage([store.feature_dim, 64, store.num_classes])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(arguments.epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                loss = functional.cross_entropy(
                    model(batch.to_dgl(), batch.x.float()), batch.y
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch + 1}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
