"""Trains a plain PyTorch model in a loop of your own: python examples/own_loop.py STORE

The model uses no graph library. A batch gives one bipartite graph per layer, so that no
layer computes a node that a later layer does not need.
"""

import argparse
import itertools

import torch
from torch import nn
from torch.nn import functional

import lsm


class MeanGNN(nn.Module):
    """Per layer: a linear map of the node, plus one of the mean of its neighbours."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.neighbors = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairs)

    def forward(self, batch: lsm.Batch) -> torch.Tensor:
        x = batch.x.float()
        for index, layer in enumerate(batch.layers()):
            if index > 0:
                x = x.relu()
            degrees = layer.indptr.diff().clamp(min=1).unsqueeze(1)
            mean = layer.adj @ x / degrees
            x = self.own[index](x[: layer.num_dst]) + self.neighbors[index](mean)
        return x


def accuracy(model: nn.Module, loader: lsm.NeighborLoader) -> float:
    correct = total = 0
    with torch.no_grad():
        for batch in loader:
            correct += int((model(batch).argmax(dim=1) == batch.y).sum())
            total += batch.batch_size
    return correct / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    store = lsm.GraphStore.open(arguments.store)
    model = MeanGNN([store.feature_dim, 64, store.num_classes])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with (
        lsm.NeighborLoader(
            store, [10, 5], "train", batch_size=256, shuffle=True
        ) as train,
        lsm.NeighborLoader(store, [10, 5], "valid", batch_size=512) as valid,
    ):
        for epoch in range(arguments.epochs):
            train.set_epoch(epoch)
            for batch in train:
                loss = functional.cross_entropy(model(batch), batch.y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            share = accuracy(model, valid)
            print(f"epoch {epoch + 1}: loss {loss:.4f}, valid {share:.4f}")


if __name__ == "__main__":
    main()
