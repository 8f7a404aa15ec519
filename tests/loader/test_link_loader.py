"""A LinkNeighborLoader's batches are those of PyG's, without their own links."""

import pytest
import torch

import lsm
from lsm import native
from lsm.links.negative_sampling import NegativeSampling, NodeDraws
from lsm.loader.link_seeds import LinkEdges, LinkSeeds
from support.link_graphs import (
    CITES,
    NUM_NODES,
    REV_WRITES,
    WRITES,
    link_stores,
    pairs_of,
    plain_graph,
)
from support.pyg_links import Replayed, assert_same_links, pyg_batch

NUM_LINKS = 32


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return link_stores(tmp_path_factory.mktemp("links"))


def links_of(store, edge_type):
    """Some edges of the graph, and pairs that are none."""
    own = pairs_of(store, edge_type)[:, ::7]
    high = torch.tensor(
        [[store.edges(edge_type).num_sources], [store.edges(edge_type).num_destinations]]
    )
    draw = torch.Generator().manual_seed(9)
    others = (torch.rand(2, NUM_LINKS, generator=draw) * high).long()
    return torch.cat((own, others), 1)


def replayed(batch, sampling):
    """The negatives of our batch, for PyG."""
    links = batch.links
    source_type, _, destination_type = links.edge_type
    ids = batch.n_id_dict
    source = ids.get(source_type, batch.n_id)
    destination = ids.get(destination_type, batch.n_id)
    mode, amount = sampling
    if mode == "binary":
        rows = links.edge_label_index[:, batch.batch_size :]
        return Replayed(mode, amount, [source[rows[0]]], [destination[rows[1]]])
    negative = links.dst_neg_index.view(batch.batch_size, -1)
    flat = negative.t() if batch.batch is not None else negative
    return Replayed(mode, amount, dst=[destination[flat.reshape(-1)]])


SAMPLING = [None, ("binary", 1), ("binary", 0.3), ("binary", 2.5), ("triplet", 1), ("triplet", 4)]


@pytest.mark.parametrize(
    ("sampling", "labels"),
    [
        *((each, None) for each in SAMPLING),
        (None, "float"),
        (("binary", 1), "float"),
        (("binary", 0.3), "classes"),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["shared", "disjoint", "times"])
@pytest.mark.parametrize(
    ("kind", "edge_type"), [("plain", None), ("typed", CITES), ("typed", WRITES)]
)
def test_a_batch_has_the_fields_of_pyg(stores, kind, edge_type, form, sampling, labels):
    store = stores[kind]
    links = links_of(store, edge_type)
    options = {"disjoint": form == "disjoint"}
    given = {}
    draw = torch.Generator().manual_seed(3)
    if form == "times":
        options["time_attr"] = "time"
        given["edge_label_time"] = torch.randint(50, (links.size(1),), generator=draw)
    if labels is not None:
        kinds = {
            "float": torch.rand(links.size(1), generator=draw),
            "classes": torch.arange(links.size(1)) % 4,
        }
        given["edge_label"] = kinds[labels]
    loader = lsm.LinkNeighborLoader(
        store,
        [-1, 3],
        links if edge_type is None else (edge_type, links),
        neg_sampling=sampling,
        exclude_seed_edges=False,
        batch_size=16,
        **given,
        **options,
    )
    their_links = links if edge_type is None else (edge_type, links)
    with loader:
        batch = next(iter(loader))
    negatives = None if sampling is None else replayed(batch, sampling)
    theirs = pyg_batch(store, [-1, -1], their_links, negatives, batch.input_id, **given, **options)
    with lsm.LinkNeighborLoader(
        store,
        [-1, -1],
        their_links,
        neg_sampling=sampling,
        exclude_seed_edges=False,
        batch_size=16,
        as_pyg=True,
        **given,
        **options,
    ) as loader:
        ours = next(iter(loader))
    assert_same_links(ours, theirs, 1 if sampling is None else sampling[1])


@pytest.mark.parametrize("amount", [None, 0.3, 1, 2.5])
@pytest.mark.parametrize(
    ("kind", "edge_type"), [("plain", None), ("typed", CITES), ("typed", WRITES)]
)
def test_both_ends_of_a_link_have_its_number_in_batch(stores, kind, edge_type, amount):
    store = stores[kind]
    with lsm.LinkNeighborLoader(
        store,
        [4],
        edge_type,
        neg_sampling_ratio=amount,
        batch_size=16,
        shuffle=True,
        disjoint=True,
    ) as loader:
        batch = next(iter(loader))
    links = batch.links
    source_type, _, destination_type = links.edge_type
    numbers = {"node": batch.batch} if batch.types is None else batch.types.nodes(batch.batch)
    source, destination = links.edge_label_index
    expected = torch.arange(len(source)) % 16  # of links, then of negatives
    assert torch.equal(numbers[source_type][source], expected)
    assert torch.equal(numbers[destination_type][destination], expected)
    for each, (sources, destinations) in batch.edge_index_dict.items():
        assert torch.equal(numbers[each[0]][sources], numbers[each[2]][destinations])


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize(
    ("kind", "edge_type"), [("plain", None), ("typed", CITES), ("typed", WRITES)]
)
def test_no_batch_samples_its_own_links(stores, kind, edge_type, disjoint):
    """By brute force over all edges of all batches, those in the other direction too."""
    store = stores[kind]
    num_links = num_met = 0
    with lsm.LinkNeighborLoader(
        store,
        [-1, 6],
        edge_type,
        neg_sampling="binary",
        batch_size=24,
        shuffle=True,
        disjoint=disjoint,
    ) as loader:
        for batch in loader:
            own = batch.links
            ids = batch.n_id_dict
            source_type, _, destination_type = own.edge_type
            source = ids[source_type][own.sources[: batch.batch_size]]
            destination = ids[destination_type][own.destinations[: batch.batch_size]]
            pairs = set(zip(source.tolist(), destination.tolist(), strict=True))
            reverses = {pair[::-1] for pair in pairs}
            num_links += batch.batch_size
            for each, edge_index in batch.edge_index_dict.items():
                found = set(
                    zip(
                        ids[each[0]][edge_index[0]].tolist(),
                        ids[each[2]][edge_index[1]].tolist(),
                        strict=True,
                    )
                )
                num_met += len(found)
                if each == own.edge_type:
                    assert not found & pairs
                    if source_type == destination_type:
                        assert not found & reverses
                elif (each[2], each[0]) == (source_type, destination_type):
                    assert not found & reverses
                whole = pairs_of(store, each if store.is_typed else None)
                ends = torch.stack((ids[each[0]][edge_index[0]], ids[each[2]][edge_index[1]]))
                assert torch.equal(whole[:, batch.e_id_dict[each]], ends)
    assert num_links == store.edges(edge_type).num_edges
    assert num_met > num_links


@pytest.mark.parametrize("cache", [None, {"policy": "lookahead", "bytes": "8KiB", "window": 3}])
@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_no_batch_has_an_edge_of_validation_or_test(stores, tmp_path, kind, cache):
    """Rows are the store's, whatever the cache, and e_id is that of the store."""
    store = stores[kind]
    edge_type = None if kind == "plain" else WRITES
    splits = lsm.LinkSplits.make(
        store, tmp_path / "s", edge_type=edge_type, valid=0.2, test=0.2, order="random"
    )
    held = torch.cat([splits.edges(name) for name in ("valid", "test")], 1)
    pairs = set(zip(*held.tolist(), strict=True))
    with lsm.LinkNeighborLoader(
        store,
        [4, 4],
        "train",
        links=splits.path,
        neg_sampling=("triplet", 2),
        batch_size=32,
        cache=cache,
    ) as loader:
        for batch in loader:
            ids = batch.n_id_dict
            for name, rows in batch.x_dict.items():
                stored = store.to_pyg() if kind == "plain" else store.to_pyg()[name]
                assert torch.equal(rows, stored.x[ids[name]])
            for each, edge_index in batch.edge_index_dict.items():
                ends = torch.stack((ids[each[0]][edge_index[0]], ids[each[2]][edge_index[1]]))
                whole = pairs_of(store, each if store.is_typed else None)
                assert torch.equal(whole[:, batch.e_id_dict[each]], ends)
                if each in (EDGES := {splits.edge_type: ends, REV_WRITES: ends.flip(0)}):
                    found = set(zip(*EDGES[each].tolist(), strict=True))
                    assert not found & pairs
                    if kind == "plain":
                        assert not found & {pair[::-1] for pair in pairs}


def test_ranks_share_the_links_and_batches_repeat(stores):
    store = stores["plain"]
    seen = []
    for rank in range(3):
        options = {"rank": rank, "world_size": 3, "batch_size": 8, "shuffle": True}
        with lsm.LinkNeighborLoader(store, [2], neg_sampling="binary", **options) as loader:
            once, again = list(loader.iterate(1)), list(loader.iterate(1, start_iteration=2))
        for one, other in zip(once[2:], again, strict=True):
            assert torch.equal(one.n_id, other.n_id)
            assert torch.equal(one.links.edge_label_index, other.links.edge_label_index)
        seen += [batch.input_id for batch in once]
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(500))


@pytest.mark.parametrize("kind", ["joint", "resident"])
def test_a_batch_reads_its_own_links_only(kind):
    """Of more links than any memory holds, in the order of a file: source, destination. Nor is
    there a list of the links of the group that resident negatives are drawn from."""
    ends = torch.tensor([[3, 5]]).expand(2**42, 2).t()
    seeds = LinkSeeds(
        LinkEdges(CITES, ends),
        NegativeSampling("triplet", 4, kind=kind, iterations=2**36),
        (None, NodeDraws(10)),
        8,
        is_disjoint=False,
        excluded_types={CITES: False},
        shuffle=False,
        drop_last=False,
        seed=0,
        rank=0,
        world_size=1,
    )
    batch = seeds.epoch(0)(2**38)
    assert batch.seeds["paper"][batch.links.sources].tolist() == [3] * 8
    assert batch.seeds["paper"][batch.links.destinations].tolist() == [5] * 8


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("iterations", [1, 3, 4, 50])
@pytest.mark.parametrize("shuffle", [False, True])
def test_resident_negatives_are_drawn_from_a_list_of_their_group(shuffle, iterations, world_size):
    """With a short last iteration, by the generator of the batch."""
    ends = torch.stack((torch.arange(100), torch.arange(1000, 1100)))
    amount = 30
    for rank in range(world_size):
        seeds = LinkSeeds(
            LinkEdges(WRITES, ends),
            NegativeSampling("triplet", amount, kind="resident", iterations=iterations),
            (None, NodeDraws(2000)),
            7 if world_size == 1 else 3,
            is_disjoint=False,
            excluded_types={},
            shuffle=shuffle,
            drop_last=False,
            seed=5,
            rank=rank,
            world_size=world_size,
        )
        draw = seeds.epoch(2)
        links = [draw(each).input_id for each in range(seeds.num_iterations)]
        size = min(iterations, len(links))
        for iteration, own in enumerate(links):
            first = min(iteration // size * size, len(links) - size)
            group = torch.cat(links[first : first + size])
            key = native.batch_key(5 ^ 0x9E3779B97F4A7C15, 2, iteration, rank)
            generator = torch.Generator().manual_seed(key)
            for batch in (draw(iteration), draw(iteration).first(len(own) - 1)):
                if not len(batch.input_id):
                    continue
                places = torch.randint(len(group), (amount,), generator=generator.manual_seed(key))
                drawn = batch.seeds[WRITES[2]][batch.links.dst_neg_index]
                assert torch.equal(drawn, ends[1, group[places]])


def draws_of(store, sampling, **options):
    """Ids of the negatives' destinations of an epoch, and its batches."""
    found, batches = [], []
    with lsm.LinkNeighborLoader(
        store, [1], neg_sampling=sampling, batch_size=50, **options
    ) as loader:
        for _ in range(4):
            for batch in loader:
                batches.append(batch)
                if batch.links.dst_neg_index is not None:
                    found.append(batch.n_id[batch.links.dst_neg_index].reshape(-1))
    return torch.cat(found) if found else None, batches


def test_negatives_are_drawn_as_their_kind_says(stores):
    store = stores["plain"]
    weight = torch.zeros(NUM_NODES)
    weight[[3, 8]] = torch.tensor([1.0, 3.0])
    drawn, _ = draws_of(store, {"mode": "triplet", "amount": 5, "dst_weight": weight})
    counts = torch.bincount(drawn, minlength=NUM_NODES)
    assert counts.nonzero().view(-1).tolist() == [3, 8]
    assert counts[8] / counts.sum() == pytest.approx(0.75, abs=0.02)
    drawn, _ = draws_of(store, {"mode": "triplet", "amount": 3, "nodes": torch.arange(10, 14)})
    assert drawn.unique().tolist() == [10, 11, 12, 13]
    joint = {"mode": "triplet", "amount": 7, "kind": "joint"}
    drawn, _ = draws_of(store, joint | {"nodes": torch.arange(10, 14), "dst_weight": weight + 1})
    assert drawn.unique().tolist() == [10, 11, 12, 13]
    degrees = torch.bincount(pairs_of(store)[1], minlength=NUM_NODES).float()
    drawn, _ = draws_of(store, {"mode": "triplet", "amount": 20, "kind": "degree"})
    counts = torch.bincount(drawn, minlength=NUM_NODES).float()
    assert torch.corrcoef(torch.stack((counts, degrees)))[0, 1] > 0.99
    drawn, batches = draws_of(store, joint)
    assert all(batch.links.dst_neg_index.shape == (7,) for batch in batches)
    assert all(batch.links.is_shared for batch in batches)
    assert len(drawn.unique()) > 40
    drawn, batches = draws_of(store, {"mode": "triplet", "kind": "inbatch"})
    assert drawn is None
    assert all(batch.num_sampled_nodes[0] <= 100 for batch in batches)
    candidates = torch.randint(NUM_NODES, (500, 3))
    given = {"mode": "triplet", "kind": "given", "candidates": candidates}
    drawn, batches = draws_of(store, given, shuffle=True)
    for batch in batches:
        assert torch.equal(batch.n_id[batch.links.dst_neg_index], candidates[batch.input_id])
    shared = torch.tensor([9, 4, 9, 30, 7])
    _, batches = draws_of(store, given | {"candidates": shared})
    for batch in batches:
        assert torch.equal(batch.n_id[batch.links.dst_neg_index], shared)
        assert batch.links.is_shared


@pytest.mark.parametrize(
    ("kind", "edge_type"), [("plain", None), ("typed", CITES), ("typed", WRITES)]
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_resident_negatives_are_destinations_of_their_group(stores, kind, edge_type, shuffle):
    """Of 10 iterations in groups of 4: 0 to 3, 4 to 7, and 6 to 9. Each rank has its own."""
    store = stores[kind]
    pairs = pairs_of(store, edge_type)[:, :240]
    sampling = {"mode": "triplet", "amount": 400, "kind": "resident", "iterations": 4}
    for rank in (0, 1):
        with lsm.LinkNeighborLoader(
            *(store, [2], pairs if edge_type is None else (edge_type, pairs)),
            neg_sampling=sampling,
            batch_size=12,
            shuffle=shuffle,
            rank=rank,
            world_size=2,
        ) as loader:
            batches = list(loader.iterate(3))
            later = list(loader.iterate(3, start_iteration=7))
        assert len(batches) == 10
        for iteration, batch in enumerate(batches):
            first = {0: 0, 1: 4, 2: 6}[iteration // 4]
            group = torch.cat([each.input_id for each in batches[first : first + 4]])
            ids = batch.n_id_dict.get(batch.links.edge_type[2], batch.n_id)
            drawn = ids[batch.links.dst_neg_index]
            assert drawn.shape == (400,)
            assert batch.links.is_shared
            ends = torch.bincount(pairs[1, group], minlength=NUM_NODES).double()
            counts = torch.bincount(drawn, minlength=NUM_NODES).double()
            used = ends > 0
            assert not counts[~used].any()
            expected = 400 * ends[used] / ends.sum()
            statistic = ((counts[used] - expected) ** 2 / expected).sum()
            freedom = int(used.sum()) - 1
            assert statistic < freedom + 6 * (2 * freedom) ** 0.5
        for batch, again in zip(batches[7:], later, strict=True):
            assert torch.equal(
                batch.n_id_dict[batch.links.edge_type[2]], again.n_id_dict[again.links.edge_type[2]]
            )
            assert torch.equal(batch.links.dst_neg_index, again.links.dst_neg_index)


def test_resident_negatives_need_no_row_that_their_group_does_not(stores):
    """With all neighbours, a group requests the same nodes as with the negatives of its batches."""
    found = {}
    for kind in ("inbatch", "resident", "joint"):
        sampling = {"mode": "triplet", "amount": 30, "kind": kind, "iterations": 4}
        with lsm.LinkNeighborLoader(
            *(stores["plain"], [-1], pairs_of(stores["plain"])[:, :48]),
            neg_sampling=sampling,
            exclude_seed_edges=False,
            batch_size=4,
            shuffle=True,
        ) as loader:
            batches = list(loader.iterate(0))
        found[kind] = [
            set(torch.cat([batch.n_id for batch in batches[first : first + 4]]).tolist())
            for first in (0, 4, 8)
        ]
    assert found["resident"] == found["inbatch"]
    assert found["joint"] != found["inbatch"]


@pytest.mark.parametrize("batch_size", [100, 499])
def test_no_negative_is_later_than_its_link(tmp_path, batch_size):
    """As PyG has it, with times of nodes; also of one link alone."""
    data = plain_graph()
    data.time = torch.arange(NUM_NODES)
    del data.edge_time
    store = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    times = torch.arange(500) % 55 + 3
    with lsm.LinkNeighborLoader(
        store,
        [2],
        pairs_of(store),
        edge_label_time=times,
        time_attr="time",
        neg_sampling=("triplet", 3),
        batch_size=batch_size,
    ) as loader:
        for batch in loader:
            negatives = batch.n_id[batch.links.dst_neg_index]
            assert (data.time[negatives] <= times[batch.input_id, None]).all()


def test_times_of_a_split_are_of_its_own_links_alone(tmp_path):
    store = lsm.GraphStore.from_pyg(plain_graph(), tmp_path / "g")
    splits = lsm.LinkSplits.make(store, tmp_path / "links")
    times = {"links": splits, "time_attr": "time"}
    with lsm.LinkNeighborLoader(store, [2], "train", **times) as loader:
        batch = next(iter(loader))
    assert torch.equal(batch.links.edge_label_time, splits.times("train")[: batch.batch_size])
    pairs = splits.edges("train").flip(1)
    with pytest.raises(ValueError, match="expected a time for each link"):
        lsm.LinkNeighborLoader(store, [2], pairs, **times)
