"""A job's samplers of a GPU, which draw the batches of the host. Here its twin stands for the
GPU."""

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import lsm
from lsm import native
from lsm.core.memory import Shape
from lsm.loader.inputs import find_seed_times, open_sampler, open_topology
from lsm.sampler import memory as sampler_memory
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, place_topology
from lsm.train import loaders
from lsm.train.sampling import drawing_of
from lsm.train.tasks.node_prediction import NodePrediction
from support.graphs import assert_same
from support.training import config

NUM_NODES = 200
WAYS = {
    "plain": (),
    "disjoint": ("sampler.disjoint=true",),
    "uniform": ("sampler.time_attr=time",),
    "weighted": ("sampler.weight_attr=edge_weight",),
    "last": ("sampler.time_attr=time", "sampler.temporal_strategy=last"),
}


def fill(nodes, edges, generator):
    nodes.x = torch.zeros(NUM_NODES, 4)
    nodes.y = torch.arange(NUM_NODES) % 3
    nodes.train_mask = torch.ones(NUM_NODES, dtype=torch.bool)
    nodes.time = torch.randint(20, (NUM_NODES,), generator=generator)
    edges.edge_index = torch.randint(NUM_NODES, (2, 2000), generator=generator)
    edges.edge_weight = torch.rand(2000, generator=generator)


@pytest.fixture(scope="module", params=["typed", "of one type"])
def store(request, tmp_path_factory):
    generator = torch.Generator().manual_seed(0)
    if request.param == "typed":
        graph = HeteroData()
        fill(graph["paper"], graph["paper", "cites", "paper"], generator)
        graph["author"].num_nodes = 50
        ends = [torch.randint(n, (700,), generator=generator) for n in (50, NUM_NODES)]
        graph["author", "writes", "paper"].edge_index = torch.stack(ends)
    else:
        graph = Data()
        fill(graph, graph, generator)
    return lsm.GraphStore.from_pyg(graph, tmp_path_factory.mktemp("sampled") / "store")


@pytest.fixture
def setup(store, tmp_path, monkeypatch):
    """A function that makes the setup of a job on a GPU, which has these bytes free."""

    def make(*settings, free=1 << 40):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (free, free))
        monkeypatch.setattr(loaders, "place_topology", lambda graph, *_place: graph)
        names = ("sampler.num_neighbors=[4, 3]", "data.input_type=paper")[: 1 + store.is_typed]
        return SimpleNamespace(
            config=config(store.path, tmp_path, *names, *settings),
            store=store,
            device=SimpleNamespace(type="cuda", index=native.TWIN),
            task=NodePrediction("paper" if store.is_typed else None),
        )

    return make


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("placement", ["auto", "uva", "device"])
def test_the_batches_of_the_host(store, setup, placement, way):
    job = setup(f"topology.placement={placement}", *WAYS[way])
    drawing, input_type = drawing_of(job.config, store, "train"), job.task.input_type(store)
    topology = open_topology(store, drawing)
    sampler = loaders._gpu_samplers(job, topology)(drawing)
    assert isinstance(sampler, DeviceNeighborSampler)
    seeds = torch.tensor([5, 3, 8])
    times = find_seed_times(store, input_type, seeds, drawing, None)
    arguments = (seeds, BatchName(seed=1), *(() if times is None else (times,)))
    host = open_sampler(topology, input_type, drawing)
    assert_same(sampler.sample(*arguments), host.sample(*arguments))


@pytest.mark.parametrize("way", ["plain", "uniform", "weighted"])
def test_the_memory_of_values_is_counted(store, setup, way):
    """Where the topology goes to the GPU, by what it takes there."""
    job = setup(*WAYS[way])
    drawing = drawing_of(job.config, store, "train")
    topology = open_topology(store, drawing)
    indptr = 8 * (NUM_NODES + 1)
    expected = indptr + 4 * 2000
    if store.is_typed:
        expected += indptr + 4 * 700
    expected += {"plain": 0, "uniform": 8 * NUM_NODES, "weighted": 4 * 2000}[way]
    if way != "plain":
        placed = place_topology(topology, "device", torch.device("cpu"))
        assert sum(each.nbytes for each in placed.arrays) == expected
    assert topology.num_bytes == expected
    shape = Shape(NUM_NODES, 16, topology_bytes=topology.num_bytes)
    options = job.config.topology
    assert sampler_memory.gpu_bytes(options, shape, 2 * expected) == expected
    assert sampler_memory.gpu_bytes(options, shape, 2 * expected - 1) == 0
