"""PyG's NodeLoader and LinkLoader with lsm.pyg.Sampler give batches of the stored graph."""

import pickle

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, LinkNeighborLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import NegativeSampling

import lsm
import lsm.pyg
from support.pyg_links import Replayed, assert_same_data, assert_same_links, pyg_batch
from support.typed_graphs import ABOUT, CITES, WRITES, typed_graph

REV_WRITES = ("paper", "rev_writes", "author")
TAGS = ("topic", "tags", "paper")
HOPS = 3


def plain_graph():
    draw = torch.Generator().manual_seed(4)
    data = Data(x=torch.randn(80, 6, generator=draw), y=torch.arange(80) % 4)
    data.edge_index = torch.randint(80, (2, 160), generator=draw)
    data.edge_attr = torch.randn(160, 2, generator=draw)
    data.train_mask = torch.arange(80) % 3 == 0
    return data


def four_types():
    """Authors, papers, topics, and venues that nothing reaches."""
    data = typed_graph()
    del data["author"].names  # which PyG's loaders do not take
    data["venue"].x = torch.randn(4, 3)
    data[REV_WRITES].edge_index = data[WRITES].edge_index.flip(0)
    data[TAGS].edge_index = data[ABOUT].edge_index.flip(0)
    data["paper", "at", "venue"].edge_index = torch.tensor([[0, 7], [1, 3]])
    return data


@pytest.fixture(scope="module")
def graphs():
    return {"plain": plain_graph(), "typed": four_types()}


@pytest.fixture(scope="module")
def stores(graphs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pyg")
    return {kind: lsm.GraphStore.from_pyg(each, folder / kind) for kind, each in graphs.items()}


def data_of(store):
    return lsm.pyg.FeatureStore(store), lsm.pyg.GraphStore(store)


def reached(graph, seeds, hops):
    """By type: the nodes within ``hops`` of the seeds, and the edges into all but the last."""
    nodes = {name: set() for name in graph.node_types}
    nodes |= {name: set(ids) for name, ids in seeds.items()}
    edges = {}
    expanded = {name: set() for name in graph.node_types}
    for _ in range(hops):
        frontier = {name: nodes[name] - expanded[name] for name in nodes}
        for name in nodes:
            expanded[name] |= frontier[name]
        for each in graph.edge_types:
            pairs = graph[each].edge_index.t().tolist()
            found = [(u, v) for u, v in pairs if v in frontier[each[2]]]
            edges[each] = edges.get(each, []) + found
            nodes[each[0]] = nodes[each[0]] | {u for u, _ in found}
    return nodes, edges


def as_typed(graph):
    """A graph without types, as one of a type."""
    data = HeteroData()
    data["node"].num_nodes = graph.num_nodes
    data["node", "to", "node"].edge_index = graph.edge_index
    return data


@pytest.mark.parametrize("loader_class", [NodeLoader, NeighborLoader])
@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_all_neighbours_of_a_graph_without_types(graphs, stores, loader_class, num_workers):
    graph, store = graphs["plain"], stores["plain"]
    seeds = store.split("train")
    sampler = lsm.pyg.Sampler(store, [-1] * HOPS)
    given = {"node_sampler": sampler}
    if loader_class is NeighborLoader:
        given = {"neighbor_sampler": sampler, "num_neighbors": [-1] * HOPS}
    loader = loader_class(
        data_of(store), input_nodes=seeds, batch_size=10, num_workers=num_workers, **given
    )
    seen = []
    for batch in loader:
        own = batch.n_id[: batch.batch_size]
        seen.append(own)
        assert torch.equal(own, seeds[batch.input_id])
        nodes, edges = reached(as_typed(graph), {"node": own.tolist()}, HOPS)
        assert sorted(batch.n_id.tolist()) == sorted(nodes["node"])
        pairs = batch.n_id[batch.edge_index].t().tolist()
        assert sorted(map(tuple, pairs)) == sorted(edges["node", "to", "node"])
        for name in ("x", "y", "train_mask"):
            assert batch[name].dtype == graph[name].dtype
            assert torch.equal(batch[name], graph[name][batch.n_id]), name
        assert torch.equal(store.to_pyg().edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
        assert sum(batch.num_sampled_edges) == batch.num_edges
        assert len(batch.num_sampled_nodes) == HOPS + 1
    assert torch.equal(torch.cat(seen), seeds)


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("input_type", ["paper", "author", "venue"])
def test_all_neighbours_of_several_types(graphs, stores, input_type, num_workers):
    graph, store = graphs["typed"], stores["typed"]
    loader = NodeLoader(
        data_of(store),
        node_sampler=lsm.pyg.Sampler(store, [-1] * 2),
        input_nodes=input_type,
        batch_size=8,
        num_workers=num_workers,
    )
    whole = store.to_pyg()
    for batch in loader:
        own = batch[input_type].n_id[: batch[input_type].batch_size]
        nodes, edges = reached(graph, {input_type: own.tolist()}, 2)
        assert set(batch.node_types) == set(graph.node_types)
        for name in graph.node_types:
            n_id = batch[name].n_id
            assert sorted(n_id.tolist()) == sorted(nodes[name])
            assert batch[name].num_nodes == len(n_id) == sum(batch[name].num_sampled_nodes)
            for each in set(graph[name].keys()) & {"x", "y", "time", "train_mask", "val_mask"}:
                assert batch[name][each].dtype == graph[name][each].dtype
                assert torch.equal(batch[name][each], graph[name][each][n_id]), (name, each)
        for each in graph.edge_types:
            source, _, destination = each
            local = batch[each].edge_index
            ends = torch.stack((batch[source].n_id[local[0]], batch[destination].n_id[local[1]]))
            assert sorted(map(tuple, ends.t().tolist())) == sorted(edges[each])
            assert torch.equal(whole[each].edge_index[:, batch[each].e_id], ends)


def test_one_sampler_serves_seeds_of_all_types(stores):
    store = stores["typed"]
    sampler, data = lsm.pyg.Sampler(store, [2, 2]), data_of(store)
    for name in store.node_types:
        for batch in NodeLoader(data, sampler, name, batch_size=7):
            assert batch[name].batch_size == len(batch[name].input_id)
            assert torch.equal(batch[name].n_id[: batch[name].batch_size], batch[name].input_id)


@pytest.mark.parametrize("sampling", ["neighbor", "labor"])
def test_draws_follow_the_generator_of_torch(stores, sampling):
    store = stores["plain"]
    sampler = lsm.pyg.Sampler(store, [1, 1], sampling=sampling)

    def epoch(seed):
        torch.manual_seed(seed)
        loader = NodeLoader(data_of(store), sampler, torch.arange(80), batch_size=40)
        return [batch.e_id.tolist() for batch in loader]

    assert epoch(1) == epoch(1)
    assert epoch(1) != epoch(2)
    one, other = (
        NodeLoader(data_of(store), sampler, torch.arange(80), batch_size=80)([*range(80)])
        for _ in range(2)
    )
    assert one.e_id.tolist() != other.e_id.tolist()
    degrees = torch.bincount(one.edge_index[1], minlength=one.num_nodes)
    assert degrees.max() == 1


def test_values_of_edges_by_a_transform(graphs, stores):
    for kind in ("plain", "typed"):
        store, whole = stores[kind], stores[kind].to_pyg()
        counted = []
        transform = lsm.pyg.EdgeValues(store, lambda data, told=counted: told.append(1) or data)
        loader = NodeLoader(
            data_of(store),
            lsm.pyg.Sampler(store, [3, 3]),
            torch.arange(30) if kind == "plain" else ("paper", torch.arange(30)),
            batch_size=10,
            transform=transform,
        )
        for batch in loader:
            if kind == "plain":
                assert torch.equal(batch.edge_attr, whole.edge_attr[batch.e_id])
                continue
            for each, name in ((WRITES, "edge_weight"), (CITES, "edge_attr"), (ABOUT, "time")):
                assert torch.equal(batch[each][name], whole[each][name][batch[each].e_id])
        assert len(counted) == 3
        without = NodeLoader(
            data_of(store),
            lsm.pyg.Sampler(store, [3, 3], edge_ids=False),
            loader.input_nodes,
            batch_size=10,
            transform=pickle.loads(pickle.dumps(lsm.pyg.EdgeValues(store))),
        )
        with pytest.raises(ValueError, match="the batch has no e_id; sample with edge_ids=True"):
            next(iter(without))


def test_subgraphs_of_seeds_and_times(stores):
    store = stores["typed"]
    sampler = lsm.pyg.Sampler(store, [-1, -1], time_attr="time")
    times = stores["typed"].to_pyg()["paper"].time
    loader = NodeLoader(data_of(store), sampler, "paper", batch_size=16)
    earlier = 0
    for batch in loader:
        papers = batch["paper"]
        assert torch.equal(papers.seed_time, times[papers.input_id])
        assert torch.equal(papers.batch[: papers.batch_size], torch.arange(papers.batch_size))
        cited, citing = batch[CITES].edge_index
        assert torch.equal(papers.batch[cited], papers.batch[citing])
        latest = papers.seed_time[papers.batch[citing]]
        assert (papers.time[cited] <= latest).all()  # edges without times have those of sources
        earlier += int((papers.time[cited] < latest).sum())
    assert earlier
    given = NodeLoader(
        data_of(store),
        sampler,
        ("paper", torch.arange(5)),
        input_time=torch.full((5,), 3),
        batch_size=5,
    )
    batch = next(iter(given))
    assert batch["paper"].seed_time.tolist() == [3] * 5
    assert (batch["paper"].time[batch[CITES].edge_index[0]] <= 3).all()


SAMPLING = [None, ("binary", 1), ("binary", 0.3), ("binary", 2.5), ("triplet", 1), ("triplet", 4)]


def replayed(data, links, edge_type, sampling):
    """The negatives of our batch, for PyG's sampler."""
    mode, amount = sampling
    if edge_type is None:
        source = destination = data.n_id
        told, ends = data, data
        disjoint = "batch" in data
    else:
        source, destination = data[edge_type[0]].n_id, data[edge_type[2]].n_id
        told, ends = data[edge_type], data[edge_type[2]]
        disjoint = "batch" in ends
    if mode == "binary":
        rows = told.edge_label_index[:, links:]
        return Replayed(mode, amount, [source[rows[0]]], [destination[rows[1]]])
    negative = ends.dst_neg_index.view(links, -1)
    flat = negative.t() if disjoint else negative
    return Replayed(mode, amount, dst=[destination[flat.reshape(-1)]])


@pytest.mark.parametrize("sampling", SAMPLING, ids=str)
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize(
    ("kind", "edge_type"), [("plain", None), ("typed", CITES), ("typed", WRITES)]
)
def test_links_have_the_fields_of_pyg(stores, kind, edge_type, disjoint, sampling):
    """PyG's own sampler of links, over our draws of neighbours, gets the negatives that we drew."""
    store = stores[kind]
    pairs = torch.stack((torch.arange(20) % 25, torch.arange(20).flip(0) % 11))
    links = (edge_type, pairs)
    sampler = lsm.pyg.Sampler(store, [-1, -1], disjoint=disjoint, exclude_seed_edges=False)
    negatives = None if sampling is None else NegativeSampling(*sampling)
    loader = LinkLoader(
        data_of(store), sampler, links, neg_sampling=negatives, transform=lsm.pyg.EdgeValues(store)
    )
    index = torch.tensor([3, 19, 0, 7])
    ours = loader(index)
    theirs = pyg_batch(
        store,
        [-1, -1],
        pairs if edge_type is None else links,
        None if sampling is None else replayed(ours, 4, edge_type, sampling),
        index,
        disjoint=disjoint,
    )
    assert_same_links(ours, theirs, 1 if sampling is None else sampling[1])


def test_negatives_are_drawn_by_weights(stores):
    """The draws are kept for an object of negatives, and not for another."""
    store = stores["plain"]
    sampler, pairs = lsm.pyg.Sampler(store, [1]), torch.arange(40).view(2, 20)
    for node in (5, 9):
        weight = torch.zeros(80)
        weight[node] = weight[node + 1] = 1
        loader = LinkNeighborLoader(
            data_of(store),
            num_neighbors=[1],
            neighbor_sampler=sampler,
            edge_label_index=(None, pairs),
            neg_sampling=NegativeSampling("binary", 2, src_weight=weight, dst_weight=weight),
            batch_size=10,
        )
        for batch in loader:
            drawn = batch.n_id[batch.edge_label_index[:, 10:]]
            assert set(drawn.unique().tolist()) == {node, node + 1}
            assert batch.edge_label.tolist() == [1.0] * 10 + [0.0] * 20


@pytest.mark.parametrize("edge_type", [CITES, WRITES])
def test_links_do_not_see_themselves(stores, edge_type):
    store = stores["typed"]
    pairs = store.edges(edge_type).ends()[:, :40]
    reverse = {WRITES: REV_WRITES}.get(edge_type, edge_type)
    for excludes in (True, False):
        sampler = lsm.pyg.Sampler(store, [-1, -1], exclude_seed_edges=excludes)
        seen = 0
        for batch in LinkLoader(data_of(store), sampler, (edge_type, pairs), batch_size=8):
            own = {*map(tuple, pairs[:, batch[edge_type].input_id].t().tolist())}
            for each, turned in ((edge_type, False), (reverse, True)):
                ends = torch.stack(
                    (
                        batch[each[0]].n_id[batch[each].edge_index[0]],
                        batch[each[2]].n_id[batch[each].edge_index[1]],
                    )
                )
                found = map(tuple, (ends.flip(0) if turned else ends).t().tolist())
                seen += len(own & {*found})
        assert (seen == 0) == excludes


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_links_are_sampled_from_the_message_graph_of_their_split(stores, tmp_path, split):
    store = stores["plain"]
    options = {"valid": 0.2, "test": 0.2, "seed": 1, "message_edges": "earlier"}
    splits = lsm.LinkSplits.make(store, tmp_path / "links", **options)
    pairs = {
        name: {*map(tuple, splits.edges(name).t().tolist())} for name in ("train", "valid", "test")
    }
    known = pairs["train"] | (pairs["valid"] if split == "test" else set())
    sampler = lsm.pyg.Sampler(store, [-1, -1], links=splits, split=split, exclude_seed_edges=False)
    for given in (sampler, pickle.loads(pickle.dumps(sampler))):
        loader = LinkLoader(data_of(store), given, (None, splits.edges(split)), batch_size=16)
        sampled = set()
        for batch in loader:
            sampled |= {*map(tuple, batch.n_id[batch.edge_index].t().tolist())}
            stored = store.to_pyg().edge_index[:, batch.e_id]
            assert torch.equal(stored, batch.n_id[batch.edge_index])
        assert sampled <= known
        assert split != "test" or sampled & (pairs["valid"] - pairs["train"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"sampling": "ladies"}, "sampling: expected neighbor or labor, got ladies"),
        ({"time_attr": "when"}, "time_attr: expected 'time'"),
        ({"links": "nowhere"}, "nowhere"),
    ],
)
def test_bad_arguments_are_errors(stores, arguments, told):
    with pytest.raises((ValueError, FileNotFoundError), match=told):
        lsm.pyg.Sampler(stores["plain"], [2], **arguments)


@pytest.mark.parametrize(
    ("nodes", "told"), [([3, 3], "repeated|twice|distinct"), ([80], "80"), ([-1], "-1")]
)
def test_bad_seeds_are_errors(stores, nodes, told):
    store = stores["plain"]
    loader = NodeLoader(data_of(store), lsm.pyg.Sampler(store, [2]), torch.tensor(nodes))
    with pytest.raises(ValueError, match=told):
        loader(list(range(len(nodes))))


@pytest.mark.parametrize(
    ("kind", "given"), [("typed", torch.arange(5)), ("plain", ("paper", torch.arange(5)))]
)
def test_seeds_of_no_type_are_an_error(stores, kind, given):
    store = stores[kind]
    for options in ({}, {"disjoint": True}):
        loader = NodeLoader(data_of(store), lsm.pyg.Sampler(store, [2], **options), given)
        with pytest.raises(ValueError, match="input_nodes: expected ids of a type"):
            loader([0])


@pytest.mark.parametrize(
    ("kind", "edge_type"),
    [("typed", None), ("typed", ("paper", "is", "topic")), ("plain", CITES)],
)
def test_links_of_no_type_are_an_error(stores, kind, edge_type):
    store, pairs = stores[kind], torch.zeros(2, 4, dtype=torch.int64)
    loader = LinkLoader(data_of(store), lsm.pyg.Sampler(store, [2]), (edge_type, pairs))
    with pytest.raises(ValueError, match="edge_label_index: expected links of a type"):
        loader([0])


def test_times_of_links_come_with_time_attr(stores):
    store = stores["plain"]
    loader = LinkLoader(
        data_of(store),
        lsm.pyg.Sampler(store, [2]),
        (None, torch.zeros(2, 4, dtype=torch.int64)),
        edge_label_time=torch.arange(4),
    )
    with pytest.raises(ValueError, match="edge_label_time: expected a time for each link with"):
        loader([0])


def test_seeds_of_32_bits_are_ids(stores):
    store = stores["plain"]
    sampler, nodes = lsm.pyg.Sampler(store, [-1]), torch.arange(9)
    batches = [
        NodeLoader(data_of(store), sampler, each)([*range(9)]) for each in (nodes, nodes.int())
    ]
    assert_same_data(*batches)
    pairs = torch.arange(8).view(2, 4)
    links = [
        LinkLoader(data_of(store), sampler, (None, each), neg_sampling=None)([*range(4)])
        for each in (pairs, pairs.int())
    ]
    assert_same_data(*links)


def test_a_pickle_samples_alike(stores):
    store = stores["typed"]
    sampler = lsm.pyg.Sampler(store, {each: [2] for each in store.edge_types}, sampling="labor")
    other = pickle.loads(pickle.dumps(sampler))
    assert repr(other) == repr(sampler)
    found = []
    for each in (sampler, other):
        torch.manual_seed(0)
        found.append(NodeLoader(data_of(store), each, "author", batch_size=25)([*range(25)]))
    assert_same_data(*found)
