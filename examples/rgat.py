"""Trains R-GAT with DDP on a graph with types:

    torchrun --nproc-per-node=2 examples/rgat.py stores/debian --input-type package

Every rank runs this script. ``rank`` and ``world_size`` give each its share of the
global batch. All nodes of a type without features start from one learnt row.
"""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GATConv, HeteroConv
from torch_geometric.utils import trim_to_layer

import lsm


class RGAT(nn.Module):
    """Attention over the edges of each type, summed, next to a node's own row."""

    def __init__(self, store, input_type, hidden=64, heads=4, num_layers=2):
        super().__init__()
        self.input_type = input_type
        self.maps, self.starts = nn.ModuleDict(), nn.ParameterDict()
        for name in store.node_types:
            features = store.nodes(name).features
            if features is None:
                self.starts[name] = nn.Parameter(torch.randn(hidden))
            else:
                self.maps[name] = nn.Linear(features.dim, hidden)
        self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
        for _ in range(num_layers):
            convolutions = {
                each: GATConv(
                    (hidden, hidden), hidden // heads, heads, add_self_loops=False
                )
                for each in store.edge_types
            }
            self.layers.append(HeteroConv(convolutions))
            norms = {name: nn.LayerNorm(hidden) for name in store.node_types}
            self.norms.append(nn.ModuleDict(norms))
        self.output = nn.Linear(hidden, store.nodes(input_type).num_classes)

    def forward(self, batch):
        x = {
            name: of_type(batch[name].x.float()) for name, of_type in self.maps.items()
        }
        for name, start in self.starts.items():
            x[name] = start.expand(batch[name].num_nodes, -1)
        edges = batch.edge_index_dict
        sizes = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
        for number, layer in enumerate(self.layers):
            # A layer computes only the nodes that later ones need.
            x, edges, _ = trim_to_layer(number, *sizes, x, edges)
            found = layer(x, edges)
            x = {
                name: norm(x[name] + found.get(name, 0)).relu()
                for name, norm in self.norms[number].items()
            }
        return self.output(x[self.input_type][: batch[self.input_type].batch_size])


def accuracy(model, loader, input_type):
    """Over the seeds of all ranks."""
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for batch in loader:
            predicted = model(batch).argmax(dim=1)
            correct = predicted == batch[input_type].y[: len(predicted)]
            counts += torch.tensor([float(correct.sum()), len(predicted)])
    model.train()
    dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--input-type", required=True, help="the type to classify")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=256, help="per rank")
    parser.add_argument("--fanouts", type=int, nargs="+", default=[8, 4])
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--cache", default="4MiB", help="memory of rows, per rank")
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
    store, kind = lsm.GraphStore.open(arguments.store), arguments.input_type
    rgat = RGAT(store, kind, num_layers=len(arguments.fanouts))
    # A type may be missing in a batch, and the last layer uses one type only.
    model = DistributedDataParallel(rgat, find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)

    def loader(split, cache=None):
        return lsm.NeighborLoader(
            store,
            arguments.fanouts,
            (kind, split),
            arguments.batch_size,
            shuffle=split == "train",
            drop_last=split == "train",  # so that DDP's mean of means is the mean
            rank=rank,
            world_size=world_size,
            cache=cache,
            as_pyg=True,
        )

    with loader("train", {"bytes": arguments.cache}) as train, loader("valid") as valid:
        if not len(train):
            raise SystemExit(
                "fewer train nodes than batches of all ranks: lower --batch-size"
            )
        for epoch in range(arguments.epochs):
            total = torch.zeros(1)
            for batch in train:
                logits = model(batch)
                loss = functional.cross_entropy(logits, batch[kind].y[: len(logits)])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            dist.all_reduce(total)
            mean = float(total) / (len(train) * world_size)
            found = accuracy(rgat, valid, kind)
            if rank == 0:
                print(f"epoch {epoch + 1}: loss {mean:.4f}, valid {found:.4f}")


if __name__ == "__main__":
    main()
