"""A NeighborLoader over a store with types: every value of a batch is the store's."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import get_input_nodes
from torch_geometric.nn import HeteroConv, SAGEConv, to_hetero
from torch_geometric.utils import trim_to_layer

import lsm
from lsm.cache.set_shares import set_shares
from lsm.graph.types import TypedMap
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.typed_neighbor import TypedTopology

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
WRITTEN = ("paper", "written_by", "author")
ABOUT = ("topic", "of", "paper")
HAS = ("paper", "has", "topic")
COUNTS = {"paper": 400, "author": 300, "topic": 12}


@pytest.fixture(scope="module")
def graph():
    """Types with rows of two sizes, and one without features."""
    torch.manual_seed(0)
    data = HeteroData()
    data["paper"].x = torch.randn(COUNTS["paper"], 24)
    data["paper"].y = torch.randint(5, (COUNTS["paper"],))
    data["paper"].train_mask = torch.rand(COUNTS["paper"]) < 0.5
    data["paper"].time = torch.randint(100, (COUNTS["paper"],))
    data["author"].x = torch.randint(-100, 100, (COUNTS["author"], 40), dtype=torch.int8)
    data["topic"].num_nodes = COUNTS["topic"]
    for each, num_edges in ((CITES, 3000), (WRITES, 900), (WRITTEN, 900), (ABOUT, 500), (HAS, 500)):
        ends = [torch.randint(COUNTS[name], (num_edges,)) for name in (each[0], each[2])]
        data[each].edge_index = torch.stack(ends)
    data[CITES].edge_weight = torch.rand(3000)
    data[WRITES].edge_attr = torch.randn(900, 2)
    return data


@pytest.fixture(scope="module")
def store(graph, tmp_path_factory):
    return lsm.GraphStore.from_pyg(graph, tmp_path_factory.mktemp("typed") / "store")


CACHES = {
    "none": None,
    "lookahead": {"policy": "lookahead", "bytes": "24KiB", "window": 4},
    "pool": {"policy": "lookahead", "bytes": "12KiB", "victim": {"mode": "pool", "bytes": "6KiB"}},
    "lru": {"policy": "lru", "bytes": "24KiB"},
}


@pytest.mark.parametrize("engine", ["posix", "memory"])
@pytest.mark.parametrize("cache", CACHES)
def test_batches_hold_the_values_of_the_store(graph, store, cache, engine):
    whole = store.to_pyg()  # edges in the order of the store
    loader = lsm.NeighborLoader(
        store,
        {CITES: [4, 3], WRITES: [2, 2], WRITTEN: [3, 0], ABOUT: [-1, 1], HAS: [1, 1]},
        ("paper", "train"),
        32,
        shuffle=True,
        cache=CACHES[cache],
        storage={"engine": engine},
        as_pyg=True,
    )
    seen = []
    with loader:
        for _ in range(2):
            for batch in loader:
                check_values(whole, batch)
                seeds = batch["paper"].n_id[: batch["paper"].batch_size]
                seen.append(seeds)
        stats = loader.stats()
    train = graph["paper"].train_mask.nonzero().view(-1)
    assert torch.equal(torch.cat(seen).sort().values, train.repeat(2).sort().values)
    if cache != "none":
        assert 0 < stats["cache_hits"] < stats["cache_requests"]


def check_values(whole, batch):
    assert isinstance(batch, HeteroData)
    for name in COUNTS:
        nodes = batch[name]
        assert nodes.num_nodes == len(nodes.n_id) == sum(nodes.num_sampled_nodes)
        assert len(nodes.n_id.unique()) == len(nodes.n_id)
        for key in set(whole[name].keys()) & {"x", "y", "time"}:
            assert torch.equal(nodes[key], whole[name][key][nodes.n_id]), (name, key)
        assert ("x" in nodes) == ("x" in whole[name])
    for each in (CITES, WRITES, WRITTEN, ABOUT, HAS):
        edges = batch[each]
        source, _, destination = each
        ends = torch.stack(
            [
                batch[source].n_id[edges.edge_index[0]],
                batch[destination].n_id[edges.edge_index[1]],
            ]
        )
        assert torch.equal(ends, whole[each].edge_index[:, edges.e_id])
        assert edges.edge_index.size(1) == sum(edges.num_sampled_edges)
        for key in set(whole[each].keys()) & {"edge_weight", "edge_attr"}:
            assert torch.equal(edges[key], whole[each][key][edges.e_id]), (each, key)


def test_batches_are_those_of_any_cache(store):
    def epoch(cache, engine):
        options = {"cache": CACHES[cache], "storage": {"engine": engine}}
        with lsm.NeighborLoader(store, [3, 2], "author", 50, shuffle=True, **options) as loader:
            return list(loader)

    expected = epoch("none", "memory")
    for cache in ("lookahead", "pool"):
        for batch, other in zip(expected, epoch(cache, "posix"), strict=True):
            assert torch.equal(batch.n_id, other.n_id)
            assert torch.equal(batch.edge_index, other.edge_index)
            for name, rows in batch.x_dict.items():
                assert torch.equal(rows, other.x_dict[name])


def test_subgraphs_have_no_later_neighbour(graph, store):
    papers = torch.arange(0, 400, 3)
    for strategy in ("uniform", "last"):
        loader = lsm.NeighborLoader(
            store,
            {CITES: [3, 3], WRITES: [0, 0], WRITTEN: [2, 2], ABOUT: [2, 2], HAS: [0, 0]},
            ("paper", papers),
            20,
            time_attr="time",
            temporal_strategy=strategy,
            as_pyg=True,
        )
        with loader:
            for batch in loader:
                nodes = batch["paper"]
                assert torch.equal(
                    nodes.seed_time, graph["paper"].time[nodes.n_id[:20]][: len(nodes.seed_time)]
                )
                # Neighbours are cited papers; a seed that no edge reaches is older or not.
                sources = batch[CITES].edge_index[0]
                times = nodes.time[sources]
                assert (times <= nodes.seed_time[nodes.batch[sources]]).all()
                assert len(batch[CITES].edge_index[0]) > 0
                check = nodes.batch[batch[CITES].edge_index]
                assert torch.equal(check[0], check[1])


def test_a_given_time_cuts_at_it(store):
    options = {"time_attr": "time", "input_time": torch.full((400,), -1)}
    with lsm.NeighborLoader(store, [5], "paper", 400, as_pyg=True, **options) as loader:
        (batch,) = loader
    assert batch[CITES].num_sampled_edges == [0]
    assert batch[ABOUT].num_sampled_edges[0] > 0  # topics have no times


def test_a_model_of_pyg_learns_on_batches(store, graph):
    torch.manual_seed(1)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 5)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    model = to_hetero(Net(), graph.metadata())
    loader = lsm.NeighborLoader(store, [5, 5], ("paper", "train"), 64, shuffle=True, as_pyg=True)
    topics = torch.nn.Embedding(COUNTS["topic"], 8)
    losses = []
    with loader:
        for epoch in range(6):
            for batch in loader:
                x = {"paper": batch["paper"].x, "author": batch["author"].x.float() / 100}
                x["topic"] = topics(batch["topic"].n_id)
                edges = {each: batch[each].edge_index for each in batch.edge_types}
                out = model(x, edges)["paper"][: batch["paper"].batch_size]
                loss = torch.nn.functional.cross_entropy(out, batch["paper"].y[: len(out)])
                if epoch == 0 and not losses:
                    optimizer = torch.optim.Adam([*model.parameters(), *topics.parameters()], 0.01)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:4])  # it fits random labels


def test_a_graph_without_types_has_subgraphs_times_and_weights(tmp_path):
    torch.manual_seed(0)
    ends = torch.randint(200, (2, 3000))
    data = Data(torch.randn(200, 8), ends, edge_weight=torch.rand(3000), time=torch.arange(200))
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    whole = store.to_pyg()
    with lsm.NeighborLoader(
        store, [4, 3], torch.tensor([5, 5, 190]), 3, disjoint=True, as_pyg=True
    ) as loader:
        (batch,) = loader
    assert isinstance(batch, Data)
    assert torch.equal(batch.x, whole.x[batch.n_id])
    assert torch.equal(batch.n_id[batch.edge_index], whole.edge_index[:, batch.e_id])
    assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
    assert batch.batch[:3].tolist() == [0, 1, 2]
    assert torch.equal(batch.edge_weight, whole.edge_weight[batch.e_id])
    with lsm.NeighborLoader(store, [4, 3], None, 50, time_attr="time", as_pyg=True) as loader:
        for batch in loader:
            times = batch.time[batch.edge_index[0]]
            assert (times <= batch.seed_time[batch.batch[batch.edge_index[0]]]).all()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A graph without types whose edges have times and weights."""
    torch.manual_seed(0)
    data = Data(torch.randn(200, 8), torch.randint(200, (2, 3000)), edge_weight=torch.rand(3000))
    data.edge_time = torch.randint(100, (3000,))
    return lsm.GraphStore.from_pyg(data, tmp_path_factory.mktemp("plain") / "store")


def test_weights_of_ladies_are_multiplied_by_those_of_the_store(plain):
    with lsm.NeighborLoader(plain, [50, 50], None, 20, sampling="ladies") as loader:
        batch = next(iter(loader))
    stored = plain.to_pyg().edge_weight[batch.e_id]
    assert not torch.equal(batch.edge_weight, torch.ones(batch.num_edges))
    assert torch.equal(batch.to_pyg().edge_weight, batch.edge_weight * stored)


def test_times_of_edges_have_one_name_and_pyg_its_own(plain):
    with lsm.NeighborLoader(plain, [5], None, 20) as loader:
        batch = next(iter(loader))
    times = plain.to_pyg().edge_time[batch.e_id]
    assert torch.equal(batch.edge_values("time")["node", "to", "node"], times)
    assert torch.equal(batch.to_pyg().edge_time, times)
    assert "time" not in batch.to_pyg()


def test_input_id_is_that_of_pyg(graph, store, plain):
    draw = torch.Generator().manual_seed(2)
    mask, times = torch.rand(400, generator=draw) < 0.3, torch.randint(100, (400,), generator=draw)
    for given in (("paper", mask), ("paper", mask.nonzero().view(-1))):
        _, nodes, input_id = get_input_nodes(graph, given)
        with lsm.NeighborLoader(
            *(store, [2], given, 32), time_attr="time", input_time=times[nodes], shuffle=True
        ) as loader:
            for batch in loader:
                own = batch.n_id_dict["paper"][: batch.batch_size]
                expected = batch.input_id if input_id is not None else nodes[batch.input_id]
                assert torch.equal(own, expected)
                assert torch.equal(batch.seed_time, times[own])
                assert torch.equal(batch.y, graph["paper"].y[own])
    with lsm.NeighborLoader(plain, [2], mask[:200], 32) as loader:
        expected = get_input_nodes(plain.to_pyg(), mask[:200])[2]
        assert torch.equal(torch.cat([batch.input_id for batch in loader]), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"weight_attr": "edge_weight"},
        {"disjoint": True},
        {"time_attr": "time", "input_time": torch.full((200,), 60)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_plain_topology_is_drawn_from_as_the_options_say(plain, options):
    found = []
    for topology in (None, plain.topology()):
        with lsm.NeighborLoader(plain, [4, 3], topology=topology, **options) as loader:
            found.append(next(iter(loader)))
    assert torch.equal(found[0].n_id, found[1].n_id)
    assert torch.equal(found[0].e_id, found[1].e_id)
    sampler = NeighborSampler(plain.topology(), [4, 3])
    with pytest.raises(ValueError, match=r"sampler: expected one by type .* which ignores them"):
        lsm.NeighborLoader(plain, [4, 3], sampler=sampler, **options)


def test_a_plain_topology_is_none_of_types(store, plain):
    with pytest.raises(ValueError, match="topology: expected a TypedTopology"):
        lsm.NeighborLoader(store, [4], "paper", topology=plain.topology())


@pytest.mark.parametrize(
    ("drawn_by", "message"),
    [
        ({"weight_attr": "edge_weight"}, "weight_attr: the topology has no weights of edges"),
        (
            {"time_attr": "time", "input_time": torch.full((200,), 60)},
            "time_attr: the topology has no times of nodes or edges",
        ),
    ],
    ids=["weights", "times"],
)
def test_a_topology_lacks_no_values_that_are_asked_for(plain, drawn_by, message):
    edges = TypedMap({each: plain.edges(each).topology() for each in plain.edge_types})
    bare = TypedTopology(plain.node_space, edges)
    with pytest.raises(ValueError, match=message):
        lsm.NeighborLoader(plain, [4], topology=bare, **drawn_by)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_nodes": None}, "input_nodes: expected a node type of paper, author, topic"),
        ({"input_nodes": "train"}, "input_nodes: expected a node type"),
        ({"input_nodes": CITES}, "input_nodes: expected a node type"),
        ({"input_nodes": ("author", "train")}, "no split"),
        ({"num_neighbors": {CITES: [2]}}, "is missing"),
        ({"time_attr": "year"}, "time_attr: expected 'time'"),
        ({"input_time": torch.zeros(400, dtype=torch.long)}, "expected time_attr='time' with it"),
        ({"time_attr": "time", "input_nodes": "author"}, "nodes of type author have no times"),
        ({"time_attr": "time", "input_time": torch.zeros(3)}, "input_time: expected int64"),
        ({"time_attr": "time", "input_nodes": ("paper", [-1])}, "expected ids in .* got -1"),
        ({"weight_attr": "edge_weight", "sampling": "labor"}, "sampling=neighbor with it"),
        (
            {"weight_attr": "edge_weight", "time_attr": "time", "temporal_strategy": "last"},
            "temporal_strategy: last takes the latest",
        ),
        ({"weight_attr": "w"}, "weight_attr: expected 'edge_weight'"),
        ({"sampling": "ladies"}, "ladies"),
    ],
)
def test_arguments_that_do_not_fit_are_named(store, arguments, message):
    given = {"num_neighbors": [2], "input_nodes": "paper"} | arguments
    with pytest.raises(ValueError, match=message):
        lsm.NeighborLoader(store, **given)


def test_a_cache_is_divided_as_no_better_division_would_be():
    """Against all divisions of a small cache among two sets of rows."""
    generator = np.random.default_rng(0)
    row_bytes = {"a": 64, "b": 192}
    for _ in range(20):
        requests = {
            name: torch.from_numpy(generator.integers(0, 9, generator.integers(5, 40)))
            for name in row_bytes
        }
        total = int(generator.integers(640, 4000))
        shares = set_shares(total, row_bytes, requests)
        assert sum(shares.values()) <= total

        def saved(share, name, requests=requests):
            best = requests[name].sort(descending=True).values
            return int(best[: share // row_bytes[name]].sum()) * row_bytes[name]

        best = max(saved(part, "a") + saved(total - part, "b") for part in range(0, total + 1, 64))
        own = sum(saved(share, name) for name, share in shares.items())
        assert own >= best - 2 * 8 * 192  # whole rows at the border


def test_layers_of_pyg_can_be_trimmed(store):
    """The seeds' rows are those of untrimmed layers, from fewer nodes and edges."""
    torch.manual_seed(0)
    inputs = {"paper": torch.nn.Linear(24, 8), "author": torch.nn.Linear(40, 8)}
    topics = torch.nn.Embedding(COUNTS["topic"], 8)
    layers = [
        HeteroConv({each: SAGEConv((8, 8), 8) for each in store.edge_types}) for _ in range(2)
    ]
    loader = lsm.NeighborLoader(store, [4, 3], ("paper", "train"), 32, as_pyg=True)
    with loader:
        batch = next(iter(loader))
    first = {name: of_type(batch[name].x.float()) for name, of_type in inputs.items()}
    first["topic"] = topics(batch["topic"].n_id)
    whole = trimmed = first
    edges = batch.edge_index_dict
    for number, layer in enumerate(layers):
        whole = layer(whole, batch.edge_index_dict)
        trimmed, edges, _ = trim_to_layer(
            number,
            batch.num_sampled_nodes_dict,
            batch.num_sampled_edges_dict,
            trimmed,
            edges,
        )
        trimmed = layer(trimmed, edges)
    assert len(trimmed["author"]) < len(whole["author"])
    seeds = slice(batch["paper"].batch_size)
    # Sums of some ten float32 numbers in another order.
    torch.testing.assert_close(trimmed["paper"][seeds], whole["paper"][seeds], rtol=1e-5, atol=1e-6)


def test_one_type_of_nodes_may_have_a_name(tmp_path):
    data = HeteroData()
    data["item"].x, data["item"].y = torch.randn(30, 4), torch.arange(30) % 3
    for relation in ("likes", "knows"):
        data["item", relation, "item"].edge_index = torch.randint(30, (2, 80))
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    with lsm.NeighborLoader(store, [3, 2], "item", 10, as_pyg=True) as loader:
        for batch in loader:
            assert torch.equal(batch["item"].x, data["item"].x[batch["item"].n_id])


@pytest.mark.parametrize("first", ["node", "other"])
def test_a_type_that_is_named_as_that_of_graphs_without_types_stays_a_type(first, tmp_path):
    data, edge_type = HeteroData(), ("node", "to", "node")
    for name in sorted(("node", "other"), key=lambda name: name != first):
        data[name].num_nodes = 30 if name == "node" else 7
    data["node"].x = torch.arange(30.0)[:, None]
    data["node"].y = torch.arange(30)
    data[edge_type].edge_index = torch.stack([torch.arange(10), torch.arange(1, 11)])
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    seeds = ("node", torch.tensor([5, 6]))
    batch = next(iter(lsm.NeighborLoader(store, [1], seeds, as_pyg=True)))
    assert isinstance(batch, HeteroData)
    assert batch["node"].n_id.tolist() == [5, 6, 4]
    assert batch["node"].x.view(-1).tolist() == [5, 6, 4]
    assert batch["node"].y.tolist() == [5, 6, 4]
    links = next(iter(lsm.LinkNeighborLoader(store, [1], edge_type, as_pyg=True)))
    assert isinstance(links, HeteroData)
    assert torch.equal(links["node"].x.view(-1).long(), links["node"].n_id)


def test_a_store_that_has_given_a_loader_goes_to_other_processes(graph, tmp_path):
    plain = Data(x=torch.ones(3, 1), edge_index=torch.ones(2, 4, dtype=torch.long))
    for number, data in enumerate((graph, plain)):
        store = lsm.GraphStore.from_pyg(data, tmp_path / str(number))
        seeds = "paper" if store.is_typed else None
        with lsm.NeighborLoader(store, [2], seeds) as loader:
            expected = next(iter(loader)).n_id
        again = pickle.loads(pickle.dumps(store))
        assert copy.deepcopy(store).edge_types == again.edge_types == store.edge_types
        with lsm.NeighborLoader(again, [2], seeds) as loader:
            assert torch.equal(next(iter(loader)).n_id, expected)


@pytest.mark.parametrize("form", [torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.int])
def test_times_of_seeds_are_of_any_form(store, form):
    seeds, times = ("paper", torch.arange(20)), torch.arange(20) * 5
    found = [
        next(iter(lsm.NeighborLoader(store, [3], seeds, time_attr="time", input_time=each)))
        for each in (times, form(times))
    ]
    assert torch.equal(found[0].n_id, found[1].n_id)
    assert torch.equal(found[0].seed_time, found[1].seed_time)


def test_a_cache_without_room_for_a_row_of_each_type_names_the_type(store):
    message = r"cache\.bytes: .* has rows of \d+ bytes, and its share of 100 bytes is \d+"
    with pytest.raises(ValueError, match=message):
        lsm.NeighborLoader(store, [3, 2], "paper", cache={"policy": "lru", "bytes": 100})
