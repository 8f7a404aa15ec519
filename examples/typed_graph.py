"""Trains on a graph with types, in your own loop with PyG's layers:

    python -m tarfile -e tests/datasets/debian/debian.tar.xz data
    lsm data convert npy data/debian --out stores/debian --add-reverse
    python examples/typed_graph.py stores/debian --input-type package

Types without features learn an embedding for each node.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import HeteroConv, SAGEConv

import lsm


class TypedSAGE(nn.Module):
    """GraphSAGE with weights of their own for each type of edges."""

    def __init__(self, store, hidden, num_classes, input_type, num_layers, dropout):
        super().__init__()
        self.input_type, self.dropout = input_type, dropout
        self.inputs = nn.ModuleDict()
        for name in store.node_types:
            nodes = store.nodes(name)
            self.inputs[name] = (
                nn.Embedding(nodes.num_nodes, hidden)
                if nodes.features is None
                else nn.Linear(nodes.features.dim, hidden)
            )
        self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
        for _ in range(num_layers):
            convolutions = {
                each: SAGEConv((hidden, hidden), hidden) for each in store.edge_types
            }
            self.layers.append(HeteroConv(convolutions))
            norms = {name: nn.LayerNorm(hidden) for name in store.node_types}
            self.norms.append(nn.ModuleDict(norms))
        self.output = nn.Linear(hidden, num_classes)

    def forward(self, batch):
        x = {}
        for name, of_type in self.inputs.items():
            nodes = batch[name]
            values = nodes.x.float().asinh() if "x" in nodes else nodes.n_id
            x[name] = of_type(values)
        for layer, norms in zip(self.layers, self.norms, strict=True):
            gathered = layer(x, batch.edge_index_dict)
            for name, own in x.items():
                rows = norms[name](own + gathered.get(name, 0)).relu()
                x[name] = functional.dropout(rows, self.dropout, self.training)
        return self.output(x[self.input_type][: batch[self.input_type].batch_size])


def accuracy(model, loader, input_type):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for batch in loader:
            predicted = model(batch).argmax(dim=1)
            correct += int((predicted == batch[input_type].y[: len(predicted)]).sum())
            total += len(predicted)
    model.train()
    return correct / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--input-type", required=True, help="the type to classify")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[8, 4])
    parser.add_argument("--cache", default="4MiB", help="memory of cached rows")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    store, kind = lsm.GraphStore.open(arguments.store), arguments.input_type

    def loader(split, cache=None):
        return lsm.NeighborLoader(
            store,
            arguments.fanouts,
            (kind, split),
            arguments.batch_size,
            shuffle=split == "train",
            seed=arguments.seed,
            cache=cache,
            as_pyg=True,
        )

    model = TypedSAGE(
        store,
        arguments.hidden,
        store.nodes(kind).num_classes,
        kind,
        len(arguments.fanouts),
        arguments.dropout,
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=arguments.lr, weight_decay=0.01
    )
    best = (0.0, 0.0)
    with (
        loader("train", {"bytes": arguments.cache}) as train,
        loader("valid") as valid,
        loader("test") as test,
    ):
        for epoch in range(arguments.epochs):
            total = 0.0
            for batch in train:
                logits = model(batch)
                loss = functional.cross_entropy(logits, batch[kind].y[: len(logits)])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            found = accuracy(model, valid, kind)
            if found >= best[0]:
                best = (found, accuracy(model, test, kind))
            print(
                f"epoch {epoch + 1}: loss {total / len(train):.4f}, valid {found:.4f}"
            )
        stats = train.stats()
    hits = stats["cache_hits"] / (stats["cache_hits"] + stats["cache_misses"])
    print(f"test {best[1]:.4f}; {hits:.1%} of the rows were in the cache")


if __name__ == "__main__":
    main()
