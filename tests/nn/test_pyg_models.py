"""The models of torch_geometric.nn.models that the documentation names, on batches."""

import pytest
import torch
import torch_geometric
from torch.nn import functional
from torch_geometric.nn import SAGEConv
from torch_geometric.nn import models as pyg

from lsm.loader.batch import Batch
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.graphs import random_graph

NODES, DIM, WIDTH, CLASSES, SEEDS = 300, 6, 8, 4, 20
GRAPH = random_graph(NODES, 900)
GENERATOR = torch.Generator().manual_seed(0)
FEATURES = torch.randn(NODES, DIM, generator=GENERATOR)
LABELS = torch.randint(CLASSES, (NODES,), generator=GENERATOR)
PNA = {
    "aggregators": ["mean", "max"],
    "scalers": ["identity", "amplification"],
    "deg": torch.bincount(GRAPH.indptr.diff()),
}


def batch_of(fanouts):
    graph = NeighborSampler(GRAPH, fanouts).sample(torch.arange(SEEDS), BatchName(seed=3))
    return Batch.from_sampled(graph, x=FEATURES[graph.n_id], y=LABELS[:SEEDS])


class TwoHeads(torch.nn.Module):
    """Mean and deviation, as VGAE wants them of its encoder."""

    def __init__(self):
        super().__init__()
        self.mean, self.deviation = gcn(), gcn()

    def forward(self, x, edge_index):
        return self.mean(x, edge_index), self.deviation(x, edge_index)


def gcn(**options):
    return pyg.GCN(DIM, WIDTH, 2, CLASSES, **options)


EQUAL_TO_THE_WHOLE_GRAPH = {
    "GCN": gcn,
    "GCN, all layers' outputs": lambda: gcn(jk="cat"),
    "GraphSAGE": lambda: pyg.GraphSAGE(DIM, WIDTH, 2, CLASSES),
    "GIN": lambda: pyg.GIN(DIM, WIDTH, 2, CLASSES),
    "GAT": lambda: pyg.GAT(DIM, WIDTH, 2, CLASSES, heads=2),
    "GATv2": lambda: pyg.GAT(DIM, WIDTH, 2, CLASSES, heads=2, v2=True),
    "PNA": lambda: pyg.PNA(DIM, WIDTH, 2, CLASSES, **PNA),
    "EdgeCNN": lambda: pyg.EdgeCNN(DIM, WIDTH, 2, CLASSES),
}
# Norms, pooling or attention span the nodes of the batch.
OF_THE_BATCH = {
    "PMLP": lambda: pyg.PMLP(DIM, WIDTH, CLASSES, 2),
    "GraphUNet": lambda: pyg.GraphUNet(DIM, WIDTH, CLASSES, 2),
    "Polynormer": lambda: pyg.Polynormer(DIM, WIDTH, CLASSES),
    "SGFormer": lambda: pyg.SGFormer(DIM, WIDTH, CLASSES),
}
RECONSTRUCTS = {
    "GAE": lambda: pyg.GAE(gcn()),
    "VGAE": lambda: pyg.VGAE(TwoHeads()),
    "ARGA": lambda: pyg.ARGA(gcn(), pyg.MLP([CLASSES, 1])),
    "ARGVA": lambda: pyg.ARGVA(TwoHeads(), pyg.MLP([CLASSES, 1])),
}


def output(model, x, edge_index, **more):
    if type(model).__name__ in ("SGFormer", "Polynormer"):
        more["batch"] = torch.zeros(len(x), dtype=torch.int64)
    return model(x, edge_index, **more)


@pytest.mark.parametrize("name", EQUAL_TO_THE_WHOLE_GRAPH)
def test_all_neighbours_give_the_output_of_the_whole_graph(name):
    """A hop more than layers, because GCN needs the degrees of the outermost nodes."""
    torch.manual_seed(0)
    model = EQUAL_TO_THE_WHOLE_GRAPH[name]().eval()
    batch = batch_of([-1, -1, -1])
    assert SEEDS < batch.num_nodes < NODES
    targets = torch.repeat_interleave(torch.arange(NODES), GRAPH.indptr.diff())
    edges = torch.stack([GRAPH.indices.long(), targets])
    with torch.no_grad():
        ours = model(batch.x, batch.edge_index)[:SEEDS]
        whole = model(FEATURES, edges)[:SEEDS]
    # Sums of some ten float32 numbers in another order.
    torch.testing.assert_close(ours, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*EQUAL_TO_THE_WHOLE_GRAPH, *OF_THE_BATCH])
def test_it_trains_on_sampled_batches(name):
    if name in OF_THE_BATCH and not hasattr(pyg, name):
        pytest.skip(f"PyG {torch_geometric.__version__} has no {name}")
    torch.manual_seed(0)
    model = {**EQUAL_TO_THE_WHOLE_GRAPH, **OF_THE_BATCH}[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    batch, losses = batch_of([4, 3]), []
    for _ in range(15):
        out = output(model, batch.x, batch.edge_index)[: batch.batch_size]
        loss = functional.cross_entropy(out, batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[-5:]) < 0.9 * losses[0], losses


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT", "GATv2", "EdgeCNN", "PNA"])
def test_layers_can_be_trimmed(name):
    torch.manual_seed(0)
    model = EQUAL_TO_THE_WHOLE_GRAPH[name]().eval()
    batch = batch_of([-1, -1])
    sizes = {
        "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
        "num_sampled_edges_per_hop": batch.num_sampled_edges,
    }
    trimmed = model(batch.x, batch.edge_index, **sizes)
    assert SEEDS <= len(trimmed) < batch.num_nodes
    if name != "GCN":  # its degrees are those of the trimmed graph
        whole = model(batch.x, batch.edge_index)
        torch.testing.assert_close(trimmed[:SEEDS], whole[:SEEDS], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RECONSTRUCTS)
def test_autoencoders_reconstruct_the_edges_of_a_batch(name):
    torch.manual_seed(0)
    model, batch = RECONSTRUCTS[name](), batch_of([4, 3])
    codes = model.encode(batch.x, batch.edge_index)
    model.recon_loss(codes, batch.edge_index).backward()
    assert codes.shape == (batch.num_nodes, CLASSES)
    assert all(each.grad is not None for each in model.encoder.parameters())


def test_deep_graph_infomax_trains_an_encoder():
    model = pyg.DeepGraphInfomax(
        CLASSES,
        gcn(),
        summary=lambda codes, *_: codes.mean(dim=0).sigmoid(),
        corruption=lambda x, edge_index: (x.flip(0), edge_index),
    )
    batch = batch_of([4, 3])
    model.loss(*model(batch.x, batch.edge_index)).backward()
    assert all(each.grad is not None for each in model.encoder.parameters())


def test_parts_of_models_take_a_batch():
    batch = batch_of([4, 3])
    deep = pyg.DeepGCNLayer(SAGEConv(DIM, DIM), torch.nn.LayerNorm(DIM), torch.nn.ReLU())
    assert deep(batch.x, batch.edge_index).shape == batch.x.shape
    assert pyg.RECT_L(DIM, WIDTH)(batch.x, batch.edge_index).shape == batch.x.shape
    assert pyg.MLP([DIM, WIDTH, CLASSES])(batch.x).shape == (batch.num_nodes, CLASSES)


def test_models_of_the_whole_graph_refuse_a_batch():
    batch = batch_of([4, 3])
    with pytest.raises(RuntimeError, match="must match the size"):
        pyg.LINKX(NODES, DIM, WIDTH, CLASSES, 2)(batch.x, batch.edge_index)
