"""Small graphs of PyG with several types, with everything that a store keeps."""

import torch
from torch_geometric.data import HeteroData

WRITES, CITES, ABOUT = (
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "about", "topic"),
)


def typed_graph(seed=0, papers=60, authors=25, topics=5):
    """Papers with float16 features, classes, splits and times; authors with int8 features and
    names; topics with neither. Parallel edges; edges with weights, attributes and times."""
    draw = torch.Generator().manual_seed(seed)
    counts = {"paper": papers, "author": authors, "topic": topics}

    def integers(high, *shape):
        return torch.randint(high, shape, generator=draw)

    def ends(edge_type, num_edges):
        rows = [integers(counts[end], num_edges) for end in (edge_type[0], edge_type[2])]
        return torch.stack(rows)

    data = HeteroData()
    data["paper"].x = torch.randn(papers, 7, generator=draw).half()
    data["paper"].y = integers(4, papers) - 1
    known = data["paper"].y >= 0
    part = integers(4, papers)
    for number, mask in enumerate(("train_mask", "val_mask", "test_mask")):
        data["paper"][mask] = known & (part == number)
    data["paper"].time = integers(10, papers)
    data["author"].x = integers(100, authors, 3).to(torch.int8)
    data["author"].names = [f"author {i}\t\\{i}\n" for i in range(authors)]
    data["topic"].num_nodes = topics
    data[WRITES].edge_index = ends(WRITES, 90)
    data[WRITES].edge_weight = torch.rand(90, generator=draw)
    data[CITES].edge_index = ends(CITES, 300)
    data[CITES].edge_attr = torch.randn(300, 2, generator=draw)
    data[ABOUT].edge_index = ends(ABOUT, 80)
    data[ABOUT].time = integers(10, 80)
    return data
