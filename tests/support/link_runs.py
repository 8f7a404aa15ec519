"""Small stores with splits of links, and runs on them."""

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

import lsm
from lsm.train.trainer import train
from support.training import config

NUM_NODES, NUM_USERS, NUM_ITEMS = 300, 80, 90
BUYS, BOUGHT = ("user", "buys", "item"), ("item", "rev_buys", "user")


def link_store(folder):
    """A random graph of one type of nodes, with its splits."""
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(NUM_NODES, (2, 1500), generator=draw)
    data = Data(x=torch.randn(NUM_NODES, 8, generator=draw), edge_index=ends)
    store = lsm.GraphStore.from_pyg(data, folder / "g")
    lsm.LinkSplits.make(store, valid=0.1, test=0.1)
    return store


def typed_link_store(folder):
    """A random graph of users and items, with splits of the links between them."""
    draw = torch.Generator().manual_seed(1)
    data, ends = HeteroData(), torch.randint(NUM_USERS, (2, 600), generator=draw)
    data["user"].x = torch.randn(NUM_USERS, 5, generator=draw)
    data["item"].x = torch.randn(NUM_ITEMS, 7, generator=draw)
    data[BUYS].edge_index, data[BOUGHT].edge_index = ends, ends.flip(0)
    data["topic"].x = torch.randn(3, 2, generator=draw)
    store = lsm.GraphStore.from_pyg(data, folder / "g")
    lsm.LinkSplits.make(store, edge_type=BUYS, valid=0.2, test=0.2)
    return store


def learn(store, run, *more):
    """Trains a run of links for an epoch. Returns its directory."""
    hops = "sampler.num_neighbors=[4, 4]"
    links = ("train.task=link", "links.eval_candidates=50", "train.epochs=1", hops)
    train(config(store.path, run, *links, "model.hidden_dim=12", *more))
    return run


def rows_of(run, out, node_type=None):
    """The rows of all nodes that the scorer of a run takes: [N, width] float32."""
    summary = lsm.predict(run, None, out, node_type=node_type, progress=False)
    return torch.from_numpy(np.load(summary["outputs"]["embeddings"]["file"]))
