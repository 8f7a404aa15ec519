"""Embeddings of nodes without features learn over ranks as in one process."""

import pytest
import torch

import lsm
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.nn.models import loss_sum
from lsm.train.embeddings import EmbeddingOptimizer, average_sparse_gradients
from lsm.train.model import build_network
from lsm.train.setup import Setup
from lsm.train.tasks.node_prediction import NodePrediction
from support.typed_graphs import typed_graph
from support.waits import finding_waits, host_only

NUM_RANKS = 2
GLOBAL_BATCH, STEPS = 8, 3
TABLES = ["inputs.author.weight", "inputs.topic.weight"]


@pytest.fixture
def store_path(tmp_path):
    """Authors and topics have no features, and edges to papers; every edge its reverse."""
    data = typed_graph()
    data["author"].num_nodes = len(data["author"].x)
    del data["author"].x
    data["paper"].y = data["paper"].y.clamp(min=0)
    for source, relation, destination in list(data.edge_types):
        ends = data[source, relation, destination].edge_index.flip(0)
        data[destination, f"rev_{relation}", source].edge_index = ends
    lsm.GraphStore.from_pyg(data, tmp_path / "store")
    return tmp_path / "store"


def network_of(store, world, name):
    settings = (f"model.name={name}", "model.hidden_dim=8", "model.dropout=0", "train.lr=1e-6")
    config = lsm.load_config("base", [*settings, "sampler.num_neighbors=[3,3]"])
    return build_network(
        Setup(config, world, torch.device("cpu"), store, NodePrediction("paper")), None, 1
    )


def gradients_of(model):
    grads = {name: each.grad for name, each in model.named_parameters()}
    return {name: each.to_dense().clone() for name, each in grads.items() if each is not None}


def trained(store_path, world, name):
    """The gradients of each step, and the weights at the end. In the last step only one rank has
    seeds."""
    store = lsm.GraphStore.open(store_path)
    network = network_of(store, world, name)
    loader = lsm.NeighborLoader(
        store,
        [-1, -1],
        ("paper", torch.arange(GLOBAL_BATCH * (STEPS - 1) + 1)),
        GLOBAL_BATCH // world.size,
        rank=world.rank,
        world_size=world.size,
    )
    gradients = []
    with loader:
        for batch in loader:
            loss = loss_sum(network.parallel(batch), batch.y)
            network.optimizer.zero_grad()
            share = world.size / loader.global_batch_size(batch.iteration)
            (loss * share).backward()
            network.optimizer.step()
            gradients.append(gradients_of(network.model))
    return gradients, {of: value.clone() for of, value in network.model.state_dict().items()}


def train_on(context, store_path, name):
    torch.manual_seed(context.rank)  # a network's first weights do not depend on it
    return trained(store_path, World(context.rank, context.size), name)


@pytest.mark.parametrize("name", ["rsage", "rgcn", "rgat", "hgt"])
def test_ranks_train_as_one_process_does(store_path, ranks, name):
    (gradients, weights), (_, of_the_other) = ranks.check(train_on, store_path, name)
    alone, trained_alone = trained(store_path, World(), name)
    start = network_of(lsm.GraphStore.open(store_path), World(), name).model.state_dict()
    for of, value in weights.items():
        assert torch.equal(value, of_the_other[of]), of
        assert of not in TABLES or not torch.equal(value, start[of])
    assert set(weights) == set(trained_alone)
    assert len(gradients) == STEPS
    for ours, theirs in zip(gradients, alone, strict=True):
        assert {of for of in TABLES if of in theirs} == {of for of in TABLES if of in ours} != set()
        for of, value in theirs.items():
            # Sums of float32 in another order, and steps of 1e-6 in between.
            torch.testing.assert_close(ours[of], value, rtol=1e-3, atol=1e-5)


def average(context, gradients):
    """The gradients of two tables after an average of those of each rank, dense; None: none."""
    tables = [torch.nn.Parameter(torch.zeros(size, 2)) for size in (5, 4)]
    for table, own in zip(tables, gradients[context.rank], strict=True):
        if own is not None:
            rows = torch.tensor(list(own.values()), dtype=torch.float32).view(-1, 2)
            table.grad = torch.sparse_coo_tensor([list(own)], rows, table.shape)
    found = []
    with host_only(collectives, "gather_counts"), finding_waits(found):
        average_sparse_gradients(tables, World(context.rank, context.size))
    assert not found
    return [None if table.grad is None else table.grad.to_dense() for table in tables]


@pytest.mark.parametrize(
    ("gradients", "expected"),
    [
        (
            [[{4: (2, 4), 0: (6, 8)}, None], [{0: (2, 2)}, {3: (8, 6)}]],
            [{4: (1, 2), 0: (4, 5)}, {3: (4, 3)}],
        ),
        ([[None, None], [None, {1: (2, 2)}]], [None, {1: (1, 1)}]),
        ([[None, None], [None, None]], [None, None]),
    ],
    ids=["some rows in common", "a rank without", "none"],
)
def test_sparse_gradients_are_averaged(ranks, gradients, expected):
    for found in ranks.check(average, gradients):
        for own, rows, size in zip(found, expected, (5, 4), strict=True):
            if rows is None:
                assert own is None
            else:
                dense = torch.zeros(size, 2)
                for place, values in rows.items():
                    dense[place] = torch.tensor(values)
                assert torch.equal(own, dense)


def test_a_resumed_optimizer_steps_as_before():
    """Its state holds the moments of tables and of other weights."""

    def made():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(6, 3, sparse=True), torch.nn.Linear(3, 2))
        others = torch.optim.Adam(model[1].parameters(), lr=0.1)
        return model, EmbeddingOptimizer(others, [model[0].weight], 0.1, World())

    def step(model, optimizer, ids):
        optimizer.zero_grad()
        model(torch.tensor(ids)).square().sum().backward()
        optimizer.step()

    whole, optimizer = made()
    for ids in ([0, 1], [1, 2], [5, 1]):
        step(whole, optimizer, ids)
    half, optimizer = made()
    for ids in ([0, 1], [1, 2]):
        step(half, optimizer, ids)
    resumed, other = made()
    resumed.load_state_dict(half.state_dict())
    other.load_state_dict(optimizer.state_dict())
    step(resumed, other, [5, 1])
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    untouched = torch.tensor([3, 4])
    assert torch.equal(whole[0].weight[untouched], made()[0][0].weight[untouched])
