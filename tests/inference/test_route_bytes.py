"""The route of `auto`, against the bytes that runs of both routes count."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN, GraphSAGE

import lsm
from lsm.core import host_memory
from lsm.inference import gather, intervals

NODES, CLASSES = 6_000, 5


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Little memory holds them."""
    monkeypatch.setattr(gather, "BLOCK_EDGES", 256)


def graph(dim, degree):
    draw = torch.Generator().manual_seed(3)
    edges = torch.randint(NODES, (2, NODES * degree), generator=draw)
    return Data(x=torch.randn(NODES, dim, generator=draw), edge_index=edges, num_nodes=NODES)


def run(model, store, out, route, num_bytes, **options):
    memory = host_memory.resident_bytes()["anonymous"] + num_bytes
    return lsm.predict(
        model,
        store,
        out,
        route=route,
        memory_bytes=memory,
        progress=False,
        num_threads=1,
        **options,
    )


CASES = {
    "all": (256, 10, lambda dim: GraphSAGE(dim, 64, 2, CLASSES), None, "intervals"),
    "few": (256, 10, lambda dim: GraphSAGE(dim, 64, 2, CLASSES), [5, 77, 4000], "gather"),
    "some": (256, 2, lambda dim: GCN(dim, 64, 2, CLASSES), 200, "gather"),
    "many": (256, 10, lambda dim: GCN(dim, 64, 2, CLASSES), 1200, "intervals"),
    "wider": (32, 1, lambda dim: GraphSAGE(dim, 512, 2, CLASSES, aggr="max"), 2000, "gather"),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("many", "all") else name
        for name in CASES
    ],
)
def test_auto_takes_gather_where_it_moves_less_at_every_memory(case, tmp_path, monkeypatch):
    dim, degree, make, nodes, expected = CASES[case]
    monkeypatch.setattr(intervals, "CHUNK_ROWS", 64)
    torch.manual_seed(0)
    store, model = lsm.GraphStore.from_pyg(graph(dim, degree), tmp_path / "store"), make(dim)
    wanted = {}
    if nodes is not None:
        wanted["nodes"] = torch.tensor(nodes) if isinstance(nodes, list) else torch.arange(nodes)
    for size in (4, 64):
        moved = {}
        for route in ("auto", "intervals", "gather"):
            made = run(model, store, tmp_path / f"{route}-{size}", route, size << 20, **wanted)
            moved[route] = made["bytes_read"] + made["bytes_written"]
            if route == "auto":
                assert made["route"] == expected
        assert moved[expected] < min(moved["intervals"], moved["gather"]) * 1.01
