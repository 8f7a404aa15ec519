"""Small graphs with links of one type and of several, with their times."""

import torch
from torch_geometric.data import Data, HeteroData

import lsm

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
REV_WRITES = ("paper", "rev_writes", "author")
NUM_NODES = 60


def plain_graph():
    draw = torch.Generator().manual_seed(0)
    data = Data(x=torch.randn(NUM_NODES, 5, generator=draw), y=torch.arange(NUM_NODES) % 3)
    data.edge_index = torch.randint(NUM_NODES, (2, 500), generator=draw)
    data.edge_attr = torch.randn(500, 2, generator=draw)
    data.edge_time = torch.randint(50, (500,), generator=draw)
    return data


def typed_graph():
    draw = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["paper"].x = torch.randn(NUM_NODES, 5, generator=draw)
    data["author"].x = torch.randn(30, 3, generator=draw)
    data[CITES].edge_index = torch.randint(NUM_NODES, (2, 300), generator=draw)
    ends = [torch.randint(count, (250,), generator=draw) for count in (30, NUM_NODES)]
    data[WRITES].edge_index = torch.stack(ends)
    data[REV_WRITES].edge_index = torch.stack(ends[::-1])
    for each in data.edge_types:
        data[each].time = torch.randint(50, (data[each].num_edges,), generator=draw)
    return data


def link_stores(path):
    return {
        "plain": lsm.GraphStore.from_pyg(plain_graph(), path / "plain"),
        "typed": lsm.GraphStore.from_pyg(typed_graph(), path / "typed"),
    }


def pairs_of(store, edge_type=None):
    topology = store.edges(edge_type).topology()
    return torch.stack((topology.indices.long(), torch.repeat_interleave(topology.indptr.diff())))
